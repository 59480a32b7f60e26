"""What inference engines told of themselves to the server, row by row, and within whose work each of them runs.

A series names its pod, as service discovery and operators label targets; where it names none, its instance is the
address of a pod that kube-state-metrics knows. A row counts for whoever held GPUs as that pod at the time: series that
outlive their pod, and pods without GPUs (gateways, routers), count for nobody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .....agent.sources.scrape.serving import ENGINES
from .....agent.store.reading import queries as store
from ..client.range_planner import Ask
from ..client.response import Floats, Grid, Labels, SeriesAnswer
from ..promql import promql as queries
from ..promql.engine_series import ENGINE_SERIES, REQUESTS
from ..promql.labels import host_of
from .engine_latency import LATENCY_COLUMNS, latency_counts, latency_row
from .kube import PODS_A_QUERY

Ranges = Callable[[Sequence[Ask], int], Mapping[str, SeriesAnswer]]
Instants = Callable[[Sequence[str], Sequence[str]], Sequence[SeriesAnswer]]
COLUMNS = (*store.SERVING.columns, "requests")
_POD = ("exported_pod", "pod")
_WHERE = ("cluster", "exported_namespace", "namespace", *_POD, "instance")
# Parts of an engine that count for themselves; what differs in other labels (ranks) repeats the same numbers.
_PARTS = ("engine", "model_name", "model", "version", "dp_rank")
_ADDRESS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9a-fA-F:]{2,39}", re.ASCII)
_MOST_TOKENS = 1e15  # beyond lies no count
# Where an amount of a row goes: what the frame keeps of it.
_AMOUNTS = {
    "prompt_tokens_per_second": "prompt_tokens",
    "generation_tokens_per_second": "generated_tokens",
    "preemptions_per_second": "preemptions",
}
_LEVELS = {"requests_running": "running", "requests_waiting": "waiting"}


@dataclass(frozen=True, slots=True)
class _Target:
    """A page of metrics as its series name it; `pods`: (cluster, namespace, pod) that it may be. `latency`: by measure,
    what its histograms counted in each row, by bin."""

    engine: str
    pods: tuple[tuple[str, str, str], ...]
    rows: Mapping[str, Floats]
    latency: Mapping[str, Floats]


def read_engines(
    ranges: Ranges, instants: Instants, names: Iterable[str], matches: Sequence[str], grid: Grid, *,
    uses: pd.DataFrame, series: int,
) -> tuple[pd.DataFrame, pd.DataFrame]:  # fmt: skip
    """The frame's tables `serving` and `tokens`. `uses`: who held GPUs when, with ``namespace`` and ``pod``; `series`:
    how many are expected of a measure. Empty where no engine is scraped or no pod holds GPUs."""
    rows = engine_rows(ranges, instants, names, matches, grid, uses=uses, series=series)
    return _summed(rows), _by_hour(rows)


def engine_rows(
    ranges: Ranges, instants: Instants, names: Iterable[str], matches: Sequence[str], grid: Grid, *,
    uses: pd.DataFrame, series: int, with_latency: bool = True,
) -> list[dict[str, object]]:  # fmt: skip
    """Row by row what engines had to do: ``node, workload_id, engine, ts`` and the amounts of `read_engines`.
    `with_latency`: whether rows of how long requests waited are among them."""
    names = frozenset(names)
    known = ENGINE_SERIES.intersection(names)
    if not known or uses.empty or "pod" not in uses:
        return []
    answers = ranges(list(_asks(known, matches, grid.step)), series)
    pages = _pages(answers)
    latency = (
        latency_counts(ranges, known, matches, grid.step, where=_WHERE, parts=_PARTS, series=series)
        if with_latency
        else {}
    )
    both = dict.fromkeys((*pages, *latency))
    places = _places(instants, names, matches, [key for _, key in both], grid) if both else {}
    held = _held(uses)
    rows: list[dict[str, object]] = []
    for engine, key in both:
        target = _Target(engine, _pods(key, places), pages.get((engine, key), {}), latency.get((engine, key), {}))
        rows += _rows(target, held, grid)
    return rows


def _asks(known: frozenset[str], matches: Sequence[str], step: float) -> Iterator[Ask]:
    window, by, parts = queries.row_range(step), ", ".join(_WHERE), ", ".join((*_WHERE, *_PARTS))
    for engine in ENGINES:
        for metric, picks in engine.gauges.items():
            pick = next((one for one in picks if one.name in known), None)
            if pick is None:
                continue
            # SGLang tells the whole with an empty priority and each priority again.
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


def _pages(answers: Mapping[str, SeriesAnswer]) -> dict[tuple[str, tuple[str, ...]], dict[str, Floats]]:
    """Engine and labels of each page -> its measures by row."""
    found: dict[tuple[str, tuple[str, ...]], dict[str, Floats]] = {}
    for name, answer in answers.items():
        engine, _, measure = name.partition(" ")
        for labels, values in zip(answer.labels, answer.values, strict=True):
            key = tuple(labels.get(label, "") for label in _WHERE)
            with np.errstate(invalid="ignore"):
                possible = (values >= 0) & (values <= _MOST_TOKENS)
            found.setdefault((engine, key), {})[measure] = np.where(possible, values, np.nan)
    return found


def _places(
    instants: Instants, names: Iterable[str], matches: Sequence[str], keys: Iterable[tuple[str, ...]], grid: Grid
) -> dict[str, list[tuple[str, str, str]]]:
    """Address -> pods that had it within the window, for pages whose series name no pod. A pod on its host's network
    has the address of whatever else runs there, and is not told from it."""
    nameless = [dict(zip(_WHERE, key, strict=True)) for key in keys]
    asked = {host_of(one["instance"]) for one in nameless if not any(one[name] for name in _POD)}
    addresses = sorted(one for one in asked if _ADDRESS.fullmatch(one))
    if not addresses or "kube_pod_info" not in names:
        return {}
    seconds = grid.end - grid.start + grid.step
    kept = ("cluster", "exported_namespace", "namespace", *_POD, "pod_ip", "host_network")
    wanted = []
    for first in range(0, len(addresses), PODS_A_QUERY):
        pattern = "|".join(one.replace(".", "[.]") for one in addresses[first : first + PODS_A_QUERY])
        chosen = queries.selector(matches, f'pod_ip=~"{pattern}"')
        wanted.append(f"group by ({', '.join(kept)}) (last_over_time(kube_pod_info{chosen}[{seconds:.0f}s]))")
    found: dict[str, list[tuple[str, str, str]]] = {}
    for answer in instants(wanted, kept):
        for labels in answer.labels:
            if labels.get("host_network") != "true":
                found.setdefault(labels.get("pod_ip", ""), []).append(_pod(labels))
    return found


def _pods(key: tuple[str, ...], places: Mapping[str, list[tuple[str, str, str]]]) -> tuple[tuple[str, str, str], ...]:
    labels: dict[str, str] = dict(zip(_WHERE, key, strict=True))
    named = _pod(labels)
    return (named,) if named[2] else tuple(places.get(host_of(labels["instance"]), ()))


def _pod(labels: Labels) -> tuple[str, str, str]:
    """Cluster, namespace and pod. Where a pod is named by ``exported_pod``, the bare label is the page's own."""
    if labels.get("exported_pod"):
        namespace = labels.get("exported_namespace") or labels.get("namespace", "")
        return labels.get("cluster", ""), namespace, labels["exported_pod"]
    return labels.get("cluster", ""), labels.get("namespace", ""), labels.get("pod", "")


