"""The same work again: restarts, work that takes turns, and somebody who comes back the next morning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .series import CellGrid, Floats
from .spans import BUSY_USE, STEP, SpanGroup, runs

# A process that ends gives its memory back: where a GPU's memory was at the level of nobody for longer than restarts
# take (`verdicts/workloads/attribution.py` gives named work as long), what comes later is another workload.
RESTART_SECONDS = 900.0
SAME_LEVEL, SAME_TURN, SAME_USE, SAME_POWER = 0.02, 0.01, 0.1, 0.1
# Work by fits and starts on one GPU, busy for less than this share of its time, is one person's, who starts a kernel
# anew at once with other memory. Where memory is not known nothing tells when a kernel ended: the next morning it
# goes on.
FITS_SHARE, FITS_APART_SECONDS = 0.3, 18 * 3600.0


@dataclass(frozen=True, slots=True)
class Chains:
    """Puts groups on the same devices together. `edge_seconds`: what is no pause."""

    grid: CellGrid
    edge_seconds: float

    def of(self, groups: Sequence[SpanGroup]) -> list[list[SpanGroup]]:
        by_devices: dict[tuple[int, ...], list[SpanGroup]] = {}
        for one in sorted(groups, key=lambda group: group.start):
            by_devices.setdefault(tuple(sorted(one.rows)), []).append(one)
        whole: list[list[SpanGroup]] = []
        taken = self._taken(groups)
        for rows, own in by_devices.items():
            out: list[list[SpanGroup]] = []
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

    def _taken(self, groups: Iterable[SpanGroup]) -> dict[int, list[tuple[float, float]]]:
        taken: dict[int, list[tuple[float, float]]] = {}
        for group in groups:
            for span in group.spans:
                taken.setdefault(span.row, []).append((span.start, span.end))
        return taken

    def _again(self, before: SpanGroup, after: SpanGroup) -> bool:
        pause = after.start - before.end
        known = not (np.isnan(before.level) or np.isnan(after.level))
        longest = RESTART_SECONDS if known else FITS_APART_SECONDS
        if len(before.rows) == 1 and pause <= longest and self._by_fits(before, after):
            return True
        if pause > RESTART_SECONDS or (known and abs(after.level / before.level - 1) > SAME_LEVEL):
            return False
        use = [self._mean(self.grid.use, one) for one in (before, after)]
        power = [self._mean(self.grid.power, one) for one in (before, after)]
        alike = not abs(use[0] - use[1]) > SAME_USE and not abs(power[0] - power[1]) > SAME_POWER * max(power)
        return alike or (known and pause <= self.edge_seconds)

    def _turns(self, chain: list[list[SpanGroup]]) -> list[list[SpanGroup]]:
        """Work that takes turns without a pause (training by day, serving by night): two levels that both come back."""
        follows = [
            after[0].start - before[-1].end <= self.edge_seconds for before, after in pairwise(chain)
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

    def _by_fits(self, before: SpanGroup, after: SpanGroup) -> bool:
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
        return all(moves) or (any(moves) and after.start - before.end <= self.edge_seconds)

    def _mean(self, values: Floats, group: SpanGroup) -> float:
        begin, stop = group.cells
        part = values[group.rows, begin:stop]
        known = part[~np.isnan(part)]
        return float(np.median(known)) if len(known) else float("nan")
