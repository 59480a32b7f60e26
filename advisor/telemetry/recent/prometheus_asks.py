"""How a reading of the last hours asks what a frame asks: fewer measures, and ranges that a scrape can fill."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import replace

from ..prometheus.client.range_planner import Ask
from ..prometheus.promql.promql import is_plain_id, row_range

# Parts of names of measures that the watch has no use for.
_NOT_NEEDED = (
    "_p95", "squared", "product", "duty", "period", "idle_run", "energy", "occupancy", "fp64", "fp32", "fp16",
    "mem_clock", "xmit_wait", "temperature", "throttled", "correlation", "mem_used_bytes_max", "tensor_active_max",
    "dram_active_max", "tensor_seconds", "traffic_bytes", "util_mean", "util_n", "kv_cache", "preemptions", "prompt",
    "disk_read_bytes_per_second_max", "disk_write_bytes_per_second_max", "tx_max", "rx_max",
)  # fmt: skip
_NEEDED = ("gpu_util_mean",)
# Histograms' buckets, by which a frame tells percentiles.
_BUCKETS = frozenset({"gpu_util", "sm_active", "tensor_active", "dram_active", "nvlink", "fabric util"})
_ONLY_FINE = ("pcie_", "nvlink_", "sm_clock")
# A row needs a sample whatever the scrapes' jitter, and a rate two.
_SCRAPES_A_ROW, _SCRAPES_A_RATE = 2.5, 4.0
# A subquery every five minutes, within a row of one, sees nothing.
_SPARSE = ":5m]"
_FABRIC = ("fabric", "ethernet")
# More ids make a query that costs more than it saves.
_MOST_UUIDS = 250
_GPU_SERIES = re.compile(
    r"\b(?P<name>DCGM_FI_\w+|skuwise_(?:gpu|workload_gpu)_\w+|skuwise_gpu_info)(?P<open>\{)?", re.ASCII
)
_USUAL_SCRAPE = 30.0


def fine_asks(step: float, scrape_seconds: float | None) -> Callable[[Ask], Ask | None]:
    """What becomes of an ask of a row of `step` seconds: as it is, with a longer range, or left out."""
    scrape = scrape_seconds or _USUAL_SCRAPE
    row = row_range(step)
    gauge = row_range(max(step, math.ceil(_SCRAPES_A_ROW * scrape)))
    rate = row_range(max(step, math.ceil(_SCRAPES_A_RATE * scrape)))

    def shaped(ask: Ask) -> Ask | None:
        if not _is_needed(ask.name) or _SPARSE in ask.query:
            return None
        is_rate = "rate(" in ask.query or "increase(" in ask.query
        return replace(ask, query=ask.query.replace(row, rate if is_rate else gauge))

    return shaped


def coarse_asks(uuids: Collection[str], *, fabric: bool) -> Callable[[Ask], Ask | None]:
    """What becomes of an ask of the hours before: of these GPUs alone, where their ids are few and plain. `fabric`:
    whether ports are asked for."""
    only = "|".join(sorted(uuids)) if len(uuids) <= _MOST_UUIDS and all(map(is_plain_id, uuids)) else ""

    def shaped(ask: Ask) -> Ask | None:
        if not _is_needed(ask.name) or ask.name.startswith(_ONLY_FINE) or (ask.name.startswith(_FABRIC) and not fabric):
            return None
        return replace(ask, query=_of_gpus(ask.query, only)) if only else ask

    return shaped


def _of_gpus(query: str, uuids: str) -> str:
    """A query of GPUs with a matcher for some of them in each of its selectors."""

    def chosen(match: re.Match[str]) -> str:
        label = "UUID" if match["name"].startswith("DCGM") else "gpu_uuid"
        own = f'{label}=~"{uuids}"'
        return f"{match['name']}{{{own}," if match["open"] else f"{match['name']}{{{own}}}"

    return _GPU_SERIES.sub(chosen, query)


def _is_needed(name: str) -> bool:
    return name in _NEEDED or (name not in _BUCKETS and not any(part in name for part in _NOT_NEEDED))
