"""What a move really brought: cost, GPU-hours and time after it, against what they were and what was predicted.

Both sides are reckoned on one basis: whole nodes, the prices of the proposal, and the same right-sized present that the
prediction was credited against (docs/plan.md).
"""

from __future__ import annotations

from ..recommend.moves import BY_ACTION
from ..recommend.progress import SLACK_SECONDS, Measure, MoveCost, MoveState, Observation, PredictionSnapshot, measure
from .records import Realised

# A change of load beyond this is said; assumed: less is what one week differs from the next without any cause.
LOAD_CHANGED = 0.25
_NOT_PREDICTED = MoveCost(None, "no dollars were predicted: nodes are rented whole, and no node becomes free")


def realised(action: str, ground: PredictionSnapshot, stand: MoveState, seen: Observation) -> Realised:
    """A move that stands at its target, measured from there on."""
    runs = [w for w in seen.series(ground.series_id) if w.end > stand.since]
    own = [w for w in runs if w.start >= stand.since - SLACK_SECONDS or seen.start >= stand.since - SLACK_SECONDS]
    after = measure(own, max(stand.since, seen.start), seen.end)
    before = ground.yardstick.usd_per_month
    cost = BY_ACTION[action].cost(ground, stand, seen) if before is not None else _NOT_PREDICTED
    saving = before - cost.usd if before is not None and cost.usd is not None else None
    ratio, why = _time(ground, after)
    load = _load(ground, after)
    held = measure(runs, max(stand.since, seen.start), seen.end)
    told = [*cost.said]
    if load is not None and abs(load - 1) > LOAD_CHANGED:
        told.append(
            f"Load is x{load:.2f} of the load before, so the change in time and cost is not due to this change alone."
        )
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


def _time(ground: PredictionSnapshot, after: Measure | None) -> tuple[float | None, str | None]:
    """Time for the same work, after over before; None with the reason."""
    if ground.time_ratio is None:
        return None, "no time was predicted"
    if after is None or ground.before is None:
        return None, "no throughput data"
    ratio = _rate_ratio(after, ground.before, serving=ground.serving)
    if ratio is not None:
        return ratio, None
    return None, "no token counts from the server" if ground.serving else "no steps detected in its load"


def _rate_ratio(after: Measure, before: Measure, *, serving: bool) -> float | None:
    """Time for the same work, one over the other; None: nothing of both tells it.

    A service: GPU-seconds at work for each token. A job: the length of its steps, on as many GPUs.
    """
    if serving:
        if after.busy_seconds_per_token and before.busy_seconds_per_token:
            return after.busy_seconds_per_token / before.busy_seconds_per_token
        return None
    same = abs(after.gpus / before.gpus - 1) < 0.05 if before.gpus > 0 else False
    if same and after.period_seconds and before.period_seconds:
        return after.period_seconds / before.period_seconds
    return None


def _load(ground: PredictionSnapshot, after: Measure | None) -> float | None:
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
