"""The verdict of each workload: its judgement and phases, what is missing, and what it used, row by row."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....agent.statistics.latency_bins import MEASURES, Counts, added, decode, percentile
from ....rules.policy.latency_classes import LIMITS, LatencyClasses
from ...core.coded_text import UNSPECIFIED, CodedText, coded
from ...core.column_rows import ColumnRows
from ...core.formatting import MEASURES as NAMES
from ...core.formatting import seconds_words
from ...core.scalars import Record, known, records
from ...core.verdict_types import Coverage, Latency, LatencyBasis, LatencyFigures, Owner, Phase, WorkloadVerdict
from ..bottlenecks.evidence import with_capacity
from ..features.course import PieceRows
from ..pieces import Judgement, JudgementInputs, Piece
from ..workloads.attribution import Attribution
from ..workloads.session import Session

HOUR = 3600.0
_USAGE = (
    "c", "m", "u_c", "u_m", "u_n", "u_p", "g", "g_max", "sm", "tensor_nvlink_correlation", "tensor_fabric_correlation",
    "clock_ratio", "idle", "rests", "lost",
)  # fmt: skip
# What a verdict wants to see of a workload, and the measure that shows it.
_WANTED = {
    "gpu_util": "g", "sm_active": "sm", "tensor_active": "c", "dram_active": "m", "power_watts": "power",
    "mem_used_bytes": "mem",
}  # fmt: skip
_NOT_MEASURED = coded("not-measured", "No data for these GPUs, and no reason recorded.")


def series_hours(attribution: Attribution, ts: pd.Series) -> dict[str, float]:
    """Series -> hours of the window in which its runs were observed, the mean over the GPUs of each; runs side by side
    (replicas) count once. `ts`: the end of every row of the frame's `gpu`."""
    rows, sessions = attribution.workload_rows, attribution.sessions
    run, hour = rows["workload_id"], np.ceil(ts.to_numpy(float)[rows["row"].to_numpy(int)] / HOUR)
    series = run.map({session.workload_id: session.series_id for session in sessions}).rename("series")
    seconds = rows["seconds"] / run.map({session.workload_id: len(session.gpus) for session in sessions})
    # Runs that follow one another within an hour add up to it, runs side by side do not go beyond it.
    per_hour = seconds.groupby([series, hour], sort=False).sum().clip(upper=HOUR)
    return {str(key): float(value) / HOUR for key, value in per_hour.groupby(level=0).sum().items()}


def workload_verdicts(
    pieces: Sequence[Piece], wholes: Sequence[Judgement], phases: Sequence[tuple[Judgement, tuple[Phase, ...]]],
    parts: npt.NDArray[np.float64], inputs: JudgementInputs,
) -> list[WorkloadVerdict]:  # fmt: skip
    """One verdict for each workload. `pieces`: all rows of each; `wholes`: judged over them; `phases`: the judgement as
    its phases leave it, and these; `parts`: the part of a GPU that each row stands for."""
    rows = PieceRows.of(inputs.tables, [piece.rows for piece in pieces])
    lengths = np.nan_to_num(rows.segments.median(rows.gpu("interval_seconds"))).tolist()
    seen = {metric: rows.segments.any(~np.isnan(rows.measured(name))).tolist() for metric, name in _WANTED.items()}
    absences: dict[str, list[tuple[int, Record]]] = {}
    for n, row in enumerate(records(inputs.frame.absences)):
        absences.setdefault(str(row["node"]), []).append((n, row))
    frame, out = inputs.frame, []
    serving = dict(iter(frame.serving.groupby("workload_id", sort=False))) if len(frame.serving) else {}
    full = inputs.book.bottlenecks.capacity_kv_p95_min
    each = zip(pieces, wholes, phases, lengths, strict=True)
    for n, (piece, whole, (judged, own_phases), length) in enumerate(each):
        session = piece.session
        unseen = [metric for metric, measured in seen.items() if not measured[n]]
        missing = _missing(session, unseen, absences, inputs)
        texts, codes = ({name: getattr(reason, kind) for name, reason in missing.items()} for kind in ("text", "code"))
        bottleneck, resolution = judged.bottleneck, whole.features.get("resolution_seconds", length)
        if bottleneck.label == "unknown":
            unmeasured = (
                CodedText("metric-missing", f"No data for {name}: {why.text}", {"metric": name, "because": why.code})
                for name, why in missing.items()
            )
            bottleneck = replace(bottleneck, evidence=(*bottleneck.evidence, *unmeasured))
        features = judged.features
        if (engine := serving.get(session.workload_id)) is not None:
            bottleneck, kv_p95 = with_capacity(bottleneck, engine, full)
            tokens = known(engine["generated_tokens"].sum(min_count=1)) if "generated_tokens" in engine else None
            served = {"generated_tokens": tokens, "kv_cache_used_p95": kv_p95}
            features = {**features, **{name: value for name, value in served.items() if value is not None}}
        skus = {sku.name if sku else None for sku in (inputs.index.sku(*key) for key in session.gpus)}
        node_skus = {node.node_sku for node in inputs.nodes_of(session)}
        # The part of a GPU that each of its instances is, on average over its time; and its share of its GPUs' time, 1
        # where no other workload held them at the same time.
        seconds = spent if (spent := piece.rows["seconds"]).sum() > 0 else None
        sliced = seconds is not None and any(key in frame.parents for key in session.gpus)
        part = float(np.average(parts[piece.rows["row"]], weights=seconds)) if sliced else 1.0
        share = float((piece.rows["share"] * seconds).sum() / seconds.sum()) if seconds is not None else 1.0
        out.append(WorkloadVerdict(
            id=session.workload_id, series_id=session.series_id, name=session.name,
            owner=Owner(session.team, session.user, session.account, session.namespace), basis=session.basis,
            shared=session.shared, scheduled=session.scheduled, framework=session.framework, command=session.command,
            nodes=session.nodes, gpus=tuple(uuid for _, uuid in session.gpus),
            gpu_sku=skus.pop() if len(skus) == 1 else None, node_sku=node_skus.pop() if len(node_skus) == 1 else None,
            start=session.start, end=session.end, gpu_hours=features.get("hours", 0.0) * part * share, gpu_part=part,
            cost_usd=None, kind=judged.kind,
            bottleneck=bottleneck, phases=own_phases, features=features,
            coverage=Coverage(round(piece.observed_share, 4), resolution, texts, codes),
        ))  # fmt: skip
    return out


