"""What kind of work a workload is: metadata first, shape second, abstaining where neither is enough.

A transparent additive model: every piece of evidence adds or takes weight (log-odds) from the kinds it speaks for or
against and says why in words; the sum becomes confidences by a softmax. Nothing is learnt: the weights are judgements,
checked on labelled fleets (benchmarks/accuracy.py), and it works from the shape alone where names say nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...rules.labels import KindLabel
from ...rules.thresholds import Threshold
from ..model import Alternative, KindVerdict
from .features import Features
from .workloads import Session

LABELS: tuple[KindLabel, ...] = (
    "training", "fine-tuning", "online-inference", "batch-inference", "interactive", "idle",
)  # fmt: skip
Weights = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Clue:
    """One piece of evidence: `weights` by kind (log-odds), and the sentence a person reads."""

    weights: Weights
    reason: str


_TRAIN_LIKE: Weights = {"training": 2.5, "fine-tuning": 2.5}
_FRAMEWORKS: tuple[tuple[str, Weights, str], ...] = (
    (
        r"vllm|sglang|tensorrt[-_ ]?llm|trtllm|tritonserver|triton[-_ ]inference|text[-_]generation|\btgi\b|lmdeploy",
        {"online-inference": 3.0, "batch-inference": 1.2},
        "a serving engine",
    ),
    (r"torchrun|deepspeed|megatron|fsdp|accelerate|nemo", _TRAIN_LIKE, "a training launcher"),
    (r"jupyter|ipykernel|notebook|code-server", {"interactive": 3.0}, "a notebook"),
)
# Words of a command line. They come from people, so they persuade but do not decide.
_WORDS: tuple[tuple[str, Weights, str], ...] = (
    (r"fine[-_]?tun\w*|\bsft\b|q?lora\b|\bdpo\b|\brlhf\b", {"fine-tuning": 3.0, "training": 0.5}, "fine-tuning"),
    (r"pre[-_]?train\w*", {"training": 3.0}, "pretraining"),
    (r"(?<![a-z])train(ing|er)?(?![a-z])", {"training": 2.0, "fine-tuning": 1.5}, "training"),
    (r"api[-_]server|(?<![a-z])serv(e|er|ing)(?![a-z])|endpoint", {"online-inference": 2.5}, "serving"),
    (
        r"batch[-_]?(infer\w*|generat\w*|score|scoring)|offline|embed(ding)?s?[-_]?(job|batch)",
        {"batch-inference": 3.0, "online-inference": -0.5},
        "batch inference",
    ),
)
# Deployments name their pods NAME-<replica set>-<five letters>; a prior only.
_DEPLOYMENT_POD = re.compile(r"-[a-f0-9]{8,10}-[a-z0-9]{5}$")


def judge_kind(session: Session, features: Features, thresholds: Mapping[str, Threshold]) -> KindVerdict:
    """The kind of one workload, its confidence, and the reasons, the strongest first."""
    if "g" not in features and "sm" not in features and "m" not in features:
        clues = list(_metadata(session))
        if not clues:
            return KindVerdict("unknown", 0.0, ("Nothing of its activity was measured.",))
    else:
        clues = [*_metadata(session), *_shape(features, _values(thresholds))]
    scores = {label: sum(clue.weights.get(label, 0.0) for clue in clues) for label in LABELS}
    # Idleness is seen, not guessed: without its clue it is no candidate.
    if not any(clue.weights.get("idle", 0.0) > 0 for clue in clues):
        scores["idle"] -= 6.0
    if not any(clue.weights.get("interactive", 0.0) > 0 for clue in clues):
        scores["interactive"] -= 1.5
    confidences = _softmax(scores)
    ranked = sorted(LABELS, key=lambda name: -confidences[name])
    label, confidence = ranked[0], confidences[ranked[0]]
    confidence = min(confidence, _ceiling(features))
    evidence = tuple(_ordered(clues, label))
    others = tuple(Alternative(n, round(confidences[n], 3)) for n in ranked[1:] if confidences[n] >= 0.05)
    if label in ("training", "fine-tuning", "batch-inference") and features.get("gpus") == 1:
        evidence = (*evidence, "On one GPU training and batch inference look alike: no links, nothing to be in step.")
    if confidence < thresholds["abstain_below"].value:
        return KindVerdict(
            "unknown", round(confidence, 3), evidence, (Alternative(label, round(confidence, 3)), *others)
        )
    return KindVerdict(label, round(confidence, 3), evidence, others)


def _values(thresholds: Mapping[str, Threshold]) -> Mapping[str, float]:
    return {name: threshold.value for name, threshold in thresholds.items()}


def _softmax(scores: Mapping[str, float]) -> dict[str, float]:
    top = max(scores.values())
    shares = {label: math.exp(score - top) for label, score in scores.items()}
    total = sum(shares.values())
    return {label: share / total for label, share in shares.items()}


def _ceiling(features: Features) -> float:
    """Little data cannot make much confidence: 0.75 after half an hour, 0.9 after six hours, 0.99 after a day."""
    hours = features.get("elapsed_hours", 0.0)
    return 0.99 if hours >= 24 else 0.9 if hours >= 6 else 0.8 if hours >= 1 else 0.75 if hours >= 0.5 else 0.65


def _ordered(clues: list[Clue], label: str) -> Iterator[str]:
    """Reasons for the label, the strongest first, then what speaks against it."""
    for clue in sorted(clues, key=lambda c: -c.weights.get(label, 0.0)):
        weight = clue.weights.get(label, 0.0)
        if weight > 0:
            yield clue.reason
        elif weight < -0.4:
            yield f"Against it: {clue.reason[:1].lower()}{clue.reason[1:]}"


def _metadata(session: Session) -> Iterator[Clue]:
    framework = (session.framework or "").lower()
    command = " ".join(t for t in (session.command, session.name) if t).lower()
    for pattern, weights, what in _FRAMEWORKS:
        if framework and re.search(pattern, framework):
            yield Clue(weights, f"Its framework is {session.framework}, {what}.")
            break
        if re.search(pattern, command):
            yield Clue({k: 0.8 * w for k, w in weights.items()}, f"Its command names {what}.")
            break
    for pattern, weights, what in _WORDS:
        match = re.search(pattern, command)
        if match:
            yield Clue(weights, f"Its command or name says “{match.group(0)}”: {what}.")
            break
    if session.scheduler == "slurm":
        yield Clue(
            {"training": 0.4, "fine-tuning": 0.4, "batch-inference": 0.2, "online-inference": -0.3},
            "It was started by Slurm, which mostly runs jobs that end.",
        )
    elif session.pod and _DEPLOYMENT_POD.search(session.pod):
        yield Clue({"online-inference": 0.8}, "Its pod is named like one of a Kubernetes Deployment, kept running.")


def _shape(f: Features, t: Mapping[str, float]) -> Iterator[Clue]:
    idle = f.get("idle_share", 0.0)
    if idle >= t["idle_share_min"]:
        yield Clue(
            {"idle": 9.0}, f"Engine and memory stood below {t['idle_engine_max']:.0%} in {idle:.0%} of the time."
        )
        held = f.get("power_over_idle", 1.0) >= t["held_power_over_idle_min"] or f.get("mem_level", 0.0) >= 0.02
        if held:
            yield Clue(
                {"idle": 0.5},
                f"It holds the GPU all the same: {f.get('mem_level', 0.0):.0%} of the memory, power "
                f"{f.get('power_over_idle', float('nan')):.1f} times idle.",
            )
        return
    yield from _interactive(f, t, idle)
    yield from _periods(f, t)
    yield from _links(f, t)
    yield from _demand(f, t)
    yield from _memory(f)
    yield from _life(f, t)


def _interactive(f: Features, t: Mapping[str, float], idle: float) -> Iterator[Clue]:
    duty = f.get("duty", f.get("g"))
    if duty is None:
        return
    rested = max(idle, 1.0 - duty)
    if duty < t["interactive_active_max"] and f.get("g_max", 0.0) >= 0.2:
        yield Clue(
            {"interactive": 3.0, "training": -1.5, "fine-tuning": -1.0, "batch-inference": -0.5},
            f"It works in short bursts: busy in {duty:.0%} of the time, at rest in {rested:.0%}.",
        )
    elif duty >= 0.9:
        yield Clue({"interactive": -1.5}, f"It is busy in {duty:.0%} of all seconds: nobody stops to think.")


def _periods(f: Features, t: Mapping[str, float]) -> Iterator[Clue]:
    share = f.get("period_share")
    if share is None:
        return
    hours = f.get("elapsed_hours", 0.0)
    if share >= 0.5 and share * hours * 60 >= t["periodic_minutes_min"]:
        yield Clue(
            {"training": 1.6, "fine-tuning": 1.6, "online-inference": -1.6, "batch-inference": -0.6, "interactive": -1},
            f"It repeats a step of {f.get('period_seconds', float('nan')):.0f} s through {share:.0%} of its busy time.",
        )
    elif share < 0.1 and hours >= 1:
        yield Clue(
            {"online-inference": 0.8, "batch-inference": 0.6, "training": -0.8, "fine-tuning": -0.8},
            "It repeats no step of 1 to 120 s.",
        )


def _links(f: Features, t: Mapping[str, float]) -> Iterator[Clue]:
    nodes, fabric = f.get("nodes", 1.0), f.get("i")
    if nodes >= 2 and fabric is not None:
        if fabric >= t["fabric_used_min"]:
            yield Clue(
                {"training": 3.0, "fine-tuning": 0.0, "online-inference": -1.5, "batch-inference": -1.5},
                f"It runs on {nodes:.0f} nodes and keeps {fabric:.0%} of their fabric busy.",
            )
        else:
            yield Clue(
                {"online-inference": 0.8, "training": -1.0},
                f"It runs on {nodes:.0f} nodes but their fabric carries next to nothing.",
            )
    if nodes >= 2 or f.get("gpus", 1.0) > t["fine_tuning_gpus_max"]:
        yield Clue({"fine-tuning": -3.0}, f"It is larger than one node of {t['fine_tuning_gpus_max']:.0f} GPUs.")
    symmetry = f.get("nvlink_symmetry")
    if symmetry is not None and f.get("n", 0.0) >= 0.1 and symmetry >= t["link_symmetry_min"]:
        yield Clue(
            {"training": 0.4, "fine-tuning": 0.4},
            f"NVLink is busy ({f['n']:.0%}) and carries as much out as in: collectives.",
        )


def _demand(f: Features, t: Mapping[str, float]) -> Iterator[Clue]:
    share, level = f.get("diu"), f.get("day_level", 0.0)
    if share is not None:
        if share >= t["diurnal_share_min"] and level >= 0.03:
            yield Clue(
                {"online-inference": 2.0, "training": -1.2, "fine-tuning": -1.2, "batch-inference": -1.2,
                 "interactive": 0.3},
                f"Its load follows the day: {share:.0%} of its variance is a 24 h wave.",
            )  # fmt: skip
        else:
            yield Clue(
                {"training": 0.6, "batch-inference": 0.6, "online-inference": -0.8},
                "Its load does not follow the day.",
            )
    if f.get("swing", 1.0) < 0.05 and f.get("elapsed_hours", 0.0) >= 6:
        yield Clue(
            {"training": 0.4, "fine-tuning": 0.4, "batch-inference": 0.5, "online-inference": -0.6},
            "Its load is the same hour after hour, as of a queue that never empties.",
        )


def _memory(f: Features) -> Iterator[Clue]:
    flat = f.get("mem_flat")
    if flat == 1.0:
        yield Clue(
            {"online-inference": 1.4, "batch-inference": 1.0, "training": -0.8, "fine-tuning": -0.8},
            f"{f['mem_level']:.0%} of the memory is taken once and never moves: an engine that preallocates.",
        )
    elif flat == 0.0:
        yield Clue(
            {"training": 0.5, "fine-tuning": 0.5, "interactive": 0.3, "online-inference": -0.5},
            "Its memory is not that of an engine that preallocates.",
        )
    ratio = f.get("memory_over_compute")
    if ratio is None or max(f.get("u_m_busy_p95", 0.0), f.get("u_c_busy_p95", 0.0)) < 0.05:
        return
    if ratio >= 1.25:
        yield Clue(
            {"online-inference": 1.0, "batch-inference": 0.5, "training": -0.8, "fine-tuning": -0.6},
            f"Memory bandwidth is used {ratio:.1f} times as much as compute, as when tokens are decoded.",
        )
    elif ratio <= 0.8:
        yield Clue(
            {"training": 0.7, "fine-tuning": 0.7, "batch-inference": 0.3, "online-inference": -0.6},
            f"Compute is used {1 / max(ratio, 0.01):.1f} times as much as memory bandwidth.",
        )


def _life(f: Features, t: Mapping[str, float]) -> Iterator[Clue]:
    span = f.get("chain_hours", 0.0)
    longest = t["fine_tuning_hours_max"]
    if f.get("write_bursts", 0.0) >= 0.1:
        yield Clue(
            {"training": 0.8, "fine-tuning": 0.8, "online-inference": -0.5},
            f"The host writes in bursts in {f['write_bursts']:.0%} of the hours, as checkpoints do.",
        )
    if span > longest:
        yield Clue({"fine-tuning": -3.0, "training": 0.4}, f"It has run for {span:.0f} hours.")
    elif f.get("ended") == 1.0:
        yield Clue(
            {"fine-tuning": 0.8, "batch-inference": 0.5, "training": -0.8, "online-inference": -0.8},
            f"It came and went within {span:.1f} hours.",
        )
        if f.get("nodes", 1.0) == 1.0:
            yield Clue(
                {"fine-tuning": 1.4, "training": -0.8},
                "Training on one node that ends within a day is taken for fine-tuning.",
            )
    elif f.get("nodes", 1.0) == 1.0 and f.get("gpus", 1.0) <= t["fine_tuning_gpus_max"]:
        yield Clue(
            {"fine-tuning": 0.4, "training": -0.4},
            f"It is on one node and not a day old ({span:.1f} hours), as fine-tuning is.",
        )
    if span >= 24 * 7 and f.get("ended") == 0.0:
        yield Clue({"online-inference": 0.5, "batch-inference": -0.8}, "It has run for a week and runs on.")
