"""What other providers would charge for the same work: shown apart, and never summed.

A search for the cheapest provider is arbitrage, not right-sizing: data, egress, terms and capacity are not evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...rules.catalog.types import NodeSku, Price
from ..classify.types import Verdicts
from ..core.advice_types import Recommendation
from ..core.coded_text import coded
from .fleet_context import GroupContext
from .groups import Group
from .latency import held_to_class
from .move_context import MoveContext, baseline_for
from .moves.move_sku import move_option
from .other_nodes import candidates

# What the price of a node does not show of a move to another provider.
ELSEWHERE = "data, egress, terms or capacity"
# Of each workload, so many providers.
SHOWN = 3
_TERMS = coded("terms-elsewhere", "{terms} at the other provider cost more than the savings", terms=ELSEWHERE)


def market_recommendations(
    scene: MoveContext, verdicts: Verdicts, groups: Sequence[Group]
) -> tuple[Recommendation, ...]:
    """For each recurring workload at known prices: the best node of the providers that would be cheapest for it."""
    out: list[Recommendation] = []
    for group in groups:
        source = scene.catalog.gpu(group.lead.gpu_sku) if group.lead.gpu_sku else None
        if source is None or not group.recurs or not group.nodes or group.kind in ("idle", "unknown"):
            continue
        own, base = baseline_for(scene, group)
        here = group.nodes[0].provider
        if base.price is None or base.mixed or here is None:
            continue
        found, _ = candidates(own, base, source, elsewhere(scene, here))
        best = list({c.node.provider: c for c in reversed(found) if c.saving > 0}.values())
        for candidate in sorted(best, key=lambda c: (not c.safe, -c.saving))[:SHOWN]:
            r = held_to_class(move_option(GroupContext(own, verdicts, base), candidate).recommendation, base)
            out.append(replace(r, would_change_if=(_TERMS, *r.would_change_if)))
    return tuple(out)


def elsewhere(scene: MoveContext, provider: str) -> list[tuple[NodeSku, Price | None]]:
    """Every node of the other providers, each at its lowest list price."""
    return [
        (n, min(n.prices, key=lambda p: (p.usd_per_hour, p.region)))
        for n in scene.catalog.nodes.values()
        if n.provider != provider and n.prices
    ]
