"""Servers at rest most of the time: clocks that a context keeps up although nothing runs, let down between requests.

A CUDA context raises the clocks to their highest and keeps them there. CUDA_DISABLE_PERF_BOOST=1 in the environment
of the process leaves that to the load. Energy, never cash; the watts are the difference of the GPUs' levels at rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ....rules.catalog.types import PowerPrice
from ....rules.policy.labels import ON_DEMAND_KINDS
from ...classify.types import RestLevel
from ...core.advice_types import Action, Recommendation, SavingsBaseline
from ...core.coded_text import CodedText, coded
from ...core.formatting import gpus, percent, spread, usd
from ..evidence import REST
from ..finding_context import series_label
from ..fleet_context import FleetContext, GroupContext, Saving
from ..groups import HOURS_PER_MONTH, Group
from ..move_context import DRAWS, DrawnRecommendation
from ..prediction import Array, percentiles
from ..progress import SLACK_SECONDS, MoveCost, MoveState, Observation, Place, PredictionSnapshot, hours
from ..recommendation_kind import WEEK_HOURS, RecommendationKind, TitleSubject

ACTION: Action = "rest-clocks"
VARIABLE = "CUDA_DISABLE_PERF_BOOST"
# Not what people type into: a notebook of one GPU would come to a dollar a month.
SERVERS = ("online-inference", "batch-inference")
# The first driver that knows the variable: NVIDIA's page of 580.105.08 (drivers/details/257493, November 2025).
KNOWN_SINCE = (580, 105, 8)
# Of its observed time: below it the server works more than it rests.
REST_SHARE_MIN = 0.5
# SM clock over the clock behind the peak: contexts at rest were seen at 0.8 to 1.1, free GPUs at 0.06 to 0.2 (H100,
# A100, L40S, B200; gpu-parking-tax, commit 183ae69, read 2026-11-23).
CLOCKS_UP, CLOCKS_DOWN = 0.6, 0.4
# Share of the difference that came back with the variable set, on the same four GPUs (same source).
RECOVERED = (0.95, 1.0)
# How much longer the first request after a rest of a minute took: 147 ms on H100, 220 ms on A100 (same source).
FIRST_REQUEST_SECONDS = (0.15, 0.22)
# Another GPU's level stands for one that was never free: silicon and cooling differ by 23 of 145 W between the highest
# and the lowest of 14 H100 (same source), which is some 2.6 standard deviations.
SIGMA_OTHER_GPU = 0.06
# Mean over the month of all its GPUs. Less than half of the smallest difference published (26 W) shows at no meter.
WATTS_MIN = 13.0
_VERSION = re.compile(r"\d{1,5}(?:\.\d{1,5}){1,3}", re.ASCII)

_OWN, _NODE, _FLEET = "the same GPUs", "free GPUs of its node", "free GPUs of the same model on other nodes"


@dataclass(frozen=True, slots=True)
class _Rest:
    """How its GPUs rest. `held_watts`: of each GPU; `free_watts`: with nothing resident, as its own rows or another's
    tell it (`basis`); `own`: which are its own; empty: nobody was seen free. `gpu_hours`: at rest, a month.
    """

    held_watts: Array
    free_watts: Array
    own: Array
    basis: str
    share: float
    gpu_hours: float
    clock_ratio: float | None


def _build(fleet: FleetContext) -> Iterator[DrawnRecommendation]:
    levels = {(one.node, one.gpu_uuid): one for one in fleet.verdicts.rest_levels}
    for series in fleet.movable:
        group = series.group
        if group.kind not in SERVERS or not group.current or group.shared or group.sliced:
            continue
        rest = _rest_of(series, levels)
        if rest is not None:
            option = _option(series, rest)
            if option is not None:
                yield option


def _rest_of(series: GroupContext, levels: Mapping[tuple[str, str], RestLevel]) -> _Rest | None:
    """None: it works more than it rests, its power at rest was not seen, or its clocks are down already."""
    usage = series.verdicts.usage_of({w.id for w in series.group.now}, "bottleneck", "seconds", "node", "gpu_uuid")
    idle, seconds = usage["bottleneck"].to_numpy() == "idle", usage["seconds"].to_numpy(float)
    if seconds.sum() <= 0 or seconds[idle].sum() < REST_SHARE_MIN * seconds.sum():
        return None
    keys = sorted({(str(n), str(u)) for n, u in zip(usage["node"], usage["gpu_uuid"], strict=True)})
    own = [levels[key] for key in keys if key in levels]
    if len(own) < len(keys) or any(one.held_watts is None for one in own):
        return None
    clocks = [one.held_clock_ratio for one in own if one.held_clock_ratio is not None]
    if clocks and max(clocks) < CLOCKS_UP:
        return None
    free = [_free(one, levels.values()) for one in own]
    known = [told for told in free if told is not None]
    bases = {basis for _, basis in known}
    whole = len(known) == len(own)
    return _Rest(
        held_watts=np.array([one.held_watts for one in own], dtype=np.float64),
        free_watts=np.array([watts for watts, _ in known] if whole else [], dtype=np.float64),
        own=np.array([basis == _OWN for _, basis in known] if whole else [], dtype=np.float64),
        basis=next(one for one in (_FLEET, _NODE, _OWN) if one in bases) if whole else "",
        share=float(seconds[idle].sum() / seconds.sum()),
        gpu_hours=float(seconds[idle].sum()) / 3600 / series.verdicts.window.hours * HOURS_PER_MONTH,
        clock_ratio=min(clocks) if len(clocks) == len(own) else None,
    )


def _free(one: RestLevel, all_: Iterable[RestLevel]) -> tuple[float, str] | None:
    """What a GPU draws without a process, and the source: itself, its node, the fleet; None: no data."""
    own = _free_watts(one)
    if own is not None:
        return own, _OWN
    alike = [(other.node, _free_watts(other)) for other in all_ if other.gpu_sku == one.gpu_sku and one.gpu_sku]
    known = [(node, watts) for node, watts in alike if watts is not None]
    near = [watts for node, watts in known if node == one.node]
    told = near or [watts for _, watts in known]
    return (float(np.median(told)), _NODE if near else _FLEET) if told else None


def _free_watts(one: RestLevel) -> float | None:
    """Its level without memory held, where that is one without a context: a bare context takes next to no memory."""
    down = one.free_clock_ratio is not None and one.free_clock_ratio <= CLOCKS_DOWN
    return one.free_watts if down else None


def _option(series: GroupContext, rest: _Rest) -> DrawnRecommendation | None:
    group, seen = series.group, len(rest.free_watts) > 0
    blocked = [one for one in (_level_block(rest), _clock_block(rest), _driver_block(group)) if one is not None]
    kwh = _saved(series, rest) if seen else None
    if kwh is not None and float(np.median(kwh)) < WATTS_MIN * HOURS_PER_MONTH / 1000:
        return None
    held = float(rest.held_watts.mean())
    what = f"{series_label(group)} is idle in {percent(rest.share)} of its time. It draws {held:.0f} W per idle GPU"
    price, saving, told = series.scene.book.power_of(group.nodes[0]), None, ""
    if kwh is None:
        told = ". Savings unknown: no data on idle power at lower clocks."
    else:
        free, interval = float(rest.free_watts.mean()), percentiles(kwh)
        told = (
            f", {free:.0f} W without a process ({rest.basis}). The idle clocks cost {interval.p50:,.0f} kWh/month "
            f"({interval.p10:,.0f} to {interval.p90:,.0f})."
        )
        if blocked:
            interval = None
        elif price is not None:
            saving = _worth(rest, kwh, price)
    then = "" if kwh is None else f" {_money(price, saving)}"
    low, high = FIRST_REQUEST_SECONDS
    return series.recommend(
        ACTION, "clocks-by-load", place="rest",
        text=(
            f"{what}{told} Set {VARIABLE}=1 in its environment, so that its clocks follow the load. The first "
            f"request after an idle period takes {low:.2f} to {high:.2f} s longer (measured on H100 and A100).{then}"
        ),
        saving=saving, energy_saving_kwh_per_month=percentiles(kwh) if kwh is not None and not blocked else None,
        realisation="energy", risk="medium" if group.kind in ON_DEMAND_KINDS else "low", blocked_by=blocked,
        would_change_if=(
            CodedText(
                "first-request-after-rest",
                f"requests after an idle period must not wait {low:.2f} to {high:.2f} s longer",
                {"extra_seconds_low": low, "extra_seconds_high": high},
            ),
            coded("context-kept-up", "another process on the same GPU keeps its clocks up"),
        ),
        yardstick=SavingsBaseline(
            rest_watts=float(rest.free_watts.mean()) if seen else None,
            usd_per_kwh=price.usd_per_kwh if price is not None else None,
        ),
        claim=series.base.claim(whole=False, measures=REST),
    )  # fmt: skip


def _saved(series: GroupContext, rest: _Rest) -> Array:
    """Draws of the energy a month that the clocks take at rest, kWh."""
    rng = series.scene.draws("rest-clocks", series.group.series_id)
    off = rng.normal(0.0, SIGMA_OTHER_GPU, (DRAWS, len(rest.free_watts))) * (1 - rest.own)
    free = rest.free_watts * (1 + off)
    each = np.maximum(rest.held_watts - free, 0.0).mean(axis=1)
    return each * rng.uniform(*RECOVERED, DRAWS) * rest.gpu_hours / 1000


def _worth(rest: _Rest, kwh: Array, price: PowerPrice) -> Saving:
    paid = float(rest.held_watts.mean()) * rest.gpu_hours / 1000 * price.usd_per_kwh
    return Saving(kwh * price.usd_per_kwh, (), paid, "energy")


def _money(price: PowerPrice | None, saving: Saving | None) -> str:
    if price is None:
        return "No dollar value: rented nodes include power, and no price file sets a power price for other nodes."
    if saving is None:
        return ""
    return (
        f"Saves {usd(saving.interval.p50)}/month{spread(saving.interval)} at the configured power price "
        f"({price.source}, {price.as_of})."
    )


def _level_block(rest: _Rest) -> CodedText | None:
    if len(rest.free_watts):
        return None
    return coded(
        "rest-level-not-seen",
        "no idle power data of such a GPU without a process and with low clocks; one hour of such data is enough",
    )


def _clock_block(rest: _Rest) -> CodedText | None:
    if rest.clock_ratio is not None:
        return None
    return coded("rest-clock-not-measured", "no SM clock data of its idle GPUs; the clock may be low already")


def _driver_block(group: Group) -> CodedText | None:
    """The oldest driver of its nodes decides."""
    needed = "{}.{}.{:02d}".format(*KNOWN_SINCE)
    told = [(node.node, node.driver_version, version_of(node.driver_version)) for node in group.nodes]
    unknown = next((name for name, _, version in told if version is None), None)
    if unknown is not None:
        return coded(
            "driver-unknown", "driver version of {node} unknown; {variable} needs {needed} or later",
            node=unknown, variable=VARIABLE, needed=needed,
        )  # fmt: skip
    name, words, oldest = min(told, key=lambda one: one[2] or ())
    if oldest is None or oldest >= KNOWN_SINCE:
        return None
    return coded(
        "driver-too-old", "driver of {node} is {driver_version}; {variable} needs {needed} or later",
        node=name, driver_version=words, variable=VARIABLE, needed=needed,
    )  # fmt: skip


def version_of(text: str | None) -> tuple[int, ...] | None:
    """A driver's version as numbers; None: not told, or no version."""
    told = text.strip() if text is not None else ""
    return tuple(map(int, told.split("."))) if _VERSION.fullmatch(told) else None


