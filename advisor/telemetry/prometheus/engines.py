"""What inference engines report of themselves to the server, row by row, and the workload that each is part of.

A row counts for the workload that held GPUs at the time as the pod that a series names; pods without GPUs for none.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from ....agent.sources.serving import ENGINES, edge_of
from ....agent.statistics.latency_bins import bucket_shares, can_tell, encode
from .. import queries as store
from . import promql as queries
from .client.range_planner import Ask
from .client.response import Floats, Grid, Labels
from .owners import Ranges
from .promql import label_of

ENGINE_SERIES = frozenset(
    name.split("/")[0] + part
    for engine in ENGINES
    for named, part in ((engine.gauges | engine.rates, ""), (engine.histograms, "_bucket"))
    for names in named.values()
    for name in names
)
_PAGE = ("cluster", "exported_namespace", "namespace", "exported_pod", "pod", "instance")  # names a page of metrics
# Parts of an engine that count for themselves; what differs in other labels (ranks) repeats the same numbers.
_PARTS = (*_PAGE, "engine", "model_name", "model", "version", "dp_rank", "finished_reason")
_MAX_COUNT = 1e15
_BUCKETS = 30  # of a histogram, to estimate the size of an answer
# `increase` extrapolates each bucket by itself: counts may fall by so much of the whole from one edge to the next.
_SLACK = 0.05
_OVERLAP = 1.05  # two workloads of one pod's name in a row follow one another, but for so much of the row
_AMOUNTS = {
    "prompt_tokens_per_second": "prompt_tokens",
    "generation_tokens_per_second": "generated_tokens",
    "preemptions_per_second": "preemptions",
    "requests_per_second": "requests",
}
_LEVELS = {"requests_running": "running", "requests_waiting": "waiting"}
_Page = tuple[str, ...]


def read_engines(
    ranges: Ranges, names: Collection[str], matches: Sequence[str], grid: Grid, *, uses: pd.DataFrame, series: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frame's tables `serving` and `tokens`; rows of `serving` with `latency_ts` have the latencies alone. `uses`:
    who held GPUs when, with ``namespace`` and ``pod``; `series`: how many are expected of a measure."""
    tables = [pd.DataFrame(columns=["ts", *store.SERVING.columns])]
    if ENGINE_SERIES.intersection(names) and not uses.empty:
        pods = uses[uses["pod"].notna()].fillna({"namespace": "", "cluster": ""}).sort_values("ts_start")
        by_pod = {str(pod): rows for pod, rows in pods.groupby("pod")}
        pages: dict[_Page, dict[str, Floats]] = {}
        histograms: dict[_Page, dict[str, dict[float, Floats]]] = {}
        asks = list(_asks(names, matches, grid.step))
        of_buckets = [ask for ask in asks if ask.name.endswith("buckets")]
        answers = dict(ranges([ask for ask in asks if ask not in of_buckets], series))
        answers |= ranges(of_buckets, _BUCKETS * series) if of_buckets else {}
        for name, answer in answers.items():
            engine, measure = name.split(" ", 1)
            for labels, values in zip(answer.labels, answer.values, strict=True):
                page = engine, *(labels.get(label, "") for label in _PAGE)
                with np.errstate(invalid="ignore"):
                    possible = np.where((values >= 0) & (values <= _MAX_COUNT), values, np.nan)
                if not measure.endswith(" buckets"):
                    pages.setdefault(page, {})[measure] = possible
                elif (edge := edge_of(labels.get("le", ""))) is not None:
                    buckets = histograms.setdefault(page, {}).setdefault(measure.removesuffix(" buckets"), {})
                    buckets[edge] = possible
        for page in dict.fromkeys((*pages, *histograms)):
            holders = _holders(dict(zip(_PAGE, page[1:], strict=True)), by_pod, grid)
            if len(holders):
                gauges = _values(pages.get(page, {}), holders), _latency_rows(histograms.get(page, {}), holders)
                tables += [table.assign(engine=page[0]) for table in gauges if len(table)]
    rows = pd.concat(tables[1:] or tables, ignore_index=True).reindex(columns=tables[0].columns)
    has_tokens, has_queue = rows["generated_tokens"].notna(), rows["running_seconds"].notna()
    seconds = rows["seconds"].astype(float)
    tokens = rows.assign(seconds=seconds.where(has_tokens, 0.0), queue_seconds=seconds.where(has_queue, 0.0))
    return rows.drop(columns="ts"), tokens.loc[has_tokens | has_queue, [*store.TOKENS.columns]].reset_index(drop=True)


