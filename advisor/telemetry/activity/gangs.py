"""Which spans of which GPUs are one piece of work: those that start, stop and breathe together.

Evidence is added up pair by pair, as a statistician adds logarithms of odds: a common start or end that lies within the
data, short-term correlation, the level of memory. Within a node GPUs join where the sum speaks for it; groups of
several nodes need more, because many things start at the same time in a cluster. The weights were set on simulated
fleets (`advisor/simulate`); `benchmarks/` judges them on others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .breath import Alike, Breath
from .series import DeviceSeries, Floats, Gang, Grid, grid_of
from .spans import BUSY_USE, SHORTEST_SECONDS, STEP, Span, runs, spans_of, split

# Edges this close are the same moment: a cell or two of the grid, and what ranks need to take their memory.
EDGE_CELLS, EDGE_SECONDS = 1.6, 45.0
# Between nodes clocks differ by seconds, and launchers reach them one after the other.
NODES_SECONDS = 60.0
# Evidence, in units of about e: positive for one gang.
SAME_EDGE = 2.5
OTHER_START, OTHER_END = -8.0, -4.0
SAME_BREATH, OTHER_BREATH = 4.0, -4.0
SAME_MEMORY, NEAR_MEMORY, OTHER_MEMORY = 1.0, 0.0, -1.5
# Of several nodes: against it before anything is known, and what fabric traffic says.
NODES_PRIOR, SILENT_FABRIC = -4.0, -6.0
# Evidence by how much more the one node's fabric carried than the other's: what spans them loads both alike.
FABRIC = ((1.05, 4.5), (1.3, 2.5), (3.0, 0.5), (float("inf"), -1.0))
# One reading a minute on two nodes meets different moments of the same step: that they differ says little.
READINGS_SHARE = 0.25
OTHER_WIDTH = -2.0
NEVER = -1e6
SILENT_BYTES_PER_SECOND = 5e6
# A correlation of this much speaks neither for nor against.
EVEN_R, HIGH_R = 0.25, 0.6
# Within one group of GPUs that breathe as one, a partner this much less alike than the closest is no part of it.
CLOSE_R, APART_SHARE = 0.8, 0.75
# A restart of the same work: the same GPUs hold the same memory again after a pause of at most so long.
SAME_WORK_SECONDS = 1800.0
SAME_LEVEL, SAME_TURN, SAME_USE, SAME_POWER = 0.02, 0.01, 0.1, 0.1
# Work by fits and starts on one GPU, busy for less than this share of its time, is one person's: kernels are started
# anew, memory comes and goes, and the next morning it goes on.
FITS_SHARE, FITS_APART_SECONDS = 0.15, 18 * 3600.0

_INSTANCE = re.compile(r"^MIG-|/gi", re.ASCII)


@dataclass(slots=True)
class _Group:
    """Spans of some devices that belong together."""

    spans: list[Span]

    @property
    def rows(self) -> list[int]:
        return [one.row for one in self.spans]

    @property
    def start(self) -> float:
        return float(np.median([one.start for one in self.spans]))

    @property
    def end(self) -> float:
        return float(np.median([one.end for one in self.spans]))

    @property
    def open_start(self) -> bool:
        return any(one.open_start for one in self.spans)

    @property
    def open_end(self) -> bool:
        return any(one.open_end for one in self.spans)

    @property
    def cells(self) -> tuple[int, int]:
        """The cells that all of its spans hold, as a range."""
        return max(one.first for one in self.spans), min(one.last for one in self.spans) + 1

    @property
    def level(self) -> float:
        levels = [one.level for one in self.spans if not np.isnan(one.level)]
        return float(np.median(levels)) if levels else float("nan")


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
    grid: Grid
    breath: Breath

    def gangs(self) -> tuple[Gang, ...]:
        groups: list[_Group] = []
        for rows in self._by_node():
            groups += self._of_node(rows)
        groups = self._over_nodes(groups)
        merged = self._restarts(groups)
        out = [
            Gang(
                tuple(sorted({(self.series[row].node, self.series[row].gpu_uuid) for one in parts for row in one.rows})),
                min(one.start for one in parts), max(one.end for one in parts),
                parts[0].open_start, parts[-1].open_end,
            )
            for parts in merged
        ]  # fmt: skip
        long = (gang for gang in out if gang.end - gang.start >= SHORTEST_SECONDS)
        return tuple(sorted(long, key=lambda gang: (gang.start, gang.gpus)))

    def _by_node(self) -> list[list[int]]:
        found: dict[str, list[int]] = {}
        for row, one in enumerate(self.series):
            found.setdefault(one.node, []).append(row)
        return list(found.values())

    # One node

    def _of_node(self, rows: list[int]) -> list[_Group]:
        rest = _rest_watts(self.grid.power[rows])
        spans = {row: spans_of(self.grid, row, rest) for row in rows}
        if len(rows) > 1:
            spans = {row: self._split_as_others(own, spans) for row, own in spans.items()}
        wholes = [one for row in rows if not self._is_instance(row) for one in spans[row]]
        groups = [_Group([one]) for row in rows if self._is_instance(row) for one in spans[row]]
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
            for edge in sorted({one.last + 1 if one.last < span.last else one.first for one in mates}):
                last = queue[-1]
                at = self._trace(last, edge)
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
        return out

    def _clustered(self, bucket: list[Span]) -> list[_Group]:
        """Average linkage over the evidence of pairs, as long as it speaks for joining."""
        count = len(bucket)
        if count == 1:
            return [_Group(bucket)]
        score, r = np.zeros((count, count)), np.full((count, count), np.nan)
        for i in range(count):
            for j in range(i):
                found = self._breath_of(_Group([bucket[i]]), _Group([bucket[j]]))
                r[i, j] = r[j, i] = found.r
                score[i, j] = score[j, i] = self._pair(_Group([bucket[i]]), _Group([bucket[j]]), found)
        score += _apart(r)
        # A device is in one gang at a time.
        for i in range(count):
            for j in range(count):
                if i != j and bucket[i].row == bucket[j].row:
                    score[i, j] = NEVER
        return self._evened([_Group([bucket[i] for i in own]) for own in linked(score)])

    def _evened(self, groups: list[_Group]) -> list[_Group]:
        """Gangs are 1, 2, 4 or 8 wide: what such a width lacks is a straggler that held the same all along.

        A late rank breathes apart from those that wait for it.
        """
        out: list[_Group] = []
        for one in sorted(groups, key=lambda group: (-len(group.spans), group.rows)):
            for other in out:
                width = len(other.spans) + len(one.spans)
                if _is_even(len(other.spans)) or not _is_even(width) or len(one.spans) > 1:
                    continue
                same = self._same(one.start, other.start, one.open_start, other.open_start) and self._same(
                    one.end, other.end, one.open_end, other.open_end
                )
                if same and _memory(one.level, other.level) == SAME_MEMORY and one.rows[0] not in other.rows:
                    other.spans += one.spans
                    break
            else:
                out.append(one)
        return out

    def _breath_of(self, a: _Group, b: _Group) -> Alike:
        begin, stop = max(a.cells[0], b.cells[0]), min(a.cells[1], b.cells[1])
        edge = self.breath.edge
        begin += 0 if a.open_start and b.open_start else edge
        stop -= 0 if a.open_end and b.open_end else edge
        return self.breath.alike(a.rows, b.rows, begin, max(stop, begin))

    def _pair(self, a: _Group, b: _Group, alike: Alike) -> float:
        total = 0.0
        if not (a.open_start and b.open_start):
            total += SAME_EDGE if self._same(a.start, b.start, a.open_start, b.open_start) else OTHER_START
        if not (a.open_end and b.open_end):
            total += SAME_EDGE if self._same(a.end, b.end, a.open_end, b.open_end) else OTHER_END
        return total + _breathing(alike) + _memory(a.level, b.level)

    # Several nodes

    def _over_nodes(self, groups: list[_Group]) -> list[_Group]:
        """Groups of different nodes that are one gang, joined."""
        ordered = sorted(groups, key=lambda one: (not one.open_start, one.start, one.rows))
        out: list[_Group] = []
        buckets: list[list[_Group]] = []
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
        for bucket in buckets:
            out += self._joined_nodes(bucket)
        return out

    def _joined_nodes(self, bucket: list[_Group]) -> list[_Group]:
        """Of groups that began together those that also end together, joined where the evidence says so."""
        out: list[_Group] = []
        ordered = sorted(bucket, key=lambda one: (not one.open_end, one.end, one.rows))
        alike: list[list[_Group]] = []
        for one in ordered:
            if alike and self._same(one.end, alike[-1][-1].end, one.open_end, alike[-1][-1].open_end, NODES_SECONDS):
                alike[-1].append(one)
            else:
                alike.append([one])
        for own in alike:
            if len({self._node(one) for one in own}) == 1:
                out += own
                continue
            clusters = linked(self._between(own))
            out += [_Group([span for n in members for span in own[n].spans]) for members in clusters]
        return out

    def _between(self, groups: list[_Group]) -> Floats:
        """The evidence for every pair of groups of different nodes, which start and end together."""
        open_start, open_end = all(one.open_start for one in groups), all(one.open_end for one in groups)
        begin, stop = max(one.cells[0] for one in groups), min(one.cells[1] for one in groups)
        begin, stop = begin + (0 if open_start else self.breath.edge), stop - (0 if open_end else self.breath.edge)
        r, moves, sure = self.breath.all_alike([one.rows for one in groups], begin, stop, 1)
        told = [bool(self.grid.means[one.rows].all()) for one in groups]
        traffic = [self._carried(one) for one in groups]
        score = np.zeros((len(groups), len(groups)))
        for i, a in enumerate(groups):
            for j, b in enumerate(groups[:i]):
                if self._node(a) == self._node(b):
                    score[i, j] = score[j, i] = NEVER
                    continue
                breathing = _breathing(Alike(float(r[i, j]), bool(moves[i, j]), sure))
                if breathing < 0 and not (told[i] and told[j]):
                    breathing *= READINGS_SHARE
                total = NODES_PRIOR + breathing + 2 * _memory(a.level, b.level) + _traffic(traffic[i], traffic[j])
                total += 0.0 if a.open_start and b.open_start else SAME_EDGE
                total += 0.0 if a.open_end and b.open_end else SAME_EDGE
                total += OTHER_WIDTH if len(a.spans) != len(b.spans) else 0.0
                score[i, j] = score[j, i] = total
        return score

    def _carried(self, group: _Group) -> float:
        """What the fabric of its node carried meanwhile, bytes per second; NaN: not known."""
        begin, stop = group.cells
        values = self.grid.fabric[group.rows[0], begin:stop]
        known = values[~np.isnan(values)]
        return float(known.mean()) if len(known) else float("nan")

    def _node(self, group: _Group) -> str:
        return self.series[group.rows[0]].node

    # The same work again

    def _restarts(self, groups: list[_Group]) -> list[list[_Group]]:
        by_devices: dict[tuple[int, ...], list[_Group]] = {}
        for one in sorted(groups, key=lambda group: group.start):
            by_devices.setdefault(tuple(sorted(one.rows)), []).append(one)
        whole: list[list[_Group]] = []
        taken = self._taken(groups)
        for rows, own in by_devices.items():
            out: list[list[_Group]] = []
            chain = [own[0]]
            for one in own[1:]:
                between = chain[-1].end, one.start
                free = not any(s < between[1] - 1 and e > between[0] + 1 for row in rows for s, e in taken[row])
                if free and self._again(chain[-1], one):
                    chain.append(one)
                else:
                    out.append(chain)
                    chain = [one]
            out.append(chain)
            whole += self._turns(out)
        return whole

    def _taken(self, groups: Iterable[_Group]) -> dict[int, list[tuple[float, float]]]:
        taken: dict[int, list[tuple[float, float]]] = {}
        for group in groups:
            for span in group.spans:
                taken.setdefault(span.row, []).append((span.start, span.end))
        return taken

    def _again(self, before: _Group, after: _Group) -> bool:
        pause = after.start - before.end
        if len(before.rows) == 1 and pause <= FITS_APART_SECONDS and self._by_fits(before, after):
            return True
        known = not (np.isnan(before.level) or np.isnan(after.level))
        if pause > SAME_WORK_SECONDS or (known and abs(after.level / before.level - 1) > SAME_LEVEL):
            return False
        use = [self._mean(self.grid.use, one) for one in (before, after)]
        power = [self._mean(self.grid.power, one) for one in (before, after)]
        alike = not abs(use[0] - use[1]) > SAME_USE and not abs(power[0] - power[1]) > SAME_POWER * max(power)
        return alike or (known and pause <= self._edge_seconds)

    def _turns(self, chain: list[list[_Group]]) -> list[list[_Group]]:
        """Work that takes turns without a pause (training by day, serving by night): two levels that both come back."""
        follows = [
            after[0].start - before[-1].end <= self._edge_seconds for before, after in pairwise(chain)
        ]  # fmt: skip
        back = [
            abs(chain[n + 2][0].level / chain[n][0].level - 1) <= SAME_TURN and follows[n] and follows[n + 1]
            for n in range(len(chain) - 2)
        ]
        out, n = [], 0
        while n < len(chain):
            last = n
            if n + 1 < len(back) and back[n] and back[n + 1]:
                last = n + 3
                while last + 1 < len(chain) and back[last - 1]:
                    last += 1
            out.append([one for own in chain[n : last + 1] for one in own])
            n = last + 1
        return out

    def _by_fits(self, before: _Group, after: _Group) -> bool:
        """Whether somebody works there now and then: resting for most of the time, with memory that moves or bursts;
        without a pause between the two it is enough that one of them shows it."""
        moves = []
        for one in (before, after):
            begin, stop = one.cells
            use, mem = (values[one.rows[0], begin:stop] for values in (self.grid.use, self.grid.mem))
            known = use[~np.isnan(use)]
            busy = known >= BUSY_USE
            if not len(known) or busy.mean() >= FITS_SHARE:
                return False
            held = mem[~np.isnan(mem)]
            moves.append(len(runs(busy)) >= 3 or (len(held) > 0 and bool(np.ptp(held) > STEP * held.max())))
        return all(moves) or (any(moves) and after.start - before.end <= self._edge_seconds)

    def _mean(self, values: Floats, group: _Group) -> float:
        begin, stop = group.cells
        part = values[group.rows, begin:stop]
        known = part[~np.isnan(part)]
        return float(np.median(known)) if len(known) else float("nan")


def linked(score: Floats) -> list[list[int]]:
    """Clusters by average linkage: the two with the most evidence between them join as long as it speaks for joining."""
    score, members = score.copy(), [[n] for n in range(len(score))]
    np.fill_diagonal(score, NEVER)
    while len(score) > 1:
        a, b = sorted(divmod(int(score.argmax()), len(score)))
        if not score[a, b] > 0:
            break
        one, other = len(members[a]), len(members[b])
        joined = (one * score[a] + other * score[b]) / (one + other)
        score[a], score[:, a] = joined, joined
        score[a, a] = NEVER
        score = np.delete(np.delete(score, b, axis=0), b, axis=1)
        members[a] += members.pop(b)
    return [sorted(own) for own in members]


def _is_even(width: int) -> bool:
    return width & (width - 1) == 0


def _traffic(a: float, b: float) -> float:
    """What the fabrics of two nodes say: work that spans them sends, where its network is one that is counted."""
    if np.isnan(a) or np.isnan(b):
        return 0.0
    if min(a, b) < SILENT_BYTES_PER_SECOND:
        return SILENT_FABRIC
    return next(told for most, told in FABRIC if max(a, b) / min(a, b) <= most)


def _breathing(alike: Alike) -> float:
    """Correlation as evidence: none where there is none, or where both only tremble."""
    if np.isnan(alike.r):
        return 0.0
    if alike.r >= EVEN_R:
        share = min(1.0, (alike.r - EVEN_R) / (HIGH_R - EVEN_R))
        return SAME_BREATH * share * alike.sure
    if not alike.moves:
        return 0.0
    return OTHER_BREATH * min(1.0, (EVEN_R - alike.r) / EVEN_R * 1.25) * alike.sure


def _apart(r: Floats) -> Floats:
    """Evidence against pairs that are much less alike than each is with its closest partner."""
    out = np.zeros(r.shape)
    filled = np.where(np.isnan(r), -1.0, r)
    np.fill_diagonal(filled, -1.0)
    best = filled.max(axis=1)
    both = np.minimum.outer(best, best)
    out[(both >= CLOSE_R) & (filled < APART_SHARE * both) & ~np.isnan(r)] = 2 * OTHER_BREATH
    return out


def _memory(a: float, b: float) -> float:
    if np.isnan(a) or np.isnan(b) or min(a, b) <= 0:
        return 0.0
    ratio = max(a, b) / min(a, b)
    return SAME_MEMORY if ratio <= 1.02 else NEAR_MEMORY if ratio <= 1.15 else OTHER_MEMORY


def _rest_watts(power: Floats) -> float:
    """What a GPU of a node draws at rest: the lowest that any of them was seen to draw for a while."""
    lows = [float(np.quantile(row[~np.isnan(row)], 0.02)) for row in power if (~np.isnan(row)).sum() >= 20]
    return min(lows) if lows else float("nan")
