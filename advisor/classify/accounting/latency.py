"""Which latency class a service has, and how long its requests waited in its busy hours.

What engines counted is added up over all replicas of a series on one kind of node, hour by hour. Percentiles are those
of the busy hours: an average night would hide what people meet at noon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from ....agent.statistics.latency_bins import MEASURES, Counts, added, decode, percentile
from ....rules.policy.latency_classes import LIMITS, LatencyClasses
from ...core.coded_text import CodedText, coded
from ...core.latency_words import MEASURES as NAMES
from ...core.latency_words import seconds_words
from ...core.verdict_types import Latency, LatencyBasis, LatencyFigures, WorkloadVerdict

# An hour is busy that has at least half of the requests of the busiest: there queues form, and there people are.
BUSY_SHARE = 0.5
# A percentile is told where ten requests lay beyond it: fewer are chance.
BEYOND_MIN = 10.0
_HOUR_SECONDS = 3600.0
_SHARES = (0.5, 0.9, 0.95, 0.99)
_SERVICE = "online-inference"
_Hours = dict[int, dict[str, Counts]]  # what engines counted, by the hour (its end, in hours since 1970) and measure


def with_latency(
    workloads: Sequence[WorkloadVerdict], serving: pd.DataFrame, classes: LatencyClasses
) -> list[WorkloadVerdict]:
    """The workloads, each service with its class and what was measured of it. `serving`: `Frame.serving`."""
    keys = {w.id: (w.series_id, w.gpu_sku, w.node_sku) for w in workloads}
    counted: dict[tuple[str, str | None, str | None], _Hours] = {}
    columns = ["workload_id", "latency_ts", *(f"{measure}_bins" for measure in MEASURES)]
    rows = serving[serving["latency_ts"].notna()] if "latency_ts" in serving else pd.DataFrame(columns=columns)
    for workload, ts, *texts in rows[columns].itertuples(index=False, name=None):
        told = {name: counts for name, text in zip(MEASURES, texts, strict=True) if (counts := decode(text))}
        if told and str(workload) in keys and math.isfinite(ts):
            hour = counted.setdefault(keys[str(workload)], {}).setdefault(math.ceil(ts / _HOUR_SECONDS), {})
            for measure, counts in told.items():
                hour[measure] = added([hour[measure], counts]) or counts if measure in hour else counts
    measured = {key: _measured(hours) for key, hours in counted.items()}
    return [replace(w, latency=_latency(w, *measured.get(keys[w.id], ({}, 0)), classes)) for w in workloads]


def _measured(hours: _Hours) -> tuple[Mapping[str, LatencyFigures], int]:
    """Figures by measure, and how many hours they are of."""
    # Requests tell how busy an hour was; tokens where an engine does not count first tokens.
    by = next((m for m in MEASURES if any(m in hour for hour in hours.values())), MEASURES[0])
    sizes = {hour: sum(own.get(by, ())) for hour, own in hours.items()}
    most = max(sizes.values())
    busy = [hours[hour] for hour, size in sizes.items() if size >= BUSY_SHARE * most and size > 0]
    totals = {measure: added([hour[measure] for hour in busy if measure in hour]) for measure in MEASURES}
    figures = {}
    for measure, counts in totals.items():
        if counts is not None:
            total = sum(counts)
            enough = (total * (1 - share) >= BEYOND_MIN - 1e-6 for share in _SHARES)
            told = (percentile(counts, share) if ok else None for share, ok in zip(_SHARES, enough, strict=True))
            figures[measure] = LatencyFigures(round(total, 1), *told)
    return figures, len(busy)


def _latency(
    w: WorkloadVerdict, figures: Mapping[str, LatencyFigures], hours: int, classes: LatencyClasses
) -> Latency | None:
    def given(label: str | None, basis: LatencyBasis, why: CodedText) -> Latency:
        limits = dict(classes.classes[label].limits) if label is not None else {}
        told = (figures.get(measure) for measure in MEASURES)
        return Latency(label, basis, limits, *told, busy_hours=float(hours), evidence=(why,))

    said = classes.set_for(w.owner, w.name, w.series_id)
    if said is not None:
        return given(said.label, "site", coded(
            "latency-class-set", "Latency class {label}: {reason} (site rules, entry {entry}).",
            label=said.label, reason=said.reason.rstrip("."), entry=said.id,
        ))  # fmt: skip
    kind = w.kind.label
    if kind == _SERVICE and "first_token" in figures:
        limited = [one for one in classes.classes.values() if one.limits]
        for one in limited:
            known = {key: value for key in one.limits if (value := _value(key, figures)) is not None}
            is_kept = all(value <= one.limits[key] for key, value in known.items())
            if is_kept and any(LIMITS[key][0] == "first_token" for key in known):
                told = ", ".join(
                    f"{NAMES[LIMITS[key][0]]} {seconds_words(value)} at p{LIMITS[key][1] * 100:.0f}, "
                    f"limit {seconds_words(one.limits[key])}"
                    for key, value in known.items()
                )
                text = "Latency class {label}: the strictest class that it meets today ({told})."
                return given(one.name, "measured", coded("latency-class-kept", text, label=one.name, told=told))
        loosest = [key for one in limited for key in one.limits][-1:]
        if loosest and _value(loosest[0], figures) is not None:
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


def _value(key: str, figures: Mapping[str, LatencyFigures]) -> float | None:
    """What was measured of a limit; None: too little was counted."""
    measure, share = LIMITS[key]
    return figures[measure].at(share) if measure in figures else None
