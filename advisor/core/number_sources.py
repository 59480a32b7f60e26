"""Where a number of a finding comes from: the three kinds that rules give to their metrics, and SELECTs they share.

- `Sql`: one SELECT that gives the number as its only column (one row). `Sql(("used",), "SELECT avg(engine_active) FROM
  used")` names the blocks (advisor/provenance/row_queries.py) that it stands on; names in braces (`{now}`, `{gpus}`)
  are those that `provenance.subject.Subject.values` makes into SQL.
- `Outside`: a number that telemetry does not hold: of the catalog, of a price file, or reckoned from those.
- `Reckoned`: a number that no SELECT can honestly give (shares by label, a model of power).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sql:
    """One SELECT of one row and one column, on `blocks` (advisor/provenance/row_queries.py) and judged rows."""

    blocks: tuple[str, ...]
    select: str


@dataclass(frozen=True, slots=True)
class Outside:
    """A number that telemetry does not hold: `where` says where it stands, and how it is reckoned from there."""

    where: str


@dataclass(frozen=True, slots=True)
class Reckoned:
    """A number that no SELECT gives: `formula` says how it is reckoned from what `rows` selects on `blocks`."""

    formula: str
    blocks: tuple[str, ...]
    rows: str


NumberSource = Sql | Outside | Reckoned


def percentile_of(table: str, column: str, share: float) -> str:
    """A SELECT of the percentile of a column, linear between its neighbours; NULL where there is nothing."""
    at = f"{share!r} * (n - 1)"
    return (
        f"SELECT sum(x * CASE place - CAST({at} AS INTEGER) WHEN 0 THEN 1 - ({at} - CAST({at} AS INTEGER))\n"
        f"    WHEN 1 THEN {at} - CAST({at} AS INTEGER) END)\n"
        f"FROM (SELECT x, n, row_number() OVER (ORDER BY x) - 1 AS place\n"
        f"    FROM (SELECT {column} AS x, count(*) OVER () AS n FROM {table} WHERE {column} IS NOT NULL))"
    )


def in_bins(table: str, share: float, pick: str = "max") -> str:
    """A SELECT of the upper edge of the bin in which a share of seconds is reached, over what the GPU sustains.

    `pick` (max, min): of the workloads of `table` (columns workload_id, slot, seconds, sustained), which.
    """
    return (
        f"SELECT {pick}(x) FROM (SELECT min(high) / max(sustained) AS x\n"
        f"    FROM (SELECT s.workload_id, e.high, s.sustained,\n"
        f"            sum(s.seconds) OVER (PARTITION BY s.workload_id ORDER BY s.slot) AS so_far,\n"
        f"            sum(s.seconds) OVER (PARTITION BY s.workload_id) AS in_all\n"
        f"        FROM {table} s JOIN bin_edges e ON e.slot = s.slot)\n"
        f"    WHERE so_far >= {share!r} * in_all - 1e-9 AND in_all > 0 GROUP BY workload_id)"
    )


def weighted(column: str, pick: str = "max") -> str:
    """A SELECT of a column's mean over the observed seconds of each workload that holds GPUs now; `pick` of them."""
    return (
        f"SELECT {pick}(x) FROM (SELECT sum({column} * seconds) / sum(CASE WHEN {column} IS NOT NULL THEN seconds END)"
        " AS x FROM used WHERE now GROUP BY workload_id)"
    )


def of_spare_gpus(column: str) -> str:
    """A SELECT of the mean over a finding's GPUs of each one's mean over the time that nobody held it."""
    known = f"sum(CASE WHEN {column} IS NOT NULL THEN seconds * part END)"
    mean = f"sum({column} * seconds * part) / {known}"
    return f"SELECT avg(x) FROM (SELECT {mean} AS x FROM spare GROUP BY node, gpu_uuid)"


def by_labels(what: str) -> Reckoned:
    """A number of the labels that the judge gave to rows: `what` it is of them."""
    formula = (
        "each row has the label (bottleneck) of the first matching question of rules/bottlenecks.yaml, "
        "or another label that follows from the kind of work (docs/method.md). The number is "
        f"{what}"
    )
    return Reckoned(
        formula, ("used",),
        "SELECT workload_id, node, gpu_uuid, ts, seconds, bottleneck, fault, engine_active, sm_active, sm_occupancy,"
        " tensor_sustained, hbm_sustained, nvlink_sustained, network_sustained, pcie_sustained, clock_ratio, throttled"
        " FROM used WHERE now ORDER BY workload_id, node, gpu_uuid, ts",
    )  # fmt: skip


def reached(what: str, share: float) -> str:
    """Use of compute (``tensor``) or memory (``hbm``) that a share of seconds does not exceed: by bins, else by rows;
    on the blocks ``{what}_seconds`` and ``used``."""
    rows = percentile_of("used", f"{what}_sustained", share)
    return f"SELECT coalesce(({in_bins(f'{what}_seconds', share)}), ({rows}))"


SPARE_POWER_OVER_IDLE = f"SELECT ({of_spare_gpus('power_watts')}) / ({of_spare_gpus('idle_power_watts')})"
GPU_HOURS = Sql(("used",), "SELECT sum(seconds * part) / 3600 FROM used")
GPU_COUNT = Sql((), "SELECT count(DISTINCT node || ' ' || gpu_uuid) FROM uses WHERE workload_id IN ({now})")
HOURS_OBSERVED = Sql(("used",), f"SELECT sum(seconds * part) / 3600 / ({GPU_COUNT.select}) FROM used")
NODE_HOURS = Sql(("nodehours",), "SELECT min(hours) FROM nodehours")
