"""Each number of a finding or recommendation with the plain query that reads the series behind it: as a script whose
comments are the numbers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from ..core.advice_types import Advice, Evidence, Finding, Recommendation
from ..core.formatting import NONE
from .literals import promql_pattern, sql_list
from .series import ELSEWHERE, SERIES, Series

# The name of a series in an expression: what a selector or a range follows.
_NAME = re.compile(r"([A-Za-z_:][\w:]*)(?=[{\[])")


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers that are told together, and the nodes and GPUs whose series they are made of."""

    title: str
    evidence: tuple[Evidence, ...]
    nodes: tuple[str, ...]
    gpus: tuple[str, ...]


def numbers_of_finding(finding: Finding) -> Numbers:
    """Its evidence, then its GPU-hours and their cost."""
    told = {e.metric for e in finding.evidence}
    sums = (
        Evidence("gpu_hours", finding.gpu_hours, None, "GPU-hours"),
        Evidence("cost_usd", finding.cost_usd, None, "USD"),
    )
    evidence = (*finding.evidence, *(e for e in sums if e.metric not in told and e.value is not None))
    title = f"Finding {finding.id}, {finding.rule}: {finding.text}"
    return Numbers(title, evidence, finding.nodes, finding.gpus)


def numbers_of_recommendation(r: Recommendation, advice: Advice) -> Numbers:
    """What it predicts, of the workload it is about, else of its findings. An interval is told by its median."""
    known = (
        ("time_ratio", r.time_ratio.p50 if r.time_ratio else None, "ratio"),
        ("saving_usd_per_month", r.saving_usd_per_month.p50 if r.saving_usd_per_month else None, "USD"),
        ("freed_gpu_hours_per_month", r.freed_gpu_hours_per_month, "GPU-hours"),
        (
            "energy_saving_kwh_per_month",
            r.energy_saving_kwh_per_month.p50 if r.energy_saving_kwh_per_month else None,
            "kWh",
        ),
    )
    evidence = tuple(Evidence(name, value, None, unit) for name, value, unit in known if value is not None)
    about: Sequence[Finding] = [f for f in advice.findings if f.id in r.findings]
    places = [(w.nodes, w.gpus) for w in advice.workloads if w.id == r.workload] or [(f.nodes, f.gpus) for f in about]
    nodes, gpus = (tuple(dict.fromkeys(name for one in part for name in one)) for part in zip(*places, strict=True))
    return Numbers(f"Recommendation {r.id}, {r.action}: {r.text}", evidence, nodes, gpus)


def render_queries(advice: Advice, told: Sequence[Numbers], *, width: int = 100) -> str:
    """The script. Raises UsageError for a source that no query can read."""
    kind = str(advice.source.get("kind"))
    if kind == "sqlite":
        mark, files = "--", advice.source.get("databases")
        names = ", ".join(map(str, files)) if isinstance(files, list | tuple) else ""
        lines = [f"{mark} {clean(f'Each SELECT runs with sqlite3 -readonly on {names}')}"]
    elif kind == "prometheus":
        mark = "#"
        url = advice.source.get("url")
        lines = [f"{mark} {clean(f'Each query runs on {url}/api/v1/query')}"]
    else:
        raise UsageError(f"A source of kind {kind!r} has no series to query.", "Use --db or --prometheus.")

    def note(sentence: str) -> None:
        lines.extend(
            textwrap.wrap(
                clean(sentence), width, initial_indent=f"{mark} ", subsequent_indent=f"{mark} ",
                break_long_words=False, break_on_hyphens=False,
            )
        )  # fmt: skip

    for numbers in told:
        lines.append("")
        note(numbers.title)
        for one in numbers.evidence:
            series, value = SERIES.get(one.metric), NONE if one.value is None else one.value
            number = f"{one.metric} = {value} {one.unit}".rstrip()
            if series is None:
                note(f"{number}: from {ELSEWHERE.get(one.metric, 'no series')}")
                continue
            asked = _select(series, numbers, advice) if kind == "sqlite" else _selector(series, numbers, advice)
            note(number if asked else f"{number}: this server has no series of it")
            lines += [asked] if asked else []
    if not told:
        note("No finding: no number depends on telemetry alone.")
    return "\n".join(lines) + "\n"


