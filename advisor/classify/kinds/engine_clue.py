"""What an inference engine's own series say of the kind of the workload that it is part of."""

from __future__ import annotations

from ....rules.policy.kind_priors import KindPriors
from ...core.coded_text import CodedText, coded
from ..features.features import Features
from ..workloads.engine_facts import EngineFacts
from ..workloads.session import Session
from .clue import Clue

COUNTED, COUNTED_NONE, WITHIN_TRAINING = "counted-requests", "counted-none", "within-training"
# Somebody is served where a request runs for a hundredth of the time (a quarter of an hour a day), or where a few dozen
# answers a day are generated. That contradicts rest counted on the GPU: light requests show in no minute's mean.
_RUNNING, _TOKENS = 0.01, 0.1
_NOT_IDLE = -12.0
# An owner that speaks for training by so much keeps trainers; an engine within one generates for it.
_TRAINER = 1.5
# Steps: so much of the time a period is seen, in which GPUs meet over NVLink or nodes over the fabric.
_PERIODIC, _NVLINK, _FABRIC = 0.3, 0.05, 0.02


def engine_clue(session: Session, features: Features, engine: EngineFacts, priors: KindPriors) -> Clue:
    """The clue of engines within a workload: a server that counted requests serves, whatever its shape.

    Not so where a trainer is what the GPUs work for: its owner trains models, or they work in steps in which GPUs or
    nodes meet. Then the engine generates for the training (as RLHF does), or is idle beside it, and decides nothing.
    """
    shown = WITHIN_TRAINING if _trains(session, features, priors) else COUNTED if engine.has_counted else COUNTED_NONE
    told = priors.first("engine", shown, features.get("chain_hours", session.chain_hours))
    weights = {} if told is None else dict(told[0].log_odds)
    if shown == COUNTED and (
        (engine.running or 0.0) >= _RUNNING or (engine.generated_tokens_per_second or 0) >= _TOKENS
    ):
        weights["idle"] = _NOT_IDLE
    return Clue(weights, _said(shown, engine))


def _trains(session: Session, features: Features, priors: KindPriors) -> bool:
    owner = priors.first("owner", session.scheduled.controller_kind, features.get("chain_hours", session.chain_hours))
    weights = owner[0].log_odds if owner is not None else {}
    if weights.get("training", 0.0) >= _TRAINER and weights.get("online-inference", 0.0) <= 0:
        return True
    # Kept running is what trainers are not: an owner that speaks for serving has the last word over steps.
    if weights.get("online-inference", 0.0) >= _TRAINER:
        return False
    steps = features.get("period_share", 0.0) >= _PERIODIC
    meets = features.get("nodes", 1.0) >= 2 and features.get("fabric_utilization", 0.0) >= _FABRIC
    return steps and (meets or features.get("nvlink_utilization", 0.0) >= _NVLINK)


def _said(shown: str, engine: EngineFacts) -> CodedText:
    names, figures = ", ".join(engine.engines) or "an inference engine", _figures(engine)
    known = {
        "engines": names, "hours": engine.hours, "prompt_tokens_per_second": engine.prompt_tokens_per_second,
        "generated_tokens_per_second": engine.generated_tokens_per_second, "requests_running": engine.running,
        "requests_waiting": engine.waiting, "kv_cache_usage": engine.kv_cache,
    }  # fmt: skip
    if shown == WITHIN_TRAINING:
        return coded(
            "engine-within-training",
            "Metrics of {engines} ({figures}) come from within training work: typical of generation "
            "during training, not counted as a sign of serving.",
            figures=figures, **known,
        )  # fmt: skip
    if shown == COUNTED_NONE:
        return coded(
            "engine-counted-none",
            "Metrics of {engines} show no request in {hours:.0f} h: an unused server, or an engine inside other work.",
            **known,
        )
    return coded(
        "engine-serves", "Inference server: metrics of {engines} ({figures}).", figures=figures, **known
    )  # fmt: skip


def _figures(engine: EngineFacts) -> str:
    """What was counted, in words and units; the time at least."""
    parts = [f"{engine.hours:.0f} h observed"]
    if engine.generated_tokens_per_second is not None:
        parts.append(f"{engine.generated_tokens_per_second:.1f} tokens/s generated")
    if engine.prompt_tokens_per_second is not None:
        parts.append(f"{engine.prompt_tokens_per_second:.1f} prompt tokens/s")
    if engine.running is not None:
        parts.append(f"{engine.running:.1f} requests running")
    if engine.waiting is not None:
        parts.append(f"{engine.waiting:.1f} waiting")
    if engine.kv_cache is not None:
        parts.append(f"KV cache {100 * engine.kv_cache:.0f} % full (95th percentile)")
    return ", ".join(parts)