def _asks(present: Collection[str], matches: Sequence[str], step: float) -> Iterator[Ask]:
    """Levels, the growth of counters and of every bucket over each row, by the first name that the server has."""
    window, by, parts = queries.row_range(step), ", ".join(_PAGE), ", ".join(_PARTS)
    for engine in ENGINES:
        for metric, names in engine.gauges.items():
            name, *some = next((spelling.split("/") for spelling in names if spelling.split("/")[0] in present), ("",))
            if not name:
                continue
            # SGLang reports the whole with an empty priority, and each priority again.
            label = f'{some[0]}="{some[1]}"' if some else 'priority=""'
            each = f"{name}{queries.selector(matches, label)}{window}"
            if metric == "kv_cache_usage":
                yield Ask(f"{engine.name} {metric}", f"max by ({by}) (avg_over_time({each}))", _PAGE)
                continue
            # Triton counts a request of an ensemble once for each model that it waits for.
            over = "max" if engine.name == "triton" else "sum"
            for how in ("avg", "max"):
                query = f"{over} by ({by}) (max by ({parts}) ({how}_over_time({each})))"
                yield Ask(f"{engine.name} {metric} {how}", query, _PAGE)
        buckets = {f"{measure} buckets": [f"{name}_bucket" for name in of] for measure, of in engine.histograms.items()}
        for metric, named in {**engine.rates, **buckets}.items():
            name = next((candidate for candidate in named if candidate in present), None)
            if name is not None:
                kept = (*_PAGE, "le") if metric in buckets else _PAGE
                each = f"increase({name}{queries.selector(matches)}{window})"
                query = f"sum by ({', '.join(kept)}) (max by ({', '.join((*_PARTS, *kept[len(_PAGE) :]))}) ({each}))"
                yield Ask(f"{engine.name} {metric}", query, kept)


def _holders(labels: Labels, by_pod: Mapping[str, pd.DataFrame], grid: Grid) -> pd.DataFrame:
    """``node, workload_id, ts, seconds`` of the rows (index: their number) in which one workload held GPUs as the pod
    that a page names, not several side by side. A cluster or namespace that is not named is any."""
    uses = by_pod.get(label_of(labels, "pod"), pd.DataFrame(columns=["namespace", "node", "workload_id"]))
    namespace, cluster = label_of(labels, "namespace"), labels.get("cluster")
    uses = uses[uses["namespace"].eq(namespace) | (not namespace)]
    uses = uses[uses["cluster"].isin(("", cluster)) | (not cluster)] if "cluster" in uses else uses
    if uses.empty:
        return uses
    ends = grid.start + np.arange(grid.count) * grid.step
    start, end = (uses[name].to_numpy(float)[:, None] for name in ("ts_start", "ts_end"))
    common = np.clip(np.minimum(end, ends) - np.maximum(start, ends - grid.step), 0.0, None)
    longest = pd.DataFrame(common).groupby(uses["workload_id"].to_numpy(object)).max()
    one_after_other = (longest.sum() <= _OVERLAP * grid.step) | ((longest > 0).sum() == 1)
    best = uses[["node", "workload_id"]].iloc[common.argmax(axis=0)].reset_index(drop=True)
    table = best.assign(ts=ends, seconds=common.max(axis=0))
    return table[(table["seconds"] > 0) & one_after_other]


def _values(page: Mapping[str, Floats], holders: pd.DataFrame) -> pd.DataFrame:
    columns = ["kv_cache_usage", *_AMOUNTS, *(f"{level} {how}" for level in _LEVELS for how in ("avg", "max"))]
    held = {name: values[holders.index] for name, values in page.items()}
    measures = pd.DataFrame(held, holders.index).reindex(columns=columns).dropna(how="all")
    holder, usage = holders.loc[measures.index], measures["kv_cache_usage"]
    # A usage far above 1 is a percentage or nonsense.
    percent = np.floor(100 * usage.clip(upper=1.0)).where(usage <= 1.001)
    amounts = {column: measures[measure] for measure, column in _AMOUNTS.items()}
    for level, column in _LEVELS.items():
        amounts[f"{column}_seconds"] = measures[f"{level} avg"] * holder["seconds"]
        amounts[f"{column}_max"] = measures[f"{level} max"]
    return holder.assign(kv_percent=percent, samples=1.0, **amounts)


def _binned(buckets: Mapping[float, Floats]) -> Floats:
    """Counts by row and bin of cumulative counts by upper edge; NaN: missing."""
    edges = sorted(buckets)
    up_to = np.stack([buckets[edge] for edge in edges])
    rising = np.maximum.accumulate(up_to, axis=0)
    with np.errstate(invalid="ignore"):
        is_sound = (rising[-1] > 0) & ((rising - up_to).max(axis=0) <= _SLACK * rising[-1])
    counts = np.diff(rising, axis=0, prepend=0.0).T @ np.array(bucket_shares(edges))
    return np.where(is_sound[:, None], counts, np.nan)


def _latency_rows(histograms: Mapping[str, Mapping[float, Floats]], holders: pd.DataFrame) -> pd.DataFrame:
    table = holders.assign(latency_ts=holders["ts"], samples=0.0, seconds=0.0)
    readable = {f"{measure}_bins": up_to for measure, up_to in histograms.items() if can_tell(sorted(up_to))}
    for name, up_to in readable.items():
        texts = [None if np.isnan(row[0]) else encode(row) for row in _binned(up_to)[holders.index]]
        table[name] = pd.Series(texts, table.index, dtype=object)
    return table.dropna(subset=[*readable], how="all") if readable else pd.DataFrame()
