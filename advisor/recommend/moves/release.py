"""GPUs that work holds without use are given back: released for good, or switched off at fixed hours."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator

import numpy as np
import pandas as pd

from ....rules.policy.labels import ON_DEMAND_KINDS
from ...core.advice_types import Configuration, EvidenceClaim, Interval, Recommendation, SavingsBaseline
from ...core.coded_text import coded
from ...core.formatting import counted, gpus, listed
from ...core.timestamps import minute
from ...core.worth import HOURS_PER_MONTH
from ..constraints import GAP_MAX, REST
from ..fleet import Fleet, Found, Series, node_words, series_label
from ..groups import Group
from ..move import WEEK_HOURS, Fields, Move, Saving, recommend, recommend_for
from ..prediction import risk_of
from ..progress import MIXED, MoveCost, MoveState, Observation, PredictionSnapshot, hours, price_then

# Instances that divide a GPU wholly add up to all of it, but for rounding.
WHOLE = 0.999


class Release(Move):
    actions = ("release",)
    subject = "Releasing these GPUs"
    unasked_hours = WEEK_HOURS
    by_absence = True
    frees = True

    def build(self, fleet: Fleet) -> Iterator[Recommendation]:
        for waste in fleet.waste:
            if "release" in waste.answered_by:
                r = _bare(fleet, waste) if waste.group is None else _held(fleet, waste, waste.group)
                if r is not None:
                    yield r

    def title(self, r: Recommendation, of: str, at: str, fields: Fields) -> str:
        held = f" held by {of}" if r.workload is not None else ""
        return f"Release {gpus(r.source.gpu_count, r.source.gpu_sku, 'idle')}{held}{at}"

    def progress(self, snapshot: PredictionSnapshot, seen: Observation, proposed: bool) -> MoveState | None:
        if snapshot.series_id is None:
            return super().progress(snapshot, seen, proposed)
        if now := seen.now(snapshot.series_id):
            since, held = max(min(w.start for w in now), seen.start), len({g for w in now for g in w.gpus})
            return MoveState("source", since, hours(now, since), f"It holds {held} GPUs.")
        left = max((w.end for w in seen.series(snapshot.series_id)), default=seen.start)
        # Released, or an agent that stopped reporting: the nodes must have reported since, or be gone.
        present = [n for n in snapshot.yardstick.nodes if not seen.gone(n)]
        if any(seen.last_seen(n) <= left + 3600 for n in present):
            return None
        what = f"no other workload on {listed(present)}" if present else "its nodes report no data"
        return MoveState("target", left, (seen.end - left) / 3600, f"It has held no GPU since {minute(left)}; {what}.")


def _bare(fleet: Fleet, waste: Found) -> Recommendation | None:
    node = waste.nodes[0]
    day_ago = fleet.verdicts.window.end - 86400
    # A GPU unused in this share of its node's hours is free, not between two jobs.
    free = [b for b in waste.bare if b.idle_hours >= 0.9 * b.part * node.span_hours and b.last_ts >= day_ago]
    gpus_free: dict[str, float] = defaultdict(float)
    for b in free:
        gpus_free[b.parent_uuid or b.gpu_uuid] += b.part
    if not (whole := sum(part >= WHOLE for part in gpus_free.values()) >= node.gpu_count):
        # Somebody's memory lies on it, whom no label names. Of a whole node the gate says so.
        free = [b for b in free if b.held_hours <= GAP_MAX * b.hours]
    left = fleet.verdicts.inventory.nodes[node.node].end is not None
    if left or not free or not node.span_hours:
        return None
    cut = sum(1 for b in free if b.part < 1)
    counts = [counted(n, of) for n, of in ((len(free) - cut, "GPU"), (cut, "MIG instance")) if n]
    who = node.node if whole else f"{' and '.join(counts)} of {node.node}"
    what = f"{who} idle for {node.span_hours / 24:.0f} days."
    return _released(fleet, waste, [b.gpu_uuid for b in free], sum(b.part for b in free), whole=int(whole), what=what)


def _held(fleet: Fleet, waste: Found, group: Group) -> Recommendation | None:
    if not group.current:
        return None
    released, count = frozenset(waste.finding.gpus), len(waste.finding.gpus)
    # Where another replica works on the same node, that stays.
    kept = {n for w in group.now if not released.issuperset(w.gpus) for n in w.nodes}
    whole = 0 if group.shared else sum(1 for n in waste.nodes if n.node in group.alone - kept)
    held = f"{counted(count, 'MIG instance' if group.sliced else 'GPU')} on {node_words(waste.nodes)}"
    what = f"{series_label(group)} holds {held} and does not use {'it' if count == 1 else 'them'}."
    free = float(count)
    if group.sliced:
        free = sum(len(w.gpus) * w.gpu_part for w in group.now if released.issuperset(w.gpus))
    return _released(fleet, waste, released, free, whole=whole, what=what)


def _released(
    fleet: Fleet, waste: Found, uuids: Collection[str], free: float, *, whole: int, what: str
) -> Recommendation:
    """`uuids`: of the GPUs or instances, `free` GPUs in all; `whole`: nodes that fall free; `what`: a sentence."""
    group, nodes, node = waste.group, waste.nodes, waste.nodes[0]
    names, price = tuple(n.node for n in nodes), fleet.book.saving_price(node)
    saving = Saving.of_nodes(price, whole, fleet.at, whole, whole)
    parted = abs(free - round(free)) >= 0.005
    count = f"{free:.2f} GPUs (MIG instances)" if parted else counted(round(free), "GPU")
    why = "No cash savings: nodes are rented as a whole, and none becomes free"
    if price is None:
        why = "Savings unknown: no price for the node"
    elif whole:
        why = f"No cash savings: the node is {price.basis} ({price.source}, {price.as_of})"
    then = f"Release {count} for other work. {why}."
    if saving is not None:
        then = f"Return or shut down the {'node' if whole == 1 else f'{whole} nodes'}. {saving.sentence}"
    kwh = None
    # A node is switched off, or returned, as a whole: with every GPU of it, each of which was observed.
    counted_nodes = [fleet.verdicts.inventory.nodes[name] for name in names]
    off = whole == len(nodes) and free >= sum(n.gpu_count for n in nodes)
    off = off and not any(n.unobserved or n.surplus for n in counted_nodes)
    if off and (drawn := _drawn(fleet, waste)) is not None:
        kwh = drawn * HOURS_PER_MONTH / 1000
        also = "This also" if saving is not None else "A shutdown until then"
        then += f" {also} saves {kwh:,.0f} kWh/month (measured idle power of the GPUs)."
    key = group.identity if group else f"{node.cluster}/{node.node}"
    return recommend(
        "release", key, node.node_sku, "nothing",
        findings=(waste.finding.id,), workload=group.lead.id if group else None,
        # Of instances, the GPUs that they are parts of.
        source=Configuration(node.gpu_sku or node.gpu_name, node.node_sku, math.ceil(free - 1e-9)),
        target=Configuration(None, None, 0),
        text=f"{what} {then}", saving=saving, freed_gpu_hours_per_month=free * HOURS_PER_MONTH,
        energy_saving_kwh_per_month=None if kwh is None else Interval(kwh, kwh, kwh),
        risk="low" if group else "very-low", would_change_if=waste.finding.would_change_if,
        yardstick=SavingsBaseline(nodes=tuple(sorted(names))), claims=(f"release:{key}",),
        needs=EvidenceClaim(names, REST, frozenset(uuids), whole=saving is not None, unheld=group is None),
    )  # fmt: skip


def _drawn(fleet: Fleet, waste: Found) -> float | None:
    """Watts that the GPUs drew at rest, all together; None: not measured of each (instances have no power)."""
    if (group := waste.group) is None:
        watts = [b.power_mean_watts for b in waste.bare if b.part >= 1 and b.power_mean_watts is not None]
        return sum(watts) if watts and len(watts) == len(waste.bare) else None
    usage = fleet.verdicts.usage_of({w.id for w in group.now}, "bottleneck", "node", "gpu_uuid", "power_watts")
    rows = usage[usage["bottleneck"] == "idle"]
    each = rows.groupby(["node", "gpu_uuid"])["power_watts"].mean()
    is_measured = len(each) == group.gpu_count and not rows["power_watts"].isna().any() and not group.sliced
    return float(each.sum()) if is_measured else None


# The highest engine activity of an unused hour: monitors and health checks stay below.
OFF_ENGINE_MAX = 0.05
# Share of its quiet hours that a service which is switched off may still hold its GPUs for.
OFF_SHARE_MAX = 0.1
DAY_SECONDS = 86400.0


class ScheduleOff(Move):
    actions = ("schedule-off",)
    subject = "Shutting the nodes down in quiet hours"
    unasked_hours = WEEK_HOURS
    frees = True

    def of(self, series: Series) -> Iterator[Recommendation]:
        fleet, base, group = series.fleet, series.base, series.group
        if group.kind not in ON_DEMAND_KINDS or not group.current or group.shared or "unused" in group.kept:
            return
        quiet = off_hours(fleet.verdicts.usage_of({w.id for w in group.now}, "g_max", "seconds", "ts"))
        if quiet is None:
            return
        begin, length, days = quiet
        share, end = length / 24, (begin + length) % 24
        whole = base.right_nodes if base.whole and not base.mixed else 0
        saving = Saving.of_nodes(base.price, whole, fleet.at, base.right_nodes_draws * share, base.right_nodes)
        then = f"its {base.gpus} GPUs are free for other work. No cash savings: no whole node becomes free."
        if saving is not None:
            then = f"its nodes cost nothing. {saving.sentence}"
        yield recommend_for(
            series, "schedule-off",
            text=(
                f"{series_label(group)} was unused between {begin:02d}:00 and {end:02d}:00 UTC on "
                f"{days} days (no sample with engine activity above {OFF_ENGINE_MAX * 100:.0f} %). During a "
                f"daily shutdown of {length} hours, {then}"
            ),
            changes=(coded("off-hours", "switched off {begin:02d}:00 to {end:02d}:00 UTC", begin=begin, end=end),),
            saving=saving, freed_gpu_hours_per_month=base.gpus * HOURS_PER_MONTH * share,
            # How likely it is that a new day differs, by the rule of succession.
            risk=risk_of(1 / (days + 2)),
            would_change_if=(
                coded("needed-at-that-hour", "somebody needs it during these hours (on call, another time zone)"),
                coded("memory-lost", "it must not lose its memory contents at shutdown"),
            ),
            yardstick=SavingsBaseline(off_hours=(begin, end)),
            needs=base.claim(whole=saving is not None, measures=REST),
        )  # fmt: skip

    def title(self, r: Recommendation, of: str, at: str, fields: Fields) -> str:
        when = f"from {fields['begin']:02d}:00 to {fields['end']:02d}:00 UTC" if "begin" in fields else "at night"
        return f"Switch off the nodes of {of} {when}"

    def progress(self, snapshot: PredictionSnapshot, seen: Observation, proposed: bool) -> MoveState | None:
        """By the latest nights in a row that were alike: off, or held."""
        quiet, runs = snapshot.yardstick.off_hours, seen.series(snapshot.series_id)
        if quiet is None or not seen.now(snapshot.series_id):
            return None
        length, begin = ((quiet[1] - quiet[0]) % 24 or 24) * 3600.0, quiet[0] * 3600.0
        latest = (seen.end - length - begin) // DAY_SECONDS * DAY_SECONDS + begin
        begins = np.arange(latest, seen.start - 1e-6, -DAY_SECONDS).tolist()
        off = [hours(runs, at, at + length) * 3600 <= OFF_SHARE_MAX * length for at in begins]
        nights = next((n for n, is_off in enumerate(off) if is_off != off[0]), len(off))
        # Nights in a row that a service must have been off: one may be an outage, two a week-end.
        if nights < 3:
            return None
        text = f"It held {'no GPUs during quiet hours' if off[0] else 'its GPUs'} for {nights} consecutive nights."
        return MoveState("target" if off[0] else "source", begins[nights - 1], nights * 24.0, text)

    def cost(self, snapshot: PredictionSnapshot, state: MoveState, seen: Observation) -> MoveCost:
        if seen.mixed(state.since):
            return MIXED
        node_standings = [seen.nodes[n] for n in snapshot.nodes if n in seen.nodes]
        prices = [price_then(snapshot, seen, n.node) for n in node_standings]
        span = (seen.end - seen.start) / 3600
        if not node_standings or any(p is None for p in prices) or span <= 0:
            return MoveCost(None, "no price for its nodes")
        # A node that goes on reporting through the night is on, and paid for.
        on = (min(n.hours_observed / span, 1.0) for n in node_standings)
        hourly = sum((price or 0.0) * share for price, share in zip(prices, on, strict=True))
        usd = hourly * HOURS_PER_MONTH
        return MoveCost(min(usd, snapshot.yardstick.usd_per_month or usd))


def off_hours(usage: pd.DataFrame) -> tuple[int, int, int] | None:
    """The longest stretch of the day in which none of these GPUs ever worked: where it begins (UTC), its hours, on how
    many days it was; None: there is none, or too few days."""
    if "g_max" not in usage or usage.empty:
        return None
    most = usage["g_max"].to_numpy(float)
    measured = np.isfinite(most) & (usage["seconds"].to_numpy(float) > 0)
    hour = np.ceil(usage["ts"].to_numpy(float)[measured] / 3600).astype(np.int64) - 1
    seen = np.bincount(np.unique(hour) % 24, minlength=24)
    used = np.bincount(hour[most[measured] > OFF_ENGINE_MAX] % 24, minlength=24) > 0
    # A working week and two days: fewer mornings do not show a habit.
    quiet = ~used & (seen >= 7)
    if used.all() or not used.any():
        return None
    begin, length, run = 0, 0, 0
    for n in range(48):  # twice around the clock: a stretch may go over midnight
        run = run + 1 if quiet[n % 24] else 0
        if length < run <= 24:
            begin, length = (n - run + 1) % 24, run
    days = min((int(seen[(begin + n) % 24]) for n in range(length)), default=0)
    # Shorter than this, loading the models again eats what is saved.
    return (begin, length, days) if length >= 6 else None
