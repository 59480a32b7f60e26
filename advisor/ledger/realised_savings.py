"""What a move really brought: cost, GPU-hours and time after it, against what they were and what was predicted.

Both sides are reckoned on one basis: whole nodes, the prices of the proposal, and the same right-sized present that the
prediction was credited against (docs/ledger.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.advice_types import WorkloadVerdict
from ..core.formatting import listed
from ..moves.base.workload_groups import HOURS_PER_MONTH
from .move_state import Stand
from .observation import GONE_SECONDS, ObservedWindow, measure_series, observed_hours, serves
from .records import PredictionSnapshot, Realised, SeriesMeasure

# A change of load beyond this is said; assumed: less is what one week differs from the next without any cause.
LOAD_CHANGED = 0.25
# Figures of a run that began this long before the move are still taken for the move's own.
SLACK_SECONDS = 3600.0
# Jobs follow the week.
JOB_SECONDS = 7 * 86400.0
_ENERGY = ("lower-clock", "power-cap")


@dataclass(frozen=True, slots=True)
class _Cost:
    """US dollars a month after the move; None with the reason. `said`: what keeps it from being less."""

    usd: float | None
    missing: str | None = None
    said: tuple[str, ...] = ()


def realised(action: str, ground: PredictionSnapshot, stand: Stand, seen: ObservedWindow) -> Realised:
    """A move that stands at its target, measured from there on."""
    runs = [w for w in seen.series(ground.series_id) if w.end > stand.since]
    own = [w for w in runs if w.start >= stand.since - SLACK_SECONDS or seen.start >= stand.since - SLACK_SECONDS]
    after = measure_series(own, max(stand.since, seen.start), seen.end)
    cost = _cost(action, ground, stand, seen, runs)
    before = ground.yardstick.usd_per_month
    saving = before - cost.usd if before is not None and cost.usd is not None else None
    ratio, why = _time(ground, after)
    load = _load(ground, after)
    held = measure_series(runs, max(stand.since, seen.start), seen.end)
    told = [*cost.said]
    if load is not None and abs(load - 1) > LOAD_CHANGED:
        told.append(f"The work asked of it is x{load:.2f} of what it was, so time and cost are not the move's alone.")
    return Realised(
        since=stand.since,
        until=seen.end,
        hours=(seen.end - max(stand.since, seen.start)) / 3600,
        predicted_saving_usd_per_month=ground.saving_usd_per_month,
        predicted_time_ratio=ground.time_ratio,
        usd_per_month_before=before,
        usd_per_month_after=cost.usd,
        saving_usd_per_month=saving,
        saving_missing=None if saving is not None else cost.missing or "no dollars were predicted",
        gpu_hours_per_month_before=ground.before.gpu_hours_per_month if ground.before else None,
        gpu_hours_per_month_after=held.gpu_hours_per_month if held else 0.0,
        time_ratio=ratio,
        time_missing=why,
        load_ratio=load,
        confounders=tuple(told),
    )


def _cost(
    action: str, ground: PredictionSnapshot, stand: Stand, seen: ObservedWindow, runs: list[WorkloadVerdict]
) -> _Cost:
    if ground.yardstick.usd_per_month is None:
        return _Cost(None, "no dollars were predicted: nodes are rented whole, and none was to fall free")
    if action in _ENERGY:
        return _energy(ground, stand, seen)
    if action == "schedule-off":
        return _paid_part(ground, stand, seen)
    if ground.series_id is None or action == "release":
        return _nodes_left(ground, seen)
    return _held(ground, stand, seen, runs)


def _held(ground: PredictionSnapshot, stand: Stand, seen: ObservedWindow, runs: list[WorkloadVerdict]) -> _Cost:
    """What the series' nodes cost now, and those of before that are still there and paid for."""
    begin = max(stand.since, seen.start)
    now = {node for w in seen.now(ground.series_id) for node in w.nodes}
    always = serves(runs)  # a service holds its nodes between two runs, a job does not
    if not always and seen.end - begin < JOB_SECONDS:
        return _Cost(None, "a job is measured over a week at least")
    names = sorted(now if always else {node for w in runs for node in w.nodes})
    usd = 0.0
    said: list[str] = []
    for name in names:
        price = _price(ground, seen, name)
        if price is None:
            return _Cost(None, f"no price is known for {name}")
        there = [w for w in runs if name in w.nodes]
        share = 1.0 if always else observed_hours(there, begin, seen.end) * 3600 / (seen.end - begin)
        others = {w.name for w in seen.holders(name) if w.series_id != ground.series_id}
        if others:
            mine = sum(len(w.gpus) / len(w.nodes) for w in seen.holders(name) if w.series_id == ground.series_id)
            share *= min(mine / max(seen.nodes[name].gpu_count, 1), 1.0)
            said.append(f"On {name} there is other work, so only its own GPUs are counted.")
        usd += price * share * HOURS_PER_MONTH
    left, kept = _still_paid(ground, seen, now) if always else (0.0, [])
    unsure = [n for n in kept if seen.silent(n)]
    if unsure:
        return _Cost(None, _unsure(unsure))
    if kept:
        said.append(f"{listed(kept)} that it left {'is' if len(kept) == 1 else 'are'} still there, and counted.")
    return _Cost(usd + left, None, tuple(said))


