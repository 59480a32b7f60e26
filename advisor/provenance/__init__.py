"""The queries behind the numbers of findings: ``skuwise explain SOURCE ID --query``.

Every metric of a finding's evidence comes from somewhere. The description of its rule (advisor/moves/waste) says where
by metric, in the forms of `core.number_sources`; rules of one's own are made of features, whose sources stand in
`features.py`. The blocks that queries stand on are in `sql_blocks.py`: `used` (a row for each workload, GPU and
interval with what it used of each resource), `spare` (the same for a finding's GPUs while nobody held them), `fabrics`
and `nodehours` (a row a node). A metric without a source fails tests/unit/test_queries.py, and
tests/functional/test_explain_queries.py runs every query of simulated fleets and compares its number.

SQL here runs on SQLite 3.26 and newer: window functions (3.25) yes, FILTER on plain aggregates, IIF, math functions,
NULLS LAST and MATERIALIZED no. `json_each` (JSON1) is compiled in by default in Debian, Ubuntu and EL builds, and in
Python's own; the views hold bins as JSON.
"""
