"""What each phase of a workload is: the judge of whole workloads asked about the hours of each behaviour.

A name says what most of a workload's time is for. A phase that computes otherwise is judged by its shape alone; a phase
that only waits for something else (input, links, a slower clock) is the same kind of work, held back by another thing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...core.advice_types import BottleneckVerdict, KindVerdict, Phase
from ...core.coded_text import coded
from ..workloads.attribution import Session
from .change_points import HOUR, PHASE_HOURS_MIN, Behaviour, Turn, behaviour_of

# Memory against compute, in the mean of a behaviour: where it is so many times that of another, something else runs.
OTHER_COMPUTATION = 2.0
# A kind stays possible where it is at least so likely as this share of the likeliest.
POSSIBLE_SHARE = 0.5
# Kinds that wait for demand: their hours without any are not idle, they are waiting.
DEMANDED = ("online-inference", "interactive")
LEARNING = ("training", "fine-tuning")
INFERENCE = ("online-inference", "batch-inference")
_EVALUATES = coded(
    "evaluates",
    "It infers for an hour or two at a time within a job that learns, as an evaluation does: nobody is served so.",
)
_STOOD_STILL = coded("stood-still", "Engine and memory stood still.")
_FABRIC_USED = coded("phase-uses-fabric", "The fabric of its nodes is in use.")
_FABRIC_SILENT = coded("phase-without-fabric", "The fabric carries nothing.")


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the judge says of some rows of a workload."""

    found: Mapping[str, float]
    kind: KindVerdict
    bottleneck: BottleneckVerdict


Ask = Callable[[Session, pd.DataFrame], Judgement]


def judge_phases(
    session: Session, mine: pd.DataFrame, ts: np.ndarray, turned: tuple[Turn, ...], *, whole: Judgement, ask: Ask
) -> tuple[Judgement, tuple[Phase, ...]]:
    """The judgement of the whole as its phases leave it, and the phases.

    `mine`: the workload's rows, `ts` their ends, `whole` the judgement over all of them, `ask` the judge. A workload
    of several computations is what most of its time is: a judgement over all its hours would blur them into one that
    fits none.
    """
    behaviours = list(dict.fromkeys(turn.behaviour for turn in turned))
    if len(behaviours) < 2:
        label = behaviours[0].label if behaviours else "unknown"
        kind = "idle" if label == "idle" and whole.kind.label not in DEMANDED else whole.kind.label
        return whole, tuple(Phase(turn.start, turn.end, kind, whole.bottleneck.label) for turn in turned)
    position = behaviour_of(turned, ts)
    number = np.array([behaviours.index(turn.behaviour) for turn in turned])[position]
    seconds = np.bincount(number, weights=mine["seconds"].to_numpy(float), minlength=len(behaviours))
    working = [n for n, b in enumerate(behaviours) if b.label != "idle"] or list(range(len(behaviours)))
    main = max(working, key=lambda n: seconds[n])
    lead = _asked(session, mine[number == main], turned, behaviours[main], ask)
    told: dict[Behaviour, Phase] = {behaviours[main]: _phase(lead, behaviours[main])}
    others: list[tuple[float, Judgement]] = []
    for n, behaviour in enumerate(behaviours):
        if n == main:
            continue
        own = mine[number == n]
        if behaviour.label == "idle":
            kind = lead.kind.label if lead.kind.label in DEMANDED else "idle"
            told[behaviour] = Phase(0.0, 0.0, kind, "idle", (_STOOD_STILL,))
            continue
        named = _asked(session, own, turned, behaviour, ask)
        if _computes_otherwise(named.found, lead.found):
            shape = _asked(_nameless(session), own, turned, behaviour, ask)
            judged = _by_shape(named, shape, lead, hours=_typical_hours(turned, behaviour))
            if judged.kind.label != lead.kind.label:
                others.append((float(seconds[n] / seconds.sum()), judged))
        else:
            judged = dataclasses.replace(named, kind=lead.kind)
        told[behaviour] = _phase(judged, behaviour)
    return _whole(whole, lead, others, idle=_idle_share(behaviours, seconds)), _merged(turned, told)


def _asked(session: Session, own: pd.DataFrame, turned: tuple[Turn, ...], behaviour: Behaviour, ask: Ask) -> Judgement:
    """The judge's answer about one behaviour, as of a workload that lasted as long as that behaviour did."""
    lasted = float(sum(turn.end - turn.start for turn in turned if turn.behaviour == behaviour))
    end = max(turn.end for turn in turned if turn.behaviour == behaviour)
    return ask(dataclasses.replace(session, start=end - lasted, end=end), own)