def _missing(
    session: Session, unseen: Sequence[str], absences: Mapping[str, list[tuple[int, Record]]], inputs: JudgementInputs
) -> dict[str, CodedText]:
    uuids = {uuid for _, uuid in session.gpus}
    missing = dict.fromkeys(unseen, _NOT_MEASURED)
    noted = sorted((entry for node in session.nodes for entry in absences.get(node, ())), key=lambda entry: entry[0])
    for metric in unseen:
        for _, row in noted:
            if row["metric"] in (metric, "*") and (row["scope"] == "source" or row["gpu_uuid"] in uuids):
                reason, detail = str(row["reason"]), row["detail"]
                missing[metric] = CodedText(reason, detail if isinstance(detail, str) and detail else reason)
                break
    for node in inputs.nodes_of(session):
        if node.fabric and node.fabric.reason and "fabric" not in missing:
            missing["fabric"] = CodedText(node.fabric.code or UNSPECIFIED, f"{node.node}: {node.fabric.reason}")
    for key in session.gpus:
        sku = inputs.index.sku(*key)
        if sku is None:
            missing["sku"] = coded(
                "sku-not-in-catalog",
                "GPU {name} is not in the catalog: its sustained rates are unknown.",
                name=str(inputs.index.table["name"].get(key, "unknown")),
            )
            break
        for measure, what, rate in (("u_c", "compute", sku.achieved.bf16_gemm), ("u_m", "bandwidth", sku.achieved.mem)):
            if rate is None:
                missing[measure] = coded(
                    "sustained-rate-unknown",
                    "Sustained {what} of {sku} has not been measured: utilization relative to it is unknown.",
                    what=what, sku=sku.name,
                )  # fmt: skip
    return missing


def usage_of(workload_rows: pd.DataFrame, inputs: JudgementInputs) -> ColumnRows:
    """What each workload used in each of its rows (`Verdicts.usage`). `workload_rows`: the attribution's."""
    gpu, measures = inputs.tables.gpu, inputs.tables.measures
    row_columns = {name: workload_rows[name].to_numpy() for name in ("workload_id", "seconds")}
    columns = {name: gpu[name] for name in ("node", "gpu_uuid", "ts")} | {name: measures[name] for name in _USAGE}
    # Work on several nodes without RDMA uses their Ethernet.
    renamed = {"bottleneck": "label", "mem_used_ratio": "mem", "power_watts": "power", "u_i": "exchange"}
    columns |= {name: measures[measure] for name, measure in renamed.items()}
    return ColumnRows(row_columns, np.arange(len(workload_rows)), columns, workload_rows["row"].to_numpy(np.intp))


