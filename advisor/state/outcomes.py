"""What became of recommendations: events that telemetry adds to the ledger, and predicted against measured gains."""

from collections.abc import Iterable
from dataclasses import replace

from ..core.advice_types import Interval
from ..core.formatting import spread, usd
from ..recommend.move import DONE_HOURS
from ..recommend.moves import BY_ACTION
from ..recommend.predict.calibration import Site, site_factor
from ..recommend.progress import SLACK_SECONDS, Measure, MoveCost, MoveState, Observation, PredictionSnapshot, measure
from .ledger import BY_ITSELF, LedgerEntry, LedgerEvent, Realised

# A change of load beyond this is said; assumed: less is what one week differs from the next without any cause.
LOAD_CHANGED = 0.25
# A saving is gone where less than a tenth of it is left after a week (fleets are resized by the week), and back from
# half of it on, so that one number in between does not alternate between them.
GONE_SHARE, BACK_SHARE = 0.1, 0.5
GONE_HOURS = 7 * 24.0
# Too slow: past the 90th percentile by more than a tenth, over three days. A tenth is what a team notices (risk is
# computed against the same, recommend/prediction.py).
SLOW_MARGIN = 0.10
SLOW_HOURS = 72.0
# One measurement a week is kept, and a mail each Monday finds a new one whatever the hour.
MEASURE_SECONDS = 6.5 * 86400.0
_DAY = 86400.0
# Of the nodes of before, less those that were to go, so many must be there for a window to show the same fleet.
SAME_FLEET_SHARE = 0.8
_NOT_PREDICTED = MoveCost(None, "no dollars were predicted: nodes are rented whole, and no node becomes free")


def followed(entries: Iterable[LedgerEntry], now: float) -> tuple[LedgerEntry, ...]:
    """What is accepted, done or regressed at `now` (Unix seconds), the newest event first."""
    newest_first = sorted(entries, key=lambda e: (-e.events[-1].at if e.events else 0.0, e.recommendation.id))
    return tuple(e for e in newest_first if e.decision(now).state in ("accepted", "done", "regressed"))


def site_of(entries: Iterable[LedgerEntry], now: float) -> Site:
    """What measured moves say of predictions. Where the load changed, the time is not the move's alone: left out."""
    cases: list[tuple[Interval, float, float]] = []
    savings: list[tuple[float, float]] = []  # predicted, measured
    for entry in entries:
        snapshot, measured = entry.snapshot, entry.realised
        if snapshot is None or measured is None or entry.decision(now).state not in ("done", "regressed"):
            continue
        is_steady = measured.load_ratio is None or abs(measured.load_ratio - 1) <= LOAD_CHANGED
        kind = BY_ACTION.get(entry.recommendation.action)
        is_case = kind is not None and kind.calibrates and snapshot.source.gpu_sku != snapshot.target.gpu_sku
        ratio, interval = measured.time_ratio, measured.predicted_time_ratio
        if is_case and is_steady and ratio is not None and interval is not None:
            cases.append((interval, ratio, snapshot.yardstick.site_factor))
        predicted, saving = measured.predicted_saving_usd_per_month, measured.saving_usd_per_month
        if saving is not None and predicted is not None:
            savings.append((predicted.p50, saving))
    factor, count = site_factor(cases)
    return Site(factor, count, (sum(p for p, _ in savings), sum(m for _, m in savings)), len(savings))


