"""What inference engines report of themselves to the server, row by row, and the workload that each is part of.

A series names its pod, as service discovery and operators label targets; where it names none, its instance is the
address of a pod that kube-state-metrics has. A row counts for the workload that held GPUs as that pod at the time:
series that outlive their pod, and pods without GPUs (gateways, routers), count for none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from .....agent.sources.scrape.serving import ENGINES
from .....agent.store.reading import queries as store
from ..client.range_planner import Ask
from ..client.response import Floats, Grid, Labels, SeriesAnswer
from ..promql import promql as queries
from ..promql.engine_series import ENGINE_SERIES, REQUESTS
from ..promql.labels import host_of
from .engine_latency import Page, latency_counts, latency_rows
from .kube import PODS_A_QUERY
from .owners import label_of

Ranges = Callable[[Sequence[Ask], int], Mapping[str, SeriesAnswer]]
Instants = Callable[[Sequence[str], Sequence[str]], Sequence[SeriesAnswer]]
COLUMNS = (*store.SERVING.columns, "requests")
_POD = ("exported_pod", "pod")
# Labels that name a page of metrics.
_WHERE = ("cluster", "exported_namespace", "namespace", *_POD, "instance")
# Parts of an engine that count for themselves; what differs in other labels (ranks) repeats the same numbers.
_PARTS = ("engine", "model_name", "model", "version", "dp_rank")
_ADDRESS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9a-fA-F:]{2,39}", re.ASCII)
_MAX_COUNT = 1e15
# Two workloads of one pod's name or address in a row follow one another, but for so much of the row.
_OVERLAP = 1.05
_AMOUNTS = {
    "prompt_tokens_per_second": "prompt_tokens",
    "generation_tokens_per_second": "generated_tokens",
    "preemptions_per_second": "preemptions",
    "requests": "requests",
}
_LEVELS = {"requests_running": "running", "requests_waiting": "waiting"}


def read_engines(
    ranges: Ranges, instants: Instants, names: Iterable[str], matches: Sequence[str], grid: Grid, *,
    uses: pd.DataFrame, series: int,
) -> tuple[pd.DataFrame, pd.DataFrame]:  # fmt: skip
    """The frame's tables `serving` and `tokens`. `uses`: who held GPUs when, with ``namespace`` and ``pod``; `series`:
    how many are expected of a measure. Empty where no engine is scraped or no pod holds GPUs."""
    rows = engine_rows(ranges, instants, names, matches, grid, uses=uses, series=series)
    has_tokens, has_queue = rows["generated_tokens"].notna(), rows["running_seconds"].notna()
    seconds = rows["seconds"].astype(float)
    tokens = rows.assign(seconds=seconds.where(has_tokens, 0.0), queue_seconds=seconds.where(has_queue, 0.0))
    return rows[[*COLUMNS]], tokens.loc[has_tokens | has_queue, [*store.TOKENS.columns]].reset_index(drop=True)


def engine_rows(
    ranges: Ranges, instants: Instants, names: Iterable[str], matches: Sequence[str], grid: Grid, *,
    uses: pd.DataFrame, series: int,
) -> pd.DataFrame:  # fmt: skip
    """``node, workload_id, engine, ts`` (a row's end) with the amounts of the table `serving` in that row; rows with
    `latency_ts` have the latencies alone."""
    names = frozenset(names)
    known = ENGINE_SERIES.intersection(names)
    empty = pd.DataFrame(columns=["ts", *COLUMNS])
    if not known or uses.empty or "pod" not in uses:
        return empty
    pages: dict[Page, dict[str, Floats]] = {}
    for name, answer in ranges(list(_asks(known, matches, grid.step)), series).items():
        engine, _, measure = name.partition(" ")
        for series_labels, values in zip(answer.labels, answer.values, strict=True):
            page = engine, tuple(series_labels.get(label, "") for label in _WHERE)
            with np.errstate(invalid="ignore"):
                possible = (values >= 0) & (values <= _MAX_COUNT)
            pages.setdefault(page, {})[measure] = np.where(possible, values, np.nan)
    latency = latency_counts(ranges, known, matches, grid.step, where=_WHERE, parts=_PARTS, series=series)
    keys = dict.fromkeys((*pages, *latency))
    pods_at = _pods_at(instants, names, matches, [key for _, key in keys], grid)
    pods = uses.assign(cluster=uses["cluster"].fillna("") if "cluster" in uses else "")
    pods = pods[pods["pod"].notna()].assign(namespace=pods["namespace"].fillna("")).sort_values("ts_start")
    by_pod = {str(pod): rows for pod, rows in pods.groupby("pod")}
    tables = [empty]
    for engine, key in keys:
        labels = dict[str, str](zip(_WHERE, key, strict=True))
        named = [_pod(labels)] if label_of(labels, "pod") else pods_at.get(host_of(labels["instance"]), [])
        holders = _holders([own for pod in named if (own := _uses_of(pod, by_pod)) is not None], grid)
        for found in (
            _values(pages.get((engine, key), {}), holders),
            latency_rows(latency.get((engine, key)), holders),
        ):
            if len(found):
                tables.append(found.assign(engine=engine))
    every = pd.concat([table for table in tables if len(table)] or [empty], ignore_index=True)
    return every.reindex(columns=empty.columns)


def _asks(known: frozenset[str], matches: Sequence[str], step: float) -> Iterator[Ask]:
    window, by, parts = queries.row_range(step), ", ".join(_WHERE), ", ".join((*_WHERE, *_PARTS))
    for engine in ENGINES:
        for metric, picks in engine.gauges.items():
            pick = next((one for one in picks if one.name in known), None)
            if pick is None:
                continue
            # SGLang reports the whole with an empty priority, and each priority again.
            own = (f'{pick.label}="{pick.value}"',) if pick.label else ('priority=""',)
            each = f"{pick.name}{queries.selector(matches, *own)}{window}"
            if metric == "kv_cache_usage":
                yield Ask(f"{engine.name} {metric}", f"max by ({by}) (avg_over_time({each}))", _WHERE)
                continue
            # Triton counts a request of an ensemble once for each model that it waits for.
            over = "max" if engine.name == "triton" else "sum"
            for how in ("avg", "max"):
                query = f"{over} by ({by}) (max by ({parts}) ({how}_over_time({each})))"
                yield Ask(f"{engine.name} {metric} {how}", query, _WHERE)
        for metric, picks in engine.rates.items():
            pick = next((one for one in picks if one.name in known), None)
            if pick is not None:
                each = f"increase({pick.name}{queries.selector(matches)}{window})"
                yield Ask(f"{engine.name} {metric}", f"sum by ({by}) (max by ({parts}) ({each}))", _WHERE)
        counter = REQUESTS[engine.name]
        if counter in known:
            each = f"increase({counter}{queries.selector(matches)}{window})"
            yield Ask(f"{engine.name} requests", f"sum by ({by}) ({each})", _WHERE)


def _pods_at(
    instants: Instants, names: Iterable[str], matches: Sequence[str], keys: Iterable[tuple[str, ...]], grid: Grid
) -> dict[str, list[tuple[str, str, str]]]:
    """Address -> pods that had it within the window, for pages whose series name no pod. A pod on its host's network
    shares the address with all else on that host and is left out."""
    pages: list[dict[str, str]] = [dict(zip(_WHERE, key, strict=True)) for key in keys]
    hosts = {host_of(labels["instance"]) for labels in pages if not label_of(labels, "pod")}
    addresses = sorted(host for host in hosts if _ADDRESS.fullmatch(host))
    if not addresses or "kube_pod_info" not in names:
        return {}
    kept = ("cluster", "exported_namespace", "namespace", *_POD, "pod_ip", "host_network")
    asked = []
    for first in range(0, len(addresses), PODS_A_QUERY):
        pattern = "|".join(one.replace(".", "[.]") for one in addresses[first : first + PODS_A_QUERY])
        chosen = queries.selector(matches, f'pod_ip=~"{pattern}"')
        seconds = grid.end - grid.start + grid.step
        asked.append(f"group by ({', '.join(kept)}) (last_over_time(kube_pod_info{chosen}[{seconds:.0f}s]))")
    found: dict[str, list[tuple[str, str, str]]] = {}
    for answer in instants(asked, kept):
        for labels in answer.labels:
            if labels.get("host_network") != "true":
                found.setdefault(labels.get("pod_ip", ""), []).append(_pod(labels))
    return found


def _pod(labels: Labels) -> tuple[str, str, str]:
    """Cluster, namespace and pod. Beside an ``exported_pod`` the bare labels are the target's own."""
    return labels.get("cluster", ""), label_of(labels, "namespace"), label_of(labels, "pod")


def _uses_of(pod: tuple[str, str, str], by_pod: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
    """The uses of GPUs by a pod; an empty cluster or namespace is any."""
    cluster, namespace, name = pod
    uses = by_pod.get(name)
    if uses is None:
        return None
    own = uses if not namespace else uses[uses["namespace"] == namespace]
    return own if not cluster else own[own["cluster"].isin(("", cluster))]


def _holders(uses: Sequence[pd.DataFrame], grid: Grid) -> pd.DataFrame:
    """``node, workload_id, ts, seconds`` of the rows (index: their number) in which one workload held GPUs as a pod:
    the one that did for most of the row. None of a row in which several did side by side."""
    every = pd.concat(uses) if uses else pd.DataFrame(columns=["ts_start", "ts_end", "workload_id", "node"])
    ends = grid.start + np.arange(grid.count) * grid.step
    start, end = (every[name].to_numpy(float)[:, None] for name in ("ts_start", "ts_end"))
    common = np.clip(np.minimum(end, ends) - np.maximum(start, ends - grid.step), 0.0, None)
    if not len(common):
        return pd.DataFrame(columns=["node", "workload_id", "ts", "seconds"])
    longest = pd.DataFrame(common).groupby(every["workload_id"].to_numpy(object)).max()
    one_after_other = (longest.sum() <= _OVERLAP * grid.step) | ((longest > 0).sum() == 1)
    best = common.argmax(axis=0)
    table = pd.DataFrame({
        "node": every["node"].to_numpy(object)[best], "workload_id": every["workload_id"].to_numpy(object)[best],
        "ts": ends, "seconds": common.max(axis=0),
    })  # fmt: skip
    return table[(table["seconds"] > 0) & one_after_other.to_numpy()]


def _values(page: Mapping[str, Floats], holders: pd.DataFrame) -> pd.DataFrame:
    """A page's rows that some workload held, as rows of the table `serving`."""
    if not page or holders.empty:
        return pd.DataFrame()
    measures = pd.DataFrame(dict(page)).loc[holders.index]
    own = holders[measures.notna().any(axis=1)]
    measures = measures.loc[own.index].reindex(
        columns=["kv_cache_usage", *_AMOUNTS, *(f"{level} {how}" for level in _LEVELS for how in ("avg", "max"))]
    )
    usage = measures["kv_cache_usage"]
    # A usage far above 1 is a percentage or nonsense.
    percent = np.floor(100 * usage.clip(upper=1.0)).where(usage <= 1.001)
    amounts = {column: measures[measure] for measure, column in _AMOUNTS.items()}
    for level, column in _LEVELS.items():
        amounts[f"{column}_seconds"] = measures[f"{level} avg"] * own["seconds"]
        amounts[f"{column}_max"] = measures[f"{level} max"]
    return own.assign(kv_percent=percent, samples=1.0, **amounts)
