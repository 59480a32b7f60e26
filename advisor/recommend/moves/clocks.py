"""Lower clocks: at work, where the work takes little longer for less energy, and at rest, where nothing happens."""

import re
from collections.abc import Iterator, Mapping

import numpy as np

from ....rules.policy.labels import ON_DEMAND_KINDS
from ...classify.types import NodeFacts, RestLevel
from ...core.advice_types import Interval, Recommendation, SavingsBaseline
from ...core.coded_text import CodedText, coded
from ...core.formatting import gpus, percent
from ...core.worth import HOURS_PER_MONTH
from ..constraints import REST
from ..fleet import DRAWS, Fleet, Series, series_label
from ..groups import Group
from ..move import WEEK_HOURS, Fields, Move, at_power_price, recommend_for
from ..prediction import Prediction, percentiles
from ..progress import MIXED, MoveCost, MoveState, Observation, PredictionSnapshot, by_level, level, measure


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
            to = f" to {fields['watts']:.0f} W per GPU" if "watts" in fields else ""
            return f"Lower the power limit of {of}{to}"
        return f"Lower the SM clock of {of}" + (f" to {fields['share'] * 100:.0f} %" if "share" in fields else "")

    def progress(self, snapshot: PredictionSnapshot, seen: Observation, proposed: bool) -> MoveState | None:
        before, share = snapshot.before and snapshot.before.clock_ratio, snapshot.yardstick.clock_share
        target = None if before is None or share is None else before * share
        words = "Its SM clock while busy is {ratio:.2f}x the earlier clock."
        return by_level(snapshot, seen, "clock_ratio", before=before, target=target, words=words)

    def cost(self, snapshot: PredictionSnapshot, state: MoveState, seen: Observation) -> MoveCost:
        if seen.mixed(state.since):
            return MIXED
        before, after = snapshot.before, measure(seen.series(snapshot.series_id), seen.start, seen.end)
        price, paid = snapshot.yardstick.usd_per_kwh, snapshot.yardstick.usd_per_month
        then, now = before and before.watts, after and after.watts
        if price is None or paid is None or after is None or then is None or now is None:
            return MoveCost(None, "no power data")
        return MoveCost(paid - (then - now) / 1000 * after.gpu_hours_per_month * price)


VARIABLE = "CUDA_DISABLE_PERF_BOOST"
# Not what people type into: a notebook of one GPU would save a dollar a month.
SERVERS = ("online-inference", "batch-inference")
# The first driver that knows the variable: NVIDIA's page of 580.105.08 (drivers/details/257493, November 2025).
KNOWN_SINCE = (580, 105, 8)
# SM clock over the clock behind the peak: contexts at rest were seen at 0.8 to 1.1, free GPUs at 0.06 to 0.2 (H100,
# A100, L40S, B200; gpu-parking-tax, commit 183ae69, read 2026-11-23).
CLOCKS_UP, CLOCKS_DOWN = 0.6, 0.4
# Share of the difference that came back with the variable set, on the same four GPUs (same source).
RECOVERED = (0.95, 1.0)
# Mean over the month of all its GPUs. Less than half of the smallest difference published (26 W) shows at no meter.
WATTS_MIN = 13.0
_VERSION = re.compile(r"\d{1,5}(?:\.\d{1,5}){1,3}", re.ASCII)


