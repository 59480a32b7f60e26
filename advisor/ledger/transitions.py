"""What telemetry tells of the moves in a ledger: done, measured, regressed, proposed anew."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from ..core.formatting import spread, usd
from ..recommend.move import DONE_HOURS
from ..recommend.moves import BY_ACTION
from ..recommend.progress import MoveState, Observation, PredictionSnapshot
from .entries import BY_ITSELF, LedgerEntry, LedgerEvent
from .realised_savings import realised
from .records import EventFigures, Realised

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
    return LedgerEvent(
        "done", now, BY_ITSELF, None, f"{how}{stand.told} {measured_words(told)}", EventFigures(realised=told)
    )


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
        return LedgerEvent("measured", now, BY_ITSELF, None, measured_words(told), EventFigures(realised=told))
    return None


def _seen_until(event: LedgerEvent) -> float:
    """The end of the telemetry that an event rests on (Unix seconds)."""
    return event.figures.realised.until if event.figures.realised is not None else event.at


def _regressed(told: Realised, why: str, now: float) -> LedgerEvent:
    return LedgerEvent("regressed", now, BY_ITSELF, None, why, EventFigures(realised=told))


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
