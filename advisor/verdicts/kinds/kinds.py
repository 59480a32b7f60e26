"""What kind of work a workload is: metadata first, shape second, abstaining where neither is enough.

A transparent additive model: every piece of evidence adds or takes log-odds and says why in words; the sum becomes
confidences by a softmax. What people wrote speaks by priors stated by hand (kind_metadata.py); the shapes of the
signals (kind_shapes.py) speak by weights that were fitted on labelled examples and calibrated on others
(rules/kind_model.yaml, `make model`). It works from the shape alone where names say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ....rules.models.kind_model import KindModel
from ....rules.policy.labels import KindLabel
from ....rules.policy.thresholds import Threshold
from ...core.coded_text import CodedText, coded
from ...core.verdict_types import Alternative, KindVerdict
from ..features.features import Features
from .clue import Clue
from .kind_signals import FINE_SECONDS, SHAPES

# What the model tells apart. Idleness is no matter of likeness: it is counted.
WORKING: tuple[KindLabel, ...] = ("training", "fine-tuning", "online-inference", "batch-inference", "interactive")
LABELS: tuple[KindLabel, ...] = (*WORKING, "idle")
# Below this many log-odds a shape is not worth a sentence.
_WORTH_SAYING = 0.15
# Contradictions in less of the time than this are moments of a restart.
_FAULTY = 0.05
_AGAINST = -0.4
# What stood idle for nearly all of its time is idle, whatever its name and shape; anything else is not. A name that
# says otherwise stays in the alternatives.
_IDLE, _NOT_IDLE = 8.0, -12.0
_RUNS_ON = ("training", "fine-tuning", "batch-inference")
# What tells these three apart beyond likeness: log-odds of a name, levels of shapes that only work in steps has.
_NAMED = 1.0
_SHOWN = 0.3
_TELLING = ("periodic", "collectives", "fabric-busy")


def judge_kind(
    names: Sequence[Clue],
    features: Features,
    thresholds: Mapping[str, Threshold],
    model: KindModel,
    observed: float = 1.0,
) -> KindVerdict:
    """The kind of one workload, its confidence, and the reasons, the strongest first.

    `names`: what people and schedulers say of it. `observed`: share of its time that was observed. What rested whenever
    it was looked at is idle only where little of its time went unobserved.
    """
    clues = list(names)
    ceiling = _ceiling(features, named=bool(names))
    measured = any(name in features for name in ("engine_active", "sm_active", "hbm_utilization"))
    if not measured and not clues:
        return KindVerdict("unknown", 0.0, (coded("activity-not-measured", "Nothing of its activity was measured."),))
    scores: dict[KindLabel, float] = dict.fromkeys(LABELS, 0.0)
    rested = features.get("idle_share", 0.0)
    if rested >= thresholds["idle_share_min"].value > rested * observed:
        said = coded(
            "rest-hardly-observed",
            "It rested in {rested:.0%} of what was observed, and only {observed:.0%} of its time was.",
            rested=rested, observed=observed,
        )  # fmt: skip
        return KindVerdict("unknown", 0.0, (said,), (Alternative("idle", round(rested * observed, 3)),))
    if rested >= thresholds["idle_share_min"].value:
        clues.append(_idleness(features, thresholds))
    else:
        scores["idle"] = _NOT_IDLE
        if measured:
            clues += _shape_clues(features, model)
            scores |= {label: model.intercept(label) for label in WORKING}
    for clue in clues:
        for label in LABELS:
            scores[label] += clue.weights.get(label, 0.0)
    confidences = softmax(scores)
    ranked = sorted(LABELS, key=lambda name: -confidences[name])
    label = ranked[0]
    faulty = features.get("fault_share", 0.0)
    faulty = faulty if faulty >= _FAULTY else 0.0
    told = label not in _RUNS_ON or _told_apart(names, features)
    certain = 1.0 if told else thresholds["untold_confidence"].value
    confidence = round(min(confidences[label], ceiling) * certain * (1 - 0.5 * faulty), 3)
    evidence = (*_faults(faulty), *_ordered(clues, label), *_limits(features, label))
    others = tuple(Alternative(n, round(confidences[n], 3)) for n in ranked[1:] if confidences[n] >= 0.05)
    if confidence < thresholds["abstain_below"].value:
        return KindVerdict("unknown", confidence, evidence, (Alternative(label, confidence), *others))
    return KindVerdict(label, confidence, evidence, others)


def softmax(scores: Mapping[KindLabel, float]) -> Mapping[KindLabel, float]:
    """Shares that sum to 1 from log-odds."""
    top = max(scores.values())
    total = sum(math.exp(score - top) for score in scores.values())
    return {label: math.exp(score - top) / total for label, score in scores.items()}


def _observed_hours(features: Features) -> float:
    """Hours of data of each GPU."""
    return features.get("hours", 0.0) / max(features.get("gpus", 1.0), 1.0)


def _ceiling(features: Features, *, named: bool) -> float:
    """Little data cannot make much confidence: 0.75 after half an hour of it, 0.9 after six hours, 0.99 after a day.

    A shape of less than ten minutes is none: without a name it never reaches a verdict.
    """
    hours = _observed_hours(features)
    least = 0.65 if named or hours >= 1 / 6 else 0.5
    return 0.99 if hours >= 24 else 0.9 if hours >= 6 else 0.8 if hours >= 1 else 0.75 if hours >= 0.5 else least


def _faults(share: float) -> Iterator[CodedText]:
    if share > 0:
        yield coded(
            "telemetry-faulty",
            "Its signals contradict one another in {share:.0%} of the time (power or engine high, activity zero): a "
            "fault of the telemetry, not idleness.",
            share=share,
        )


def _shape_clues(features: Features, model: KindModel) -> Iterator[Clue]:
    for shape in SHAPES:
        level = shape.level(features)
        if level > 0:
            yield Clue({label: level * model.weight(shape.name, label) for label in WORKING}, shape.told(features))


def _idleness(features: Features, thresholds: Mapping[str, Threshold]) -> Clue:
    share = features.get("idle_share", 0.0)
    most, level = thresholds["idle_engine_max"].value, features.get("mem_level", 0.0)
    said = coded(
        "stood-idle", "Engine and memory stood below {most:.0%} in {share:.0%} of the time.", most=most, share=share
    )
    over = features.get("power_over_idle")
    held = over is not None and over >= thresholds["held_power_over_idle_min"].value
    if held or level >= 0.02:
        power = "" if over is None else f", power {over:.1f} times idle"
        said = CodedText(
            "stood-idle-and-held",
            f"{said.text} It holds the GPU all the same: {level:.0%} of the memory{power}.",
            {**said.fields, "mem_level": level, "power_over_idle": over},
        )
    return Clue({"idle": _IDLE}, said)


def _ordered(clues: Sequence[Clue], label: KindLabel) -> Iterator[CodedText]:
    """Reasons for the label, the strongest first, then what speaks against it."""
    for clue in sorted(clues, key=lambda c: -c.weights.get(label, 0.0)):
        weight = clue.weights.get(label, 0.0)
        if weight >= _WORTH_SAYING:
            yield clue.reason
        elif weight <= _AGAINST:
            text = clue.reason.text
            yield CodedText(
                "speaks-against",
                f"Against it: {text[:1].lower()}{text[1:]}",
                {"clue": clue.reason.code, **clue.reason.fields},
            )


def _told_apart(names: Sequence[Clue], features: Features) -> bool:
    """Whether anything was seen that tells training from batch inference: a name, a step, or GPUs that work together.

    All else (memory, writes, length of life) is of one sort of work in one place and of the other in another.
    """
    if any(max(clue.weights.values()) >= _NAMED for clue in names):
        return True
    if any(shape.level(features) >= _SHOWN for shape in SHAPES if shape.name in _TELLING):
        return True
    # Samples fine enough for a step that show none are telling too, where GPUs could be in step.
    return features.get("resolution_seconds", 1.0) <= FINE_SECONDS and features.get("gpus", 1.0) > 1


def _limits(features: Features, label: KindLabel) -> Iterator[CodedText]:
    """What data of this sort cannot tell."""
    hours = _observed_hours(features)
    if hours < 1:
        yield CodedText("minutes-observed", f"Only {60 * hours:.0f} minutes of it were observed.", {"hours": hours})
    if label not in _RUNS_ON:
        return
    if features.get("gpus") == 1:
        yield coded(
            "one-gpu-looks-alike",
            "On one GPU training and batch inference look alike: no links, nothing to be in step.",
        )
    if features.get("resolution_seconds", 1.0) > FINE_SECONDS:
        yield coded(
            "samples-show-no-step",
            "Samples {seconds:.0f} s apart show no step: training and batch inference are told apart by memory, writes "
            "and length of life alone.",
            seconds=features["resolution_seconds"],
        )
