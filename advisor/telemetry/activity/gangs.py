"""Which spans of which GPUs are one piece of work: those that start, stop and breathe together.

Evidence is added up pair by pair, as a statistician adds logarithms of odds: a common start or end that lies within the
data, short-term correlation, the level of memory. Within a node GPUs join where the sum speaks for it; groups of
several nodes need more, because many things start at the same time in a cluster.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from .again import Chains
from .breath import Alike, Breath
from .evidence import (
    CLOCK_SECONDS,
    EDGE_CELLS,
    EDGE_SECONDS,
    NEVER,
    NODES_PRIOR,
    NODES_SECONDS,
    OTHER_END,
    OTHER_START,
    OTHER_WIDTH,
    PART_OF_NODE,
    READINGS_SHARE,
    SAME_EDGE,
    SAME_MEMORY,
    SAME_MINUTE,
    alike_memory,
    apart,
    breathing,
    edge,
    is_even,
    linked,
    rest_watts,
    same_minute,
    together,
    traffic,
)
from .series import CellGrid, DeviceSeries, Floats, Gang, grid_of
from .spans import SHORTEST_SECONDS, Span, SpanGroup, held_spans, loaded_cell, split

T = TypeVar("T")

# A launcher that reaches its nodes one after the other spreads one gang over some edges; not over more than these.
CHAIN_EDGES = 3.0
# Spans of a node, and groups of a cluster, that are compared with one another at most.
MOST_SPANS, MOST_GROUPS = 64, 2048
# From so many cells on a span tells enough without its edges.
LONG_CELLS = 40
# So many GPUs of one node that do the same without a pause are one gang.
LEAST_ALIKE = 4
_INSTANCE = re.compile(r"^MIG-|/gi", re.ASCII)


def find_gangs(series: Sequence[DeviceSeries]) -> tuple[Gang, ...]:
    """The pieces of work of some devices, in order of their start.

    A device is in one gang at a time. Instances (uuids of MIG) are gangs by themselves: no collective spans them.
    The same series give the same gangs, in whatever order they are named.
    """
    ordered = sorted(series, key=lambda one: (one.node, one.gpu_uuid))
    grid = grid_of(ordered)
    if grid is None:
        return ()
    finder = _Finder(ordered, grid, Breath.of(grid))
    return finder.gangs()


@dataclass(frozen=True)
class _Finder:
    series: Sequence[DeviceSeries]
    grid: CellGrid
    breath: Breath

    def gangs(self) -> tuple[Gang, ...]:
        groups: list[SpanGroup] = []
        for rows in self._by_node():
            groups += self._of_node(rows)
        groups = self._over_nodes(groups)
        merged = Chains(self.grid, self._edge_seconds).of(groups)
        out = [
            Gang(
                tuple(sorted({self._device(row) for one in parts for row in one.rows})),
                min(one.start for one in parts), max(one.end for one in parts),
                parts[0].open_start, parts[-1].open_end,
            )
            for parts in merged
        ]  # fmt: skip
        long = (gang for gang in out if gang.end - gang.start >= SHORTEST_SECONDS)
        return tuple(sorted(long, key=lambda gang: (gang.start, gang.gpus)))

    def _device(self, row: int) -> tuple[str, str]:
        return self.series[row].node, self.series[row].gpu_uuid

    def _by_node(self) -> list[list[int]]:
        found: dict[str, list[int]] = {}
        for row, one in enumerate(self.series):
            found.setdefault(one.node, []).append(row)
        return list(found.values())

    # One node

    def _of_node(self, rows: list[int]) -> list[SpanGroup]:
        rest = rest_watts(self.grid.power[rows])
        spans = {row: held_spans(self.grid, row, rest) for row in rows}
        if len(rows) > 1:
            spans = {row: self._split_as_others(own, spans) for row, own in spans.items()}
        wholes = [one for row in rows if not self._is_instance(row) for one in spans[row]]
        groups = [SpanGroup([one]) for row in rows if self._is_instance(row) for one in spans[row]]
        for bucket in self._buckets(wholes):
            groups += self._clustered(bucket)
        return groups

    def _is_instance(self, row: int) -> bool:
        return _INSTANCE.search(self.series[row].gpu_uuid) is not None

    def _split_as_others(self, own: list[Span], spans: dict[int, list[Span]]) -> list[Span]:
        """Spans cut where those that began with them end and others begin, if anything at all happened there."""
        out: list[Span] = []
        for span in own:
            queue = [span]
            mates = [
                one for row, others in spans.items() if row != span.row for one in others
                if self._same(one.start, span.start, one.open_start, span.open_start) and one.last < span.last - 2
                and one.last > span.first + 2
            ]  # fmt: skip
            mates += [
                one for row, others in spans.items() if row != span.row for one in others
                if self._same(one.end, span.end, one.open_end, span.open_end) and one.first > span.first + 2
                and one.first < span.last - 2
            ]  # fmt: skip
            for near in sorted({one.last + 1 if one.last < span.last else one.first for one in mates}):
                last = queue[-1]
                at = self._trace(last, near)
                if at is not None:
                    queue[-1:] = split(self.grid, last, at)
            out += queue
        return out

    def _trace(self, span: Span, edge: int) -> int | None:
        """The cell near `edge` in which another process may have begun; None where the memory did not move."""
        mem = self.grid.mem[span.row]
        low = self.grid.low_mem[span.row]
        for at in (edge, edge + 1, edge - 1, edge + 2):
            if not span.first + 2 < at < span.last - 1:
                continue
            before, after = float(mem[at - 1]), float(mem[at])
            least = float(np.fmin(low[at], after))
            if least < 0.97 * before or after > 1.03 * before:
                return at
        return None

    def _same(self, a: float, b: float, open_a: bool, open_b: bool, more: float = 0.0) -> bool:
        return (open_a and open_b) or abs(a - b) <= self._edge_seconds + more

    @property
    def _edge_seconds(self) -> float:
        return EDGE_CELLS * self.grid.cell + EDGE_SECONDS

    def _buckets(self, spans: Iterable[Span]) -> list[list[Span]]:
        """Spans by start: only those that begin together can be one."""
        ordered = sorted(spans, key=lambda one: (not one.open_start, one.start, one.row))
        out: list[list[Span]] = []
        for one in ordered:
            if out and self._same(one.start, out[-1][-1].start, one.open_start, out[-1][-1].open_start):
                out[-1].append(one)
            else:
                out.append([one])
        reach = CHAIN_EDGES * self._edge_seconds
        return [part for own in out for part in unchained(own, _opened_or_begun, reach, MOST_SPANS)]

    def _clustered(self, bucket: list[Span]) -> list[SpanGroup]:
        """Average linkage over the evidence of pairs, as long as it speaks for joining."""
        count = len(bucket)
        if count == 1:
            return [SpanGroup(bucket)]
        score, r = np.zeros((count, count)), np.full((count, count), np.nan)
        moving = False
        for i in range(count):
            for j in range(i):
                found = self._breath_of(bucket[i], bucket[j])
                moving |= found.moves
                r[i, j] = r[j, i] = found.r
                score[i, j] = score[j, i] = self._pair(SpanGroup([bucket[i]]), SpanGroup([bucket[j]]), found)
        if not moving and self._is_whole_node(bucket):
            return [SpanGroup(bucket)]
        score += apart(r)
        # A device is in one gang at a time.
        for i in range(count):
            for j in range(count):
                if i != j and bucket[i].row == bucket[j].row:
                    score[i, j] = NEVER
        return self._evened([SpanGroup([bucket[i] for i in own]) for own in linked(score)])

    def _is_whole_node(self, bucket: Sequence[Span]) -> bool:
        """Whether these are all GPUs of a node, four or more, that hold the same memory from one start to one end. Work
        that never pauses has no breath to compare; that many alike are hardly as many jobs."""
        node, rows = self.series[bucket[0].row].node, {one.row for one in bucket}
        if not LEAST_ALIKE <= len(rows) == len(bucket) == self._counts[node]:
            return False
        groups = [SpanGroup([one]) for one in bucket]
        return all(
            self._edges(one, groups[0]) > 0 and alike_memory(one.level, groups[0].level) == SAME_MEMORY
            for one in groups[1:]
        )

    def _evened(self, groups: list[SpanGroup]) -> list[SpanGroup]:
        """Gangs are 1, 2, 4 or 8 wide: what such a width lacks is a straggler that held the same all along.

        A late rank breathes apart from those that wait for it.
        """
        out: list[SpanGroup] = []
        for one in sorted(groups, key=lambda group: (-len(group.spans), group.rows)):
            for other in out:
                width = len(other.spans) + len(one.spans)
                if is_even(len(other.spans)) or not is_even(width) or len(one.spans) > 1:
                    continue
                same = self._same(one.start, other.start, one.open_start, other.open_start) and self._same(
                    one.end, other.end, one.open_end, other.open_end
                )
                if same and alike_memory(one.level, other.level) == SAME_MEMORY and one.rows[0] not in other.rows:
                    other.spans += one.spans
                    break
            else:
                out.append(one)
        return out

    def _breath_of(self, a: Span, b: Span) -> Alike:
        """How alike two spans breathe: of long ones without their edges, of short ones from when both hold what they
        need."""
        begin, stop = max(a.first, b.first), min(a.last, b.last) + 1
        edge = self.breath.edge
        inner = begin + (0 if a.open_start and b.open_start else edge)
        outer = stop - (0 if a.open_end and b.open_end else edge)
        if outer - inner >= LONG_CELLS:
            return self.breath.alike([a.row], [b.row], inner, outer)
        return self.breath.within(
            self.grid, a.row, b.row, max(loaded_cell(self.grid, a), loaded_cell(self.grid, b)), min(a.last, b.last) - 1
        )

    def _pair(self, a: SpanGroup, b: SpanGroup, alike: Alike) -> float:
        return self._edges(a, b) + together(alike) + alike_memory(a.level, b.level)

    def _edges(self, a: SpanGroup, b: SpanGroup) -> float:
        """What their starts and ends say; 0 where both lie outside the data."""
        total = 0.0
        if not (a.open_start and b.open_start):
            same = self._same(a.start, b.start, a.open_start, b.open_start)
            within = max(a.start_within, b.start_within)
            total += edge(abs(a.start - b.start), within, SAME_MINUTE) if same else OTHER_START
        if not (a.open_end and b.open_end):
            same = self._same(a.end, b.end, a.open_end, b.open_end)
            within = max(a.end_within, b.end_within)
            minute = same_minute(min(a.end - a.start, b.end - b.start))
            total += edge(abs(a.end - b.end), within, minute) if same else OTHER_END
        return total

    # Several nodes

    def _over_nodes(self, groups: list[SpanGroup]) -> list[SpanGroup]:
        """Groups of different nodes that are one gang, joined."""
        ordered = sorted(groups, key=lambda one: (not one.open_start, one.start, one.rows))
        out: list[SpanGroup] = []
        buckets: list[list[SpanGroup]] = []
        more = NODES_SECONDS
        for one in ordered:
            if self._is_instance(one.rows[0]):
                out.append(one)
            elif buckets and self._same(
                one.start, buckets[-1][-1].start, one.open_start, buckets[-1][-1].open_start, more
            ):
                buckets[-1].append(one)
            else:
                buckets.append([one])
        reach = CHAIN_EDGES * (self._edge_seconds + more)
        for bucket in (part for own in buckets for part in unchained(own, _opened_or_begun, reach, MOST_GROUPS)):
            out += self._joined_nodes(bucket)
        return out

    def _joined_nodes(self, bucket: list[SpanGroup]) -> list[SpanGroup]:
        """Of groups that began together those that also end together, joined where the evidence says so."""
        out: list[SpanGroup] = []
        ordered = sorted(bucket, key=lambda one: (not one.open_end, one.end, one.rows))
        alike: list[list[SpanGroup]] = []
        for one in ordered:
            if alike and self._same(one.end, alike[-1][-1].end, one.open_end, alike[-1][-1].open_end, NODES_SECONDS):
                alike[-1].append(one)
            else:
                alike.append([one])
        reach = CHAIN_EDGES * (self._edge_seconds + NODES_SECONDS)
        for own in (part for whole in alike for part in unchained(whole, _open_or_ended, reach, MOST_GROUPS)):
            if len({self._node(one) for one in own}) == 1:
                out += own
                continue
            clusters = linked(self._between(own))
            out += [SpanGroup([span for n in members for span in own[n].spans]) for members in clusters]
        return out

    def _between(self, groups: list[SpanGroup]) -> Floats:
        """The evidence for every pair of groups of different nodes, which start and end together."""
        open_start, open_end = all(one.open_start for one in groups), all(one.open_end for one in groups)
        begin, stop = max(one.cells[0] for one in groups), min(one.cells[1] for one in groups)
        begin, stop = begin + (0 if open_start else self.breath.edge), stop - (0 if open_end else self.breath.edge)
        r, moves, sure = self.breath.all_alike([one.rows for one in groups], begin, stop, 1)
        told = [bool(self.grid.means[one.rows].all()) for one in groups]
        carried = [self._carried(one) for one in groups]
        wholes = [len(one.spans) == self._counts[self._node(one)] for one in groups]
        score = np.zeros((len(groups), len(groups)))
        for i, a in enumerate(groups):
            for j, b in enumerate(groups[:i]):
                if self._node(a) == self._node(b):
                    score[i, j] = score[j, i] = NEVER
                    continue
                breath = breathing(Alike(float(r[i, j]), bool(moves[i, j]), sure))
                if breath < 0 and not (told[i] and told[j]):
                    breath *= READINGS_SHARE
                total = NODES_PRIOR + breath + 2 * alike_memory(a.level, b.level) + traffic(carried[i], carried[j])
                # Launchers reach nodes one after the other, and what ends, ends on all of them.
                total += 0.0 if a.open_start and b.open_start else SAME_EDGE
                if not (a.open_end and b.open_end):
                    other = max(0.0, abs(a.end - b.end) - CLOCK_SECONDS)
                    total += edge(other, max(a.end_within, b.end_within), SAME_EDGE)
                total += OTHER_WIDTH if len(a.spans) != len(b.spans) else 0.0
                total += PART_OF_NODE if not (wholes[i] and wholes[j]) else 0.0
                score[i, j] = score[j, i] = total
        return score

    def _carried(self, group: SpanGroup) -> float:
        """What the fabric of its node carried meanwhile, bytes per second; NaN: not known."""
        begin, stop = group.cells
        values = self.grid.fabric[group.rows[0], begin:stop]
        known = values[~np.isnan(values)]
        return float(known.mean()) if len(known) else float("nan")

    @cached_property
    def _counts(self) -> Counter[str]:
        """How many devices each node has."""
        return Counter(one.node for one in self.series)

    def _node(self, group: SpanGroup) -> str:
        return self.series[group.rows[0]].node


def _opened_or_begun(one: Span | SpanGroup) -> float:
    return -math.inf if one.open_start else one.start


def _open_or_ended(one: SpanGroup) -> float:
    return -math.inf if one.open_end else one.end


def unchained(ordered: Sequence[T], moment: Callable[[T], float], reach: float, most: int) -> list[list[T]]:
    """`ordered` in pieces, cut where moments are farthest apart, until none spans more than `reach` seconds or holds
    more than `most`. `moment`: rising; minus infinity for what was there before the data.

    Where something starts every minute, each is near the next, and all would be one: pairs are compared within a piece,
    so an uncut one costs the square of the whole record, and hours apart would count as together.
    """
    out: list[list[T]] = []
    left = [list(ordered)]
    while left:
        own = left.pop()
        moments = np.array([moment(one) for one in own])
        spread = moments[-1] - moments[0] if np.isfinite(moments[0]) or np.isfinite(moments[-1]) else 0.0
        if len(own) < 2 or (spread <= reach and len(own) <= most):
            out.append(own)
            continue
        with np.errstate(invalid="ignore"):
            gaps = np.nan_to_num(np.diff(moments), nan=0.0, posinf=np.inf)
        # Of gaps alike the middle one: pieces stay as large as they may be, and few.
        widest = np.nonzero(gaps == gaps.max())[0]
        at = int(widest[len(widest) // 2]) + 1
        left += [own[at:], own[:at]]
    return out
