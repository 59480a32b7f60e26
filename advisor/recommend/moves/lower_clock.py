"""The same GPUs at a lower clock: a lower SM clock, or a power cap. It saves energy, never cash."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.advice_types import Interval, Recommendation, SavingsBaseline
from ...core.coded_text import coded
from ..finding import series_label
from ..fleet import DRAWS, Series
from ..move import Fields, Move, at_power_price, recommend_for
from ..prediction import Prediction
from ..progress import MIXED, SLACK_SECONDS, MoveCost, MoveState, Observation, PredictionSnapshot, by_level, measure


class LowerClock(Move):
    actions = ("lower-clock", "power-cap")
    subject = "A lower clock"

    def of(self, series: Series) -> Iterator[Recommendation]:
        """The change that a finding carries. Dollars only where the team pays for the power."""
        for move in (waste.clock for waste in series.asking("lower-clock") if waste.clock is not None):
            group, interval, cap = series.group, move.prediction.interval, move.cap_watts
            share, joules, drawn = move.clock_share, move.joules, move.drawn_kwh_per_month
            rng = series.fleet.draws("clock", group.series_id)
            drawn_ratio = Prediction(move.joules_ratio, move.joules_sigma, "energy").draw(rng, DRAWS)
            price = series.fleet.book.power_of(group.nodes[0])
            saving, then = at_power_price(price, (1 - drawn_ratio) * drawn, drawn)
            if cap is None:
                how = f"an SM clock at {share * 100:.0f} % of the current one"
                changed = coded("sm-clock", "SM clock at {share:.0%} of today's", share=share)
            else:
                how = f"a power cap of {cap:.0f} W per GPU"
                changed = coded("power-limit", "power limit {watts:.0f} W per GPU", watts=cap)
                if not move.shown:
                    then = f"The interval is wide because no capped run was measured on this architecture. {then}"
            yield recommend_for(
                series, "lower-clock" if cap is None else "power-cap", place="clock",
                text=(
                    f"{series_label(group)} with {how}: {interval.p50:.2f}x the time ({interval.p10:.2f} to "
                    f"{interval.p90:.2f}), {move.watts_after:.0f} W per busy GPU instead of {move.watts_before:.0f} W. "
                    f"Saves {move.kwh_per_month:,.0f} kWh/month ({(1 - joules.p90) * 100:.0f} to "
                    f"{(1 - joules.p10) * 100:.0f} % of its energy). {then}"
                ),
                changes=(changed,),
                saving=saving, time_ratio=interval, realisation="energy", risk=move.prediction.risk,
                energy_saving_kwh_per_month=Interval(*((1 - j) * drawn for j in (joules.p90, joules.p50, joules.p10))),
                would_change_if=(
                    coded("latency-target", "latency targets leave no room for the slowdown"),
                    coded("clocks-reset", "the driver or the scheduler resets clocks at every start"),
                ),
                yardstick=SavingsBaseline(clock_share=share, usd_per_kwh=price and price.usd_per_kwh),
                needs=series.base.claim(whole=False),
            )  # fmt: skip

    def title(self, r: Recommendation, of: str, at: str, fields: Fields) -> str:
        if r.action == "power-cap":
            return f"Lower the power limit of {of}" + (
                f" to {fields['watts']:.0f} W per GPU" if "watts" in fields else ""
            )
        return f"Lower the SM clock of {of}" + (f" to {fields['share'] * 100:.0f} %" if "share" in fields else "")

    def progress(self, snapshot: PredictionSnapshot, seen: Observation, proposed: bool) -> MoveState | None:
        before, share = snapshot.before and snapshot.before.clock_ratio, snapshot.yardstick.clock_share
        target = None if before is None or share is None else before * share
        words = "Its SM clock while busy is {ratio:.2f}x the earlier clock."
        return by_level(snapshot, seen, "clock_ratio", before=before, target=target, words=words)

    def cost(self, snapshot: PredictionSnapshot, state: MoveState, seen: Observation) -> MoveCost:
        if seen.start < state.since - SLACK_SECONDS:
            return MIXED
        before, after = snapshot.before, measure(seen.series(snapshot.series_id), seen.start, seen.end)
        price, paid = snapshot.yardstick.usd_per_kwh, snapshot.yardstick.usd_per_month
        then, now = before and before.watts, after and after.watts
        if price is None or paid is None or after is None or then is None or now is None:
            return MoveCost(None, "no power data")
        return MoveCost(paid - (then - now) / 1000 * after.gpu_hours_per_month * price)
