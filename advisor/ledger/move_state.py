"""Where a recommendation stands by the telemetry: still at its source, at its target, or between the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..core.advice_types import Configuration, WorkloadVerdict
from ..core.formatting import listed
from ..core.timestamps import minute
from .observation import ObservedWindow, joined_spans, observed_hours, since_last
from .records import PredictionSnapshot

Place = Literal["source", "target", "between"]
# Nights in a row that a service must have been off: one may be an outage, two a week-end.
NIGHTS_MIN = 3
# Share of its quiet hours that a service which is switched off may still hold its GPUs for.
OFF_SHARE_MAX = 0.1
DAY_SECONDS = 86400.0
Fits = Callable[[WorkloadVerdict], bool]


@dataclass(frozen=True, slots=True)
class Stand:
    """`since`: from then on (Unix seconds); `hours`: observed there since; `told`: the evidence, a sentence."""

    place: Place
    since: float
    hours: float
    told: str


def whereabouts(id_: str, action: str, ground: PredictionSnapshot, seen: ObservedWindow) -> Stand | None:
    """Where it stands at the end of what was seen. None: the telemetry does not tell."""
    if action in ("move-sku", "swap-placement"):
        if ground.target.node_sku is None or ground.target.node_sku == ground.source.node_sku:
            return None
        return _by_runs(ground, seen, _on(ground.target), _on(ground.source), ground.target.node_sku)
    if action == "mig-slice":
        return _by_runs(ground, seen, _sliced, lambda w: not _sliced(w), "MIG instances")
    if action == "reduce-gpus":
        return _by_count(ground, seen)
    if action == "release" and ground.series_id is not None:
        return _let_go(ground, seen)
    if action in ("release", "consolidate"):
        return _freed(ground, seen)
    if action == "schedule-off":
        return _off(ground, seen)
    if action in ("lower-clock", "power-cap"):
        return _clocked(ground, seen)
    if action == "fix-first":
        return _mended(id_, ground, seen)
    return None


def fits_target(action: str, ground: PredictionSnapshot) -> Fits | None:
    """Tells whether a run stands where the move leads; None: the move leads no single run anywhere."""
    if action == "move-sku" and ground.target.node_sku is not None:
        return _on(ground.target)
    return _sliced if action == "mig-slice" else None


def _on(there: Configuration) -> Fits:
    return lambda w: w.node_sku == there.node_sku and w.gpu_sku == there.gpu_sku


def _sliced(w: WorkloadVerdict) -> bool:
    """NVML's ids of MIG instances begin so."""
    return bool(w.gpus) and all(gpu.startswith("MIG-") for gpu in w.gpus)


def _by_runs(ground: PredictionSnapshot, seen: ObservedWindow, there: Fits, here: Fits, name: str) -> Stand | None:
    now, runs = seen.now(ground.series_id), seen.series(ground.series_id)
    if not now:
        return None
    arrived = [w for w in now if there(w)]
    if len(arrived) == len(now):
        since, own = since_last(runs, there, seen.start)
        return Stand("target", since, observed_hours(own, since), f"It runs on {name} alone since {minute(since)}.")
    if all(here(w) for w in now):
        since, own = since_last(runs, here, seen.start)
        return Stand("source", since, observed_hours(own, since), f"It runs where it ran before since {minute(since)}.")
    since = min((w.start for w in arrived), default=seen.end)
    return Stand("between", since, observed_hours(arrived), f"{len(arrived)} of its {len(now)} runs are on {name}.")


def _by_count(ground: PredictionSnapshot, seen: ObservedWindow) -> Stand | None:
    now, runs = seen.now(ground.series_id), seen.series(ground.series_id)
    if not now or not all(_on(ground.source)(w) for w in now):
        return None  # on other hardware its count says nothing
    least, most = ground.target.gpu_count, ground.source.gpu_count
    count = len({gpu for w in now for gpu in w.gpus})
    if least < count < most:
        return Stand("between", seen.end, 0.0, f"It holds {count} GPUs.")
    fewer = count <= least
    since = seen.start
    for end, held in _counts(runs):
        if held > least if fewer else 0 < held < most:
            since = max(since, end)
    told = f"It holds {count} GPUs, where it held {most}, since {minute(since)}."
    return Stand("target" if fewer else "source", since, observed_hours(runs, since), told)


def _counts(runs: Sequence[WorkloadVerdict]) -> Iterator[tuple[float, int]]:
    """How many GPUs were held up to each moment (Unix seconds) since the one before."""
    changes = sorted([(w.start, 1, w.gpus) for w in runs] + [(w.end, -1, w.gpus) for w in runs], key=lambda c: c[:2])
    held: Counter[str] = Counter()
    for n, (at, by, gpus) in enumerate(changes):
        if n and at > changes[n - 1][0]:
            yield at, sum(1 for count in held.values() if count > 0)
        for gpu in gpus:
            held[gpu] += by