def realised(action: str, snapshot: PredictionSnapshot, position: MoveState, seen: Observation) -> Realised:
    """A move that stands at its target, measured from there on."""
    begin = max(position.since, seen.start)
    runs = [w for w in seen.series(snapshot.series_id) if w.end > position.since]
    is_cut = seen.start >= position.since - SLACK_SECONDS
    after = measure([w for w in runs if is_cut or w.start >= position.since - SLACK_SECONDS], begin, seen.end)
    held, before = measure(runs, begin, seen.end), snapshot.before
    usd_before = snapshot.yardstick.usd_per_month
    cost = BY_ACTION[action].cost(snapshot, position, seen) if usd_before is not None else _NOT_PREDICTED
    saving = usd_before - cost.usd if usd_before is not None and cost.usd is not None else None
    ratio, time_missing = _time(snapshot, after)
    load, confounders = _load(snapshot, after), cost.said
    if load is not None and abs(load - 1) > LOAD_CHANGED:
        why = "so the change in time and cost is not due to this change alone"
        confounders = (*confounders, f"Load is x{load:.2f} of the load before, {why}.")
    return Realised(
        since=position.since,
        until=seen.end,
        hours=(seen.end - begin) / 3600,
        predicted_saving_usd_per_month=snapshot.saving_usd_per_month,
        predicted_time_ratio=snapshot.time_ratio,
        usd_per_month_before=usd_before,
        usd_per_month_after=cost.usd,
        saving_usd_per_month=saving,
        saving_missing=None if saving is not None else cost.missing or "no dollars were predicted",
        gpu_hours_per_month_before=before.gpu_hours_per_month if before else None,
        gpu_hours_per_month_after=held.gpu_hours_per_month if held else 0.0,
        time_ratio=ratio,
        time_missing=time_missing,
        load_ratio=load,
        confounders=confounders,
    )


def _time(snapshot: PredictionSnapshot, after: Measure | None) -> tuple[float | None, str | None]:
    """Time for the same work (GPU-seconds a token, or the length of a job's steps), after over before; else why not."""
    before = snapshot.before
    if snapshot.time_ratio is None:
        return None, "no time was predicted"
    if after is None or before is None:
        return None, "no throughput data"
    if snapshot.serving:
        if after.busy_seconds_per_token and before.busy_seconds_per_token:
            return after.busy_seconds_per_token / before.busy_seconds_per_token, None
        return None, "no token counts from the server"
    same_count = before.gpus > 0 and abs(after.gpus / before.gpus - 1) < 0.05
    if same_count and after.period_seconds and before.period_seconds:
        return after.period_seconds / before.period_seconds, None
    return None, "no steps detected in its load"


def _load(snapshot: PredictionSnapshot, after: Measure | None) -> float | None:
    before = snapshot.before
    if after is None or before is None:
        return None
    if after.tokens_per_second and before.tokens_per_second:
        return after.tokens_per_second / before.tokens_per_second
    if not snapshot.serving or after.busy is None or not before.busy:
        return None
    # Busy GPUs there, as busy GPUs here: the predicted ratio takes out that the others are faster.
    ratio = snapshot.time_ratio.p50 if snapshot.time_ratio else 1.0
    return after.busy * after.gpus / (before.busy * before.gpus * ratio)


def ledger_events(entries: Iterable[LedgerEntry], seen: Observation, now: float) -> list[tuple[str, LedgerEvent]]:
    """The events that a window of telemetry adds to a ledger at `now` (Unix seconds), by recommendation."""
    events: list[tuple[str, LedgerEvent]] = []
    for entry in entries:
        r, snapshot, kind = entry.recommendation, entry.snapshot, BY_ACTION.get(entry.recommendation.action)
        state = entry.decision(now).state
        if snapshot is None or kind is None or state == "expired":
            continue
        if seen.end < snapshot.seen_until - _DAY:
            continue  # an older window than the recommendation rests on
        # What another source, or a part of the fleet, does not show is not gone.
        nodes = set(snapshot.yardstick.nodes)
        least = SAME_FLEET_SHARE * (snapshot.fleet - len(snapshot.yardstick.nodes))
        shows_fleet = (
            seen.shows(entry.source, part=nodes <= seen.nodes.keys()) and len(seen.nodes.keys() - nodes) >= least
        )
        if kind.by_absence and not shows_fleet:
            continue
        position = kind.progress(snapshot, seen, r.id in seen.proposed)
        if position is None:
            continue
        follow = _after_done if state == "done" else _until_done
        event = follow(entry, snapshot, position, seen, now)
        if event is not None:
            events.append((r.id, event))
    return events