def _select(series: Series, numbers: Numbers, advice: Advice) -> str:
    start, end = (repr(float(at)) for at in (advice.start, advice.end))
    keys = ["ts", "interval_seconds", "node"]
    where = [f"node IN ({sql_list(numbers.nodes)})"]
    if series.view in ("gpu_hours", "workload_gpus") and numbers.gpus:
        where.append(f"gpu_uuid IN ({sql_list(numbers.gpus)})")
    if series.view == "gpu_hours":
        keys.append("gpu_uuid")
    elif series.view == "fabric_hours":
        keys += ["device", "port"]
        where.append("role = 'compute'")
    elif series.view == "serving_samples":
        keys = ["ts", "node"]
    if series.view == "workload_gpus":
        keys = ["node", "gpu_uuid"]
        where += [f"(ts_end IS NULL OR ts_end > {start})", f"ts_start < {end}"]
    else:
        where += [f"ts > {start}", f"ts <= {end}"]
    return f"SELECT {', '.join((*keys, *series.columns))} FROM {series.view} WHERE {' AND '.join(where)};"


def _selector(series: Series, numbers: Numbers, advice: Advice) -> str | None:
    """The samples of the series that the columns were read from; None: this server has none of them."""
    asked = advice.source.get("asked")
    names = tuple(dict.fromkeys(_names(series, asked if isinstance(asked, Mapping) else {})))
    by_exporter = [[n for n in names if n.startswith("skuwise_")], [n for n in names if not n.startswith("skuwise_")]]
    matches = advice.source.get("match")
    given = [str(one) for one in matches] if isinstance(matches, list | tuple) else []
    found = []
    for own in filter(None, by_exporter):
        head = own[0] if len(own) == 1 else ""
        named = [] if head else [f"__name__=~{promql_pattern(own)}"]
        labels = ",".join((*named, *_places(own[0], numbers), *given))
        found.append(f"{head}{{{labels}}}[{advice.end - advice.start:.0f}s] @ {advice.end:.0f}")
    return "\n".join(found) or None


def _names(series: Series, asked: Mapping[str, Iterable[str]]) -> Iterable[str]:
    """Names of the server's series, by the expressions that were asked for each column."""
    for column in series.columns:
        stem = column.removesuffix("_bins")
        prefix = {"fabric_hours": "fabric ", "host_hours": "host "}.get(series.view, "")
        keys = [stem, stem.replace("gpu_util", "engine"), stem.replace("_bytes_per_second", ""), f"{stem}_mean"]
        if column == "observed_seconds":
            keys = ["observed", "n"]
        elif series.view == "fabric_hours" and column.startswith("util"):
            keys = ["util", "tx_mean", "rx_mean"]
        elif series.view == "workload_gpus":
            keys = ["workloads", "gpu_util_mean"]
        elif column == "cpu_util_mean":
            keys = ["cpu_util_mean", "idle_mean"]
        for key in dict.fromkeys(keys):
            for expression in asked.get(prefix + key, ()):
                yield from _NAME.findall(expression)


def _places(name: str, numbers: Numbers) -> list[str]:
    """Matchers of a series' GPUs, or of its nodes where it is of none."""
    nodes = [node.rpartition("/")[2] for node in numbers.nodes]  # cluster/node where clusters share names
    if name.startswith("node_"):
        return [f"instance=~{promql_pattern(nodes, '([.:].*)?')}"] if nodes else []
    if name.startswith(("skuwise_fabric_", "skuwise_host_")):
        return [f"node=~{promql_pattern(nodes)}"] if nodes else []
    label = "gpu_uuid" if name.startswith("skuwise_") else "UUID"
    gpus = dict.fromkeys(gpu if label == "gpu_uuid" else gpu.partition("/gi")[0] for gpu in numbers.gpus)
    return [f"{label}=~{promql_pattern(gpus)}"] if gpus else []