def _let_go(ground: PredictionSnapshot, seen: ObservedWindow) -> Stand | None:
    now = seen.now(ground.series_id)
    if now:
        since = max(min(w.start for w in now), seen.start)
        return Stand(
            "source", since, observed_hours(now, since), f"It holds {len({g for w in now for g in w.gpus})} GPUs."
        )
    left = max((w.end for w in seen.series(ground.series_id)), default=seen.start)
    # Whether it let go or the agent fell silent: the nodes must have told since, or be gone for good.
    known = [n for n in ground.yardstick.nodes if n in seen.nodes and not seen.gone(n)]
    if any(seen.last_seen(n) <= left + 3600 for n in known):
        return None
    what = f"{listed(known)} told of nobody else" if known else "its nodes send nothing any more"
    return Stand("target", left, (seen.end - left) / 3600, f"It holds no GPU since {minute(left)}; {what}.")


def _freed(ground: PredictionSnapshot, seen: ObservedWindow) -> Stand | None:
    """Nodes given back or emptied (consolidate), or given back or put to use (release of nodes without work)."""
    nodes, fewer = ground.yardstick.nodes, ground.source.gpu_count - ground.target.gpu_count
    if not nodes:
        return None
    pooled = ground.target.gpu_count > 0  # so many GPUs of the pool go on working
    wanted = max(round(fewer / (ground.source.gpu_count / len(nodes))), 1) if pooled else len(nodes)
    free: list[tuple[float, str]] = []
    for node in nodes:
        holders = seen.holders(node)
        if seen.gone(node):
            free.append((seen.last_seen(node), f"{node} is gone"))
        elif pooled and not holders:
            left = max((w.end for w in seen.on_node.get(node, ())), default=seen.start)
            free.append((left, f"{node} is empty"))
        elif not pooled and holders and _filled(node, seen):
            free.append((max(min(w.start for w in holders), seen.start), f"{node} carries work"))
    if len(free) < wanted:
        still = [n for n in nodes if not seen.gone(n)]
        return Stand("source", seen.start, (seen.end - seen.start) / 3600, f"{listed(still)}: as before.")
    free = sorted(free)[:wanted]
    since = free[-1][0]
    told = f"Since {minute(since)}: {listed([what for _, what in free])}."
    return Stand("target", since, (seen.end - since) / 3600, told)


def _filled(node: str, seen: ObservedWindow) -> bool:
    return len({g for w in seen.holders(node) for g in w.gpus}) >= seen.nodes[node].gpu_count


def _off(ground: PredictionSnapshot, seen: ObservedWindow) -> Stand | None:
    quiet, runs = ground.yardstick.off_hours, seen.series(ground.series_id)
    if quiet is None or not seen.now(ground.series_id):
        return None
    length = ((quiet[1] - quiet[0]) % 24 or 24) * 3600.0
    begin = seen.end // DAY_SECONDS * DAY_SECONDS + quiet[0] * 3600.0
    nights, kept = 0, 0
    while begin + length > seen.end:
        begin -= DAY_SECONDS
    latest = begin
    while begin >= seen.start:
        held = sum(b - a for a, b in joined_spans(runs, begin, begin + length)) / length
        off = held <= OFF_SHARE_MAX
        if (off and kept) or (not off and nights):
            break
        nights, kept = nights + off, kept + (not off)
        begin -= DAY_SECONDS
    if nights >= NIGHTS_MIN:
        since = latest - (nights - 1) * DAY_SECONDS
        return Stand("target", since, nights * 24.0, f"It held nothing in its quiet hours in {nights} nights on end.")
    if kept >= NIGHTS_MIN:
        since = latest - (kept - 1) * DAY_SECONDS
        return Stand("source", since, kept * 24.0, f"It held its GPUs through {kept} nights on end.")
    return Stand("between", seen.end, 0.0, "Its nights differ.")


def _clocked(ground: PredictionSnapshot, seen: ObservedWindow) -> Stand | None:
    """By the clock at work: past half of the way down is done. Figures are of whole runs, so this lags."""
    share, before = ground.yardstick.clock_share, ground.before
    now = seen.now(ground.series_id)
    told = [w.features["clock_ratio"] for w in now if "clock_ratio" in w.features]
    if share is None or before is None or before.clock_ratio is None or not told or share >= 1:
        return None
    ratio = sum(told) / len(told)
    place: Place = "target" if ratio <= before.clock_ratio * (1 + share) / 2 else "source"
    words = f"Its SM clock at work is {ratio / before.clock_ratio:.2f} of what it was."
    return Stand(place, seen.end, observed_hours(now), words)


def _mended(id_: str, ground: PredictionSnapshot, seen: ObservedWindow) -> Stand | None:
    now = seen.now(ground.series_id)
    if not now:
        return None
    if id_ in seen.proposed:
        return Stand("source", seen.start, observed_hours(now), "What was to be mended is still found.")
    return Stand("target", seen.end, observed_hours(now), "What was to be mended is not found any more.")
