"""What a lower precision would change of a plan to serve a model: how many GPUs of the proposed one it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ....rules.catalog.loader import Catalog
from ....rules.catalog.types import NodeSku
from ....rules.models.move_model import MoveModel
from ...core.coded_text import CodedText
from ..base.sustained_rates import BYTES
from .capacity_plan import CapacityPlan, Wanted, plan_serving
from .precision_levers import CHECK, LOWER


def levers_of_plan(
    wanted: Wanted, serving: Sequence[CapacityPlan], catalog: Catalog, model: MoveModel, nodes: Iterable[NodeSku]
) -> tuple[CodedText, ...]:
    """Lower precisions in which fewer GPUs do. `serving`: the plans in the precision that was asked for, the proposal
    first; empty: no node serves it so. Precisions without measured rates are in no plan."""
    there = list(nodes)
    least = serving[0].gpus if serving else None
    found = []
    for precision in LOWER.get(wanted.precision, ()):
        if BYTES[precision] > 1:  # then the cache would keep its 16 bits
            continue
        plans = plan_serving(replace(wanted, precision=precision), catalog, model, there)
        alike = [plan for plan in plans if not serving or plan.offer.gpu.name == serving[0].offer.gpu.name]
        best = min(alike, key=lambda plan: plan.gpus, default=None) if serving else next(iter(alike), None)
        if best is None or (least is not None and best.gpus >= least):
            continue
        now = f"instead of {least}" if least is not None else "(none at the given precision)"
        found.append(
            CodedText(
                "lever-plan",
                f"if served in {precision.upper()} with an 8-bit cache: {best.gpus} x {best.offer.gpu.name} {now}, "
                f"{best.group_gpus} per copy of the model. {CHECK}",
                {
                    "precision": precision, "precision_now": wanted.precision, "sku": best.offer.gpu.name,
                    "gpus": best.gpus, "gpus_now": least, "gpus_a_copy": best.group_gpus,
                },
            )
        )  # fmt: skip
        least = best.gpus
    return tuple(found)
