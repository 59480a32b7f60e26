"""The same GPUs at a lower clock: a lower SM clock, or a power cap. It saves energy, never cash."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.advice_types import Action, Interval, Recommendation, SavingsBaseline
from ...core.coded_text import coded
from ..finding import ClockChange, series_label
from ..fleet import DRAWS, Fleet, Series
from ..move import Move, TitleSubject, at_power_price, recommend_for
from ..prediction import Prediction
from ..progress import SLACK_SECONDS, MoveCost, MoveState, Observation, Place, PredictionSnapshot, hours, measure

CAP: Action = "power-cap"
CLOCK: Action = "lower-clock"


class LowerClock(Move):
    actions = (CLOCK, CAP)
    subject = "A lower clock"

    def build(self, fleet: Fleet) -> Iterator[Recommendation]:
        for series in fleet.series:
            for found in series.asking(CLOCK):
                if found.clock is not None:
                    yield _recommendation(series, found.clock)

    def title(self, r: Recommendation, of: TitleSubject) -> str:
        told = {key: value for one in r.changes for key, value in one.fields.items()}
        if r.action == CAP:
            watts = told.get("watts")
            to = f" to {watts:.0f} W per GPU" if isinstance(watts, float | int) else ""
            return f"Lower the power limit of {of.name}{to}"
        share = told.get("share")
        to = f" to {share * 100:.0f} %" if isinstance(share, float | int) else ""
        return f"Lower the SM clock of {of.name}{to}"

    def words(self, r: Recommendation) -> str:
        return "lower SM clock" if r.action == CLOCK else "lower power limit"

    def progress(self, snapshot: PredictionSnapshot, seen: Observation, proposed: bool) -> MoveState | None:
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

    def cost(self, snapshot: PredictionSnapshot, state: MoveState, seen: Observation) -> MoveCost:
        if seen.start < state.since - SLACK_SECONDS:
            return MoveCost(None, "the window still includes days before the change")
        after = measure(seen.series(snapshot.series_id), seen.start, seen.end)
        watts = (snapshot.before and snapshot.before.watts, after and after.watts)
        price, paid = snapshot.yardstick.usd_per_kwh, snapshot.yardstick.usd_per_month
        if price is None or paid is None or after is None or watts[0] is None or watts[1] is None:
            return MoveCost(None, "no power data")
        return MoveCost(paid - (watts[0] - watts[1]) / 1000 * after.gpu_hours_per_month * price)


def _recommendation(series: Series, change: ClockChange) -> Recommendation:
    """The change that a finding carries. Dollars only where the team pays for the power."""
    group, move, interval = series.group, change.move, change.move.prediction.interval
    share, joules, drawn = move.clock_share, move.joules, change.drawn_kwh_per_month
    drawn_ratio = Prediction(move.joules_ratio, move.joules_sigma, "energy").draw(
        series.fleet.draws("clock", group.series_id), DRAWS
    )
    price = series.fleet.book.power_of(group.nodes[0])
    saving, then = at_power_price(price, (1 - drawn_ratio) * drawn, drawn)
    if change.cap_watts is None:
        how = f"an SM clock at {share * 100:.0f} % of the current one"
        changed = coded("sm-clock", "SM clock at {share:.0%} of today's", share=share)
    else:
        how = f"a power cap of {change.cap_watts:.0f} W per GPU"
        changed = coded("power-limit", "power limit {watts:.0f} W per GPU", watts=change.cap_watts)
        if not move.shown:
            then = f"The interval is wide because no capped run was measured on this architecture. {then}"
    return recommend_for(
        series, CLOCK if change.cap_watts is None else CAP, place="clock",
        text=(
            f"{series_label(group)} with {how}: {interval.p50:.2f}x the time "
            f"({interval.p10:.2f} to {interval.p90:.2f}), {move.watts_after:.0f} W per busy GPU instead of "
            f"{move.watts_before:.0f} W. Saves {change.kwh_per_month:,.0f} kWh/month ({(1 - joules.p90) * 100:.0f} to "
            f"{(1 - joules.p10) * 100:.0f} % of its energy). {then}"
        ),
        changes=(changed,),
        saving=saving, time_ratio=interval, realisation="energy", risk=move.prediction.risk,
        energy_saving_kwh_per_month=Interval(
            (1 - joules.p90) * drawn, (1 - joules.p50) * drawn, (1 - joules.p10) * drawn
        ),
        would_change_if=(
            coded("latency-target", "latency targets leave no room for the slowdown"),
            coded("clocks-reset", "the driver or the scheduler resets clocks at every start"),
        ),
        yardstick=SavingsBaseline(clock_share=share, usd_per_kwh=price.usd_per_kwh if price is not None else None),
        needs=series.base.claim(whole=False),
    )  # fmt: skip
