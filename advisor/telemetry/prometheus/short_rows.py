"""Rows shorter than an hour: fewer measures, over ranges that a scrape can fill, up to the newest whole minute."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import pandas as pd

from ....agent.store.reading import queries as store
from ...core.frame import Window
from ..resolution import MINUTE, concat
from .client.client import Client
from .client.range_planner import Ask
from .client.response import Grid
from .discovery import SHORT_STEP_SECONDS, Discovery
from .promql import promql as queries
from .questions import Questions

# Parts of the names of measures that only verdicts over days use: percentiles, rhythms, energy, latencies.
_NOT_NEEDED = (
    "_p95", "duty", "period", "idle_run", "energy", "occupancy", "fp64", "fp32", "fp16",
    "mem_clock", "xmit_wait", "temperature", "correlation", "_cv", "mem_used_bytes_max", "tensor_active_max",
    "dram_active_max", "fabric util", "kv_cache", "preemptions", "prompt",
    "buckets", "disk_read_bytes_per_second_max", "disk_write_bytes_per_second_max", "tx_max", "rx_max",
)  # fmt: skip
# What a workload usually does on its links and at which clock is in the rows of minutes.
_ONLY_OF_MINUTES = ("pcie_", "nvlink_", "sm_clock", "throttled")
# The agent's histograms, by which a frame has percentiles.
_BUCKETS = frozenset({"gpu_util", "sm_active", "tensor_active", "dram_active", "nvlink"})
# A row needs a sample whatever the scrapes' jitter, and a rate two.
_SCRAPES_A_ROW, _SCRAPES_A_RATE = 2.5, 4.0
_USUAL_SCRAPE_SECONDS = 30.0
# A subquery with this step finds nothing within a row of a minute.
_SPARSE = f":{queries.WITHIN}]"
# A query with more ids costs more than it saves.
_MOST_UUIDS = 250
_GPU_SERIES = re.compile(r"\b(DCGM_FI_\w+|skuwise_(?:gpu|workload_gpu)_\w+)(\{?)", re.ASCII)
# The newest minute is whole once so many of the series have a sample in it: not all are scraped at once.
_FULL_SHARE = 0.9
_LOOK_BACK_SECONDS = 900.0
_KUBE_NODE = ("node", "exported_node")


def with_short_rows(
    client: Client, matches: tuple[str, ...], found: Discovery, *, since: float, until: float | None, now: float,
    step: float,
) -> Discovery:  # fmt: skip
    """What was found with rows of five minutes, with rows of `step` seconds up to `until` or to the newest minute that
    most GPUs have a sample in. Recording rules are of five minutes, so no shorter row is read from them."""
    end = math.floor(until / MINUTE) * MINUTE if until is not None else _newest_minute(client, matches, found, now)
    window = Window(math.floor(round((end - since) / step, 6)) * step, math.floor(end / step) * step)
    return replace(found, window=window, step=step, ruled=found.ruled if step >= queries.RULE_SECONDS else frozenset())


def _newest_minute(client: Client, matches: tuple[str, ...], found: Discovery, now: float) -> float:
    anchors = [name for name in (queries.AGENT_ANCHOR, *queries.anchors_of(found.names)) if name in found.names]
    newest = math.floor(min(now, found.window.end + SHORT_STEP_SECONDS) / MINUTE) * MINUTE
    grid = Grid(newest - _LOOK_BACK_SECONDS, newest, MINUTE)
    seconds = max(MINUTE, 1.5 * (found.scrape_seconds or 0.0))
    best = grid.start
    for name in anchors[:2]:
        query = f"count(count_over_time({name}{queries.selector(matches)}[{seconds:.0f}s]))"
        values = client.range(query, grid, ()).values
        counts = np.nan_to_num(values[0]) if len(values) else np.zeros(grid.count)
        if counts.max() > 0:
            full = np.flatnonzero(counts >= _FULL_SHARE * counts.max())
            best = max(best, grid.start + float(full[-1]) * MINUTE)
    return best if best > grid.start else found.window.end


def short_asks(step: float, scrape_seconds: float | None, gpus: Collection[str] = ()) -> Callable[[Ask], Ask | None]:
    """What an ask becomes for rows of `step` seconds: with a range that a scrape can fill, or None, left out. `gpus`:
    ids of those that are asked for (none: of all), where they are few and plain."""
    scrape = scrape_seconds or _USUAL_SCRAPE_SECONDS
    row = queries.row_range(step)
    gauge, rate = (
        queries.row_range(max(step, math.ceil(count * scrape))) for count in (_SCRAPES_A_ROW, _SCRAPES_A_RATE)
    )
    is_some = len(gpus) <= _MOST_UUIDS and all(map(queries.is_plain_id, gpus))
    uuids = "|".join(sorted(gpus)) if is_some else ""

    def shaped(ask: Ask) -> Ask | None:
        if ask.name in _BUCKETS or any(part in ask.name for part in _NOT_NEEDED):
            return None
        query = ask.query
        if step >= queries.RULE_SECONDS and ask.name.startswith(_ONLY_OF_MINUTES):
            return None
        if step < queries.RULE_SECONDS:
            if _SPARSE in query:
                return None
            query = query.replace(row, rate if "rate(" in query or "increase(" in query else gauge)
        return replace(ask, query=_of_gpus(query, uuids) if uuids else query)

    return shaped


def _of_gpus(query: str, uuids: str) -> str:
    """A query of GPUs with a matcher for some of them in each of its selectors."""

    def chosen(match: re.Match[str]) -> str:
        label = "UUID" if match[1].startswith("DCGM") else "gpu_uuid"
        return f'{match[1]}{{{label}=~"{uuids}"{"," if match[2] else "}"}'

    return _GPU_SERIES.sub(chosen, query)


def drained_nodes(asked: Questions, known: Collection[str]) -> pd.DataFrame:
    """Absences of the nodes of `known` on which Kubernetes schedules nothing at the window's end, or which it listed
    within the window and no longer lists."""
    chosen, window = queries.selector(asked.matches), asked.found.window
    asking = {
        "kube_node_spec_unschedulable": [f"kube_node_spec_unschedulable{chosen} == 1"],
        "kube_node_info": [f"last_over_time(kube_node_info{chosen}[{window.seconds:.0f}s])", f"kube_node_info{chosen}"],
    }
    told = {name: [_nodes(asked, one) for one in some] for name, some in asking.items() if name in asked.found.names}
    (drained,) = told.get("kube_node_spec_unschedulable", [set()])
    before, now = told.get("kube_node_info", [set(), set()])
    gone = drained | (before - now if now else set())
    rows = [
        {
            "node": node, "scope": "node", "metric": "*", "reason": "drained", "remedy": "",
            "detail": "Kubernetes schedules nothing on this node.", "since": window.start,
        }
        for node in sorted(known)
        if node.split(".")[0] in gone
    ]  # fmt: skip
    return concat([pd.DataFrame(rows)] if rows else [], store.ABSENCES.columns)


def _nodes(asked: Questions, query: str) -> set[str]:
    """The nodes that an answer names, without their domain."""
    labels = asked.instant(query, _KUBE_NODE).labels
    return {(one.get("exported_node") or one.get("node", "")).split(".")[0] for one in labels}
