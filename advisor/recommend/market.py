"""What other providers would charge for the same work: shown apart, and never summed.

A search for the cheapest provider is arbitrage, not right-sizing: data, egress, terms and capacity are not evaluated.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.advice_types import Recommendation
from ..core.coded_text import coded
from .candidates import candidates
from .fleet import Fleet, Series, baseline_for
from .latency import held_to_class
from .moves.move_sku import move_to

# What the price of a node does not show of a move to another provider.
ELSEWHERE = "data, egress, terms or capacity"
# Of each workload, so many providers.
SHOWN = 3
_TERMS = coded("terms-elsewhere", "{terms} at the other provider cost more than the savings", terms=ELSEWHERE)


def market_recommendations(fleet: Fleet) -> tuple[Recommendation, ...]:
    """For each recurring workload at known prices: the best node of the providers that would be cheapest for it."""
    out: list[Recommendation] = []
    for group in fleet.groups:
        source = fleet.gpu_of(group)
        if source is None or not group.recurs or not group.nodes or group.kind in ("idle", "unknown"):
            continue
        base, here = baseline_for(fleet, group), group.nodes[0].provider
        if base.price is None or base.mixed or here is None:
            continue
        # Every node of the other providers, each at its lowest list price.
        sold = [
            (n, min(n.prices, key=lambda p: (p.usd_per_hour, p.region)))
            for n in fleet.catalog.nodes.values()
            if n.provider != here and n.prices
        ]
        found, _ = candidates(fleet, base, source, sold)
        best = list({c.node.provider: c for c in reversed(found) if c.saving > 0}.values())
        for candidate in sorted(best, key=lambda c: (not c.safe, -c.saving))[:SHOWN]:
            r = held_to_class(move_to(Series(fleet, base, {}), candidate), base)
            out.append(replace(r, would_change_if=(_TERMS, *r.would_change_if)))
    return tuple(out)
