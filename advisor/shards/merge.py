"""The advice of several shards joined into one, or refused where it cannot be added up. Pure; order does not matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import TypeVar

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from ...rules.catalog.types import Price
from ..core.advice_types import Advice, Finding, Recommendation, Reconciliation, Summary
from ..core.coded_text import UNSPECIFIED, distinct
from ..core.dominant_label import DOMINANT
from ..core.formatting import listed
from ..core.timestamps import rfc3339
from ..core.totals import added, added_intervals
from ..core.verdict_types import WorkloadVerdict
from ..core.worth import marked
from .merge_energy import fleet_energy
from .merge_items import one_finding, one_recommendation, one_workload
from .merged_source import OF_JOINING, MergedSource, Shard, Spanning, read_source

_SEVERITIES = ("high", "medium", "low")
_Item = TypeVar("_Item", Finding, Recommendation)


def merge_advice(advice: Mapping[str, Advice], dominant: float) -> Advice:
    """One advice of several. `advice`: by name (of its file), for complaints; `dominant`: see `one_workload`, of advice
    that does not tell by which it was judged.

    Raises UsageError where windows or thresholds differ, a node stands in two, or two state another price under one id.
    """
    named = dict(sorted(advice.items()))
    parts = list(named.values())
    if len(parts) == 1:
        return parts[0]
    _refuse_other_windows(named)
    _refuse_shared_nodes(named)
    dominant = _dominant(named, dominant)
    prices = _prices(named)
    before = [_shards_of(a) for a in parts]
    workloads = _workloads(parts, before, dominant)
    known = {w.id: w for w in workloads}
    origin = _origin(parts, before)
    # Of advice that told no codes yet, the notes that follow from its shards are known by their text.
    own = {note.text for m in before for note in m.notes()}
    notes = distinct(
        note
        for a in parts
        for note in a.notes
        if note.code not in OF_JOINING and not (note.code == UNSPECIFIED and note.text in own)
    )
    asked = [a for a in parts if a.market is not None]
    whole = Advice(
        generated_at=max(a.generated_at for a in parts),
        start=parts[0].start,
        end=parts[0].end,
        source=origin.json(),
        thresholds={DOMINANT: dominant},
        summary=_summary([a.summary for a in parts], workloads),
        prices=prices,
        workloads=tuple(sorted(workloads, key=lambda w: (-w.gpu_hours, w.id))),
        findings=tuple(
            sorted(
                _by_id((f for a in parts for f in a.findings), lambda same: one_finding(same, known)),
                key=lambda f: (_SEVERITIES.index(f.severity), -(f.cost_usd or 0.0), f.id),
            )
        ),
        recommendations=_ways((r for a in parts for r in a.recommendations), known),
        notes=(*notes, *origin.notes()),
        market=None if not asked else _ways((r for a in asked for r in a.market or ()), known),
        nodes=tuple(sorted({node for a in parts for node in _nodes(a)})),
        fabrics=tuple(sorted((f for a in parts for f in a.fabrics), key=lambda f: f.node)),
        node_energy=tuple(sorted((n for a in parts for n in a.node_energy), key=lambda n: n.node)),
    )
    return marked(whole)


def _workloads(parts: Sequence[Advice], before: Sequence[MergedSource], dominant: float) -> list[WorkloadVerdict]:
    found: dict[str, list[tuple[WorkloadVerdict, bool]]] = {}
    for a, m in zip(parts, before, strict=True):
        for w in a.workloads:
            found.setdefault(w.id, []).append((w, w.id in m.spanning.workloads))
    return [
        same[0][0] if len(same) == 1 else one_workload([w for w, _ in same], [joined for _, joined in same], dominant)
        for same in found.values()
    ]


def _ways(every: Iterable[Recommendation], known: Mapping[str, WorkloadVerdict]) -> tuple[Recommendation, ...]:
    return tuple(sorted(_by_id(every, lambda same: one_recommendation(same, known)), key=lambda r: r.rank))


def _by_id(items: Iterable[_Item], one: Callable[[Sequence[_Item]], _Item]) -> list[_Item]:
    """Each id once; what only one shard knows stays as it is."""
    found: dict[str, list[_Item]] = {}
    for item in items:
        found.setdefault(item.id, []).append(item)
    return [same[0] if len(same) == 1 else one(same) for same in found.values()]


def _shards_of(advice: Advice) -> MergedSource:
    merged = read_source(advice.source)
    if merged is not None:
        return merged
    s = advice.summary
    return MergedSource((Shard(advice.source, s.gpu_count, s.recoverable_interval_usd_per_month),), Spanning())


def _origin(parts: Sequence[Advice], before: Sequence[MergedSource]) -> MergedSource:
    """Where the merged advice comes from, and what lies in more than one of its shards."""
    workloads = _twice([{w.id for w in a.workloads} for a in parts])
    series = _twice([{w.series_id for w in a.workloads} for a in parts])
    return MergedSource(
        tuple(shard for m in before for shard in m.shards),
        Spanning(
            tuple(sorted(workloads.union(*(m.spanning.workloads for m in before)))),
            tuple(sorted(series.union(*(m.spanning.series for m in before)))),
        ),
    )


def _twice(sets: Sequence[set[str]]) -> frozenset[str]:
    seen: set[str] = set()
    twice: set[str] = set()
    for one in sets:
        twice |= seen & one
        seen |= one
    return frozenset(twice)


def _summary(parts: Sequence[Summary], workloads: Sequence[WorkloadVerdict]) -> Summary:
    """Sums: no node stands in two shards, so no dollar does. What is not known of any shard stays unknown."""
    intervals = [s.recoverable_interval_usd_per_month for s in parts]
    uses = [s.gpu_hours_by_use for s in parts if s.gpu_hours_by_use is not None]
    return Summary(
        gpu_count=sum(s.gpu_count for s in parts),
        gpu_hours=added(s.gpu_hours for s in parts),
        cost_usd=_total(s.cost_usd for s in parts),
        wasted_usd=_total(s.wasted_usd for s in parts),
        recoverable_usd_per_month=_total(s.recoverable_usd_per_month for s in parts),
        reconciliation=_reconciled([s.reconciliation for s in parts]),
        # The notes say what this sum of percentiles means (shards.py): there are no joint draws over shards.
        recoverable_interval_usd_per_month=added_intervals(i for i in intervals if i is not None),
        unobserved=tuple(sorted((u for s in parts for u in s.unobserved), key=lambda u: (u.node, u.gpus))),
        # All shards speak of one window.
        window_hours=max((s.window_hours for s in parts if s.window_hours is not None), default=None),
        observed_hours=max((s.observed_hours for s in parts if s.observed_hours is not None), default=None),
        observed_gpu_hours=_total(s.observed_gpu_hours for s in parts),
        judged_gpu_count=_judged(parts),
        judged_from=min((s.judged_from for s in parts if s.judged_from is not None), default=None),
        floor_hours=min((s.floor_hours for s in parts if s.floor_hours is not None), default=None),
        gpu_hours_by_use=_reconciled(uses) if len(uses) == len(parts) else None,
        energy=fleet_energy([s.energy for s in parts], workloads),
        min_saving_usd_per_month=max(
            (s.min_saving_usd_per_month for s in parts if s.min_saving_usd_per_month is not None), default=None
        ),
    )


def _reconciled(parts: Sequence[Reconciliation]) -> Reconciliation:
    return Reconciliation(*(_total(column) for column in zip(*map(astuple, parts), strict=True)))


def _judged(parts: Sequence[Summary]) -> int | None:
    """None where a shard does not tell: a sum of the others would call its GPUs not judged."""
    counts = [s.judged_gpu_count for s in parts if s.judged_gpu_count is not None]
    return sum(counts) if len(counts) == len(parts) else None


def _total(values: Iterable[float | None]) -> float | None:
    """The sum of what is known: the hours of nodes without a price are in no dollar figure (the notes name them)."""
    known = [v for v in values if v is not None]
    return added(known) if known else None


def _refuse_other_windows(named: Mapping[str, Advice]) -> None:
    first, *others = named.items()
    for name, a in others:
        if (a.start, a.end) != (first[1].start, first[1].end):
            raise UsageError(
                f"{first[0]} speaks of {_window(first[1])} and {name} of {_window(a)}: they do not add up.",
                "Advise all shards with the same --since and --until.",
            )


def _window(a: Advice) -> str:
    return f"{rfc3339(a.start)} to {rfc3339(a.end)}"


def _dominant(named: Mapping[str, Advice], otherwise: float) -> float:
    """By which share of its time a workload of several shards is judged again: the one that all were judged by."""
    told = {name: a.thresholds.get(DOMINANT, otherwise) for name, a in named.items()}
    first, *others = told.items()
    for name, share in others:
        if share != first[1]:
            raise UsageError(
                f"{first[0]} was judged by {DOMINANT} {first[1]:g} and {name} by {share:g}: together they say nothing.",
                "Advise all shards with the same --rules.",
            )
    return first[1]


def _refuse_shared_nodes(named: Mapping[str, Advice]) -> None:
    owner: dict[str, str] = {}
    for name, a in named.items():
        nodes = _nodes(a)
        shared = sorted(nodes & owner.keys())
        if shared:
            raise UsageError(
                f"{len(shared)} node{'s stand' if len(shared) > 1 else ' stands'} in {owner[shared[0]]} and in {name}, "
                f"and would count twice: {listed([clean(n)[:60] for n in shared])}.",
                "Give every node to one shard; where clusters use one name for two nodes, name them apart.",
            )
        owner |= dict.fromkeys(nodes, name)


def _nodes(a: Advice) -> set[str]:
    """Every node it speaks of: also where another program wrote it and did not list them."""
    return {*a.nodes, *(n for w in a.workloads for n in w.nodes), *(n for f in a.findings for n in f.nodes)}


def _prices(named: Mapping[str, Advice]) -> tuple[Price, ...]:
    found: dict[str, tuple[Price, str]] = {}
    for name, a in named.items():
        for price in a.prices:
            known, where = found.setdefault(price.id, (price, name))
            if known != price:
                raise UsageError(
                    f"{where} and {name} state different prices under the id {clean(price.id)[:80]}.",
                    "Advise all shards with the same --prices and the same version of skuwise.",
                )
    return tuple(price for _, (price, _) in sorted(found.items()))
