"""Every way out of every finding, enumerated: what each brings, what blocks it, and when it would be wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..model import Decision, Interval, Recommendation
from .found import Found
from .gates import fewer_gpus_gates
from .groups import TRAINING, Group
from .placement import swap
from .prediction import percentiles
from .resize import no_fabric_twins, reduce_gpus, release, without_fabric
from .scene import COUNTED_RISKS, Option, Scene, baseline
from .targets import no_other_gpu, other_gpu


def enumerate_options(
    scene: Scene, groups: Sequence[Group], found: Sequence[Found], window_end: float
) -> tuple[tuple[Option, ...], tuple[str, ...]]:
    """All recommendations of a window with their draws, and notes on what brings nothing because it is over.

    The swap is looked at first: it needs no purchase. A finished series that did not recur gets no way out.
    """
    options: list[Option] = []
    notes: list[str] = []
    by_group: dict[str, list[Found]] = {}
    for item in found:
        if item.group is None or item.finding.rule == "held-idle":
            released = release(scene, item, window_end)
            options += [released] if released else []
        if item.group is not None:
            by_group.setdefault(item.group.series_id, []).append(item)
    for group in groups:
        mine = by_group.get(group.series_id, [])
        if not group.recurs:
            if mine:
                notes.append(
                    f"{group.lead.name} has ended and did not recur: what it wasted cannot be saved next month."
                )
            continue
        if not group.nodes or group.kind in ("idle", "unknown") or any(f.finding.rule == "held-idle" for f in mine):
            continue
        options += _exclusive(_ways_out(scene, group, mine, groups))
    return tuple(options), tuple(notes)


def decided(options: Sequence[Option], decisions: Mapping[str, Decision]) -> tuple[Option, ...]:
    """The options with what people decided on them, by recommendation's id."""
    return tuple(
        replace(o, recommendation=replace(o.recommendation, decision=decisions.get(o.recommendation.id)))
        for o in options
    )


def recoverable(options: Sequence[Option]) -> tuple[float, Interval | None]:
    """Cash a month that can be had: the best of each exclusive set, summed draw by draw, not by percentiles.

    None for the interval: nothing is recoverable.
    """
    best: dict[str, Option] = {}
    for option in options:
        if option.counts:
            held = best.get(option.exclusive)
            if held is None or _p50(option) > _p50(held):
                best[option.exclusive] = option
    draws = [o.draws for o in best.values() if o.draws is not None]
    if not draws:
        return 0.0, None
    total = percentiles(sum(draws[1:], start=draws[0]))
    return total.p50, total


def _ways_out(scene: Scene, group: Group, mine: Sequence[Found], groups: Sequence[Group]) -> list[Option]:
    fabric = next((f for f in mine if f.finding.rule == "idle-fabric"), None)
    named = tuple(f.finding.id for f in mine)
    kept = bool(fewer_gpus_gates(group, group.gpu_count)) or group.kind in TRAINING
    base = baseline(scene, group, group.unit, fewer_forbidden=kept)
    skip: frozenset[str] = frozenset()
    options: list[Option] = []
    if fabric is not None:
        options.append(swap(scene, base, fabric, groups, (fabric.finding.id,)))
        twin = without_fabric(scene, base, fabric, (fabric.finding.id,))
        options.append(twin)
        skip = frozenset(t.name for t in no_fabric_twins(scene, base))
    fewer = reduce_gpus(scene, base, named)
    other, rejected = other_gpu(scene, base, named, skip)
    if named or not fewer.recommendation.blocked_by:
        options.append(fewer)
    if other is not None and (named or _worth_telling(other)):
        options.append(other)
    if rejected and named:
        options.append(no_other_gpu(base, named, rejected))
    return options


def _worth_telling(option: Option) -> bool:
    r = option.recommendation
    saving = r.saving_usd_per_month
    return not r.blocked_by and saving is not None and saving.p50 > 0 and r.risk in (*COUNTED_RISKS, "medium")


def _exclusive(options: list[Option]) -> list[Option]:
    """Each option with the ids of those it cannot be combined with."""
    out = []
    for option in options:
        rivals = tuple(o.recommendation.id for o in options if o is not option and o.exclusive == option.exclusive)
        out.append(replace(option, recommendation=replace(option.recommendation, excludes=rivals)))
    return out


def _p50(option: Option) -> float:
    saving = option.recommendation.saving_usd_per_month
    return saving.p50 if saving else 0.0


def order(options: Sequence[Option]) -> tuple[Recommendation, ...]:
    """Recommendations as people should read them: what can be had now first, what was set aside last."""

    def key(option: Option) -> tuple[int, float, float, str]:
        r = option.recommendation
        standing = 0 if option.counts else 3 if r.set_aside else 2 if r.blocked_by else 1
        return (standing, -_p50(option), -r.freed_gpu_hours_per_month, r.id)

    return tuple(o.recommendation for o in sorted(options, key=key))
