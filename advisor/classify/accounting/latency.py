"""Which latency class a service has, and how long its requests waited in its busy hours.

What engines counted is added up over all replicas of a series on one kind of node, hour by hour. Percentiles are those
of the busy hours: an average night would hide what people meet at noon.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from ....agent.statistics.latency_bins import MEASURES, Counts, added, decode, percentile
from ....rules.policy.latency_classes import LIMITS, LatencyClass, LatencyClasses
from ...core.coded_text import CodedText, coded
from ...core.latency_words import MEASURES as NAMES
from ...core.latency_words import seconds_words
from ...core.verdict_types import Latency, LatencyBasis, LatencyFigures, WorkloadVerdict

# An hour is busy that has at least half of the requests of the busiest: there queues form, and there people are.
BUSY_SHARE = 0.5
# A percentile is told where ten requests lay beyond it: fewer are chance.
BEYOND_MIN = 10.0
_HOUR_SECONDS = 3600.0
_SERVICE = "online-inference"


@dataclass(slots=True)
class _Counted:
    """What a series' engines counted: by the hour (its end, in hours since 1970), by measure."""

    hours: dict[int, dict[str, Counts]] = field(default_factory=dict)

    def add(self, ts: float, told: Mapping[str, Counts]) -> None:
        own = self.hours.setdefault(math.ceil(ts / _HOUR_SECONDS), {})
        for measure, counts in told.items():
            own[measure] = added([own[measure], counts]) or counts if measure in own else counts


def with_latency(
    workloads: Sequence[WorkloadVerdict], serving: pd.DataFrame, classes: LatencyClasses
) -> list[WorkloadVerdict]:
    """The workloads, each service with its class and what was measured of it. `serving`: `Frame.serving`."""
    keys = {w.id: (w.series_id, w.gpu_sku, w.node_sku) for w in workloads}
    counted: dict[tuple[str, str | None, str | None], _Counted] = {}
    for workload, ts, told in _told(serving):
        if workload in keys:
            counted.setdefault(keys[workload], _Counted()).add(ts, told)
    measured = {key: _measured(one) for key, one in counted.items()}
    nothing: _Measured = {}, 0
    return [replace(w, latency=_latency(w, measured.get(keys[w.id], nothing), classes)) for w in workloads]


def _told(serving: pd.DataFrame) -> Iterable[tuple[str, float, Mapping[str, Counts]]]:
    """Workload, end of what was counted (Unix seconds), and the counts by measure."""
    if serving.empty or "latency_ts" not in serving:
        return
    rows = serving[serving["latency_ts"].notna()]
    columns = [rows[f"{measure}_bins"] for measure in MEASURES]
    for workload, ts, *texts in zip(rows["workload_id"], rows["latency_ts"].astype(float), *columns, strict=True):
        told = {name: counts for name, text in zip(MEASURES, texts, strict=True) if (counts := decode(text))}
        if told and math.isfinite(ts):
            yield str(workload), ts, told


_Measured = tuple[Mapping[str, LatencyFigures], int]


def _measured(counted: _Counted) -> _Measured:
    """The figures by measure, and how many hours they are of."""
    # Requests tell how busy an hour was; tokens where an engine does not count first tokens.
    by = next((m for m in MEASURES if any(m in hour for hour in counted.hours.values())), MEASURES[0])
    sizes = {hour: sum(own.get(by, ())) for hour, own in counted.hours.items()}
    most = max(sizes.values())
    busy = [counted.hours[hour] for hour, size in sizes.items() if size >= BUSY_SHARE * most and size > 0]
    found: dict[str, LatencyFigures] = {}
    for measure in MEASURES:
        counts = added([hour[measure] for hour in busy if measure in hour])
        if counts is not None:
            found[measure] = figures_of(counts)
    return found, len(busy)


def figures_of(counts: Counts) -> LatencyFigures:
    """The percentiles of counts, each where enough was counted beyond it."""
    total = sum(counts)

    def at(share: float) -> float | None:
        return percentile(counts, share) if total * (1 - share) >= BEYOND_MIN - 1e-6 else None

    return LatencyFigures(round(total, 1), at(0.5), at(0.9), at(0.95), at(0.99))


def _latency(w: WorkloadVerdict, measured: _Measured, classes: LatencyClasses) -> Latency | None:
    figures, hours = measured

    def given(label: str | None, basis: LatencyBasis, why: CodedText) -> Latency:
        limits = dict(classes.classes[label].limits) if label is not None else {}
        told = (figures.get(measure) for measure in MEASURES)
        return Latency(label, basis, limits, *told, busy_hours=float(hours), evidence=(why,))

    said = classes.set_for(w.owner, w.name, w.series_id)
    if said is not None:
        why = coded(
            "latency-class-set", "Latency class {label}: {reason} (site rules, entry {entry}).",
            label=said.label, reason=said.reason.rstrip("."), entry=said.id,
        )  # fmt: skip
        return given(said.label, "site", why)
    kind = w.kind.label
    if kind == _SERVICE and figures.get("first_token") is not None:
        kept = next((one for one in classes.classes.values() if one.limits and _keeps(one, figures)), None)
        told = _limits_words(kept, figures) if kept is not None else None
        if kept is not None and told is not None:
            text = "Latency class {label}: the strictest class that it meets today ({told})."
            return given(kept.name, "measured", coded("latency-class-kept", text, label=kept.name, told=told))
        if _loosest_is_judged(classes, figures):
            p90 = figures["first_token"].p90
            return given(None, "measured", coded(
                "latency-class-none",
                "No latency class: time to first token is {words} (p90, busy hours), above every class "
                "limit. Set a class in the site's rules if one applies.",
                words="unknown" if p90 is None else seconds_words(p90),
            ))  # fmt: skip
    label = classes.kinds.get(kind)
    if label is None:
        return None
    because = (
        "no engine histogram reports how long its requests wait" if not figures
        else "its engine does not report time to first token" if "first_token" not in figures
        else "too few requests were counted to measure it"
    )  # fmt: skip
    return given(label, "kind", coded(
        "latency-class-of-kind",
        "Latency class {label}: default for {kind}. No site rule names the workload, and {because}.",
        label=label, kind=kind, because=because,
    ))  # fmt: skip


def _keeps(one: LatencyClass, figures: Mapping[str, LatencyFigures]) -> bool:
    """Whether every limit of a class that can be judged is kept, and its first is judged."""
    judged = False
    for key, limit in one.limits.items():
        measure, share = LIMITS[key]
        value = figures[measure].at(share) if measure in figures else None
        if value is not None and value > limit:
            return False
        judged |= measure == "first_token" and value is not None
    return judged


def _loosest_is_judged(classes: LatencyClasses, figures: Mapping[str, LatencyFigures]) -> bool:
    limits = [LIMITS[key] for one in classes.classes.values() if one.limits for key in one.limits][-1:]
    return any(measure in figures and figures[measure].at(share) is not None for measure, share in limits)


def _limits_words(one: LatencyClass, figures: Mapping[str, LatencyFigures]) -> str:
    parts = []
    for key, limit in one.limits.items():
        measure, share = LIMITS[key]
        value = figures[measure].at(share) if measure in figures else None
        if value is not None:
            parts.append(f"{NAMES[measure]} {seconds_words(value)} at p{share * 100:.0f}, limit {seconds_words(limit)}")
    return ", ".join(parts)
