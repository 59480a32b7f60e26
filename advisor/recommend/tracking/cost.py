"""What nodes cost after a move, on the basis of its prediction: whole nodes, in the prices of then (docs/plan.md)."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.formatting import listed
from ..groups import HOURS_PER_MONTH
from .move_state import MoveState
from .observation import GONE_SECONDS, Observation, PredictionSnapshot, hours, serves

# Figures of a run that began this long before the move are still taken for the move's own.
SLACK_SECONDS = 3600.0
# Jobs follow the week.
JOB_SECONDS = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class MoveCost:
    """US dollars a month after the move; None with the reason. `said`: what keeps it from being less."""

    usd: float | None
    missing: str | None = None
    said: tuple[str, ...] = ()


def held_cost(snapshot: PredictionSnapshot, state: MoveState, seen: Observation) -> MoveCost:
    """What the series' nodes cost now, and those of before that are still there and paid for."""
    runs = [w for w in seen.series(snapshot.series_id) if w.end > state.since]
    begin = max(state.since, seen.start)
    now = {node for w in seen.now(snapshot.series_id) for node in w.nodes}
    always = serves(runs)  # a service holds its nodes between two runs, a job does not
    if not always and seen.end - begin < JOB_SECONDS:
        return MoveCost(None, "a job needs at least a week of data")
    names = sorted(now if always else {node for w in runs for node in w.nodes})
    usd = 0.0
    said: list[str] = []
    for name in names:
        price = price_then(snapshot, seen, name)
        if price is None:
            return MoveCost(None, f"no price for {name}")
        there = [w for w in runs if name in w.nodes]
        share = 1.0 if always else hours(there, begin, seen.end) * 3600 / (seen.end - begin)
        others = {w.name for w in seen.holders(name) if w.series_id != snapshot.series_id}
        if others:
            mine = sum(len(w.gpus) / len(w.nodes) for w in seen.holders(name) if w.series_id == snapshot.series_id)
            share *= min(mine / max(seen.nodes[name].gpu_count, 1), 1.0)
            said.append(f"{name} runs other work, so only its own GPUs count.")
        usd += price * share * HOURS_PER_MONTH
    left, kept = _still_paid(snapshot, seen, now) if always else (0.0, [])
    unsure = [n for n in kept if seen.silent(n)]
    if unsure:
        return MoveCost(None, _unsure(unsure))
    if kept:
        said.append(f"{listed(kept)} {'is' if len(kept) == 1 else 'are'} still present after the move, and counted.")
    return MoveCost(usd + left, None, tuple(said))


def _still_paid(snapshot: PredictionSnapshot, seen: Observation, now: set[str]) -> tuple[float, list[str]]:
    """US dollars a month of nodes that it left and that are still there: of those that the prediction counted alone."""
    price = snapshot.usd_per_hour.get(snapshot.source.node_sku or "")
    if price is None or snapshot.yardstick.usd_per_month is None:
        return 0.0, []
    counted = round(snapshot.yardstick.usd_per_month / (price * HOURS_PER_MONTH))
    still = [n for n in snapshot.nodes if n not in now and not seen.gone(n)]
    kept = still[: max(counted - len(now.intersection(snapshot.nodes)), 0)]
    return len(kept) * price * HOURS_PER_MONTH, kept


def cost_of_nodes_left(snapshot: PredictionSnapshot, _: MoveState, seen: Observation) -> MoveCost:
    """What the nodes that were to fall free cost as long as they are there."""
    still = [n for n in snapshot.yardstick.nodes if not seen.gone(n)]
    unsure = [n for n in still if seen.silent(n)]
    if unsure:
        return MoveCost(None, _unsure(unsure))
    prices = [price_then(snapshot, seen, n) for n in still]
    if any(p is None for p in prices):
        return MoveCost(None, f"no price for {listed(still)}")
    usd = sum(p for p in prices if p is not None) * HOURS_PER_MONTH
    nodes = max(len(snapshot.yardstick.nodes), 1)
    staying = round(nodes * snapshot.target.gpu_count / max(snapshot.source.gpu_count, 1))
    more = len(still) - staying
    said = (f"{more} of {listed(snapshot.yardstick.nodes)} is still present.",) if more > 0 else ()
    # A release may name more nodes than fall free whole: those cost as much before as after.
    return MoveCost(min(usd, snapshot.yardstick.usd_per_month or usd), None, said)


def _unsure(nodes: list[str]) -> str:
    days = f"{GONE_SECONDS / 86400:.0f} days"
    return f"{listed(nodes)} stopped reporting recently; a node counts as returned after {days} without data"


def cost_after(snapshot: PredictionSnapshot, state: MoveState, seen: Observation) -> MoveCost:
    """Of a series the nodes that it holds, of nodes those that are left."""
    of = cost_of_nodes_left if snapshot.series_id is None else held_cost
    return of(snapshot, state, seen)


def price_then(snapshot: PredictionSnapshot, seen: Observation, node: str) -> float | None:
    """Of a node per hour: as it stood in the proposal, else as it stands today."""
    known = seen.nodes.get(node)
    if known is None:
        return None
    return snapshot.usd_per_hour.get(known.node_sku or "", known.usd_per_hour)
