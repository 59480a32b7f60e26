"""Servers at rest most of the time: clocks that a context keeps up although nothing runs, let down between requests.

A CUDA context raises the clocks to their highest and keeps them there. CUDA_DISABLE_PERF_BOOST=1 in the environment
of the process leaves that to the load. Energy, never cash; the watts are the difference of the GPUs' levels at rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ....rules.policy.labels import ON_DEMAND_KINDS
from ...classify.types import RestLevel
from ...core.advice_types import Action, Recommendation, SavingsBaseline
from ...core.coded_text import CodedText, coded
from ...core.formatting import gpus, percent
from ..evidence import REST
from ..finding import series_label
from ..fleet import DRAWS, Fleet, Series
from ..groups import HOURS_PER_MONTH, Group
from ..move import WEEK_HOURS, Move, TitleSubject, at_power_price, recommend_for
from ..prediction import Array, percentiles
from ..progress import SLACK_SECONDS, MoveCost, MoveState, Observation, Place, PredictionSnapshot, hours

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


class RestClocks(Move):
    actions = (ACTION,)
    subject = "Lowering the idle clocks"
    brief = "lower idle clocks"
    unasked_hours = WEEK_HOURS

    def build(self, fleet: Fleet) -> Iterator[Recommendation]:
        levels = {(one.node, one.gpu_uuid): one for one in fleet.verdicts.rest_levels}
        for series in fleet.series:
            group = series.group
            if group.kind in SERVERS and group.current and not group.shared and not group.sliced:
                rest = _rest_of(series, levels)
                r = _recommendation(series, rest) if rest is not None else None
                yield from [r] if r is not None else []

    def title(self, r: Recommendation, of: TitleSubject) -> str:
        return f"Lower the clocks of {of.name} at rest ({gpus(r.source.gpu_count, r.source.gpu_sku)})"

    def progress(self, snapshot: PredictionSnapshot, seen: Observation, proposed: bool) -> MoveState | None:
        """By its power at rest: past half of the way down is done. Figures are of whole runs; it takes a new one."""
        before, target = snapshot.before, snapshot.yardstick.rest_watts
        now = _watts_at_rest(snapshot, seen)
        if before is None or before.rest_watts is None or target is None or now is None or before.rest_watts <= target:
            return None
        place: Place = "target" if now <= (before.rest_watts + target) / 2 else "source"
        words = f"Idle power per GPU: {now:.0f} W (before: {before.rest_watts:.0f} W)."
        return MoveState(place, seen.end, hours(seen.now(snapshot.series_id)), words)

    def cost(self, snapshot: PredictionSnapshot, state: MoveState, seen: Observation) -> MoveCost:
        if seen.start < state.since - SLACK_SECONDS:
            return MoveCost(None, "the window still includes days before the change")
        before, price, paid = snapshot.before, snapshot.yardstick.usd_per_kwh, snapshot.yardstick.usd_per_month
        now = _watts_at_rest(snapshot, seen)
        if price is None or paid is None or before is None or not before.rest_watts or now is None:
            return MoveCost(None, "idle power or power price unknown")
        return MoveCost(paid * now / before.rest_watts)


def _watts_at_rest(snapshot: PredictionSnapshot, seen: Observation) -> float | None:
    now = seen.now(snapshot.series_id)
    told = [w.features["rest_watts"] for w in now if "rest_watts" in w.features]
    return sum(told) / len(told) if told else None


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


def _rest_of(series: Series, levels: Mapping[tuple[str, str], RestLevel]) -> _Rest | None:
    """None: it works more than it rests, its power at rest was not seen, or its clocks are down already."""
    fleet, group = series.fleet, series.group
    usage = fleet.verdicts.usage_of({w.id for w in group.now}, "bottleneck", "seconds", "node", "gpu_uuid")
    idle, seconds = usage["bottleneck"].to_numpy() == "idle", usage["seconds"].to_numpy(float)
    at_rest, total = float(seconds[idle].sum()), float(seconds.sum())
    if total <= 0 or at_rest < REST_SHARE_MIN * total:
        return None
    keys = sorted({(str(n), str(u)) for n, u in zip(usage["node"], usage["gpu_uuid"], strict=True)})
    own = [levels[key] for key in keys if key in levels]
    if len(own) < len(keys) or any(one.held_watts is None for one in own):
        return None
    clocks = [one.held_clock_ratio for one in own if one.held_clock_ratio is not None]
    if clocks and max(clocks) < CLOCKS_UP:
        return None
    free = [told for one in own if (told := _free(one, levels.values())) is not None]
    if len(free) < len(own):
        free = []
    bases = {basis for _, basis in free}
    return _Rest(
        held_watts=np.array([one.held_watts for one in own], dtype=np.float64),
        free_watts=np.array([watts for watts, _ in free], dtype=np.float64),
        own=np.array([basis == _OWN for _, basis in free], dtype=np.float64),
        basis=next((one for one in (_FLEET, _NODE, _OWN) if one in bases), ""),
        share=at_rest / total,
        gpu_hours=fleet.monthly(group, at_rest / 3600),
        clock_ratio=min(clocks) if len(clocks) == len(own) else None,
    )


def _free(one: RestLevel, levels: Iterable[RestLevel]) -> tuple[float, str] | None:
    """What a GPU draws without a process, and the source: itself, its node, the fleet; None: no data.

    Only where the clock is down as well: a bare context takes next to no memory.
    """
    seen = [
        (o, o.free_watts)
        for o in levels
        if o.free_watts is not None and o.free_clock_ratio is not None and o.free_clock_ratio <= CLOCKS_DOWN
        if o is one or (o.gpu_sku == one.gpu_sku and one.gpu_sku)
    ]
    own = [watts for o, watts in seen if o is one]
    near = [watts for o, watts in seen if o.node == one.node]
    told, basis = (own, _OWN) if own else (near, _NODE) if near else ([watts for _, watts in seen], _FLEET)
    return (float(np.median(told)), basis) if told else None


def _recommendation(series: Series, rest: _Rest) -> Recommendation | None:
    """None: it saves next to nothing."""
    group, blocked = series.group, _blocked(series.group, rest)
    price, held, free = series.fleet.book.power_of(group.nodes[0]), float(rest.held_watts.mean()), None
    kwh, saving, then = None, None, ""
    told = f"It draws {held:.0f} W per idle GPU. Savings unknown: no data on idle power at lower clocks."
    if len(rest.free_watts):
        free = float(rest.free_watts.mean())
        # What the clocks take at rest, in joint draws.
        rng = series.fleet.draws("rest-clocks", group.series_id)
        off = rng.normal(0.0, SIGMA_OTHER_GPU, (DRAWS, len(rest.free_watts))) * (1 - rest.own)
        each = np.maximum(rest.held_watts - rest.free_watts * (1 + off), 0.0).mean(axis=1)
        drawn = each * rng.uniform(*RECOVERED, DRAWS) * rest.gpu_hours / 1000
        lost = percentiles(drawn)
        if lost.p50 < WATTS_MIN * HOURS_PER_MONTH / 1000:
            return None
        told = (
            f"It draws {held:.0f} W per idle GPU, {free:.0f} W without a process ({rest.basis}). The idle clocks cost "
            f"{lost.p50:,.0f} kWh/month ({lost.p10:,.0f} to {lost.p90:,.0f})."
        )
        if not blocked:
            kwh = lost
            saving, then = at_power_price(price, drawn, held * rest.gpu_hours / 1000)
    low, high = FIRST_REQUEST_SECONDS
    return recommend_for(
        series, ACTION, "clocks-by-load", place="rest",
        text=(
            f"{series_label(group)} is idle in {percent(rest.share)} of its time. {told} Set {VARIABLE}=1 in its "
            f"environment, so that its clocks follow the load. The first request after an idle period takes {low:.2f} "
            f"to {high:.2f} s longer (measured on H100 and A100). {then}"
        ),
        saving=saving, energy_saving_kwh_per_month=kwh, realisation="energy",
        risk="medium" if group.kind in ON_DEMAND_KINDS else "low", blocked_by=blocked,
        would_change_if=(
            CodedText(
                "first-request-after-rest",
                f"requests after an idle period must not wait {low:.2f} to {high:.2f} s longer",
                {"extra_seconds_low": low, "extra_seconds_high": high},
            ),
            coded("context-kept-up", "another process on the same GPU keeps its clocks up"),
        ),
        yardstick=SavingsBaseline(rest_watts=free, usd_per_kwh=price.usd_per_kwh if price is not None else None),
        needs=series.base.claim(whole=False, measures=REST),
    )  # fmt: skip


def _blocked(group: Group, rest: _Rest) -> list[CodedText]:
    """What is not known of its GPUs, and the oldest driver of its nodes, which decides."""
    blocked: list[CodedText] = []
    if not len(rest.free_watts):
        told = "no idle power data of such a GPU without a process and with low clocks; one hour of such data is enough"
        blocked.append(coded("rest-level-not-seen", told))
    if rest.clock_ratio is None:
        told = "no SM clock data of its idle GPUs; the clock may be low already"
        blocked.append(coded("rest-clock-not-measured", told))
    needed = {"variable": VARIABLE, "needed": "{}.{}.{:02d}".format(*KNOWN_SINCE)}
    told = [(version_of(node.driver_version), node) for node in group.nodes]
    oldest, node = min(told, key=lambda one: one[0] or ())
    if oldest is None:
        said = "driver version of {node} unknown; {variable} needs {needed} or later"
        blocked.append(coded("driver-unknown", said, node=node.node, **needed))
    elif oldest < KNOWN_SINCE:
        said = "driver of {node} is {driver_version}; {variable} needs {needed} or later"
        blocked.append(coded("driver-too-old", said, node=node.node, driver_version=node.driver_version, **needed))
    return blocked


def version_of(text: str | None) -> tuple[int, ...] | None:
    """A driver's version as numbers; None: not told, or no version."""
    told = text.strip() if text is not None else ""
    return tuple(map(int, told.split("."))) if _VERSION.fullmatch(told) else None