class RestClocks(Move):
    actions = ("rest-clocks",)
    subject = "Lowering the idle clocks"
    unasked_hours = WEEK_HOURS

    def build(self, fleet: Fleet) -> Iterator[Recommendation]:
        levels = {(rest_level.node, rest_level.gpu_uuid): rest_level for rest_level in fleet.verdicts.rest_levels}
        for series in fleet.series:
            yield from self._of(series, levels)

    def _of(self, series: Series, levels: Mapping[tuple[str, str], RestLevel]) -> Iterator[Recommendation]:
        """None where it works more than it rests, its rest was not seen, or its clocks are down already."""
        fleet, group = series.fleet, series.group
        if group.kind not in SERVERS or not group.current or group.shared or group.sliced:
            return
        usage = fleet.verdicts.usage_of({w.id for w in group.now}, "bottleneck", "seconds", "node", "gpu_uuid")
        idle, seconds = usage["bottleneck"].to_numpy() == "idle", usage["seconds"].to_numpy(float)
        at_rest, total = float(seconds[idle].sum()), float(seconds.sum())
        # Of its observed time: below it the server works more than it rests.
        if total <= 0 or at_rest < 0.5 * total:
            return
        keys = sorted({(str(n), str(u)) for n, u in zip(usage["node"], usage["gpu_uuid"], strict=True)})
        rest_levels = [levels[key] for key in keys if key in levels]
        watts = np.array([rest_level.held_watts for rest_level in rest_levels if rest_level.held_watts is not None])
        clocks = [rest_level.held_clock_ratio for rest_level in rest_levels if rest_level.held_clock_ratio is not None]
        if len(watts) < len(keys) or (clocks and max(clocks) < CLOCKS_UP):
            return
        # What each draws without a process at low clocks: what it was seen to, else the median of its node's free GPUs.
        alike = [seen for seen in levels.values() if seen.gpu_sku == rest_levels[0].gpu_sku]
        down = [seen for seen in alike if seen.free_clock_ratio is not None and seen.free_clock_ratio <= CLOCKS_DOWN]
        seen_free = {(seen.node, seen.gpu_uuid): seen.free_watts for seen in down if seen.free_watts is not None}
        beside = {n: np.median([w for (at, _), w in seen_free.items() if at == n] or [np.nan]) for n, _ in keys}
        free_watts = np.array([seen_free.get(key, beside[key[0]]) for key in keys])
        is_known, gpu_hours = not np.isnan(free_watts).any(), fleet.monthly(group, at_rest / 3600)
        held = float(watts.mean())
        blocked = _blocked(group, free_known=is_known, clocks_known=len(clocks) == len(rest_levels))
        price, rest_watts, kwh, saving, then = fleet.book.power_of(group.nodes[0]), None, None, None, ""
        text = f"It draws {held:.0f} W per idle GPU. Savings unknown: no data on idle power at lower clocks."
        if is_known:
            rest_watts = float(free_watts.mean())
            # What the clocks take at rest, in joint draws; a GPU's own level is exact.
            rng = fleet.draws("rest-clocks", group.series_id)
            # Another GPU's level stands for one that was never free: silicon and cooling differ by 23 of 145 W between
            # the highest and the lowest of 14 H100 (same source), which is some 2.6 standard deviations.
            others = np.array([key not in seen_free for key in keys])
            off = rng.normal(0.0, 0.06, (DRAWS, len(keys))) * others
            each = np.maximum(watts - free_watts * (1 + off), 0.0).mean(axis=1)
            drawn = each * rng.uniform(*RECOVERED, DRAWS) * gpu_hours / 1000
            lost = percentiles(drawn)
            if lost.p50 < WATTS_MIN * HOURS_PER_MONTH / 1000:
                return
            text = (
                f"It draws {held:.0f} W per idle GPU, {rest_watts:.0f} W without a process "
                f"({'free GPUs of its node' if others.any() else 'the same GPUs'}). "
                f"The idle clocks cost {lost.p50:,.0f} kWh/month ({lost.p10:,.0f} to {lost.p90:,.0f})."
            )
            if not blocked:
                kwh = lost
                saving, then = at_power_price(price, drawn, held * gpu_hours / 1000)
        # How much longer the first request after a rest of a minute took: 147 ms on H100, 220 ms on A100 (same source).
        low, high = (0.15, 0.22)
        wait = (
            "requests after an idle period must not wait {extra_seconds_low:.2f} to {extra_seconds_high:.2f} s longer"
        )
        yield recommend_for(
            series, "rest-clocks", "clocks-by-load", place="rest",
            text=(
                f"{series_label(group)} is idle in {percent(at_rest / total)} of its time. {text} Set {VARIABLE}=1 in "
                f"its environment, so that its clocks follow the load. The first request after an idle period takes "
                f"{low:.2f} to {high:.2f} s longer (measured on H100 and A100). {then}"
            ),
            saving=saving, energy_saving_kwh_per_month=kwh, realisation="energy",
            risk="medium" if group.kind in ON_DEMAND_KINDS else "low", blocked_by=blocked,
            would_change_if=(
                coded("first-request-after-rest", wait, extra_seconds_low=low, extra_seconds_high=high),
                coded("context-kept-up", "another process on the same GPU keeps its clocks up"),
            ),
            yardstick=SavingsBaseline(rest_watts=rest_watts, usd_per_kwh=price and price.usd_per_kwh),
            needs=series.base.claim(whole=False, measures=REST),
        )  # fmt: skip

    def title(self, r: Recommendation, of: str, at: str, fields: Fields) -> str:
        return f"Lower the clocks of {of} at rest ({gpus(r.source.gpu_count, r.source.gpu_sku)})"

    def progress(self, snapshot: PredictionSnapshot, seen: Observation, proposed: bool) -> MoveState | None:
        before, target = snapshot.before and snapshot.before.rest_watts, snapshot.yardstick.rest_watts
        words = "Idle power per GPU: {now:.0f} W (before: {before:.0f} W)."
        return by_level(snapshot, seen, "rest_watts", before=before, target=target, words=words)

    def cost(self, snapshot: PredictionSnapshot, state: MoveState, seen: Observation) -> MoveCost:
        if seen.mixed(state.since):
            return MIXED
        before, now = snapshot.before and snapshot.before.rest_watts, level(snapshot, seen, "rest_watts")
        price, paid = snapshot.yardstick.usd_per_kwh, snapshot.yardstick.usd_per_month
        if price is None or paid is None or not before or now is None:
            return MoveCost(None, "idle power or power price unknown")
        return MoveCost(paid * now / before)


def _blocked(group: Group, *, free_known: bool, clocks_known: bool) -> list[CodedText]:
    """What is not known of its GPUs, and the oldest driver of its nodes, which decides."""
    text = "no idle power data of such a GPU without a process and with low clocks; one hour of such data is enough"
    blocked = [] if free_known else [coded("rest-level-not-seen", text)]
    text = "no SM clock data of its idle GPUs; the clock may be low already"
    blocked += [] if clocks_known else [coded("rest-clock-not-measured", text)]
    needed = {"variable": VARIABLE, "needed": "{}.{}.{:02d}".format(*KNOWN_SINCE)}

    def version(node: NodeFacts) -> tuple[int, ...]:
        """The driver's, as numbers; empty: not reported, or no version."""
        version = (node.driver_version or "").strip()
        return tuple(map(int, version.split("."))) if _VERSION.fullmatch(version) else ()

    node = min(group.nodes, key=version)
    if not version(node):
        said = "driver version of {node} unknown; {variable} needs {needed} or later"
        blocked.append(coded("driver-unknown", said, node=node.node, **needed))
    elif version(node) < KNOWN_SINCE:
        said = "driver of {node} is {driver_version}; {variable} needs {needed} or later"
        blocked.append(coded("driver-too-old", said, node=node.node, driver_version=node.driver_version, **needed))
    return blocked
