"""What became of accepted moves: predicted against realised, one value a recommendation, for reports and people."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..core.advice_types import DecisionState, Interval
from ..core.formatting import spread, usd
from ..recommend.move import DONE_HOURS
from ..recommend.moves import BY_ACTION
from ..recommend.progress import SLACK_SECONDS, Measure, MoveCost, MoveState, Observation, PredictionSnapshot, measure
from .entries import BY_ITSELF, LedgerEntry, LedgerEvent, Realised


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """One recommendation that somebody accepted, or that telemetry saw done, and what it brought.

    `accepted_at`, `done_at`: Unix seconds; None: nobody accepted it, or it was not seen done. `from_config` and
    `to_config` are words, as the ledger shows them. Savings are US dollars a month, in the prices of the proposal;
    time ratios are time after over time before. Where a realised figure is None, `reason_missing` says why. `why` is
    the evidence of the last event (detection, measurement or decision), a sentence.
    """

    id: str
    about: str
    action: str
    from_config: str
    to_config: str
    state: DecisionState
    accepted_at: float | None
    done_at: float | None
    predicted_saving_usd_per_month: Interval | None
    realised_saving_usd_per_month: float | None
    predicted_time_ratio: Interval | None
    realised_time_ratio: float | None
    realisation: str
    why: str
    reason_missing: str | None
    predicted_freed_gpu_hours_per_month: float = 0.0
    realised_freed_gpu_hours_per_month: float | None = None


def move_outcomes(entries: Iterable[LedgerEntry], now: float) -> tuple[MoveOutcome, ...]:
    """The outcomes of a ledger at `now` (Unix seconds): what is accepted, done or regressed, the newest event first."""
    told = [(entry, entry.decision(now)) for entry in entries]
    kept = [(entry, decision) for entry, decision in told if decision.state in ("accepted", "done", "regressed")]
    kept.sort(key=lambda pair: (-pair[0].events[-1].at, pair[0].proposal.id))
    return tuple(_outcome(entry, decision.state) for entry, decision in kept)


def _outcome(entry: LedgerEntry, state: DecisionState) -> MoveOutcome:
    p, ground = entry.proposal, entry.proposal.ground
    measured = entry.realised if state != "accepted" else None
    accepted = entry.last("accepted")
    last = next(e for e in reversed(entry.events) if e.act not in ("proposed", "expired"))
    if measured is not None:
        missing = measured.saving_missing or measured.time_missing
    elif ground is None:
        missing = "no baseline stored: it was always blocked"
    else:
        missing = "not done yet"
    return MoveOutcome(
        id=p.id,
        about=p.about,
        action=p.action,
        from_config=p.source_config,
        to_config=p.target_config,
        state=state,
        accepted_at=accepted.at if accepted is not None else None,
        done_at=measured.since if measured is not None else None,
        predicted_saving_usd_per_month=ground.saving_usd_per_month if ground else None,
        realised_saving_usd_per_month=measured.saving_usd_per_month if measured else None,
        predicted_time_ratio=ground.time_ratio if ground else None,
        realised_time_ratio=measured.time_ratio if measured else None,
        realisation=p.realisation,
        why=last.why or "",
        reason_missing=missing,
        predicted_freed_gpu_hours_per_month=p.freed_gpu_hours_per_month,
        realised_freed_gpu_hours_per_month=_freed(p.action, measured),
    )


def _freed(action: str, told: Realised | None) -> float | None:
    """GPU-hours a month that the series holds less; None: not measured, or a move that frees none by itself."""
    kind = BY_ACTION.get(action)  # of others the GPU-hours follow from the time
    if told is None or kind is None or not kind.frees or told.gpu_hours_per_month_before is None:
        return None
    after = told.gpu_hours_per_month_after
    return told.gpu_hours_per_month_before - after if after is not None else None


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


# A saving is gone where less than a tenth of it is left after a week (fleets are resized by the week), and back from
# half of it on, so that one number in between does not tell both by turns.
GONE_SHARE, BACK_SHARE = 0.1, 0.5
GONE_HOURS = 7 * 24.0
# Too slow: past the 90th percentile by more than a tenth, over three days. A tenth is what a team notices (risk is
# reckoned against the same, recommend/prediction.py).
SLOW_MARGIN = 0.10
SLOW_HOURS = 72.0
# One measurement a week is kept, and a mail each Monday finds a new one whatever the hour.
MEASURE_SECONDS = 6.5 * 86400.0
_DAY = 86400.0
# Of the nodes of before, less those that were to go, so many must be there for a window to show the same fleet.
SAME_FLEET_SHARE = 0.8


def ledger_events(entries: Iterable[LedgerEntry], seen: Observation, now: float) -> list[tuple[str, LedgerEvent]]:
    """The events that a window of telemetry adds to a ledger at `now` (Unix seconds), by recommendation."""
    found: list[tuple[str, LedgerEvent]] = []
    for entry in entries:
        ground = entry.proposal.ground
        if ground is None or seen.end < ground.seen_until - _DAY:
            continue  # an older window than the proposal rests on
        event = _event(entry, ground, seen, now)
        if event is not None:
            found.append((entry.proposal.id, event))
    return found


def _event(entry: LedgerEntry, ground: PredictionSnapshot, seen: Observation, now: float) -> LedgerEvent | None:
    p, state = entry.proposal, entry.decision(now).state
    if state == "expired":
        return None
    kind = BY_ACTION.get(p.action)
    if kind is None or (kind.by_absence and not _looks_there(p.source, ground, seen)):
        return None
    stand = kind.progress(ground, seen, p.id in seen.proposed)
    if stand is None:
        return None
    if state == "done":
        return _after(entry, ground, stand, seen, now)
    return _done(entry, ground, stand, seen, now)


def _looks_there(source: str, ground: PredictionSnapshot, seen: Observation) -> bool:
    """Whether a window shows the fleet of a proposal: what another source, or a part, does not show is not gone."""
    unknown = set(ground.yardstick.nodes).difference(seen.nodes)
    if not seen.shows(source, part=not unknown):
        return False
    staying = ground.fleet - len(ground.yardstick.nodes)
    return len(set(seen.nodes).difference(ground.yardstick.nodes)) >= SAME_FLEET_SHARE * staying


def _done(
    entry: LedgerEntry, ground: PredictionSnapshot, stand: MoveState, seen: Observation, now: float
) -> LedgerEvent | None:
    p, state = entry.proposal, entry.decision(now).state
    asked, kind = state == "accepted", BY_ACTION[p.action]
    least = kind.done_hours if asked else kind.unasked_hours
    # A job holds nothing between two runs; a day must have passed all the same.
    there = stand.hours if ground.serving else max(stand.hours, (seen.end - stand.since) / 3600)
    if stand.place != "target" or stand.since < ground.seen_until - _DAY:
        return None
    if least is None or there < least:
        return None
    told = realised(p.action, ground, stand, seen)
    undone = entry.last("regressed")
    if undone is not None and stand.since <= _seen_until(undone) and not _is_well(told):
        return None
    how = "" if asked else "Done without being accepted. "
    return LedgerEvent("done", now, BY_ITSELF, None, f"{how}{stand.told} {measured_words(told)}", told)


def _after(
    entry: LedgerEntry, ground: PredictionSnapshot, stand: MoveState, seen: Observation, now: float
) -> LedgerEvent | None:
    """Of what is done: undone, gone wrong, proposed anew, or measured once more."""
    p, last = entry.proposal, entry.realised
    done = entry.last("done")
    if last is None or done is None:
        return None
    if stand.place == "source":
        back = (seen.end - max(stand.since, last.until)) / 3600
        if min(back, stand.hours) < DONE_HOURS:
            return None
        return _regressed(replace(last, saving_usd_per_month=None, saving_missing="it was reverted"), stand.told, now)
    if stand.place != "target" or seen.end <= last.until:
        return None
    told = realised(p.action, ground, replace(stand, since=last.since), seen)
    why = _wrong(told)
    if why is not None:
        return _regressed(told, why, now)
    if p.id in seen.open and seen.start >= last.since:
        return LedgerEvent("proposed", now, BY_ITSELF, None, "New telemetry supports the same recommendation again.")
    noted = entry.last("done", "measured")
    first = last.saving_usd_per_month is None and told.saving_usd_per_month is not None
    # By what telemetry tells of the time: a clock that once ran ahead would put the next one off.
    if first or noted is None or seen.end - _seen_until(noted) >= MEASURE_SECONDS:
        return LedgerEvent("measured", now, BY_ITSELF, None, measured_words(told), told)
    return None


def _seen_until(event: LedgerEvent) -> float:
    """The end of the telemetry that an event rests on (Unix seconds)."""
    return event.realised.until if event.realised is not None else event.at


def _regressed(told: Realised, why: str, now: float) -> LedgerEvent:
    return LedgerEvent("regressed", now, BY_ITSELF, None, why, told)


def _wrong(told: Realised) -> str | None:
    """Why a move that stands at its target has failed all the same; None: it has not, or not for long enough."""
    saving, predicted = told.saving_usd_per_month, told.predicted_saving_usd_per_month
    promised = predicted.p50 if predicted is not None else 0.0
    if saving is not None and promised > 0 and told.hours >= GONE_HOURS and saving <= GONE_SHARE * promised:
        more = f" {told.confounders[0]}" if told.confounders else ""
        return f"Saving: {usd(saving)}/month of {usd(promised)}/month predicted.{more}"
    ratio, interval = told.time_ratio, told.predicted_time_ratio
    most = interval.p90 * (1 + SLOW_MARGIN) if interval is not None else math.inf
    if ratio is not None and interval is not None and told.hours >= SLOW_HOURS and ratio > most:
        return f"Time for the same work: x{ratio:.2f}, above the predicted maximum of x{interval.p90:.2f} (p90)."
    return None


def _is_well(told: Realised) -> bool:
    """Whether what had regressed without being moved back has come right."""
    saving, predicted = told.saving_usd_per_month, told.predicted_saving_usd_per_month
    saves = saving is None or predicted is None or saving >= BACK_SHARE * predicted.p50
    ratio, interval = told.time_ratio, told.predicted_time_ratio
    return saves and (ratio is None or interval is None or ratio <= interval.p90)


def measured_words(told: Realised) -> str:
    """A measurement in a sentence or two: saving and time, each beside what was predicted, or why it is not known."""
    said = []
    if told.saving_usd_per_month is not None:
        predicted = told.predicted_saving_usd_per_month
        of = f" (predicted: {usd(predicted.p50)}{spread(predicted)})" if predicted else ""
        said.append(f"Saving: {usd(told.saving_usd_per_month)}/month{of}.")
    else:
        said.append(f"Saving not measured: {told.saving_missing}.")
    if told.time_ratio is not None:
        predicted = told.predicted_time_ratio
        of = f" (predicted: x{predicted.p50:.2f}, {predicted.p10:.2f} to {predicted.p90:.2f})" if predicted else ""
        said.append(f"Time for the same work: x{told.time_ratio:.2f}{of}.")
    elif told.predicted_time_ratio is not None:
        said.append(f"Time not measured: {told.time_missing}.")
    return " ".join([*said, *told.confounders])
