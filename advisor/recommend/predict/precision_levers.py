"""What a lower precision would change for a question without telemetry: weights against memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ....rules.catalog.loader import Catalog
from ....rules.catalog.types import GpuSku, NodeSku
from ....rules.models import MoveModel
from ...core.coded_text import CodedText
from ..constraints import has_precision, room_bytes
from ..sustained_rates import BYTES
from .capacity_plan import CapacityPlan, Wanted, plan_serving
from .typical_work import Question

# Below each precision those that engines serve in, the least change first.
LOWER = {
    "fp32": ("bf16", "fp8", "int8", "fp4", "int4"),
    "bf16": ("fp8", "int8", "fp4", "int4"),
    "fp16": ("fp8", "int8", "fp4", "int4"),
    "fp8": ("fp4", "int4"),
    "int8": ("fp4", "int4"),
}
# What arithmetic cannot show. Every lever includes it.
CHECK = "First check the quality of its answers on your own tasks, and its latency at peak. No savings are counted"
COPIES = (1, 2, 4, 8, 16)  # GPUs that engines split one copy of a model over


def usable(sku: GpuSku, precision: str) -> tuple[str, ...]:
    """Precisions below `precision` that a GPU has, one a size: eight-bit integers only where there is no FP8, those of
    four bits only where there is no FP4."""
    has = [lower for lower in LOWER.get(precision, ()) if has_precision(sku, lower)]
    return tuple(lower for lower in has if {"int8": "fp8", "int4": "fp4"}.get(lower) not in has)


def levers_of(question: Question, target: GpuSku) -> tuple[CodedText, ...]:
    """Lower precisions of `target` in which the weights fit the GPUs that were asked about, where they do not as
    asked."""
    gpus, room, now = question.gpus, room_bytes(target.mem_bytes), question.weights_bytes
    if question.params is None or question.phase == "training" or now / gpus <= room:
        return ()
    levers = []
    for precision in usable(target, question.precision):
        weights = replace(question, precision=precision).weights_bytes
        if weights > room * max(n for n in COPIES if n <= gpus):
            continue
        text = (
            f"if served in {precision.upper()}: the weights need {weights / gpus / 1e9:.0f} GB per GPU instead of "
            f"{now / gpus / 1e9:.0f} GB; {target.name} has room for {room / 1e9:.0f} GB. {CHECK}"
        )
        fields = {
            "sku": target.name, "precision": precision, "precision_now": question.precision, "weights_bytes": weights,
            "weights_bytes_now": now, "room_bytes": room, "gpus": gpus, "gpus_at_least": math.ceil(weights / room),
        }  # fmt: skip
        levers.append(CodedText("lever-weights-fit", text, fields))
    return tuple(levers)


def levers_of_plan(
    wanted: Wanted, serving: Sequence[CapacityPlan], catalog: Catalog, model: MoveModel, nodes: Iterable[NodeSku]
) -> tuple[CodedText, ...]:
    """Lower precisions in which fewer GPUs do. `serving`: the plans in the precision that was asked for, the proposal
    first; empty: no node serves it so. Precisions without measured rates are in no plan."""
    there, levers = list(nodes), []
    gpu, least = (serving[0].gpu, serving[0].gpus) if serving else (None, None)
    for precision in LOWER.get(wanted.precision, ()):
        if BYTES[precision] > 1:  # then the cache would keep its 16 bits
            continue
        plans = plan_serving(replace(wanted, precision=precision), catalog, model, there)
        alike = [plan for plan in plans if plan.gpu == gpu]
        best = min(alike, key=lambda plan: plan.gpus, default=None) if gpu else next(iter(plans), None)
        if best is None or (least is not None and best.gpus >= least):
            continue
        now = f"instead of {least}" if least is not None else "(none at the given precision)"
        text = (
            f"if served in {precision.upper()} with an 8-bit cache: {best.gpus} x {best.gpu.name} {now}, "
            f"{best.group_gpus} per copy of the model. {CHECK}"
        )
        fields = {
            "precision": precision, "precision_now": wanted.precision, "sku": best.gpu.name, "gpus": best.gpus,
            "gpus_now": least, "gpus_a_copy": best.group_gpus,
        }  # fmt: skip
        levers.append(CodedText("lever-plan", text, fields))
        least = best.gpus
    return tuple(levers)