def _still_paid(ground: PredictionSnapshot, seen: ObservedWindow, now: set[str]) -> tuple[float, list[str]]:
    """US dollars a month of nodes that it left and that are still there: of those that the prediction counted alone."""
    price = ground.usd_per_hour.get(ground.source.node_sku or "")
    if price is None or ground.yardstick.usd_per_month is None:
        return 0.0, []
    counted = round(ground.yardstick.usd_per_month / (price * HOURS_PER_MONTH))
    still = [n for n in ground.nodes if n not in now and not seen.gone(n)]
    kept = still[: max(counted - len(now.intersection(ground.nodes)), 0)]
    return len(kept) * price * HOURS_PER_MONTH, kept


def _nodes_left(ground: PredictionSnapshot, seen: ObservedWindow) -> _Cost:
    """What the nodes that were to fall free cost as long as they are there."""
    still = [n for n in ground.yardstick.nodes if not seen.gone(n)]
    unsure = [n for n in still if seen.silent(n)]
    if unsure:
        return _Cost(None, _unsure(unsure))
    prices = [_price(ground, seen, n) for n in still]
    if any(p is None for p in prices):
        return _Cost(None, f"no price is known for {listed(still)}")
    usd = sum(p for p in prices if p is not None) * HOURS_PER_MONTH
    nodes = max(len(ground.yardstick.nodes), 1)
    staying = round(nodes * ground.target.gpu_count / max(ground.source.gpu_count, 1))
    more = len(still) - staying
    said = (f"{more} of {listed(ground.yardstick.nodes)} that was to go is still there.",) if more > 0 else ()
    # A release may name more nodes than fall free whole: those cost as much before as after.
    return _Cost(min(usd, ground.yardstick.usd_per_month or usd), None, said)


def _unsure(nodes: list[str]) -> str:
    days = f"{GONE_SECONDS / 86400:.0f} days"
    return f"{listed(nodes)} fell silent a short while ago; after {days} without a word a node counts as given back"


def _paid_part(ground: PredictionSnapshot, stand: Stand, seen: ObservedWindow) -> _Cost:
    if seen.start < stand.since - SLACK_SECONDS:
        return _Cost(None, "the window still holds days from before the move")
    known = [seen.nodes[n] for n in ground.nodes if n in seen.nodes]
    prices = [_price(ground, seen, n.node) for n in known]
    span = (seen.end - seen.start) / 3600
    if not known or any(p is None for p in prices) or span <= 0:
        return _Cost(None, "no price is known for its nodes")
    # A node that goes on reporting through the night is on, and paid for.
    usd = sum((p or 0.0) * min(n.hours_observed / span, 1.0) for p, n in zip(prices, known, strict=True))
    return _Cost(min(usd * HOURS_PER_MONTH, ground.yardstick.usd_per_month or usd * HOURS_PER_MONTH))


def _energy(ground: PredictionSnapshot, stand: Stand, seen: ObservedWindow) -> _Cost:
    if seen.start < stand.since - SLACK_SECONDS:
        return _Cost(None, "the window still holds days from before the move")
    after = measure_series(seen.series(ground.series_id), seen.start, seen.end)
    before, price, paid = ground.before, ground.yardstick.usd_per_kwh, ground.yardstick.usd_per_month
    if price is None or paid is None or before is None or before.watts is None or after is None or after.watts is None:
        return _Cost(None, "its power was not measured")
    kwh = (before.watts - after.watts) / 1000 * after.gpu_hours_per_month
    return _Cost(paid - kwh * price)


def _price(ground: PredictionSnapshot, seen: ObservedWindow, node: str) -> float | None:
    """Of a node per hour: as it stood in the proposal, else as it stands today."""
    known = seen.nodes.get(node)
    if known is None:
        return None
    return ground.usd_per_hour.get(known.node_sku or "", known.usd_per_hour)


def _time(ground: PredictionSnapshot, after: SeriesMeasure | None) -> tuple[float | None, str | None]:
    """Time for the same work, after over before; None with the reason."""
    if ground.time_ratio is None:
        return None, "no time was predicted"
    if after is None or ground.before is None:
        return None, "nothing tells how fast it works"
    found = rate_ratio(after, ground.before, serving=ground.serving)
    if found is not None:
        return found[0], None
    return None, "no server told its tokens" if ground.serving else "no steps were seen in its load"


def rate_ratio(after: SeriesMeasure, before: SeriesMeasure, *, serving: bool) -> tuple[float, str] | None:
    """Time for the same work, one over the other, and what it was measured by; None: nothing of both tells it.

    A service: GPU-seconds at work for each token. A job: the length of its steps, on as many GPUs.
    """
    if serving:
        if after.busy_seconds_per_token and before.busy_seconds_per_token:
            per_gpu = after.busy_seconds_per_token / before.busy_seconds_per_token
            return per_gpu, "GPU-seconds at work for each token"
        return None
    same = abs(after.gpus / before.gpus - 1) < 0.05 if before.gpus > 0 else False
    if same and after.period_seconds and before.period_seconds:
        return after.period_seconds / before.period_seconds, "the length of its steps"
    return None


def _load(ground: PredictionSnapshot, after: SeriesMeasure | None) -> float | None:
    """Work asked of it over what was asked before; None: nothing tells it."""
    before = ground.before
    if after is None or before is None:
        return None
    if after.tokens_per_second and before.tokens_per_second:
        return after.tokens_per_second / before.tokens_per_second
    if not ground.serving or after.busy is None or not before.busy:
        return None
    # Busy GPUs there, as busy GPUs here: the predicted ratio takes out that the others are faster.
    ratio = ground.time_ratio.p50 if ground.time_ratio else 1.0
    return after.busy * after.gpus / (before.busy * before.gpus * ratio)
