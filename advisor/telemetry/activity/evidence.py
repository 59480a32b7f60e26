"""What speaks for and against one gang, in units that add up, and the clusters that follow from it.

The weights were set on simulated fleets (`benchmarks/generators/first`), others than those by which they are judged.
"""

from __future__ import annotations

import math

import numpy as np

from .breath import Alike
from .series import Floats

# Edges this close are the same moment: a cell or two of the grid, and what ranks need to take their memory.
EDGE_CELLS, EDGE_SECONDS = 1.6, 45.0
# Where seconds tell: ranks take their memory within some seconds of one another, and their launcher ends them together;
# elements of an array load and end each in their own time.
SHARP_SECONDS, SHARP_APART_SECONDS, APART_EDGE = 5.0, 20.0, -4.0
# Between nodes clocks differ by seconds, and launchers reach them one after the other.
NODES_SECONDS, CLOCK_SECONDS = 60.0, 3.0
# Evidence, in units of about e: positive for one gang.
SAME_EDGE, SAME_MINUTE = 2.5, 1.5
# Of jobs that start together and last as long as this, many end in the same minute by chance.
CHANCE_SECONDS, LONG_SAME_MINUTE = 600.0, 3.5
OTHER_START, OTHER_END = -8.0, -4.0
SAME_BREATH, OTHER_BREATH = 4.0, -4.0
SAME_MEMORY, NEAR_MEMORY, OTHER_MEMORY = 1.0, 0.0, -1.5
# Of several nodes: against it before anything is known, and what fabric traffic says.
NODES_PRIOR, SILENT_FABRIC = -4.0, -6.0
# Evidence by how much more the one node's fabric carried than the other's: what spans them loads both alike.
FABRIC = ((1.05, 4.5), (1.3, 2.5), (3.0, 0.5), (float("inf"), -1.0))
# One reading a minute on two nodes meets different moments of the same step: that they differ says little.
READINGS_SHARE = 0.25
# Work over several nodes takes the same of each, and nearly always all of it.
OTHER_WIDTH, PART_OF_NODE = -6.0, -5.0
NEVER = -1e6
SILENT_BYTES_PER_SECOND = 5e6
# A correlation of this much speaks neither for nor against.
EVEN_R, HIGH_R = 0.25, 0.6
# On one node: neither for nor against (of few cells, and of many, beyond so many spreads of chance), for one gang, and
# at worst. Eight, because neighboring cells are alike, so there are fewer than they seem.
CHANCE_SPREADS = 8.0
TOGETHER_R, SURE_R, OTHER_WORK, TREMBLING = 0.4, 0.7, -7.0, -5.5
# Within one group of GPUs that breathe as one, a partner this much less alike than the closest is no part of it.
CLOSE_R, APART_SHARE = 0.8, 0.75


def linked(score: Floats) -> list[list[int]]:
    """Clusters by average linkage: the two with most evidence between them join as long as it speaks for joining."""
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


def is_even(width: int) -> bool:
    return width & (width - 1) == 0


def traffic(a: float, b: float) -> float:
    """What the fabrics of two nodes say: work that spans them sends, where its network is one that is counted."""
    if np.isnan(a) or np.isnan(b):
        return 0.0
    if min(a, b) < SILENT_BYTES_PER_SECOND:
        return SILENT_FABRIC
    return next(told for most, told in FABRIC if max(a, b) / min(a, b) <= most)


def breathing(alike: Alike) -> float:
    """Correlation as evidence: none where there is none, or where both only tremble."""
    if np.isnan(alike.r):
        return 0.0
    if alike.r >= EVEN_R:
        share = min(1.0, (alike.r - EVEN_R) / (HIGH_R - EVEN_R))
        return SAME_BREATH * share * alike.sure
    if not alike.moves:
        return 0.0
    return OTHER_BREATH * min(1.0, (EVEN_R - alike.r) / EVEN_R * 1.25) * alike.sure


def together(alike: Alike) -> float:
    """Correlation on one node as evidence: GPUs of one gang wait for one another, and it shows; that others started and
    ended in the same minute is a scheduler's doing. Of GPUs that only tremble, little."""
    if np.isnan(alike.r):
        return 0.0
    # Of few cells chance alone correlates by 1 / sqrt(cells); of many a faint correlation is none of chance.
    even = min(TOGETHER_R, max(EVEN_R, CHANCE_SPREADS / math.sqrt(max(alike.cells, 1))))
    told = (alike.r - even) / (SURE_R - TOGETHER_R) * SAME_BREATH
    least = OTHER_WORK if alike.moves else TREMBLING
    return float(np.clip(told, least, SAME_BREATH)) * alike.sure


def apart(r: Floats) -> Floats:
    """Evidence against pairs that are much less alike than each is with its closest partner."""
    out = np.zeros(r.shape)
    filled = np.where(np.isnan(r), -1.0, r)
    np.fill_diagonal(filled, -1.0)
    best = filled.max(axis=1)
    both = np.minimum.outer(best, best)
    out[(both >= CLOSE_R) & (filled < APART_SHARE * both) & ~np.isnan(r)] = 2 * OTHER_BREATH
    return out


def edge(apart: float, within: float, minute: float) -> float:
    """Two edges of about the same time, `apart` seconds, which may each be wrong by `within`, as evidence. `minute`:
    where no more can be said than that it was the same minute."""
    same = SAME_EDGE if within <= SHARP_SECONDS else minute
    if math.isinf(within):
        return same
    beyond = (apart - within - SHARP_SECONDS) / (SHARP_APART_SECONDS - SHARP_SECONDS)
    return same + (APART_EDGE - same) * min(1.0, max(0.0, beyond))


def same_minute(lasts: float) -> float:
    """That two which lasted so many seconds ended in the same minute: the shorter they are, the more is it chance."""
    return min(LONG_SAME_MINUTE, max(0.0, math.log(max(lasts, 1.0) / CHANCE_SECONDS)))


def alike_memory(a: float, b: float) -> float:
    if np.isnan(a) or np.isnan(b) or min(a, b) <= 0:
        return 0.0
    ratio = max(a, b) / min(a, b)
    return SAME_MEMORY if ratio <= 1.02 else NEAR_MEMORY if ratio <= 1.15 else OTHER_MEMORY


def rest_watts(power: Floats) -> float:
    """What a GPU of a node draws at rest: the lowest that any of them was seen to draw for a while."""
    lows = [float(np.quantile(row[~np.isnan(row)], 0.02)) for row in power if (~np.isnan(row)).sum() >= 20]
    return min(lows) if lows else float("nan")
