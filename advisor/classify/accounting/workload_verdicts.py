"""The verdict of each workload as others read it: its judgement and phases with what is missing, and from when on more
will be known; and what it used, row by row."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.coded_text import UNSPECIFIED, CodedText, coded
from ...core.column_rows import ColumnRows
from ...core.frame import Window
from ...core.timestamps import minute, span
from ...core.verdict_types import BottleneckVerdict, Coverage, KindVerdict, Owner, Phase, WorkloadVerdict
from ..bottlenecks.judgement import Judgement, JudgementInputs, Piece
from ..bottlenecks.kv_cache import capacity_of, tokens_of, with_capacity
from ..features.piece_rows import PieceRows
from ..workloads.attribution import Attribution
from ..workloads.session import Session
from .missing_metrics import AbsenceReasons, unseen_metrics

HOUR = 3600.0
_USAGE = (
    "c", "m", "n", "i", "p", "u_c", "u_m", "u_n", "u_p", "g", "sm", "o", "duty", "i_share", "n_share", "p_share",
    "tensor_nvlink_correlation", "tensor_fabric_correlation", "clock_ratio", "idle", "rests", "g_max", "lost",
)  # fmt: skip


def series_hours(attribution: Attribution, ts: pd.Series) -> dict[str, float]:
    """Series -> hours of the window in which its runs were observed, the mean over the GPUs of each; runs side by side
    (replicas) count once.

    `ts`: the end of every row of the frame's `gpu`.
    """
    sessions, workload_rows = attribution.sessions, attribution.workload_rows
    if workload_rows.empty:
        return {}
    series = {session.workload_id: session.series_id for session in sessions}
    gpus = {session.workload_id: max(len(session.gpus), 1) for session in sessions}
    run = workload_rows["workload_id"]
    table = pd.DataFrame(
        {
            "series": run.map(series),
            "hour": np.ceil(ts.to_numpy(float)[workload_rows["row"].to_numpy(int)] / HOUR),
            "seconds": workload_rows["seconds"].to_numpy(float) / run.map(gpus).to_numpy(float),
        }
    )
    # Runs that follow one another within an hour add up to it, runs side by side do not go beyond it.
    per_hour = table.groupby(["series", "hour"], sort=False)["seconds"].sum().clip(upper=HOUR)
    return {str(key): float(value) / HOUR for key, value in per_hour.groupby(level="series").sum().items()}


def workload_verdicts(  # noqa: PLR0917
    pieces: Sequence[Piece],
    wholes: Sequence[Judgement],
    phases: Sequence[tuple[Judgement, tuple[Phase, ...]]],
    parts: npt.NDArray[np.float64],
    series_hours: Mapping[str, float],
    inputs: JudgementInputs,
) -> list[WorkloadVerdict]:
    """One verdict for each workload. `pieces`: all rows of each; `wholes`: judged over them; `phases`: the judgement as
    its phases leave it, and these; `parts`: the part of a GPU that each row stands for."""
    rows = PieceRows.of(inputs.tables, [piece.rows for piece in pieces])
    reasons = AbsenceReasons.of(inputs.frame.absences)
    lengths = np.nan_to_num(rows.segments.median(rows.gpu("interval_seconds"))).tolist()
    coverages = [
        _coverage(piece, whole.features.get("resolution_seconds", length), unseen, reasons, inputs)
        for piece, whole, unseen, length in zip(pieces, wholes, unseen_metrics(rows), lengths, strict=True)
    ]
    return [
        _verdict(piece, coverage, *judged, _part(piece, inputs.frame.parents, parts), series_hours, inputs)
        for piece, coverage, judged in zip(pieces, coverages, phases, strict=True)
    ]


def _verdict(  # noqa: PLR0917
    piece: Piece,
    coverage: Coverage,
    judged: Judgement,
    phases: tuple[Phase, ...],
    part: float,
    series_hours: Mapping[str, float],
    inputs: JudgementInputs,
) -> WorkloadVerdict:
    session, frame, book = piece.session, inputs.frame, inputs.book
    hours = series_hours.get(session.series_id, 0.0)
    kind = _with_floor(judged.kind, session, hours, book.floor_hours, frame.window)
    bottleneck = _explained(judged.bottleneck, coverage)
    kv_full = book.bottlenecks["capacity_kv_p95_min"].value
    capacity = capacity_of(frame.serving, session.workload_id)
    bottleneck = with_capacity(bottleneck, capacity, kv_full)
    features, tokens = judged.features, tokens_of(frame.serving, session.workload_id)
    if tokens is not None:
        features = {**features, "generated_tokens": tokens}
    if capacity is not None and capacity.kv_p95 is not None:
        features = {**features, "kv_cache_used_p95": capacity.kv_p95}
    skus = [inputs.index.sku(*key) for key in session.gpus]
    names = {sku.name for sku in skus if sku is not None}
    node_skus = {node.node_sku for node in inputs.nodes_of(session)}
    return WorkloadVerdict(
        id=session.workload_id,
        series_id=session.series_id,
        name=session.name,
        owner=Owner(session.team, session.user, session.account, session.namespace),
        nodes=session.nodes,
        gpus=tuple(uuid for _, uuid in session.gpus),
        gpu_sku=next(iter(names)) if len(names) == 1 and all(skus) else None,
        node_sku=next(iter(node_skus)) if len(node_skus) == 1 else None,
        start=session.start,
        end=session.end,
        gpu_hours=features.get("hours", 0.0) * part * _share(piece),
        cost_usd=None,
        kind=kind,
        bottleneck=bottleneck,
        phases=phases,
        coverage=coverage,
        features=features,
        basis=session.basis,
        shared=session.shared,
        gpu_part=part,
        framework=session.framework,
        command=session.command,
        scheduled=session.scheduled,
    )


def _part(piece: Piece, instances: Container[tuple[str, str]], parts: npt.NDArray[np.float64]) -> float:
    """The part of a GPU that each of its instances is, on average over its time; 1 for whole GPUs."""
    if not any(key in instances for key in piece.session.gpus):
        return 1.0
    seconds = piece.rows.seconds
    return float(np.average(parts[piece.rows.row], weights=seconds)) if seconds.sum() > 0 else 1.0


def _share(piece: Piece) -> float:
    """Its share of its GPUs' time; 1 where no other workload held them at the same time."""
    seconds = piece.rows.seconds
    return float(np.average(piece.rows.share, weights=seconds)) if seconds.sum() > 0 else 1.0


