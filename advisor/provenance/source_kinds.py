"""Where a number comes from: the three kinds that `metric_sources` gives to metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sql:
    """One SELECT of one row and one column, on `blocks` (`row_queries.BLOCKS`) and the tables of `judged_rows`."""

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


Source = Sql | Outside | Reckoned


def percentile(table: str, column: str, share: float) -> str:
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
