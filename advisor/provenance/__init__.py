"""The queries behind the numbers of findings: ``skuwise explain SOURCE ID --query``.

`judged_rows` writes what the advice judged to a SQLite file, and every metric of a finding's evidence is a SELECT on
it: `metric_sources` says which, by rule and metric.

- `Sql`: one SELECT that gives the number as its only column (one row). `Sql(("used",), "SELECT avg(engine_active) FROM
  used")` names the blocks (`row_queries`) that it stands on; what a block needs itself is added. Names in braces
  (`{now}`, `{gpus}`) are those that `Subject.values` makes into SQL. `source_kinds` has the SELECTs that many need:
  `percentile`, `in_bins`, `weighted`.
- `Outside`: a number that telemetry does not hold: of the catalog, of a price file, or reckoned from those. It says
  from which.
- `Reckoned`: a number that no SELECT can honestly give (shares by label, a model of power). It says how it is
  reckoned in words, and which rows it starts from.

To add a rule: add its id and metrics to `RULES` in `metric_sources`. The blocks most rules need are there: `used` (a
row for each workload, GPU and interval), `spare` (the same for a finding's GPUs while nobody held them), `fabrics` and
`nodehours` (a row a node). A rule or a metric without an entry fails tests/unit/test_queries.py, and
tests/functional/test_explain_queries.py runs every query of simulated fleets and compares its number. Rules of one's
own need nothing: they are made of features, whose sources stand in `features`.
"""