@dataclass(frozen=True, slots=True)
class _Use:
    cluster: str
    namespace: str
    workload: str
    node: str
    start: float
    end: float


def _held(uses: pd.DataFrame) -> dict[str, list[_Use]]:
    """Pod -> what it held, when."""
    found: dict[str, list[_Use]] = {}
    kept = uses[uses["pod"].notna()]
    cluster = kept["cluster"] if "cluster" in kept else pd.Series("", kept.index)
    columns = (kept["pod"], cluster.fillna(""), kept["namespace"].fillna(""), kept["workload_id"], kept["node"])
    spans = kept["ts_start"].astype(float), kept["ts_end"].astype(float)
    for pod, own, namespace, workload, node, start, end in zip(*columns, *spans, strict=True):
        found.setdefault(str(pod), []).append(_Use(str(own), str(namespace), str(workload), str(node), start, end))
    return found


def _rows(target: _Target, held: Mapping[str, Sequence[_Use]], grid: Grid) -> Iterator[dict[str, object]]:
    uses = [
        use for cluster, namespace, pod in target.pods for use in held.get(pod, ())
        if namespace in ("", use.namespace) and (not cluster or use.cluster in ("", cluster))
    ]  # fmt: skip
    if not uses:
        return
    told = np.any(
        [~np.isnan(values) for values in target.rows.values()]
        + [~np.isnan(values[:, 0]) for values in target.latency.values()],
        axis=0,
    )
    for n in np.nonzero(told)[0].tolist():
        end = grid.start + n * grid.step
        use = _holder(uses, end - grid.step, end)
        if use is not None:
            seconds = min(use.end, end) - max(use.start, end - grid.step)
            whose = {"node": use.node, "workload_id": use.workload, "engine": target.engine, "ts": end}
            if target.rows:
                yield {**whose, **_values(target, n, seconds)}
            waited = latency_row(target.latency, n, end)
            if waited is not None:
                yield {**whose, **waited}


