"""The one thing to do next about a job: from what it is recommended, from a finding, else from facts of its own life.

Verdicts on waste need 30 hours of a series; what is said here of a shorter job are facts of that job alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.advice_types import Finding, Recommendation
from ..core.card_types import CardState, Judged, Use
from ..core.coded_text import CodedText, coded
from ..core.timestamps import span
from ..core.verdict_types import WorkloadVerdict

# Less than this much of a job's life, or of its data, tells nothing of the rest: one rollup of a minute is no evidence.
ENOUGH_SECONDS = 300.0
ENOUGH_OBSERVED = 0.5
# Idle for so long at its end: a checkpoint, a download or an evaluation lasts less (rules/watch.yaml, limits of jobs).
_RESTS_SECONDS = 1800.0
# A bottleneck that takes half of the time is what to change first.
_MAIN_SHARE = 0.5
_UNUSED_SECONDS = 900.0
# Below these it fits on a fraction of its GPU, with room: the peak of its memory and its mean activity.
_SMALL_MEMORY, _SMALL_SM = 0.2, 0.15
_SMALL_SECONDS = 3600.0

_BY_ACTION = {
    "reduce-gpus": "Reduce to {count} GPUs.", "mig-slice": "Move to MIG instances of {sku}.",
    "move-sku": "Move to {sku}{node}.", "consolidate": "Consolidate on fewer nodes.",
    "schedule-off": "Release its GPUs when not in use.", "swap-placement": "Swap its place with other work.",
    "release": "Release its GPUs.", "lower-clock": "Lower the GPU clock.", "power-cap": "Set a power limit.",
}  # fmt: skip
_BY_BOTTLENECK = {
    "host-input": "Fix data loading first: waiting for input in {share:.0%} of its time.",
    "network": "Check the network first: limited by it in {share:.0%} of its time.",
    "straggler": "Find the slow rank first: the others wait for it in {share:.0%} of the time.",
    "throttled": "Fix power or cooling first: throttled in {share:.0%} of its time.",
    "pcie": "Reduce host-to-GPU copies: limited by PCIe in {share:.0%} of its time.",
    "latency": "Use larger batches or CUDA graphs: kernels too short for the GPU in {share:.0%} of its time.",
}


def next_step(
    w: WorkloadVerdict, judged: Judged, use: Use, *, state: CardState, elapsed_seconds: float,
    findings: Sequence[Finding] = (), recommendations: Sequence[Recommendation] = (),
) -> CodedText:  # fmt: skip
    """What to do next. `elapsed_seconds`: of its life; `findings`, `recommendations`: those of this workload alone."""
    if w.features.get("fault_share", 0.0) > 0.0:
        return CodedText(
            "card-telemetry-fault", "Fix telemetry first: signals contradict one another; run 'skuwise doctor'."
        )
    if elapsed_seconds < ENOUGH_SECONDS or use.observed < ENOUGH_OBSERVED:
        return coded(
            "card-too-little", "Too little data: {observed:.0%} of {life} observed.", observed=use.observed,
            life=span(elapsed_seconds),
        )  # fmt: skip
    return (
        _never_worked(w, use, state, elapsed_seconds)
        or _stopped(w, use, state)
        or _unused(w, use, elapsed_seconds)
        or _recommended(recommendations)
        or _limited(judged)
        or _found(findings)
        or _small(w, use, elapsed_seconds)
        or CodedText("card-nothing", "Nothing to change.")
    )


def _never_worked(w: WorkloadVerdict, use: Use, state: CardState, life: float) -> CodedText | None:
    if use.unused is None or use.unused < len(w.gpus) or life < _UNUSED_SECONDS:
        return None
    if state == "running":
        return coded("card-never-worked", "Cancel it or fix it: no GPU activity in {life}.", life=span(life))
    return CodedText("card-never-used", "Request no GPU: it never used one. Check that the program finds its GPUs.")


def _stopped(w: WorkloadVerdict, use: Use, state: CardState) -> CodedText | None:
    """Its GPUs rest at its end, for long. A service or a notebook may; then it is said otherwise."""
    if use.idle_since is None or w.end - use.idle_since < _RESTS_SECONDS:
        return None
    rest = span(w.end - use.idle_since)
    if w.kind.label == "interactive":
        return coded(
            "card-notebook-idle", "Stop the session when it is not in use: idle for the last {rest}.", rest=rest
        )
    if w.kind.label == "online-inference":
        return coded("card-service-idle", "Scale it down without requests: idle for the last {rest}.", rest=rest)
    if state == "running":
        return coded("card-stopped", "Check whether it hangs: no GPU activity for {rest}.", rest=rest)
    return coded("card-held-after-work", "End the job with its work: GPUs idle for the last {rest}.", rest=rest)


def _unused(w: WorkloadVerdict, use: Use, life: float) -> CodedText | None:
    if not use.unused or life < _UNUSED_SECONDS or w.gpu_part < 1:
        return None
    used = len(w.gpus) - use.unused
    return coded(
        "card-unused-gpus", "Reduce to {used} GPU{s}: {unused} of {all} did nothing.", used=used,
        s="" if used == 1 else "s", unused=use.unused, all=len(w.gpus),
    )  # fmt: skip


def _recommended(recommendations: Sequence[Recommendation]) -> CodedText | None:
    """The first that nothing blocks; what must be fixed first comes before what moves."""
    free = [one for one in recommendations if not one.blocked_by and one.decision is None]
    for one in sorted(free, key=lambda r: r.action != "fix-first"):
        template = _BY_ACTION.get(one.action)
        if template is None:
            continue
        to = one.target
        same = to.gpu_sku == one.source.gpu_sku and to.node_sku is not None
        node = f" ({to.node_sku})" if to.node_sku and not same else ""
        sku = (to.node_sku if same else to.gpu_sku) or "another GPU"
        if one.action == "reduce-gpus" and to.gpu_count == 1:
            template = "Reduce to 1 GPU."
        return coded(f"card-{one.action}", template, count=to.gpu_count, sku=sku, node=node)
    return None


def _limited(judged: Judged) -> CodedText | None:
    share = judged.time_shares.get(judged.bottleneck, 0.0)
    template = _BY_BOTTLENECK.get(judged.bottleneck)
    if template is None or share < _MAIN_SHARE:
        return None
    return coded(f"card-{judged.bottleneck}", template, share=share)


def _found(findings: Sequence[Finding]) -> CodedText | None:
    named = {
        "idle": "Release its GPUs: idle.", "held-idle": "Release its GPUs: memory held, nothing running.",
        "too-many-gpus": "Use fewer GPUs.", "memory-unused": "Use a GPU with less memory.",
        "under-tier": "Use a faster GPU.",
        "over-tier": "Use a cheaper GPU.", "idle-fabric": "Move to nodes without the fabric: it carries no traffic.",
        "idle-nvlink": "Move to GPUs without NVLink: it carries no traffic.",
    }  # fmt: skip
    for one in findings:
        if one.rule in named:
            return CodedText(f"card-finding-{one.rule}", named[one.rule], {"finding": one.id})
    return None


def _small(w: WorkloadVerdict, use: Use, life: float) -> CodedText | None:
    if None in (use.mem_peak_bytes, use.mem_total_bytes, use.sm_active) or life < _SMALL_SECONDS or w.gpu_part < 1:
        return None
    assert use.mem_peak_bytes is not None and use.mem_total_bytes is not None and use.sm_active is not None
    share = use.mem_peak_bytes / use.mem_total_bytes if use.mem_total_bytes else 1.0
    if share > _SMALL_MEMORY or use.sm_active > _SMALL_SM:
        return None
    return coded(
        "card-small", "Try a smaller GPU or a MIG instance: memory peak {share:.0%}, SM activity {sm:.0%}.",
        share=share, sm=use.sm_active,
    )  # fmt: skip