# An hour is busy that has at least half of the requests of the busiest: there queues form, and there people are.
BUSY_SHARE = 0.5
# A percentile needs ten requests beyond it: fewer are chance.
BEYOND_MIN = 10.0
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
        histograms = {name: counts for name, text in zip(MEASURES, texts, strict=True) if (counts := decode(text))}
        if histograms and str(workload) in keys and math.isfinite(ts):
            hour = counted.setdefault(keys[str(workload)], {}).setdefault(math.ceil(ts / HOUR), {})
            for measure, counts in histograms.items():
                hour[measure] = added([hour[measure], counts]) or counts if measure in hour else counts
    measured = {key: _measured(hours) for key, hours in counted.items()}
    return [replace(w, latency=_latency(w, *measured.get(keys[w.id], ({}, 0)), classes)) for w in workloads]


def _measured(hours: _Hours) -> tuple[Mapping[str, LatencyFigures], int]:
    # Requests show how busy an hour was; tokens where an engine does not count first tokens.
    by = next((m for m in MEASURES if any(m in hour for hour in hours.values())), MEASURES[0])
    sizes = {hour: sum(buckets.get(by, ())) for hour, buckets in hours.items()}
    most = max(sizes.values())
    busy = [hours[hour] for hour, size in sizes.items() if size >= BUSY_SHARE * most and size > 0]
    totals = {measure: added([hour[measure] for hour in busy if measure in hour]) for measure in MEASURES}
    figures = {}
    for measure, counts in totals.items():
        if counts is not None:
            total = sum(counts)
            enough = (total * (1 - share) >= BEYOND_MIN - 1e-6 for share in _SHARES)
            percentiles = (percentile(counts, share) if ok else None for share, ok in zip(_SHARES, enough, strict=True))
            figures[measure] = LatencyFigures(round(total, 1), *percentiles)
    return figures, len(busy)


def _latency(
    w: WorkloadVerdict, figures: Mapping[str, LatencyFigures], hours: int, classes: LatencyClasses
) -> Latency | None:
    def given(label: str | None, basis: LatencyBasis, why: CodedText) -> Latency:
        limits = dict(classes.classes[label].limits) if label is not None else {}
        measured = (figures.get(measure) for measure in MEASURES)
        return Latency(label, basis, limits, *measured, busy_hours=float(hours), evidence=(why,))

    said = classes.set_for(w.owner, w.name, w.series_id)
    if said is not None:
        entry, service = said
        return given(service.label, "site", coded(
            "latency-class-set", "Latency class {label}: {reason} (site rules, entry {entry}).",
            label=service.label, reason=service.reason.rstrip("."), entry=entry,
        ))  # fmt: skip
    kind = w.kind.label
    if kind == _SERVICE and "first_token" in figures:
        limited = {name: class_.limits for name, class_ in classes.classes.items() if class_.limits}
        for name, limits in limited.items():
            met = {key: value for key in limits if (value := _value(key, figures)) is not None}
            is_kept = all(value <= limits[key] for key, value in met.items())
            if is_kept and any(LIMITS[key][0] == "first_token" for key in met):
                figures_words = ", ".join(
                    f"{NAMES[LIMITS[key][0]]} {seconds_words(value)} at p{LIMITS[key][1] * 100:.0f}, "
                    f"limit {seconds_words(limits[key])}"
                    for key, value in met.items()
                )
                text = "Latency class {label}: the strictest class that it meets today ({told})."
                why = coded("latency-class-kept", text, label=name, told=figures_words)
                return given(name, "measured", why)
        loosest = [key for limits in limited.values() for key in limits][-1:]
        if loosest and _value(loosest[0], figures) is not None:
            p90 = figures["first_token"].p90
            return given(None, "measured", coded(
                "latency-class-none",
                "No latency class: time to first token is {words} (p90, busy hours), above every class "
                "limit. Set a class in the site's rules if one applies.",
                words="unknown" if p90 is None else seconds_words(p90),
            ))  # fmt: skip
    label = next((name for working, name in classes.kinds.items() if working == kind), None)
    if label is None:
        return None
    because = "too few requests were counted to measure it"
    if "first_token" not in figures:
        because = "no engine histogram reports its time to first token"
    return given(label, "kind", coded(
        "latency-class-of-kind",
        "Latency class {label}: default for {kind}. No site rule names the workload, and {because}.",
        label=label, kind=kind, because=because,
    ))  # fmt: skip


def _value(key: str, figures: Mapping[str, LatencyFigures]) -> float | None:
    measure, share = LIMITS[key]
    return figures[measure].at(share) if measure in figures else None
