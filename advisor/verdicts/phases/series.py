"""What is known of the thing that recurs: the hours that all runs of a series give, and the kind of runs too short to
tell by themselves (a service that crashes and is started again, a pod that has just been moved to another node)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ...core.advice_types import INFERRED, KindVerdict, WorkloadVerdict
from ...core.coded_text import CodedText
from ...core.timestamps import span
from ..workloads.attribution import Session
from .phase_verdicts import Ask

HOUR = 3600.0
# A run shorter than this has little to show (verdicts on kind gain confidence up to a day).
SHORT_SECONDS = 6 * HOUR
# Runs that agree in so much of their time speak for a run that says nothing itself.
AGREEMENT_MIN = 0.8
# Signals that contradict one another in this share of the time are no case for a guess from elsewhere.
FAULT_SHARE_MAX = 0.05


def series_hours(sessions: Sequence[Session], mine: pd.DataFrame, ts: np.ndarray) -> dict[str, float]:
    """Series -> hours of the window in which its runs were observed, the mean over the GPUs of each; runs side by side
    (replicas) count once.

    `mine`: the rows of all workloads (`Attribution.mine`), `ts` their ends.
    """
    if mine.empty:
        return {}
    series = {session.workload_id: session.series_id for session in sessions}
    gpus = {session.workload_id: max(len(session.gpus), 1) for session in sessions}
    run = mine["workload_id"]
    table = pd.DataFrame(
        {
            "series": run.map(series),
            "hour": np.ceil(ts / HOUR),
            "seconds": mine["seconds"].to_numpy(float) / run.map(gpus).to_numpy(float),
        }
    )
    # Runs that follow one another within an hour add up to it, runs side by side do not go beyond it.
    per_hour = table.groupby(["series", "hour"], sort=False)["seconds"].sum().clip(upper=HOUR)
    return {str(key): float(value) / HOUR for key, value in per_hour.groupby(level="series").sum().items()}


def with_series(
    verdicts: Sequence[WorkloadVerdict],
    sessions: Mapping[str, Session],
    rows_of: Mapping[str, pd.DataFrame],
    ask: Ask,
) -> list[WorkloadVerdict]:
    """The verdicts, with short runs of unknown kind told from the other runs of their series.

    Longer runs that are known speak first; where there are none, the short ones are judged together, as one.
    """
    runs: dict[str, list[WorkloadVerdict]] = {}
    for verdict in verdicts:
        if verdict.basis == INFERRED:
            continue  # what shares the same GPUs is not the same work
        runs.setdefault(verdict.series_id, []).append(verdict)
    kinds: dict[str, KindVerdict] = {}
    for members in runs.values():
        open_ = [v for v in members if _open(v)]
        if not open_ or len(members) < 2:
            continue
        known = _agreed([v for v in members if v.kind.label != "unknown"], open_)
        for gpus in sorted({len(v.gpus) for v in open_}):
            alike = [v for v in open_ if len(v.gpus) == gpus]
            found = known or _together(alike, sessions, rows_of, ask)
            if found is not None:
                kinds.update({v.id: found for v in alike})
    return [_told(v, kinds[v.id]) if v.id in kinds else v for v in verdicts]


def _open(verdict: WorkloadVerdict) -> bool:
    short = verdict.end - verdict.start < SHORT_SECONDS
    return verdict.kind.label == "unknown" and short and verdict.features.get("fault_share", 0.0) < FAULT_SHARE_MAX


def _agreed(known: list[WorkloadVerdict], open_: list[WorkloadVerdict]) -> KindVerdict | None:
    """The kind that the known runs agree on, where they are more than those they speak for."""
    hours: dict[str, float] = {}
    for verdict in known:
        hours[verdict.kind.label] = hours.get(verdict.kind.label, 0.0) + verdict.gpu_hours
    total = sum(hours.values())
    if total <= 0 or total < sum(v.gpu_hours for v in open_):
        return None
    label = max(hours, key=lambda name: hours[name])
    if hours[label] < AGREEMENT_MIN * total:
        return None
    like = [v for v in known if v.kind.label == label]
    said = CodedText(
        "told-by-its-series",
        f"It is too short to tell by itself; {len(like)} other {_runs(len(like))} of the same series: {label}.",
        {"runs": len(like), "kind": label},
    )
    confidence = AGREEMENT_MIN * max(v.kind.confidence for v in like)
    return KindVerdict(like[0].kind.label, round(max(confidence, 0.6), 3), (said,))


def _together(
    alike: list[WorkloadVerdict],
    sessions: Mapping[str, Session],
    rows_of: Mapping[str, pd.DataFrame],
    ask: Ask,
) -> KindVerdict | None:
    parts = [rows_of[v.id] for v in alike if v.id in rows_of]
    if len(parts) < 2:
        return None
    lead = sessions[max(alike, key=lambda v: (v.gpu_hours, v.id)).id]
    lasted = sum(v.end - v.start for v in alike)
    end = max(v.end for v in alike)
    first, last = min(sessions[v.id].first_seen for v in alike), max(sessions[v.id].last_seen for v in alike)
    whole = dataclasses.replace(
        lead, start=end - lasted, end=end, first_seen=first, last_seen=last,
        held_seconds=sum(sessions[v.id].held_seconds for v in alike),
    )  # fmt: skip
    kind = ask(whole, pd.concat(parts, ignore_index=True)).kind
    if kind.label == "unknown":
        return None
    said = CodedText(
        "judged-with-its-series",
        f"It is one of {len(alike)} short runs of the same series, {span(lasted)} together, judged as one.",
        {"runs": len(alike), "seconds": lasted},
    )
    return dataclasses.replace(kind, evidence=(said, *kind.evidence))


def _told(verdict: WorkloadVerdict, kind: KindVerdict) -> WorkloadVerdict:
    own = tuple(one for one in verdict.kind.evidence if one not in kind.evidence)
    phases = tuple(dataclasses.replace(p, kind=kind.label) if p.kind == "unknown" else p for p in verdict.phases)
    return dataclasses.replace(verdict, kind=dataclasses.replace(kind, evidence=(*kind.evidence, *own)), phases=phases)


def _runs(count: int) -> str:
    return "run" if count == 1 else "runs"
