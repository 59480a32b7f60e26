"""The kind of runs too short to tell by themselves, from the other runs of their series (a service that crashes and is
started again, a pod that has just been moved to another node)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...core.coded_text import CodedText
from ...core.timestamps import span
from ...core.verdict_types import INFERRED, KindVerdict, WorkloadVerdict
from ..pieces import Judgement, Piece

HOUR = 3600.0
# A run shorter than this has little to show (verdicts on kind gain confidence up to a day).
SHORT_SECONDS = 6 * HOUR
# A short run's kind that is told with less than this is no better than what its series says.
UNSURE_BELOW = 0.85
# Runs that agree in so much of their time speak for a run that says nothing itself.
AGREEMENT_MIN = 0.8
# Signals that contradict one another in this share of the time are no case for a guess from elsewhere.
FAULT_SHARE_MAX = 0.05


def with_series(
    verdicts: Sequence[WorkloadVerdict], pieces: Sequence[Piece],
    judge: Callable[[Iterable[Piece]], list[Judgement]],
) -> list[WorkloadVerdict]:  # fmt: skip
    """The verdicts, the largest first, with short runs told from the other runs of their series.

    Longer runs that are known speak first; where there are none, the short ones of as many GPUs are judged together, as
    one. `pieces`: all rows of each workload; `judge`: gives a judgement for each piece.
    """
    piece_of = {piece.session.workload_id: piece for piece in pieces}
    series: dict[str, list[WorkloadVerdict]] = {}
    for verdict in verdicts:
        if verdict.basis != INFERRED:  # what shares the same GPUs is not the same work
            series.setdefault(verdict.series_id, []).append(verdict)
    kinds: dict[str, KindVerdict] = {}
    together: list[tuple[list[WorkloadVerdict], Piece]] = []
    for members in series.values():
        open_ = [
            v for v in members
            if len(members) > 1 and v.end - v.start < SHORT_SECONDS
            and (v.kind.label == "unknown" or v.kind.confidence < UNSURE_BELOW)
            and v.features.get("fault_share", 0.0) < FAULT_SHARE_MAX
        ]  # fmt: skip
        known = _agreed([v for v in members if v.kind.label != "unknown" and v not in open_], open_)
        if known is not None:
            kinds |= dict.fromkeys((v.id for v in open_), known)
            continue
        for gpus in sorted({len(v.gpus) for v in open_}):
            alike = [v for v in open_ if len(v.gpus) == gpus]
            if (piece := _together(alike, piece_of)) is not None:
                together.append((alike, piece))
    for (alike, _), judged in zip(together, judge(piece for _, piece in together), strict=True):
        if judged.kind.label != "unknown":
            seconds = sum(v.end - v.start for v in alike)
            said = CodedText(
                "judged-with-its-series",
                f"One of {len(alike)} short runs of the same series ({span(seconds)} in total), evaluated together.",
                {"runs": len(alike), "seconds": seconds},
            )
            kind = replace(judged.kind, evidence=(said, *judged.kind.evidence))
            kinds |= dict.fromkeys((v.id for v in alike), kind)
    out = [_with_kind(v, kinds[v.id]) if v.id in kinds else v for v in verdicts]
    return sorted(out, key=lambda verdict: (-verdict.gpu_hours, verdict.id))


def _agreed(known: list[WorkloadVerdict], open_: list[WorkloadVerdict]) -> KindVerdict | None:
    """The kind that the known runs agree on, where they are more than those they speak for."""
    hours: dict[str, float] = {}
    for verdict in known:
        hours[verdict.kind.label] = hours.get(verdict.kind.label, 0.0) + verdict.gpu_hours
    total, label = sum(hours.values()), max(hours, key=lambda name: hours[name], default="")
    if total <= 0 or total < sum(v.gpu_hours for v in open_) or hours[label] < AGREEMENT_MIN * total:
        return None
    like = [v for v in known if v.kind.label == label]
    said = CodedText(
        "told-by-its-series",
        f"Too short to classify alone; {len(like)} other {'run' if len(like) == 1 else 'runs'} of the same series: "
        f"{label}.",
        {"runs": len(like), "kind": label},
    )
    confidence = AGREEMENT_MIN * max(v.kind.confidence for v in like)
    return KindVerdict(like[0].kind.label, round(max(confidence, 0.6), 3), (said,))


def _together(alike: Sequence[WorkloadVerdict], piece_of: Mapping[str, Piece]) -> Piece | None:
    """All their rows as those of one run, which lasted as long as all of them."""
    parts = [piece_of[v.id].rows for v in alike if len(piece_of[v.id].rows)]
    if len(parts) < 2:
        return None
    sessions = [piece_of[v.id].session for v in alike]
    lead = piece_of[max(alike, key=lambda v: (v.gpu_hours, v.id)).id].session
    end = max(v.end for v in alike)
    whole = replace(
        lead, start=end - sum(v.end - v.start for v in alike), end=end,
        first_seen=min(one.first_seen for one in sessions), last_seen=max(one.last_seen for one in sessions),
        held_seconds=sum(one.held_seconds for one in sessions),
    )  # fmt: skip
    return Piece(whole, parts[0].taken(np.concatenate([rows.at for rows in parts])))


def _with_kind(verdict: WorkloadVerdict, kind: KindVerdict) -> WorkloadVerdict:
    own = tuple(one for one in verdict.kind.evidence if one not in kind.evidence)
    told = ("unknown", verdict.kind.label)  # what is told now stands for what was not, or vaguely
    phases = tuple(replace(p, kind=kind.label) if p.kind in told else p for p in verdict.phases)
    return replace(verdict, kind=replace(kind, evidence=(*kind.evidence, *own)), phases=phases)
