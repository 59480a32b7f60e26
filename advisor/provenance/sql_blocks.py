"""The blocks that queries are made of: named parts of a WITH clause, each with the blocks it stands on.

They stand in ``sql/*.sql`` and say in SQL what the advisor does with telemetry: `telemetry/resolution.py` and, of
`verdicts`, `workloads/attribution.py`, `features/utilization.py`, `accounting/nodes.py` and `features/features.py`.
Names in braces are values of a `Subject`, or come from here. Two things they leave out: the newest minute, which the
advisor takes from samples before it is rolled up, and what is not believed for another reason than counters at zero
beside a busy engine (`verdicts/features/soundness.py`), with a GPU's own level at rest where it lies above the table's.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Formatter

from ...agent.metrics import BIN_EDGES
from ...rules.models.resting_power import load_resting_power
from ..telemetry.plausible import CLOCK_SHARE, TICK_MOST_SECONDS
from ..verdicts.features.resting_power import (
    FAULT_SECONDS_MIN,
    FREE_MEM_RATIO,
    OWN_OVER_TABLE_MAX,
    REST_MARGIN,
    REST_QUANTILE,
    REST_ROWS_MIN,
    SURE_MARGIN,
)
from ..verdicts.features.soundness import CONTRADICTS_MIN, ONE_WAY_MOST, TRACE
from ..verdicts.features.utilization import IDLE_POWER_SHARE, IDLE_POWER_SHARE_MAX, P95_REST
from ..verdicts.workloads.attribution import HANDOVER_SECONDS

_HEAD = re.compile(r"-- block (\w+)(?: needs ([\w ]+))?: (.+)\n")
_KEYS = ("node", "gpu_uuid", "ts", "interval_seconds", "observed_seconds")
_MEASURES = (
    "gpu_util_mean", "gpu_util_p95", "gpu_util_max", "sm_active_mean", "sm_active_p95", "sm_active_max",
    "sm_occupancy_mean", "tensor_active_mean", "tensor_active_max", "dram_active_mean", "dram_active_max",
    "sm_clock_hertz_mean", "mem_clock_hertz_mean", "mem_used_bytes_mean", "mem_used_bytes_max", "mem_total_bytes",
    "power_watts_mean", "nvlink_tx_bytes_per_second_mean", "nvlink_rx_bytes_per_second_mean",
    "pcie_tx_bytes_per_second_mean", "pcie_rx_bytes_per_second_mean", "duty", "throttled_fraction",
)  # fmt: skip
_PORT = (
    "node", "device", "port", "role", "ts", "interval_seconds", "observed_seconds", "util_mean", "util_max", "util_p95",
    "util_bins",
)  # fmt: skip
_BINS = ("sm_active_bins", "tensor_active_bins", "dram_active_bins", "nvlink_bins")
# What the blocks read of each public view.
VIEWS: Mapping[str, tuple[str, ...]] = {
    "nodes": ("node", "gpu_count", "first_seen", "last_seen"),
    "gpus": (
        "node", "gpu_uuid", "kind", "parent_uuid", "sku", "name", "power_limit_watts", "nvlink_bytes_per_second",
        "valid_from", "valid_to",
    ),
    "workload_gpus": ("workload_id", "node", "gpu_uuid", "ts_start", "ts_end", "shared"),
    "absences": ("node", "reason", "since", "until"),
    "gpu_hours": (*_KEYS, *_MEASURES, *_BINS),
    "gpu_minutes": (*_KEYS, *_MEASURES),
    "fabric_hours": _PORT,
    "fabric_minutes": _PORT[:-1],
}  # fmt: skip
# Newton's method for a cube root from at most a factor 1.8 below it: seven steps reach the last bit.
_ROOT_STEPS = 7


@dataclass(frozen=True, slots=True)
class Block:
    """One named SELECT of a WITH clause. `why` stands above it as a comment."""

    needs: tuple[str, ...]
    why: str
    sql: str


@cache
def blocks() -> Mapping[str, Block]:
    """Every block by name."""
    found: dict[str, Block] = {}
    for file in sorted(resources.files("skuwise.advisor.provenance").joinpath("sql").iterdir(), key=lambda f: f.name):
        _, *parts = _HEAD.split(file.read_text(encoding="utf-8"))
        for name, needs, why, sql in zip(*(parts[n::4] for n in range(4)), strict=True):
            found[name] = Block(tuple((needs or "").split()), why, sql.strip())
    return found


@cache
def constants() -> Mapping[str, str]:
    """The names in braces that are the same for every subject."""
    resting = load_resting_power()
    edges = zip(BIN_EDGES, (*BIN_EDGES[1:], 1.0), strict=True)
    root = (
        "SELECT ts, seconds, c * c * c + m * m * m + n * n * n + i * i * i + p * p * p AS a, max(c, m, n, i, p) AS x\n"
        "FROM (SELECT ts, seconds, coalesce(u_c, 0) AS c, coalesce(u_m, 0) AS m, coalesce(u_n, 0) AS n,"
        " coalesce(u_i, 0) AS i, coalesce(u_p, 0) AS p\n"
        "    FROM used WHERE (u_c IS NOT NULL OR u_m IS NOT NULL) AND seconds > 0)"
    )
    for _ in range(_ROOT_STEPS):
        # The OFFSET keeps SQLite from putting each step's x, three times, into the next.
        step = "SELECT ts, seconds, a, CASE WHEN x > 0 THEN (2 * x + a / (x * x)) / 3 ELSE 0 END AS x"
        root = f"{step}\nFROM ({root}\nLIMIT -1 OFFSET 0)"
    return {
        "gpu_columns": _listed((*_KEYS, *_MEASURES)),
        "fine_columns": _listed(f"f.{name}" for name in (*_KEYS, *_MEASURES)),
        "bin_columns": ", ".join(_BINS),
        "no_bins": ", ".join("NULL" for _ in _BINS),
        "edge_rows": ", ".join(f"({n}, {low!r}, {high!r})" for n, (low, high) in enumerate(edges)),
        "cube_root": root,
        "free_mem": repr(FREE_MEM_RATIO),
        "idle_share": repr(IDLE_POWER_SHARE),
        "idle_share_max": repr(IDLE_POWER_SHARE_MAX),
        "sound_columns": _listed(_unless_blind(name) for name in (*_KEYS, *_MEASURES)),
        "trace": repr(TRACE),
        "contradicts": repr(CONTRADICTS_MIN),
        "rest_margin": repr(REST_MARGIN),
        "sure_margin": repr(SURE_MARGIN),
        "one_way_most": repr(ONE_WAY_MOST),
        "observed_share": repr(1 + CLOCK_SHARE),
        "observed_more": repr(TICK_MOST_SECONDS),
        "p95_rest": repr(P95_REST),
        "own_max": repr(OWN_OVER_TABLE_MAX),
        "rest_quantile": repr(REST_QUANTILE),
        "rest_rows": repr(REST_ROWS_MIN),
        "fault_seconds": repr(FAULT_SECONDS_MIN),
        "rest_low_share": repr(resting.low_share),
        "rest_high_share": repr(resting.high_share),
        "handover": repr(HANDOVER_SECONDS),
    }


def _unless_blind(name: str) -> str:
    """A column, NULL where the profiler's counters are not believed."""
    profiled = name.startswith(("sm_active", "sm_occupancy", "tensor_active", "dram_active"))
    return f"CASE WHEN NOT blind THEN {name} END AS {name}" if profiled else name


def with_clause(names: Iterable[str], values: Mapping[str, str]) -> str:
    """``WITH ...`` of these blocks and all that they need, each after what it needs; empty for no blocks."""
    known, order = blocks(), []

    def place(name: str) -> None:
        if name not in order:
            for needed in known[name].needs:
                place(needed)
            order.append(name)

    for name in names:
        place(name)
    told = [f"-- {known[name].why}\n{name} AS (\n{indent(filled(known[name].sql, values))}\n)" for name in order]
    return "WITH\n" + ",\n".join(told) + "\n" if told else ""


def indent(sql: str) -> str:
    """Its lines moved in; no literal holds a line's end (`literals.text`)."""
    return textwrap.indent(sql, "    ")


def _listed(names: Iterable[str]) -> str:
    """Names with commas, on lines of an ordinary width."""
    return "\n    ".join(textwrap.wrap(", ".join(names), 110))


def filled(sql: str, values: Mapping[str, str]) -> str:
    """`sql` with its names in braces replaced; what is put in is looked at no further."""
    every = {**constants(), **values}
    return "".join(literal + ("" if name is None else every[name]) for literal, name, _, _ in Formatter().parse(sql))