def _nameless(session: Session) -> Session:
    return dataclasses.replace(session, name="", scheduler="process", pod=None, framework=None, command=None)


def _typical_hours(turned: tuple[Turn, ...], behaviour: Behaviour) -> float:
    return float(np.median([turn.end - turn.start for turn in turned if turn.behaviour == behaviour])) / HOUR


def _by_shape(named: Judgement, shape: Judgement, lead: Judgement, *, hours: float) -> Judgement:
    """What a phase is by its shape, where that tells; by name where its shape leaves the kind of the rest possible."""
    best = max((a.confidence for a in shape.kind.alternatives), default=0.0)
    likely = [a.label for a in shape.kind.alternatives if a.confidence >= POSSIBLE_SHARE * best]
    known = shape.kind.label not in ("unknown", "idle")
    first = shape.kind.label if known else likely[0] if likely else None
    if first in INFERENCE and hours < PHASE_HOURS_MIN and lead.kind.label in LEARNING:
        kind = KindVerdict("batch-inference", shape.kind.confidence, (_EVALUATES, *shape.kind.evidence))
        return dataclasses.replace(shape, kind=kind)
    if known:
        return shape
    if likely and lead.kind.label not in likely:
        return shape
    return dataclasses.replace(named, kind=lead.kind) if named.kind.label == "unknown" else named


def _computes_otherwise(found: Mapping[str, float], lead: Mapping[str, float]) -> bool:
    ours, theirs = found.get("memory_over_compute"), lead.get("memory_over_compute")
    if ours is None or theirs is None or min(ours, theirs) <= 0:
        return False
    return abs(math.log(ours / theirs)) >= math.log(OTHER_COMPUTATION)


def _phase(judged: Judgement, behaviour: Behaviour) -> Phase:
    evidence = [*judged.kind.evidence[:1], *judged.bottleneck.evidence[:1]]
    if judged.kind.label == "unknown" and judged.kind.alternatives:
        kinds = _likely(judged.kind)
        evidence.insert(0, coded("likely-by-shape", "By its shape {kinds}.", kinds=kinds))
    if behaviour.fabric is not None:
        evidence.append(_FABRIC_USED if behaviour.fabric else _FABRIC_SILENT)
    return Phase(0.0, 0.0, judged.kind.label, judged.bottleneck.label, tuple(evidence))


def _idle_share(behaviours: list[Behaviour], seconds: np.ndarray) -> float:
    idle = sum(float(s) for b, s in zip(behaviours, seconds, strict=True) if b.label == "idle")
    return idle / max(float(seconds.sum()), 1e-9)


def _whole(whole: Judgement, lead: Judgement, others: list[tuple[float, Judgement]], *, idle: float) -> Judgement:
    """The whole, named after what most of its time is, with the rest told."""
    if not others and idle < 0.2:
        return whole
    said = tuple(
        coded(
            "does-something-else",
            "In {share:.0%} of its time it does something else, by its shape {kinds} ({bottleneck}), whatever its name "
            "says.",
            share=share,
            kinds=_likely(judged.kind),
            bottleneck=judged.bottleneck.label,
        )
        for share, judged in others
    )
    # Rest alone changes no kind but one that was told from it; nothing else is taken from a part of the hours.
    if not others and (whole.kind.label == "idle" or lead.kind.label in ("idle", "unknown", *DEMANDED)):
        return whole
    kind = dataclasses.replace(lead.kind, evidence=(*said, *lead.kind.evidence))
    if not others:
        return dataclasses.replace(whole, kind=kind)
    bottleneck = dataclasses.replace(lead.bottleneck, time_shares=whole.bottleneck.time_shares)
    return Judgement(whole.found, kind, bottleneck)


def _likely(kind: KindVerdict) -> str:
    if kind.label != "unknown":
        return kind.label
    return " or ".join(a.label for a in kind.alternatives[:2]) or "of no known kind"


def _merged(turned: tuple[Turn, ...], told: Mapping[Behaviour, Phase]) -> tuple[Phase, ...]:
    """Phases in their order; neighbours with the same verdict are one, unless the fabric came or went between them."""
    out: list[tuple[Turn, Phase]] = []
    for turn in turned:
        phase = dataclasses.replace(told[turn.behaviour], start=turn.start, end=turn.end)
        before = out[-1] if out else None
        same = before is not None and (before[1].kind, before[1].bottleneck) == (phase.kind, phase.bottleneck)
        if before is not None and same and before[0].behaviour.fabric == turn.behaviour.fabric:
            out[-1] = (before[0], dataclasses.replace(before[1], end=turn.end))
        else:
            out.append((turn, phase))
    return tuple(phase for _, phase in out)
