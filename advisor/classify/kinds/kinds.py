"""What kind of work a workload is: facts and metadata first, shape second, abstaining where neither is enough.

Every piece of evidence adds or takes log-odds and says why; the sum becomes confidences by a softmax. Names speak by
stated priors (clues.py), shapes of signals by weights fitted on real series and calibrated on owners left out
(shapes.py, rules/kind_model.yaml), each only for or against the kinds that it declares. Training and fine-tuning differ
by length and number of GPUs alone: a verdict of either is as sure as that it is one of them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ....rules.models import KindModel
from ....rules.policy.labels import JOB_KINDS, TRAINING_KINDS, WORKING_KINDS, KindLabel
from ....rules.policy.thresholds import Levels
from ...core.coded_text import CodedText, coded
from ...core.verdict_types import Alternative, KindVerdict
from ..features.course import DIURNAL_DAYS_MIN
from ..features.features import PERIOD_INTERVAL_MAX_SECONDS, Features
from .clues import RULED_OUT, Clue
from .shapes import SHAPES, low_in_lockstep, with_derived

LABELS: tuple[KindLabel, ...] = (*WORKING_KINDS, "idle")
# From this share of the two on, the less likely of training and fine-tuning is said in words.
_EITHER = 0.3
# Below this many log-odds a shape is not worth a sentence.
_WORTH_SAYING = 0.15
# Contradictions in less of the time than this are moments of a restart.
_FAULTY = 0.05
_AGAINST = -0.4
# Replicas on standby answer probes with 0.001 to 0.004 of the engine's time (rules/waste/idle-fabric.yaml); the
# lightest production pods that are known work for 0.006.
_LIGHT_USE_MIN = 0.005
# What stood idle for nearly all of its time is idle, whatever its name and shape; anything else is not. A name that
# says otherwise stays in the alternatives.
_IDLE = 8.0
_CLEARLY = 0.5  # level of a shape
# Real idle series of minutes, of which a source saw 0.82 to 0.93, are idle.
_OBSERVED_MIN = 0.8
_NAMED = 1.0  # log-odds of a name that overrules nothing and is listed all the same
_HALF_A_DAY, _MINUTES = 12.0, 0.1  # hours
_NO_VERDICT = 0.45  # below what makes a verdict
NOT_CONFIRMED = "GPU activity is 0 throughout, but power does not show that the GPU rests."
_CONTRADICTED = (
    "Signals contradict one another {share:.0%} of the time (power or engine high, activity zero): a telemetry fault, "
    "not idleness."
)
# The most that is said of jobs on one GPU without a step, a link or a name: of 39 real series, repeated for 40 hours,
# of which models that never saw their owners said more, 85 % were right.
_ALIKE = 0.85


def judge_kind(
    names: Sequence[Clue], features: Features, levels: Levels, model: KindModel, observed: float = 1.0
) -> KindVerdict:
    """The kind of one workload, its confidence, and the reasons, the strongest first. `names`: what people say of it.
    `observed`: share of its time that was observed."""
    clues = [_Heard(clue.weights, partial(_same, clue.reason), named=True) for clue in names]
    active = [features[name] for name in ("engine_active", "sm_active", "hbm_utilization") if name in features]
    rested = features.get("idle_share", 0.0)
    # Zero throughout that is no rest has no shape: a counter that is stuck.
    measured = any(active) or (bool(active) and rested > 0)
    if not measured and not clues:
        unmeasured = coded("activity-not-measured", "No activity data.")
        return KindVerdict("unknown", 0.0, (coded("zero-not-confirmed", NOT_CONFIRMED) if active else unmeasured,))
    scores: dict[KindLabel, float] = dict.fromkeys(LABELS, 0.0)
    in_many_hours = features.get("active_share", 0.0) > levels.idle_active_hours_max
    if in_many_hours and features.get("engine_active", 0.0) >= _LIGHT_USE_MIN:
        rested = 0.0  # a little in many of its hours is light use: a mean and a percentile of an hour hide it
    is_idle = rested >= levels.idle_share_min
    if is_idle and observed < _OBSERVED_MIN:
        said = coded(
            "rest-hardly-observed",
            "Idle in {rested:.0%} of the observed time, but only {observed:.0%} of its time was observed.",
            rested=rested, observed=observed,
        )  # fmt: skip
        return KindVerdict("unknown", 0.0, (said,), (Alternative("idle", round(rested * observed, 3)),))
    if is_idle:
        clues.append(_idleness(features, levels))
    else:
        scores["idle"] = RULED_OUT
        if measured:
            numbers = with_derived(features)
            for shape, level in ((shape, shape.level(numbers)) for shape in SHAPES):
                weights = {label: level * weight for label, weight in model.weights[shape.name].items()}
                clues += [_Heard(weights, partial(shape.told, numbers))] if level > 0 else []
            scores |= {label: model.intercepts[label] for label in WORKING_KINDS}
            is_served = any(clue.weights.get("online-inference", 0.0) > 0 for clue in names)
            if low_in_lockstep(numbers) >= _CLEARLY and not is_served:
                scores["online-inference"] = RULED_OUT  # replicas of a service do not move as one
    for clue in clues:
        for label in LABELS:
            scores[label] += clue.weights.get(label, 0.0)
    confidences = softmax(scores)
    ranked: list[KindLabel] = sorted(LABELS, key=lambda name: -confidences[name])
    label, sure = likeliest(confidences)
    faulty = features.get("fault_share", 0.0)
    faulty = faulty if faulty >= _FAULTY else 0.0
    sure = min(sure, observed) if label == "idle" else model.calibrated(sure)
    if label in JOB_KINDS and not names and features.get("gpus", 1.0) <= 1 and not features.get("period_share"):
        sure = min(sure, _ALIKE)
    confidence = round(min(sure, _ceiling(features, named=bool(names) or is_idle)) * (1 - 0.5 * faulty), 3)
    faults = [coded("telemetry-faulty", _CONTRADICTED, share=faulty)] if faulty else []
    evidence = (*faults, *_ordered(clues, label), *_limits(features, label, confidences))
    learning = {*TRAINING_KINDS}
    rivals: list[KindLabel] = [rival for rival in ranked if rival != label and not {rival, label} <= learning]
    others = tuple(Alternative(name, round(confidences[name], 3)) for name in rivals if confidences[name] >= 0.05)
    if confidence < levels.abstain_below:
        second: KindLabel = next(rival for rival in rivals if rival != "idle")
        settling = settled_by(label, second, features, names, model) if label != "idle" else ()
        return KindVerdict("unknown", confidence, (*evidence, *settling), (Alternative(label, confidence), *others))
    return KindVerdict(label, confidence, evidence, others)


def likeliest(shares: Mapping[KindLabel, float]) -> tuple[KindLabel, float]:
    """The kind to say and its share; that of training and fine-tuning together where it is one of them."""
    learning = sum(shares[name] for name in TRAINING_KINDS)
    label = max(shares, key=lambda name: (learning if name in TRAINING_KINDS else shares[name], shares[name]))
    return label, learning if label in TRAINING_KINDS else shares[label]


def softmax(scores: Mapping[KindLabel, float]) -> Mapping[KindLabel, float]:
    top = max(scores.values())
    total = sum(math.exp(score - top) for score in scores.values())
    return {label: math.exp(score - top) / total for label, score in scores.items()}


def _observed_hours(features: Features) -> float:
    return features.get("hours", 0.0) / max(features.get("gpus", 1.0), 1.0)


def _ceiling(features: Features, *, named: bool) -> float:
    """At most 0.9 after half an hour, 0.95 after an hour, 0.99 after a day (docs/method.md). Without rest or a name,
    less than ten minutes, or half a day with minutes of work, never reach a verdict."""
    hours = _observed_hours(features)
    worked = features.get("engine_active", features.get("sm_active", 1.0)) * hours
    if not named and (hours < 1 / 6 or (hours < _HALF_A_DAY and worked < _MINUTES)):
        return _NO_VERDICT
    return 0.99 if hours >= 24 else 0.95 if hours >= 1 else 0.9 if hours >= 0.5 else 0.8


@dataclass(frozen=True, slots=True)
class _Heard:
    """A clue (`Clue`) whose reason is put into words only where it is shown. `named`: people or schedulers say it."""

    weights: Mapping[str, float]
    reason: Callable[[], CodedText]
    named: bool = False


def _same(reason: CodedText) -> CodedText:
    return reason


def _idleness(features: Features, levels: Levels) -> _Heard:
    share = features.get("idle_share", 0.0)
    most, level = levels.idle_engine_max, features.get("mem_level", 0.0)
    text = "Engine and memory activity below {most:.0%} in {share:.0%} of the time."
    said = coded("stood-idle", text, most=most, share=share)
    over = features.get("power_over_idle")
    held = over is not None and over >= levels.held_power_over_idle_min
    if held or level >= 0.02:
        power = "" if over is None else f", power {over:.1f} times the idle level"
        said = CodedText(
            "stood-idle-and-held",
            f"{said.text} The GPU is still held: {100 * level:.0f} % of the memory{power}.",
            {**said.fields, "mem_level": level, "power_over_idle": over},
        )
    return _Heard({"idle": _IDLE}, partial(_same, said))


def _ordered(clues: Sequence[_Heard], label: KindLabel) -> Iterator[CodedText]:
    """Reasons for the label, the strongest first, then what speaks against it. Names only ever raise a kind: one that
    raises another is listed, too."""
    for clue in sorted(clues, key=lambda c: -c.weights.get(label, 0.0)):
        weight = clue.weights.get(label, 0.0)
        if weight >= _WORTH_SAYING:
            yield clue.reason()
        elif weight <= _AGAINST or (clue.named and weight <= 0 and max(clue.weights.values()) >= _NAMED):
            reason = clue.reason()
            text = reason.text
            began = text if text[1:2].isupper() else text[:1].lower() + text[1:]
            yield CodedText("speaks-against", f"Evidence against: {began}", {"clue": reason.code, **reason.fields})


def _limits(features: Features, label: KindLabel, confidences: Mapping[KindLabel, float]) -> Iterator[CodedText]:
    hours = _observed_hours(features)
    if hours < 1:
        yield CodedText("minutes-observed", f"Only {60 * hours:.0f} minutes of data.", {"hours": hours})
    if label in JOB_KINDS and features.get("gpus") == 1:
        text = "On one GPU, training and batch inference look alike: there is no traffic between GPUs to compare."
        yield coded("one-gpu-looks-alike", text)
    if label in TRAINING_KINDS:
        other = TRAINING_KINDS[1 - TRAINING_KINDS.index(label)]
        share = confidences[other] / (confidences[other] + confidences[label])
        if share >= _EITHER:
            text = "Training or fine-tuning: only length and size distinguish them ({label} is likelier, {share:.0%})."
            yield coded("training-or-fine-tuning", text, label=label, other=other, share=1 - share)


# Log-odds that a scheduler's word for its work carries, at least; the priors are stated beside each.
_OWNER_SAYS = 2.0
_TELLING_MIN = math.log(2.0)  # what cannot double the odds settles nothing
# What a source could add: code, words, whether it is missing, and the shapes that it would show.
_WITNESSES: tuple[tuple[str, str, Callable[[Features], bool], tuple[str, ...]], ...] = (
    (
        "settled-by-seconds",
        "samples one second apart (run the skuwise agent on its node)",
        lambda f: f.get("resolution_seconds", 1.0) > PERIOD_INTERVAL_MAX_SECONDS,
        ("periodic", "aperiodic", "pauses"),
    ),
    (
        "settled-by-pipes",
        "tensor and memory activity (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE and DCGM_FI_PROF_DRAM_ACTIVE)",
        lambda f: "tensor_utilization" not in f or "hbm_utilization" not in f,
        ("bandwidth-bound", "compute-bound", "thin-seconds"),
    ),
    (
        "settled-by-nvlink",
        "NVLink traffic (DCGM_FI_PROF_NVLINK_TX_BYTES and RX_BYTES)",
        lambda f: "nvlink_utilization" not in f and f.get("gpus", 1.0) > 1,
        ("collectives", "links-against-compute"),
    ),
    (
        "settled-by-fabric",
        "traffic of the fabric ports of its nodes (node_infiniband_port_data_*_bytes_total)",
        lambda f: "fabric_utilization" not in f and f.get("nodes", 1.0) > 1,
        ("fabric-busy", "fabric-silent"),
    ),
    (
        "settled-by-a-day",
        "one full day of data",
        lambda f: f.get("elapsed_hours", 0.0) < 20.0 and not f.get("ended"),
        ("never-rests", "seldom-at-work", "rests-at-night"),
    ),
    (
        "settled-by-days",
        "three days of data",
        lambda f: 20.0 <= f.get("elapsed_hours", 0.0) < 24 * DIURNAL_DAYS_MIN and not f.get("ended"),
        ("same-hours", "working-hours", "daily"),
    ),
)  # fmt: skip


def settled_by(
    first: KindLabel, second: KindLabel, features: Features, names: Iterable[Clue], model: KindModel
) -> Sequence[CodedText]:
    """What would distinguish `first` from `second`, the strongest first, at most two of them."""
    questions: list[tuple[float, str, str]] = []
    if not any(max(clue.weights.values(), default=0.0) > 0 for clue in names):
        owner = "its owner (pod owner from kube-state-metrics, Slurm's job table, or its command)"
        questions.append((_OWNER_SAYS, "settled-by-owner", owner))
    for code, what, lacks, shapes in _WITNESSES:
        gap = max(abs(model.weights[name][first] - model.weights[name][second]) for name in shapes)
        if lacks(features) and gap >= _TELLING_MIN:
            questions.append((gap, code, what))
    text = "Would decide between {first} and {second} (by up to {odds:.0f} to 1): {what}."
    return [
        coded(code, text, what=what, odds=math.exp(min(gap, 7.0)), first=first, second=second)
        for gap, code, what in sorted(questions, key=lambda question: -question[0])[:2]
    ]
