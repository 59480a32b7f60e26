"""What each phase of a workload is: the judge of whole workloads asked about the hours of each behaviour.

A name says what most of a workload's time is for. A phase that computes otherwise is judged by its shape alone; a phase
that only waits for something else (input, links, a slower clock) is the same kind of work, held back by another thing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...core.coded_text import coded
from ...core.verdict_types import KindVerdict, Phase, Scheduled
from ..pieces import Judgement, Piece
from .change_points import DEMANDED, HOUR, PHASE_HOURS_MIN, Behaviour, Cut, Turn

# Memory against compute, in the mean of a behaviour: where it is so many times that of another, something else runs.
OTHER_COMPUTATION = 2.0
# A kind stays possible where it is at least so likely as this share of the likeliest.
POSSIBLE_SHARE = 0.5
LEARNING = ("training", "fine-tuning")
INFERENCE = ("online-inference", "batch-inference")
_EVALUATES = coded(
    "evaluates", "Inference for an hour or two at a time within a training job, typical of evaluation, not of serving."
)
_STOOD_STILL = coded("stood-still", "Engine and memory idle.")
_FABRIC_USED = coded("phase-uses-fabric", "Fabric of its nodes in use.")
_FABRIC_SILENT = coded("phase-without-fabric", "No fabric traffic.")


def judge_phases(
    cuts: Sequence[Cut], judgements: Sequence[Judgement], judge: Callable[[Iterable[Piece]], list[Judgement]]
) -> list[tuple[Judgement, tuple[Phase, ...]]]:
    """Each workload's judgement as its phases leave it, and the phases.

    `judgements`: over all rows of each; `judge`: gives one for each piece. A workload of several computations is what
    most of its time is: a judgement over all its hours would blur them into one that fits none.
    """
    apart = [[one for one in cut.pieces if one.label != "idle" or one == cut.main] for cut in cuts]
    given = iter(judge(cut.pieces[one] for cut, own in zip(cuts, apart, strict=True) for one in own))
    parts = [{one: next(given) for one in own} for own in apart]
    others = [
        [
            one for one in own
            if abs(_computation(own[one]) - _computation(own[cut.main])) >= math.log(OTHER_COMPUTATION)
        ]
        for cut, own in zip(cuts, parts, strict=True)
    ]  # fmt: skip
    # What anybody says of the workload is about the rest of its time.
    unnamed = {"workload_id": "", "name": "", "scheduler": "process", "scheduled": Scheduled(), "shared": False}
    unnamed |= dict.fromkeys(("namespace", "pod", "framework", "command"))
    pieces = (cut.pieces[one] for cut, own in zip(cuts, others, strict=True) for one in own)
    given = iter(judge(replace(piece, session=replace(piece.session, **unnamed)) for piece in pieces))
    shapes = [{one: next(given) for one in own} for own in others]
    return [_judged(*one) for one in zip(cuts, judgements, parts, shapes, strict=True)]


def _computation(judged: Judgement) -> float:
    """Memory over compute, by its logarithm; NaN: not known."""
    return math.log(ratio) if (ratio := judged.features.get("memory_over_compute", 0.0)) > 0 else math.nan


def _judged(
    cut: Cut, whole: Judgement, parts: Mapping[Behaviour, Judgement], shapes: Mapping[Behaviour, Judgement]
) -> tuple[Judgement, tuple[Phase, ...]]:
    """`parts`: of the behaviours that are judged apart; `shapes`: had nobody named them, of those that compute
    otherwise than the main one."""
    if not parts:
        label = cut.turned[0].behaviour.label if cut.turned else "unknown"
        kind = "idle" if label == "idle" and whole.kind.label not in DEMANDED else whole.kind.label
        return whole, tuple(Phase(turn.start, turn.end, kind, whole.bottleneck.label) for turn in cut.turned)
    lead = parts[cut.main]
    phases: dict[Behaviour, Phase] = {}
    others: list[tuple[float, Judgement]] = []
    total = sum(piece.seconds for piece in cut.pieces.values())
    for behaviour, piece in cut.pieces.items():
        judged = parts.get(behaviour)
        if judged is None:
            kind = lead.kind.label if lead.kind.label in DEMANDED else "idle"
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
    """What a phase is by its shape, where that tells; by name where its shape leaves the kind of the rest possible."""
    best = max((a.confidence for a in shape.kind.alternatives), default=0.0)
    likely = [a.label for a in shape.kind.alternatives if a.confidence >= POSSIBLE_SHARE * best]
    known = shape.kind.label not in ("unknown", "idle")
    first = shape.kind.label if known else likely[0] if likely else None
    if first in INFERENCE and hours < PHASE_HOURS_MIN and lead.kind.label in LEARNING:
        kind = KindVerdict("batch-inference", shape.kind.confidence, (_EVALUATES, *shape.kind.evidence))
        return replace(shape, kind=kind)
    if known or (likely and lead.kind.label not in likely):
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
    """The whole, named after what most of its time is, with the rest told."""
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
    # Rest alone changes no kind but one that was told from it; nothing else is taken from a part of the hours.
    if idle < 0.2 or whole.kind.label == "idle" or lead.kind.label in ("idle", "unknown", *DEMANDED):
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
