"""The queries behind the numbers of findings: ``skuwise explain SOURCE ID --query``.

Every metric of a finding's evidence comes from somewhere, and `registry.py` says where, by rule and metric:

- `Sql`: one SELECT on the public views that gives the number as its only column (one row). `Sql(("used",), "SELECT
  avg(g) FROM used")` names the blocks (``sql/*.sql``, read by `blocks.py`) that it stands on; what a block needs itself
  is added. Names in braces (`{now}`, `{gpus}`) are those that `Subject.values` makes into SQL. `sources.py` has the
  SELECTs that many need: `percentile`, `in_bins`, `weighted`.
- `Outside`: a number that telemetry does not hold: of the catalog, of a price file, or reckoned from those. It says
  from which.
- `Reckoned`: a number that no SELECT can honestly give (a label of the judge, a model of power). It says how it is
  reckoned in words, and which rows it starts from.

To add a rule: add its id and metrics to `RULES` in `registry.py`. The blocks most rules need are there: `used` (a row
for each workload, GPU and interval with what it used of each resource), `spare` (the same for a finding's GPUs while
nobody held them), `fabrics` and `nodehours` (a row a node). A rule or a metric without an entry fails
tests/unit/test_queries.py, and tests/functional/test_explain_queries.py runs every query of simulated fleets and
compares its number. Rules of one's own need nothing: they are made of features, whose sources stand in `features.py`.

SQL here runs on SQLite 3.26 and newer: window functions (3.25) yes, FILTER on plain aggregates, IIF, math functions,
NULLS LAST and MATERIALIZED no. `json_each` (JSON1) is compiled in by default in Debian, Ubuntu and EL builds, and in
Python's own; the views hold bins as JSON.
"""
