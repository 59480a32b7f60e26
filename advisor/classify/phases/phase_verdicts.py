"""What each phase of a workload is: the judge of whole workloads asked about the hours of each behaviour. A phase that
computes otherwise is judged by its shape alone; one that waits for something else is the same kind of work. Runs too
short by themselves take their kind from the other runs of their series."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ....rules.policy.labels import ON_DEMAND_KINDS, TRAINING_KINDS
from ...core.coded_text import CodedText, coded
from ...core.timestamps import span
from ...core.verdict_types import INFERRED, KindVerdict, Phase, Scheduled, WorkloadVerdict
from ..pieces import Judgement, Piece
from .change_points import HOUR, PHASE_HOURS_MIN, Behaviour, Cut, Turn

# Memory against compute, in the mean of a behaviour: where it is so many times that of another, something else runs.
OTHER_COMPUTATION = 2.0
# A kind stays possible where it is at least so likely as this share of the likeliest.
POSSIBLE_SHARE = 0.5
INFERENCE = ("online-inference", "batch-inference")
_EVALUATES = coded(
    "evaluates", "Inference for an hour or two at a time within a training job, typical of evaluation, not of serving."
)
_STOOD_STILL = coded("stood-still", "Engine and memory idle.")
_FABRIC_USED = coded("phase-uses-fabric", "Fabric of its nodes in use.")
_FABRIC_SILENT = coded("phase-without-fabric", "No fabric traffic.")


def judge_phases(
    cuts: Sequence[Cut], judgements: Sequence[Judgement], judge: Callable[[Sequence[Piece]], list[Judgement]]
) -> list[tuple[Judgement, tuple[Phase, ...]]]:
    """Each workload's judgement as its phases leave it, and the phases. `judgements`: over all rows of each; `judge`:
    gives one for each piece. A workload of several computations is what most of its time is."""
    apart = [[key for key in cut.pieces if key.label != "idle" or key == cut.main] for cut in cuts]
    given = iter(judge([cut.pieces[key] for cut, keys in zip(cuts, apart, strict=True) for key in keys]))
    parts = [{behaviour: next(given) for behaviour in behaviours} for behaviours in apart]
    others = [
        [
            behaviour for behaviour in pieces
            if abs(_computation(pieces[behaviour]) - _computation(pieces[cut.main])) >= math.log(OTHER_COMPUTATION)
        ]
        for cut, pieces in zip(cuts, parts, strict=True)
    ]  # fmt: skip
    # What anybody says of the workload is about the rest of its time.
    unnamed = {"workload_id": "", "name": "", "scheduler": "process", "scheduled": Scheduled(), "shared": False}
    unnamed |= dict.fromkeys(("namespace", "pod", "framework", "command"))
    pieces = (cut.pieces[behaviour] for cut, behaviours in zip(cuts, others, strict=True) for behaviour in behaviours)
    given = iter(judge([replace(piece, session=replace(piece.session, **unnamed)) for piece in pieces]))
    shapes = [{behaviour: next(given) for behaviour in other} for other in others]
    return [_judged(*case) for case in zip(cuts, judgements, parts, shapes, strict=True)]


def _computation(judged: Judgement) -> float:
    return math.log(ratio) if (ratio := judged.features.get("memory_over_compute", 0.0)) > 0 else math.nan


def _judged(
    cut: Cut, whole: Judgement, parts: Mapping[Behaviour, Judgement], shapes: Mapping[Behaviour, Judgement]
) -> tuple[Judgement, tuple[Phase, ...]]:
    if not parts:
        label = cut.turned[0].behaviour.label if cut.turned else "unknown"
        kind = "idle" if label == "idle" and whole.kind.label not in ON_DEMAND_KINDS else whole.kind.label
        return whole, tuple(Phase(turn.start, turn.end, kind, whole.bottleneck.label) for turn in cut.turned)
    lead = parts[cut.main]
    phases: dict[Behaviour, Phase] = {}
    others: list[tuple[float, Judgement]] = []
    total = sum(piece.seconds for piece in cut.pieces.values())
    for behaviour, piece in cut.pieces.items():
        judged = parts.get(behaviour)
        if judged is None:
            kind = lead.kind.label if lead.kind.label in ON_DEMAND_KINDS else "idle"
            phases[behaviour] = Phase(0.0, 0.0, kind, "idle", (_STOOD_STILL,))
            continue
        if behaviour in shapes:
            hours = np.median([turn.end - turn.start for turn in cut.turned if turn.behaviour == behaviour]) / HOUR
            judged = _by_shape(judged, shapes[behaviour], lead, hours=float(hours))
            if judged.kind.label != lead.kind.label:
                others.append((piece.seconds / total, judged))
        elif behaviour != cut.main:
            judged = replace(judged, kind=lead.kind)
        phases[behaviour] = _phase(judged, behaviour)
    idle = sum(piece.seconds for behaviour, piece in cut.pieces.items() if behaviour.label == "idle") / max(total, 1e-9)

    def told(turn: Turn) -> tuple[str, str, bool | None]:
        return phases[turn.behaviour].kind, phases[turn.behaviour].bottleneck, turn.behaviour.fabric

    # Neighbours with the same verdict are one, unless the fabric came or went between them.
    runs = (list(run) for _, run in itertools.groupby(cut.turned, key=told))
    merged = (replace(phases[run[0].behaviour], start=run[0].start, end=run[-1].end) for run in runs)
    return _whole(whole, lead, others, idle=idle), tuple(merged)


def _by_shape(named: Judgement, shape: Judgement, lead: Judgement, *, hours: float) -> Judgement:
    """What a phase is by its shape, where that decides; by name where that stays possible."""
    best = max((a.confidence for a in shape.kind.alternatives), default=0.0)
    likely = [a.label for a in shape.kind.alternatives if a.confidence >= POSSIBLE_SHARE * best]
    has_kind = shape.kind.label not in ("unknown", "idle")
    first = shape.kind.label if has_kind else likely[0] if likely else None
    if first in INFERENCE and hours < PHASE_HOURS_MIN and lead.kind.label in TRAINING_KINDS:
        kind = KindVerdict("batch-inference", shape.kind.confidence, (_EVALUATES, *shape.kind.evidence))
        return replace(shape, kind=kind)
    if has_kind or (likely and lead.kind.label not in likely):
        return shape
    return replace(named, kind=lead.kind) if named.kind.label == "unknown" else named


def _phase(judged: Judgement, behaviour: Behaviour) -> Phase:
    evidence = [*judged.kind.evidence[:1], *judged.bottleneck.evidence[:1]]
    if judged.kind.label == "unknown" and judged.kind.alternatives:
        kinds = _likely(judged.kind)
        evidence.insert(0, coded("likely-by-shape", "Most likely kind by activity: {kinds}.", kinds=kinds))
    if behaviour.fabric is not None:
        evidence.append(_FABRIC_USED if behaviour.fabric else _FABRIC_SILENT)
    return Phase(0.0, 0.0, judged.kind.label, judged.bottleneck.label, tuple(evidence))


def _whole(whole: Judgement, lead: Judgement, others: list[tuple[float, Judgement]], *, idle: float) -> Judgement:
    if others:
        said = (
            coded(
                "does-something-else",
                "{share:.0%} of its time is another activity: by its pattern {kinds}, bottleneck {bottleneck}.",
                share=share, kinds=_likely(judged.kind), bottleneck=judged.bottleneck.label,
            )
            for share, judged in others
        )  # fmt: skip
        kind = replace(lead.kind, evidence=(*said, *lead.kind.evidence))
        bottleneck = replace(lead.bottleneck, time_shares=whole.bottleneck.time_shares)
        return Judgement(whole.features, kind, bottleneck)
    # Rest alone changes no kind but one that was concluded from it; nothing else is taken from a part of the hours.
    if idle < 0.2 or whole.kind.label == "idle" or lead.kind.label in ("idle", "unknown", *ON_DEMAND_KINDS):
        return whole
    about = coded(
        "judged-while-at-work",
        "This verdict covers its active hours. The workload is idle {idle:.0%} of the time.", idle=idle,
    )  # fmt: skip
    return replace(whole, kind=replace(lead.kind, evidence=(*lead.kind.evidence, about)))


def _likely(kind: KindVerdict) -> str:
    if kind.label != "unknown":
        return kind.label
    return " or ".join(a.label for a in kind.alternatives[:2]) or "an unknown kind"


# A run shorter than this has little to show (verdicts on kind gain confidence up to a day).
SHORT_SECONDS = 6 * HOUR
# A short run's kind of less confidence than this is no better than what its series says.
UNSURE_BELOW = 0.85
# Runs that agree in so much of their time speak for a run that says nothing itself.
AGREEMENT_MIN = 0.8
# Signals that contradict one another in this share of the time are no case for a guess from elsewhere.
FAULT_SHARE_MAX = 0.05


def with_series(
    verdicts: Sequence[WorkloadVerdict], pieces: Sequence[Piece],
    judge: Callable[[Sequence[Piece]], list[Judgement]],
) -> list[WorkloadVerdict]:  # fmt: skip
    """The verdicts, the largest first, with short runs judged by the longer runs of their series, or where there are
    none by the short ones of as many GPUs together. `pieces`: all rows of each workload; `judge`: of each piece."""
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
        kind_verdict = _agreed([v for v in members if v.kind.label != "unknown" and v not in open_], open_)
        if kind_verdict is not None:
            kinds |= dict.fromkeys((v.id for v in open_), kind_verdict)
            continue
        for gpus in sorted({len(v.gpus) for v in open_}):
            alike = [v for v in open_ if len(v.gpus) == gpus]
            if (piece := _together(alike, piece_of)) is not None:
                together.append((alike, piece))
    for (alike, _), judged in zip(together, judge([piece for _, piece in together]), strict=True):
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


def _agreed(judged: list[WorkloadVerdict], open_: list[WorkloadVerdict]) -> KindVerdict | None:
    hours: dict[str, float] = {}
    for verdict in judged:
        hours[verdict.kind.label] = hours.get(verdict.kind.label, 0.0) + verdict.gpu_hours
    total, label = sum(hours.values()), max(hours, key=lambda name: hours[name], default="")
    if total <= 0 or total < sum(v.gpu_hours for v in open_) or hours[label] < AGREEMENT_MIN * total:
        return None
    like = [v for v in judged if v.kind.label == label]
    said = CodedText(
        "told-by-its-series",
        f"Too short to classify alone; {len(like)} other {'run' if len(like) == 1 else 'runs'} of the same series: "
        f"{label}.",
        {"runs": len(like), "kind": label},
    )
    confidence = AGREEMENT_MIN * max(v.kind.confidence for v in like)
    return KindVerdict(like[0].kind.label, round(max(confidence, 0.6), 3), (said,))


def _together(alike: Sequence[WorkloadVerdict], piece_of: Mapping[str, Piece]) -> Piece | None:
    parts = [piece_of[v.id].rows for v in alike if len(piece_of[v.id].rows)]
    if len(parts) < 2:
        return None
    sessions = [piece_of[v.id].session for v in alike]
    lead = piece_of[max(alike, key=lambda v: (v.gpu_hours, v.id)).id].session
    end = max(v.end for v in alike)
    whole = replace(
        lead, start=end - sum(v.end - v.start for v in alike), end=end,
        first_seen=min(session.first_seen for session in sessions),
        last_seen=max(session.last_seen for session in sessions),
        held_seconds=sum(session.held_seconds for session in sessions),
    )  # fmt: skip
    return Piece(whole, parts[0].taken(np.concatenate([rows.at for rows in parts])))


def _with_kind(verdict: WorkloadVerdict, kind: KindVerdict) -> WorkloadVerdict:
    reasons = tuple(reason for reason in verdict.kind.evidence if reason not in kind.evidence)
    labels = ("unknown", verdict.kind.label)  # the new label replaces an unknown or vague one
    phases = tuple(replace(p, kind=kind.label) if p.kind in labels else p for p in verdict.phases)
    return replace(verdict, kind=replace(kind, evidence=(*kind.evidence, *reasons)), phases=phases)