def _holder(uses: Sequence[_Use], begin: float, end: float) -> _Use | None:
    """Who had the pod's name, or its address, for the most of a row; None: nobody, or several work side by side."""
    common: dict[str, tuple[float, _Use]] = {}
    for use in uses:
        seconds = min(use.end, end) - max(use.start, begin)
        if seconds > common.get(use.workload, (0.0, use))[0]:
            common[use.workload] = seconds, use
    if not common:
        return None
    best = max(common.values(), key=lambda one: one[0])
    together = sum(seconds for seconds, _ in common.values())
    return best[1] if together <= 1.05 * (end - begin) or len(common) == 1 else None


def _values(target: _Target, n: int, seconds: float) -> dict[str, float]:
    def at(measure: str) -> float:
        values = target.rows.get(measure)
        return float("nan") if values is None else float(values[n])

    usage = at("kv_cache_usage")
    found = {
        # A usage far above 1 is a percentage or nonsense: neither is known, so neither is kept.
        "kv_percent": float(int(100 * min(usage, 1.0))) if usage <= 1.001 else float("nan"),
        "samples": 1.0, "seconds": seconds, "requests": at("requests"),
    }  # fmt: skip
    found |= {kept: at(metric) for metric, kept in _AMOUNTS.items()}
    for metric, kept in _LEVELS.items():
        found |= {f"{kept}_seconds": at(f"{metric} avg") * seconds, f"{kept}_max": at(f"{metric} max")}
    return found


def _summed(rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """A row for each percent of KV cache in use, as the agent's databases give them; those of latency as they are."""
    if not rows:
        return pd.DataFrame(columns=list(COLUMNS))
    every = pd.DataFrame(rows).reindex(columns=list(COLUMNS))
    table, waited = every[every["latency_ts"].isna()], every[every["latency_ts"].notna()]
    if table.empty:
        return waited.reset_index(drop=True)
    by = ["node", "workload_id", "engine", "kv_percent"]
    grouped = table.groupby(by, dropna=False, sort=True)
    sums = grouped[[name for name in COLUMNS if name not in (*by, *LATENCY_COLUMNS)]].sum(min_count=1)
    for name in ("running_max", "waiting_max"):
        sums[name] = grouped[name].max()
    summed = sums.reset_index().reindex(columns=list(COLUMNS))
    return summed if waited.empty else pd.concat([summed, waited], ignore_index=True)


def _by_hour(rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """Tokens and the queue by the row's end, as the agent's databases give them by the hour."""
    names = ["generated_tokens", "running_seconds", "waiting_seconds"]
    told = pd.DataFrame(rows, columns=[*store.TOKENS.text, "ts", "seconds", *names])
    told = told[told["generated_tokens"].notna() | told["running_seconds"].notna()]
    seconds = told["seconds"].astype(float)
    told = told.assign(
        seconds=seconds.where(told["generated_tokens"].notna(), 0.0),
        queue_seconds=seconds.where(told["running_seconds"].notna(), 0.0),
    )
    grouped = told.groupby([*store.TOKENS.text, "ts"], sort=True)
    sums = grouped[["seconds", "queue_seconds"]].sum().join(grouped[names].sum(min_count=1))
    return sums.reset_index()[list(store.TOKENS.columns)]