def _watts_at_rest(snapshot: PredictionSnapshot, seen: Observation) -> float | None:
    now = seen.now(snapshot.series_id)
    told = [w.features["rest_watts"] for w in now if "rest_watts" in w.features]
    return sum(told) / len(told) if told else None


def _state(snapshot: PredictionSnapshot, seen: Observation, _: bool) -> MoveState | None:
    """By its power at rest: past half of the way down is done. Figures are of whole runs; it takes a new one."""
    before, target = snapshot.before, snapshot.yardstick.rest_watts
    now = _watts_at_rest(snapshot, seen)
    if before is None or before.rest_watts is None or target is None or now is None or before.rest_watts <= target:
        return None
    place: Place = "target" if now <= (before.rest_watts + target) / 2 else "source"
    words = f"Idle power per GPU: {now:.0f} W (before: {before.rest_watts:.0f} W)."
    return MoveState(place, seen.end, hours(seen.now(snapshot.series_id)), words)


def _cost(snapshot: PredictionSnapshot, state: MoveState, seen: Observation) -> MoveCost:
    if seen.start < state.since - SLACK_SECONDS:
        return MoveCost(None, "the window still includes days before the change")
    before, price, paid = snapshot.before, snapshot.yardstick.usd_per_kwh, snapshot.yardstick.usd_per_month
    now = _watts_at_rest(snapshot, seen)
    if price is None or paid is None or before is None or not before.rest_watts or now is None:
        return MoveCost(None, "idle power or power price unknown")
    return MoveCost(paid * now / before.rest_watts)


def _title(r: Recommendation, of: TitleSubject) -> str:
    return f"Lower the clocks of {of.name} at rest ({gpus(r.source.gpu_count, r.source.gpu_sku)})"


KIND = RecommendationKind(
    actions=(ACTION,),
    rank=10,
    build=_build,
    title=_title,
    words=lambda _: "lower idle clocks",
    subject="Lowering the idle clocks",
    state=_state,
    cost=_cost,
    unasked_hours=WEEK_HOURS,
)