def _until_done(
    entry: LedgerEntry, snapshot: PredictionSnapshot, position: MoveState, seen: Observation, now: float
) -> LedgerEvent | None:
    action, is_accepted = entry.recommendation.action, entry.decision(now).state == "accepted"
    least_hours = BY_ACTION[action].done_hours if is_accepted else BY_ACTION[action].unasked_hours
    # A job holds nothing between two runs; a day must have passed all the same.
    hours = position.hours if snapshot.serving else max(position.hours, (seen.end - position.since) / 3600)
    if position.place != "target" or position.since < snapshot.seen_until - _DAY:
        return None
    if least_hours is None or hours < least_hours:
        return None
    measured = realised(action, snapshot, position, seen)
    undone, ratio, interval = entry.last("regressed"), measured.time_ratio, measured.predicted_time_ratio
    if undone is not None and position.since <= _seen_until(undone):
        saving, predicted = measured.saving_usd_per_month, measured.predicted_saving_usd_per_month
        if saving is not None and predicted is not None and saving < BACK_SHARE * predicted.p50:
            return None
        if ratio is not None and interval is not None and ratio > interval.p90:
            return None
    lead = "" if is_accepted else "Done without being accepted. "
    return LedgerEvent("done", now, BY_ITSELF, None, f"{lead}{position.evidence} {measured_words(measured)}", measured)


def _after_done(
    entry: LedgerEntry, snapshot: PredictionSnapshot, position: MoveState, seen: Observation, now: float
) -> LedgerEvent | None:
    r, last, noted = entry.recommendation, entry.realised, entry.last("done", "measured")
    if last is None or noted is None:
        return None
    if position.place == "source":
        hours_back = (seen.end - max(position.since, last.until)) / 3600
        if min(hours_back, position.hours) < DONE_HOURS:
            return None
        reverted = replace(last, saving_usd_per_month=None, saving_missing="it was reverted")
        return LedgerEvent("regressed", now, BY_ITSELF, None, position.evidence, reverted)
    if position.place != "target" or seen.end <= last.until:
        return None
    measured = realised(r.action, snapshot, replace(position, since=last.since), seen)
    why = _wrong(measured)
    if why is not None:
        return LedgerEvent("regressed", now, BY_ITSELF, None, why, measured)
    if r.id in seen.open and seen.start >= last.since:
        return LedgerEvent("proposed", now, BY_ITSELF, None, "New telemetry supports the same recommendation again.")
    is_first = last.saving_usd_per_month is None and measured.saving_usd_per_month is not None
    # By the time of telemetry: a clock that once ran ahead would put the next one off.
    if is_first or seen.end - _seen_until(noted) >= MEASURE_SECONDS:
        return LedgerEvent("measured", now, BY_ITSELF, None, measured_words(measured), measured)
    return None


def _seen_until(event: LedgerEvent) -> float:
    return event.realised.until if event.realised is not None else event.at


def _wrong(measured: Realised) -> str | None:
    saving, predicted = measured.saving_usd_per_month, measured.predicted_saving_usd_per_month
    promised = predicted.p50 if predicted is not None else 0.0
    if saving is not None and promised > 0 and measured.hours >= GONE_HOURS and saving <= GONE_SHARE * promised:
        more = f" {measured.confounders[0]}" if measured.confounders else ""
        return f"Saving: {usd(saving)}/month of {usd(promised)}/month predicted.{more}"
    ratio, interval = measured.time_ratio, measured.predicted_time_ratio
    if ratio is None or interval is None or measured.hours < SLOW_HOURS or ratio <= interval.p90 * (1 + SLOW_MARGIN):
        return None
    return f"Time for the same work: x{ratio:.2f}, above the predicted maximum of x{interval.p90:.2f} (p90)."


def measured_words(measured: Realised) -> str:
    """A measurement in a sentence or two: saving and time, each beside what was predicted, or why it is not known."""
    sentences, ratio = [], measured.time_ratio
    if measured.saving_usd_per_month is not None:
        predicted = measured.predicted_saving_usd_per_month
        of = f" (predicted: {usd(predicted.p50)}{spread(predicted)})" if predicted else ""
        sentences.append(f"Saving: {usd(measured.saving_usd_per_month)}/month{of}.")
    else:
        sentences.append(f"Saving not measured: {measured.saving_missing}.")
    if ratio is not None:
        predicted = measured.predicted_time_ratio
        of = f" (predicted: x{predicted.p50:.2f}, {predicted.p10:.2f} to {predicted.p90:.2f})" if predicted else ""
        sentences.append(f"Time for the same work: x{ratio:.2f}{of}.")
    elif measured.predicted_time_ratio is not None:
        sentences.append(f"Time not measured: {measured.time_missing}.")
    return " ".join([*sentences, *measured.confounders])