def _coverage(
    piece: Piece, resolution: float, unseen: Sequence[str], reasons: AbsenceReasons, inputs: JudgementInputs
) -> Coverage:
    """`resolution`: seconds between its samples; `unseen`: metrics that none of its rows has."""
    session = piece.session
    missing = {metric: reasons.reason(session, metric) for metric in unseen}
    nodes = inputs.nodes_of(session)
    unread = [
        CodedText(n.fabric.code or UNSPECIFIED, f"{n.node}: {n.fabric.reason}")
        for n in nodes
        if n.fabric and n.fabric.reason
    ]
    if unread:
        missing["fabric"] = unread[0]
    for key in session.gpus:
        sku = inputs.index.sku(*key)
        if sku is None:
            name = inputs.index.table["name"].get(key, "unknown") if len(inputs.index.table) else "unknown"
            missing["sku"] = coded(
                "sku-not-in-catalog",
                "GPU {name} is not in the catalog: its sustained rates are unknown.",
                name=str(name),
            )
            break
        if sku.achieved.bf16_gemm is None:
            missing["u_c"] = _never_measured("compute", sku.name)
        if sku.achieved.mem is None:
            missing["u_m"] = _never_measured("bandwidth", sku.name)
    texts = {name: one.text for name, one in missing.items()}
    codes = {name: one.code for name, one in missing.items()}
    return Coverage(round(piece.observed_share, 4), resolution, texts, codes)


def _never_measured(what: str, sku: str) -> CodedText:
    return coded(
        "sustained-rate-unknown",
        "Sustained {what} of {sku} has not been measured: utilization relative to it is unknown.",
        what=what, sku=sku,
    )  # fmt: skip


def _with_floor(kind: KindVerdict, session: Session, hours: float, floor_hours: float, window: Window) -> KindVerdict:
    """Say from when a verdict on waste will be possible, where it is not yet. `hours`: of all runs of its
    series."""
    if hours >= floor_hours:
        return kind
    fields = {"hours": hours, "needed_hours": floor_hours}
    if session.last_seen < window.end - 3600:
        floor = f"{floor_hours:.0f} h"
        said = CodedText(
            "ended-too-early", f"Ended after {span(hours * 3600)} of data: waste detection needs {floor}.", fields
        )
    elif window.hours < floor_hours <= (window.end - session.first_seen) / 3600:
        said = CodedText(
            "window-too-short",
            f"Window of {span(window.seconds)} is too short for waste detection. Use --since to cover "
            f"{floor_hours:.0f} h or more.",
            {**fields, "window_seconds": window.seconds},
        )
    else:
        ready = window.end + (floor_hours - hours) * 3600
        said = CodedText(
            "waste-not-judged-yet",
            f"{span(hours * 3600)} of data so far: waste detection needs {floor_hours:.0f} h, reached at "
            f"{minute(ready)} if the workload keeps running.",
            {**fields, "ready_ts": ready},
        )
    return KindVerdict(kind.label, kind.confidence, (*kind.evidence, said), kind.alternatives)


def _explained(verdict: BottleneckVerdict, coverage: Coverage) -> BottleneckVerdict:
    """Where it is unknown because something is missing, say what."""
    if verdict.label != "unknown" or not coverage.missing:
        return verdict
    said = tuple(
        CodedText(
            "metric-missing",
            f"No data for {metric}: {reason}",
            {"metric": metric, "because": coverage.missing_codes.get(metric)},
        )
        for metric, reason in coverage.missing.items()
    )
    return BottleneckVerdict(verdict.label, verdict.confidence, verdict.time_shares, (*verdict.evidence, *said))


def usage_of(workload_rows: pd.DataFrame, inputs: JudgementInputs) -> ColumnRows:
    """What each workload used in each of its rows (`Verdicts.usage`). `workload_rows`: the attribution's."""
    gpu, measures = inputs.gpu_columns, inputs.row_columns
    own = {
        "workload_id": workload_rows["workload_id"].to_numpy(object),
        "seconds": workload_rows["seconds"].to_numpy(float),
        "whole": workload_rows["whole"].to_numpy(bool),
        "shared": workload_rows["shared"].to_numpy(bool),
    }
    told = {
        **{name: gpu[name] for name in ("node", "gpu_uuid", "ts")},
        **{name: measures[name] for name in _USAGE},
        "bottleneck": measures["label"],
        "mem_used_ratio": measures["mem"],
        "power_watts": measures["power"],
        # Work on several nodes without RDMA uses their Ethernet.
        "u_i": measures["exchange"],
    }
    return ColumnRows(own, np.arange(len(workload_rows)), told, workload_rows["row"].to_numpy(np.intp))
