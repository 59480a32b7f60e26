"""The named parts of a WITH clause that the SELECTs behind numbers stand on: of the tables of `judged_rows`, what a
finding is about. Names in braces are values of a `Subject`, or of `CONSTANTS`.

The SQL runs on SQLite 3.26 and newer: window functions (3.25) yes, FILTER on plain aggregates, IIF, math functions,
NULLS LAST and MATERIALIZED no. `json_each` (JSON1) is compiled in by default in Debian, Ubuntu and EL builds, and in
Python's own; the tables hold bins as JSON.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import Formatter

from ..moves.waste.held_idle import OBSERVED_MIN

# Newton's method for a cube root from at most a factor 1.8 below it: seven steps reach the last bit.
_ROOT_STEPS = 7


@dataclass(frozen=True, slots=True)
class Block:
    """One named SELECT of a WITH clause, after the blocks it `needs`. `why` stands above it as a comment."""

    why: str
    sql: str
    needs: tuple[str, ...] = ()


def _cube_root() -> str:
    """Of the sum of cubes of all uses of each row, as `moves.base.prediction.demand` has it."""
    engine = "CASE WHEN engine_active IS NULL THEN 1 ELSE min(max(engine_active, 0), 1) END"
    root = (
        "SELECT ts, seconds, c * c * c + m * m * m + n * n * n + i * i * i + p * p * p AS a, max(c, m, n, i, p) AS x\n"
        "FROM (SELECT ts, seconds, tensor_sustained AS c, hbm_sustained AS m,\n"
        f"        coalesce(nvlink_sustained, {{one_gpu}}, {engine}) AS n,\n"
        "        coalesce(network_sustained, CASE WHEN {one_node} AND NOT EXISTS (\n"
        f"            SELECT 1 FROM compute_ports WHERE node IN ({{finding_nodes}})) THEN 0 END, {engine}) AS i,\n"
        f"        coalesce(pcie_sustained, {engine}) AS p\n"
        "    FROM used WHERE tensor_sustained IS NOT NULL AND hbm_sustained IS NOT NULL AND seconds > 0)"
    )
    for _ in range(_ROOT_STEPS):
        # The OFFSET keeps SQLite from putting each step's x, three times, into the next.
        step = "SELECT ts, seconds, a, CASE WHEN x > 0 THEN (2 * x + a / (x * x)) / 3 ELSE 0 END AS x"
        root = f"{step}\nFROM ({root}\nLIMIT -1 OFFSET 0)"
    return root


def _p995(table: str, keys: str) -> str:
    """The upper edge of the bin in which 99.5 % of the seconds of each `keys` are reached."""
    return (
        f"SELECT {keys}, min(high) AS p995 FROM (\n"
        f"    SELECT {keys}, e.high, sum(s.seconds) OVER (PARTITION BY {keys} ORDER BY s.slot) AS so_far,\n"
        f"        sum(s.seconds) OVER (PARTITION BY {keys}) AS in_all\n"
        f"    FROM (SELECT {keys}, slot, sum(seconds) AS seconds FROM {table} GROUP BY {keys}, slot) s\n"
        "    JOIN bin_edges e ON e.slot = s.slot\n"
        ")\n"
        f"WHERE so_far >= 0.995 * in_all - 1e-9 AND in_all > 0\nGROUP BY {keys}"
    )


def _seconds_of(what: str, sustained: str) -> Block:
    return Block(
        f"seconds of {what} by bin, of each workload that holds GPUs now",
        f"SELECT u.workload_id, b.key AS slot, sum(b.value) AS seconds, max({sustained}) AS sustained\n"
        f"FROM shaped u, json_each(u.{what}_bins) b WHERE u.{what}_bins IS NOT NULL AND u.now\n"
        "GROUP BY u.workload_id, b.key",
        ("shaped",),
    )


_SLOT = "coalesce((SELECT max(slot) FROM bin_edges WHERE low <= {}), 0)"
_UNBINNED = "FROM compute_ports WHERE util_bins IS NULL AND util_max IS NOT NULL"
BLOCKS: Mapping[str, Block] = {
    "used": Block(
        "the rows of its workloads; now: of those that hold GPUs now, or last did",
        "SELECT r.*, w.workload_id, w.seconds, w.whole, w.shared, w.workload_id IN ({now}) AS now\n"
        "FROM workload_rows w JOIN judged_rows r ON r.row = w.row\n"
        "WHERE w.workload_id IN ({members})",
    ),
    "shaped": Block(
        "the rows that were wholly its own (those it shared only where there are no others)",
        "SELECT * FROM (SELECT *, max(whole AND NOT shared) OVER (PARTITION BY workload_id) AS any_own FROM used)\n"
        "WHERE whole AND (NOT shared OR NOT any_own)",
        ("used",),
    ),
    "tensor_seconds": _seconds_of("tensor", "u.tensor_share"),
    "hbm_seconds": _seconds_of("hbm", "u.hbm_share"),
    "sm_seconds": _seconds_of("sm", "1.0"),
    "nvlink_seconds": _seconds_of("nvlink", "1.0"),
    "trailing": Block(
        "GPU-hours after the last interval in which any GPU of a workload worked; 0 where a part was not observed",
        "SELECT workload_id, CASE WHEN last IS NULL OR seconds >= {observed_min} * (stop - last) * gpus\n"
        "    THEN hours ELSE 0 END AS hours\n"
        "FROM (\n"
        "    SELECT u.workload_id, l.ts AS last, max(u.ts) AS stop, count(DISTINCT u.gpu_uuid) AS gpus,\n"
        "        sum(CASE WHEN u.ts > coalesce(l.ts, 0) THEN u.seconds ELSE 0 END) AS seconds,\n"
        "        sum(CASE WHEN u.ts > coalesce(l.ts, 0) THEN u.seconds ELSE 0 END) / 3600\n"
        "            * sum(u.part * u.seconds) / sum(u.seconds) AS hours\n"
        "    FROM used u LEFT JOIN (\n"
        "        SELECT workload_id, max(ts) AS ts FROM used WHERE bottleneck <> 'idle' GROUP BY workload_id\n"
        "    ) l ON l.workload_id = u.workload_id\n"
        "    GROUP BY u.workload_id\n"
        ")",
        ("used",),
    ),
    "held_idle": Block(
        "GPU-hours for which each workload held an idle GPU",
        "SELECT t.holder AS workload_id, sum(t.seconds * r.part) / 3600 AS hours\n"
        "FROM gpu_time t JOIN judged_rows r ON r.row = t.row\n"
        "WHERE t.state = 'held' AND r.idle AND t.holder IN ({members})\n"
        "GROUP BY t.holder",
    ),
    "load": Block(
        "the load of each moment: the cube root of the sum of cubes of all uses, mean of its GPUs",
        f"SELECT ts, sum(seconds * min(x, 1)) / sum(seconds) AS load FROM (\n{_cube_root()}\n) GROUP BY ts",
        ("used",),
    ),
    "spare": Block(
        "the time in which no workload held these GPUs while in service; the rest of a sliced GPU is not counted",
        "SELECT r.*, t.seconds FROM judged_rows r JOIN gpu_time t ON t.row = r.row\n"
        "WHERE t.state = 'nobody' AND t.seconds > 0 AND (r.instance OR r.part >= 1)\n"
        "    AND r.node IN ({finding_nodes}) AND r.gpu_uuid IN (\n    {gpus}\n)",
    ),
    "nodehours": Block(
        "the observed hours of each node, over its GPUs",
        "SELECT r.node, n.gpu_count, sum(t.seconds) / 3600 / max(n.gpu_count, 1) AS hours\n"
        "FROM judged_rows r JOIN gpu_time t ON t.row = r.row JOIN judged_nodes n ON n.node = r.node\n"
        "WHERE NOT r.instance AND r.node IN ({finding_nodes}) GROUP BY r.node",
    ),
    "link_seconds": Block(
        "seconds of each GPU's NVLink by bin",
        "SELECT r.node, r.gpu_uuid, b.key AS slot, b.value AS seconds FROM judged_rows r, json_each(r.nvlink_bins) b\n"
        "WHERE r.nvlink_bins IS NOT NULL AND r.node IN ({finding_nodes})",
    ),
    "link_p995": Block(
        "the upper edge of the bin in which 99.5 % of a GPU's seconds are reached",
        _p995("link_seconds", "node, gpu_uuid"), ("link_seconds",),
    ),
    "port_seconds": Block(
        "seconds of each port by bin; a row without bins counts by its p95 and max",
        "SELECT f.node, f.port, b.key AS slot, b.value AS seconds FROM compute_ports f, json_each(f.util_bins) b\n"
        "WHERE f.util_bins IS NOT NULL\n"
        f"UNION ALL\nSELECT node, port, {_SLOT.format('util_max')}, 0.05 * observed_seconds\n{_UNBINNED}\n"
        f"UNION ALL\nSELECT node, port, {_SLOT.format('coalesce(util_p95, util_max)')}, 0.95 * observed_seconds\n"
        f"{_UNBINNED}",
    ),
    "port_p995": Block(
        "the upper edge of the bin in which 99.5 % of a port's seconds are reached",
        _p995("port_seconds", "node, port"), ("port_seconds",),
    ),
    "fabrics": Block(
        "the compute fabric of each node",
        "SELECT r.node, p.p995, r.highest, r.hours, r.ports FROM (\n"
        "    SELECT node, max(highest) AS highest, min(seconds) / 3600 AS hours, count(*) AS ports FROM (\n"
        "        SELECT node, port, max(util_max) AS highest,\n"
        "            sum(CASE WHEN util_mean IS NOT NULL THEN observed_seconds ELSE 0 END) AS seconds\n"
        "        FROM compute_ports WHERE node IN ({finding_nodes}) GROUP BY node, port\n"
        "    ) GROUP BY node\n"
        ") r JOIN (SELECT node, max(p995) AS p995 FROM port_p995 GROUP BY node) p ON p.node = r.node",
        ("port_p995",),
    ),
}  # fmt: skip
CONSTANTS: Mapping[str, str] = {"observed_min": repr(OBSERVED_MIN)}


def with_clause(names: Iterable[str], values: Mapping[str, str]) -> str:
    """``WITH ...`` of these blocks and all that they need, each after what it needs; empty for no blocks."""
    order: list[str] = []

    def place(name: str) -> None:
        if name not in order:
            for needed in BLOCKS[name].needs:
                place(needed)
            order.append(name)

    for name in names:
        place(name)
    parts = [f"-- {BLOCKS[name].why}\n{name} AS (\n{indent(filled_sql(BLOCKS[name].sql, values))}\n)" for name in order]
    return "WITH\n" + ",\n".join(parts) + "\n" if parts else ""


def indent(sql: str) -> str:
    """Its lines moved in; no literal holds a line's end (`literals.text`)."""
    return textwrap.indent(sql, "    ")


def filled_sql(sql: str, values: Mapping[str, str]) -> str:
    """`sql` with its names in braces replaced; what is put in is looked at no further."""
    every = {**CONSTANTS, **values}
    return "".join(literal + ("" if name is None else every[name]) for literal, name, _, _ in Formatter().parse(sql))
