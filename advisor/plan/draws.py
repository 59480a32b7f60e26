"""What a plan brings, drawn jointly: where demand or a predicted time turns out higher, nodes are kept or rented after
all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.advice_types import Interval
from ..recommend.move_context import DRAWS
from ..recommend.prediction import percentiles
from .draft import new_unit
from .mig import divided
from .problem import FOREVER, Hours, Layout, PlanNode, Problem
from .worth import HOURS_PER_MONTH

Array = Hours


@dataclass(frozen=True)
class Brought:
    """By draw: nodes that can be given back, GPUs of the fleet that services let go of, and US dollars a month by
    `dates` (the last index is all of them; None: now)."""

    nodes: Array
    gpus: Array
    dates: tuple[float | None, ...]
    usd: tuple[Array, ...]


def brought(problem: Problem, layout: Layout) -> Brought:
    """Draws of the whole fleet: the extra GPUs of all changes of one pool are added draw by draw."""
    nodes, gpus = np.zeros(DRAWS), np.zeros(DRAWS)
    back: dict[float | None, Array] = {None: np.zeros(DRAWS)}
    in_mig = divided(problem, layout.places)
    for pool, members in problem.pools.items():
        extra = _extra(layout, pool)
        kept = [n for n in members if n.name in layout.kept]
        gone = [n for n in members if n.is_today and n.name not in layout.kept]
        room = sum(n.gpus - in_mig[n.name] for n in kept) - sum(problem.fixed_gpus.get(n.name, 0) for n in members)
        slack = room - float(problem.needed(pool, layout.chosen).max(initial=0.0)) - problem.reserve.get(pool, 0)
        lacking = np.maximum(extra - max(slack, 0.0), 0.0)
        size = max((n.gpus for n in members), default=1)
        more = np.ceil(lacking / size - 1e-9)
        again = np.minimum(more, len(gone))
        rent = more - again
        nodes += len(gone) - again
        gpus -= lacking
        _money(back, members, gone, kept, again, rent)
    gpus += _released(problem, layout)
    dates = tuple(sorted(back, key=lambda at: -1.0 if at is None else at))
    total, usd = np.zeros(DRAWS), []
    for at in dates:
        total = total + back[at]
        usd.append(total)
    return Brought(nodes, np.maximum(gpus, 0.0), dates, tuple(usd))


def _extra(layout: Layout, pool: str) -> Array:
    total = np.zeros(DRAWS)
    for option in layout.chosen.values():
        if option.pool == pool and len(option.extra_draws):
            total += option.extra_draws
    return total


def _money(  # noqa: PLR0917
    back: dict[float | None, Array],
    members: tuple[PlanNode, ...],
    gone: list[PlanNode],
    kept: list[PlanNode],
    again: Array,
    rent: Array,
) -> None:
    """Adds what one pool brings by date. Nodes that are kept after all are those that bring most: a claim is never
    raised by them."""
    by_worth = sorted(gone, key=lambda n: (n.bound_until is None, n.usd_per_hour or 0.0), reverse=True)
    for rank, node in enumerate(by_worth):
        month = (node.usd_per_hour or 0.0) * HOURS_PER_MONTH
        if node.bound_until == FOREVER or not month:
            continue
        back.setdefault(node.bound_until, np.zeros(DRAWS))
        back[node.bound_until] = back[node.bound_until] + month * (again <= rank)
    price = max((n.usd_per_hour or 0.0 for n in members), default=0.0) * HOURS_PER_MONTH
    new = sum(n.usd_per_hour or 0.0 for n in kept if n.is_bought) * HOURS_PER_MONTH
    back[None] = back[None] - new - rent * price


def _released(problem: Problem, layout: Layout) -> float:
    """GPUs of the fleet that services hold today and no longer hold afterwards."""
    own = {n.name: n for n in problem.nodes if n.is_today}
    before = sum(c for s in problem.series for u in s.units if u.mig is None for n, c in u.gpus.items() if n in own)
    after = 0
    for s in problem.series:
        option = layout.chosen.get(s.id)
        if option is None or option.keeps_units:
            after += sum(u.gpu_count for u in s.units if layout.places.get(u.id) in own)
        else:
            after += sum(
                option.gpus_each_whole for k in range(option.units) if layout.places.get(new_unit(option, k)) in own
            )
    return float(before - after)


def interval(draws: Array) -> Interval:
    """Percentiles of draws."""
    return percentiles(draws)
