"""The queries behind the numbers of findings: ``skuwise explain SOURCE ID --query``.

`judged_rows` writes what the advice judged to a SQLite file, and every metric of a finding's evidence is a SELECT on
it. The description of its rule (advisor/moves/waste) says which, by metric, in the forms of `core.number_sources`;
rules of one's own are made of features, whose sources stand in `features`. The blocks that most rules need are in
`row_queries`: `used` (a row for each workload, GPU and interval), `spare` (the same for a finding's GPUs while nobody
held them), `fabrics` and `nodehours` (a row a node). A metric without a source fails
tests/unit/advisor/render/test_queries.py, and tests/integration/advisor/cli/test_explain_queries.py runs every query of
simulated fleets and compares its number.
"""
