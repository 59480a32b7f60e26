"""The same GPUs at a lower clock: a lower SM clock, or a power cap. It saves energy, never cash."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.advice_types import Action, Interval, Recommendation, SavingsBaseline
from ...core.coded_text import CodedText, coded
from ...core.formatting import spread, usd
from ..finding_context import ClockChange, series_label
from ..fleet_context import FleetContext, GroupContext, Saving
from ..move_context import DRAWS, DrawnRecommendation
from ..prediction import Prediction
from ..progress import SLACK_SECONDS, MoveCost, MoveState, Observation, Place, PredictionSnapshot, hours, measure
from ..recommendation_kind import RecommendationKind, TitleSubject

CAP: Action = "power-cap"
CLOCK: Action = "lower-clock"


def _build(fleet: FleetContext) -> Iterator[DrawnRecommendation]:
    for series in fleet.movable:
        for found in series.asking(CLOCK):
            if found.clock is not None:
                yield _option(series, found.clock)


def _option(series: GroupContext, change: ClockChange) -> DrawnRecommendation:
    """The change that a finding carries. Dollars only where the team pays for the power."""
    group, move, interval = series.group, change.move, change.move.prediction.interval
    kwh = change.kwh_per_month
    price, saving = series.scene.book.power_of(group.nodes[0]), None
    then = "No dollar value: rented nodes include power, and no price file sets a power price for other nodes."
    if price is not None:
        joules = Prediction(move.joules_ratio, move.joules_sigma, "energy").draw(
            series.scene.draws("clock", group.series_id), DRAWS
        )
        paid = change.drawn_kwh_per_month * price.usd_per_kwh
        saving = Saving((1 - joules) * paid, (), paid, "energy")
        then = (
            f"Saves {usd(saving.interval.p50)}/month{spread(saving.interval)} at the configured power price "
            f"({price.source}, {price.as_of})."
        )
    how = (
        f"an SM clock at {move.clock_share * 100:.0f} % of the current one"
        if change.cap_watts is None
        else f"a power cap of {change.cap_watts:.0f} W per GPU"
    )
    return series.recommend(
        CLOCK if change.cap_watts is None else CAP, place="clock",
        text=(
            f"{series_label(group)} with {how}: {interval.p50:.2f}x the time "
            f"({interval.p10:.2f} to {interval.p90:.2f}), {move.watts_after:.0f} W per busy GPU instead of "
            f"{move.watts_before:.0f} W. Saves {kwh:,.0f} kWh/month ({(1 - move.joules.p90) * 100:.0f} to "
            f"{(1 - move.joules.p10) * 100:.0f} % of its energy). {_unshown(change)}{then}"
        ),
        changes=(_change(change),),
        saving=saving, energy_saving_kwh_per_month=_saved(change), time_ratio=interval, realisation="energy",
        risk=move.prediction.risk,
        would_change_if=(
            coded("latency-target", "latency targets leave no room for the slowdown"),
            coded("clocks-reset", "the driver or the scheduler resets clocks at every start"),
        ),
        yardstick=SavingsBaseline(
            clock_share=move.clock_share, usd_per_kwh=price.usd_per_kwh if price is not None else None,
        ),
        claim=series.base.claim(whole=False),
    )  # fmt: skip


def _change(change: ClockChange) -> CodedText:
    if change.cap_watts is not None:
        return coded("power-limit", "power limit {watts:.0f} W per GPU", watts=change.cap_watts)
    share = change.move.clock_share
    return CodedText("sm-clock", f"SM clock at {share * 100:.0f} % of today's", {"share": share})


def _saved(change: ClockChange) -> Interval:
    """Kilowatt-hours a month at work that the same work would not take."""
    drawn, joules = change.drawn_kwh_per_month, change.move.joules
    return Interval((1 - joules.p90) * drawn, (1 - joules.p50) * drawn, (1 - joules.p10) * drawn)


def _unshown(change: ClockChange) -> str:
    """What a wide interval comes from."""
    if change.cap_watts is None or change.move.shown:
        return ""
    return "The interval is wide because no capped run was measured on this architecture. "


def _state(snapshot: PredictionSnapshot, seen: Observation, _: bool) -> MoveState | None:
    """By the clock at work: past half of the way down is done. Figures are of whole runs, so this lags."""
    share, before = snapshot.yardstick.clock_share, snapshot.before
    now = seen.now(snapshot.series_id)
    told = [w.features["clock_ratio"] for w in now if "clock_ratio" in w.features]
    if share is None or before is None or before.clock_ratio is None or not told or share >= 1:
        return None
    ratio = sum(told) / len(told)
    place: Place = "target" if ratio <= before.clock_ratio * (1 + share) / 2 else "source"
    words = f"Its SM clock while busy is {ratio / before.clock_ratio:.2f}x the earlier clock."
    return MoveState(place, seen.end, hours(now), words)


def _cost(snapshot: PredictionSnapshot, state: MoveState, seen: Observation) -> MoveCost:
    if seen.start < state.since - SLACK_SECONDS:
        return MoveCost(None, "the window still includes days before the change")
    after = measure(seen.series(snapshot.series_id), seen.start, seen.end)
    before, price, paid = snapshot.before, snapshot.yardstick.usd_per_kwh, snapshot.yardstick.usd_per_month
    if price is None or paid is None or before is None or before.watts is None or after is None or after.watts is None:
        return MoveCost(None, "no power data")
    kwh = (before.watts - after.watts) / 1000 * after.gpu_hours_per_month
    return MoveCost(paid - kwh * price)


def _title(r: Recommendation, of: TitleSubject) -> str:
    told = {key: value for one in r.changes for key, value in one.fields.items()}
    if r.action == CAP:
        watts = told.get("watts")
        to = f" to {watts:.0f} W per GPU" if isinstance(watts, float | int) else ""
        return f"Lower the power limit of {of.name}{to}"
    share = told.get("share")
    return f"Lower the SM clock of {of.name}" + (f" to {share * 100:.0f} %" if isinstance(share, float | int) else "")


KIND = RecommendationKind(
    actions=(CLOCK, CAP),
    rank=8,
    build=_build,
    title=_title,
    words=lambda r: "lower SM clock" if r.action == CLOCK else "lower power limit",
    subject="A lower clock",
    state=_state,
    cost=_cost,
)
