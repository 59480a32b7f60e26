"""Every way out of every finding, enumerated: what each brings, what blocks it, and when it would be wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..core.advice_types import COUNTED_RISKS, Decision, Interval, Recommendation
from ..core.coded_text import CodedText, coded
from ..verdicts.types import Verdicts
from .base.prediction import percentiles
from .base.workload_groups import Group
from .choice import best_together, without_losers
from .context.evidence import Gate, gated, with_gap
from .context.finding_context import Found
from .context.move_context import Option, Scene, as_it_stands
from .context.owner import ask_owners
from .kinds.clock_move import slower_clock
from .kinds.consolidate import consolidate
from .kinds.fix_first import mend, mend_first
from .kinds.mig_slice import mig_slice
from .kinds.move_sku import no_other_gpu, other_gpu
from .kinds.off_hours import schedule_off
from .kinds.repack import repacked
from .kinds.resize import no_fabric_twins, reduce_gpus, release, without_fabric
from .kinds.swap import swaps_of

# The findings that each kind of way out answers; a way out that none asks for is told only where it gains by itself.
_ANSWERS = {
    "count": ("too-many-gpus", "idle-fabric"),
    "slice": ("too-many-gpus", "memory-unused"),
    "gpu": ("idle-fabric", "idle-nvlink", "over-tier", "under-tier", "too-many-gpus", "memory-unused"),
}


def enumerate_options(
    scene: Scene, verdicts: Verdicts, groups: Sequence[Group], found: Sequence[Found]
) -> tuple[tuple[Option, ...], tuple[CodedText, ...]]:
    """All recommendations of a window with their draws, and notes on what brings nothing because it is over.

    The swap is looked at first: it needs no purchase. What has to be mended comes before any move of the same work. A
    finished series that did not recur gets no way out.
    """
    options: list[Option] = []
    notes: list[CodedText] = []
    by_group: dict[str, list[Found]] = {}
    for item in found:
        if item.finding.rule == "telemetry-fault":
            options.append(mend(scene, item))
        elif item.group is None or item.finding.rule == "held-idle":
            released = release(scene, item, verdicts.window.end)
            options += [released] if released else []
        if item.group is not None:
            by_group.setdefault(item.group.series_id, []).append(item)
    faulty = frozenset[str]().union(*(f.faulty for f in found))
    swaps = swaps_of(scene, groups, found)
    for group in groups:
        mine = {f.finding.rule: f for f in by_group.get(group.series_id, ())}
        if not group.recurs:
            if group.series_id not in faulty and mine:
                ended = "has moved to other nodes" if group.moved else "has ended and did not recur"
                notes.append(
                    coded(
                        "work-is-over", "{workload} {ended}: what it wasted there cannot be saved next month.",
                        workload=group.lead.name, ended=ended,
                    )
                )  # fmt: skip
            continue
        if group.series_id in faulty or not group.nodes or group.kind in ("idle", "unknown") or "held-idle" in mine:
            continue
        options += _ways_out(scene, verdicts, group, mine, swaps.get(group.series_id))
    options += consolidate(scene, groups, found)
    options += repacked(verdicts)
    options = ask_owners(options, groups)
    gate = Gate(verdicts, scene.floor_hours)
    return _exclusive([_through(gate, option) for option in options]), tuple(notes)


def _through(gate: Gate, option: Option) -> Option:
    """The option as the evidence leaves it: every option passes here, whatever its action."""
    if option.claim is None:
        return option
    missing = gate.missing(option.claim)
    if missing:
        return replace(option, recommendation=gated(option.recommendation, missing), draws=None)
    return replace(option, recommendation=with_gap(option.recommendation, gate.gap(option.claim)))


def decided(options: Sequence[Option], decisions: Mapping[str, Decision]) -> tuple[Option, ...]:
    """The options with what people decided on them, by recommendation's id."""
    return tuple(
        replace(o, recommendation=replace(o.recommendation, decision=decisions.get(o.recommendation.id)))
        for o in options
    )


def recoverable(options: Sequence[Option]) -> tuple[float, Interval | None]:
    """Cash a month that can be had: of options that exclude one another those that bring most together, summed draw by
    draw, not by percentiles.

    None for the interval: nothing is recoverable.
    """
    best = best_together([o for o in options if o.counts])
    draws = without_losers([option.draws for option in best if option.draws is not None])
    if not draws:
        return 0.0, None
    total = percentiles(sum(draws[1:], start=draws[0]))
    return total.p50, total


def _ways_out(
    scene: Scene, verdicts: Verdicts, group: Group, mine: Mapping[str, Found], swapped: Option | None
) -> list[Option]:
    """`mine`: the group's findings by rule. `swapped`: its change of places with training, or why there is none."""
    scene, base = as_it_stands(scene, group)
    skip: frozenset[str] = frozenset()
    options: list[Option] = [swapped] if swapped is not None else []
    fabric = mine.get("idle-fabric")
    if fabric is not None:
        options.append(without_fabric(scene, base, fabric, (fabric.finding.id,)))
        skip = frozenset(t.name for t in no_fabric_twins(scene, base))
    fewer = reduce_gpus(scene, base, _ids(mine, "count"))
    if fewer.recommendation.findings or not fewer.recommendation.blocked_by:
        options.append(fewer)
    sliced = mig_slice(scene, base, _ids(mine, "slice"))
    if sliced is not None and (sliced.recommendation.findings or _worth_telling(sliced)):
        options.append(sliced)
    named = _ids(mine, "gpu")
    other, rejected = other_gpu(scene, base, named, skip)
    if other is not None and (named or _worth_telling(other)):
        options.append(other)
    # Unused memory alone is no reason to list every GPU that does not fit either.
    if rejected and mine.keys() & {*_ANSWERS["gpu"]} - {"memory-unused"}:
        options.append(no_other_gpu(base, named, rejected))
    off = schedule_off(scene, base, verdicts, ())
    clock = slower_clock(scene, base, mine["energy"]) if "energy" in mine else None
    options += [o for o in (off, clock) if o is not None]
    if "fix-first" not in mine:
        return options
    return [mend(scene, mine["fix-first"]), *(mend_first(o, mine["fix-first"]) for o in options)]


def _ids(mine: Mapping[str, Found], way: str) -> tuple[str, ...]:
    return tuple(mine[rule].finding.id for rule in _ANSWERS[way] if rule in mine)


def _worth_telling(option: Option) -> bool:
    r = option.recommendation
    saving = r.saving_usd_per_month
    return not r.blocked_by and saving is not None and saving.p50 > 0 and r.risk in (*COUNTED_RISKS, "medium")


def _exclusive(options: Sequence[Option]) -> tuple[Option, ...]:
    """Each option with the ids of those it cannot be combined with."""
    by_key: dict[str, list[str]] = {}
    for option in options:
        for key in option.keys:
            by_key.setdefault(key, []).append(option.recommendation.id)
    out = []
    for option in options:
        r = option.recommendation
        rivals = dict.fromkeys(one for key in sorted(option.keys) for one in by_key[key] if one != r.id)
        out.append(replace(option, recommendation=replace(r, excludes=tuple(rivals))))
    return tuple(out)


def order(options: Sequence[Option]) -> tuple[Recommendation, ...]:
    """Recommendations as people should read them: what can be had now first, what was set aside last."""
    return tuple(sorted((o.recommendation for o in options), key=lambda r: r.rank))
