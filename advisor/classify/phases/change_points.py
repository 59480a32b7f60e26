"""Where a workload changes what it does: change points over the labels of its hours. A path through the labels is
sought that agrees with most of the time and turns seldom: a turn costs some hours of disagreement. The hours of one
label, wherever they lie, are one behaviour, judged together."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from ....rules.policy.labels import ON_DEMAND_KINDS
from ...core.segments import Floats, Ints, Mask
from ..features.course import PieceRows
from ..pieces import Judgement, JudgementInputs, Piece

HOUR = 3600.0
# What computes: a turn from one to the other is another computation, even for an hour, if it recurs (an evaluation).
COMPUTING = ("compute", "hbm-bandwidth")
# Labels that fit any behaviour: hours that hold the turn itself, or too little data.
OPEN = ("mixed", "unknown")
# A service or a person at work waits for demand: hours of little of it belong to the phase around them.
WAITING = ("idle", "latency", "host-input")
# A wait, a fault or a rest shorter than this belongs to the work around it.
PHASE_HOURS_MIN = 3.0
# So many short turns of the same kind are a habit; fewer are an accident (a model that is loaded, a late checkpoint).
SHORT_TURNS_MIN = 3
# Hours of disagreement that one turn is worth: less than half of the shortest phase, since a phase has two ends.
_TURN_HOURS = 0.49 * PHASE_HOURS_MIN
_TURN_HOURS_COMPUTING = 0.45
# Day and night over 90 days stay separate; what turns oftener is merged.
PHASES_MAX = 200
# Traffic on the fabric begins or ends once and for good: each side lasts so long and agrees in so much of its time.
FABRIC_HOURS_MIN = 6.0
FABRIC_AGREEMENT_MIN = 0.9


class Behaviour(NamedTuple):
    """What distinguishes the hours of phases: the dominant label, and whether the fabric
    carries anything (None: no such change, or not known)."""

    label: str
    fabric: bool | None = None


UNKNOWN = Behaviour("unknown")


class Turn(NamedTuple):
    """A span of one behaviour, Unix seconds."""

    start: float
    end: float
    behaviour: Behaviour


@dataclass(frozen=True)
class Cut:
    """The behaviours of one workload. `turned`: when it showed which; `pieces`: the time of each (none where it never
    changes); `main`: the one that most of its work is."""

    turned: tuple[Turn, ...]
    pieces: Mapping[Behaviour, Piece] = field(default_factory=dict)
    main: Behaviour = UNKNOWN


def cut_pieces(
    pieces: Sequence[Piece], judgements: Sequence[Judgement], places: pd.DataFrame, inputs: JudgementInputs
) -> list[Cut]:
    """Where each workload changes what it does. `judgements`: over all rows of each; `places`: the attribution's."""
    shared = np.zeros(len(inputs.frame.gpu), dtype=np.bool_)
    shared[places.loc[places["shared"].to_numpy(bool), "row"].to_numpy(int)] = True
    rows = PieceRows.of(inputs.tables, [piece.rows for piece in pieces])
    # What several held at once, or a row that another's time is part of, says nothing of what this one did.
    clear = np.concatenate([np.empty(0, dtype=np.bool_), *(piece.rows["whole"] for piece in pieces)])
    blurred = shared[rows.at] | (~clear & rows.segments.spread(rows.segments.any(clear)))
    labels = np.where(blurred, inputs.labels.code("unknown"), inputs.labels.labels[rows.at])
    names, every, ends, out = inputs.labels.names, rows.gpu("ts"), rows.segments.bounds, []
    for piece, whole, begin, end in zip(pieces, judgements, ends[:-1], ends[1:], strict=True):
        piece_rows, session, turned = slice(begin, end), piece.session, ()
        if begin < end:
            fabric = _fabric_use(piece, inputs)
            span = {"start": session.start, "end": session.end, "waits": whole.kind.label in ON_DEMAND_KINDS}
            turned = turns(every[piece_rows], rows.seconds[piece_rows], labels[piece_rows], names, fabric, **span)
        out.append(_cut(piece, turned, inputs))
    return out


def _cut(piece: Piece, turned: tuple[Turn, ...], inputs: JudgementInputs) -> Cut:
    spans: dict[Behaviour, list[Turn]] = {}
    for turn in turned:
        spans.setdefault(turn.behaviour, []).append(turn)
    if len(spans) < 2:
        return Cut(turned)
    # A row belongs to the turn that holds its hour; the last second of a turn is its own.
    moments = np.ceil(inputs.tables.gpu["ts"][piece.rows["row"]].astype(float) / HOUR) * HOUR - 1.0
    turn_of = np.searchsorted([turn.end for turn in turned[:-1]], moments, side="left")
    number = np.array([list(spans).index(turn.behaviour) for turn in turned])[turn_of]
    parts = {}
    for n, (behaviour, span) in enumerate(spans.items()):
        end = span[-1].end  # as if the workload had lasted as long as this behaviour did
        session = dataclasses.replace(piece.session, start=end - sum(turn.end - turn.start for turn in span), end=end)
        parts[behaviour] = Piece(session, piece.rows.where(number == n))
    working = [behaviour for behaviour in parts if behaviour.label != "idle"] or list(parts)
    return Cut(turned, parts, max(working, key=lambda behaviour: parts[behaviour].seconds))


def _fabric_use(piece: Piece, inputs: JudgementInputs) -> Floats:
    """Per row 1 where its node's fabric is in use, 0 where silent; NaN: unknown, or others may be on the node."""
    nodes = inputs.nodes
    held = Counter(node for node, uuid in piece.session.gpus if (node, uuid) not in inputs.frame.parents)
    if not all(node in nodes and count >= nodes[node].gpu_count for node, count in held.items()):
        return np.full(len(piece.rows), np.nan)
    use = inputs.tables.measures["i"][piece.rows["row"]].astype(float)
    return np.where(np.isnan(use), np.nan, use >= inputs.book.kinds.fabric_used_min)


def turns(
    ts: Floats, seconds: Floats, labels: Ints, names: Sequence[str], fabric: Floats,
    *, waits: bool, start: float, end: float,
) -> tuple[Turn, ...]:  # fmt: skip
    """The behaviours of one workload in their order, without holes, from `start` (or its first row) to `end`. One entry
    per row: `ts` its end, `seconds` observed, `labels` its bottleneck (of `names`), `fabric` 1 where the compute fabric
    of its node was in use, 0 where silent, NaN where unknown. `waits`: the workload waits for demand."""
    if end <= start:
        return ()
    if not (seconds > 0).any():
        return (Turn(start, end, UNKNOWN),)
    hours, states, held = _by_hour(ts, seconds, labels, names, {*OPEN, *WAITING} if waits else {*OPEN})
    path = np.zeros(len(hours), dtype=np.intp)
    if len(states) > 1:
        path = _settled(_path(states, held), states, held.sum(axis=1) > 0)
    side = _fabric_side(ts, seconds, fabric, hours)
    start = max(start, float(hours[0]) - HOUR)  # no data before that
    new = np.flatnonzero(np.diff(2 * path + (side if side is not None else 0), prepend=-1)).tolist()
    begins = [start, *(min(max(float(hours[n]) - HOUR, start), end) for n in new[1:]), end]
    row_states = (
        Turn(*span, Behaviour(states[path[n]], None if side is None else bool(side[n])))
        for n, span in zip(new, itertools.pairwise(begins), strict=True)
    )
    return tuple(turn for turn in row_states if turn.end > turn.start)


def _by_hour(
    ts: Floats, seconds: Floats, labels: Ints, every: Sequence[str], open_labels: set[str]
) -> tuple[Floats, list[str], Floats]:
    """Hours (their ends), the labels that occur, and the hours' share (0 to 1) that each label holds."""
    seen = seconds > 0
    hours, slot = np.unique(np.ceil(ts[seen] / HOUR) * HOUR, return_inverse=True)
    occur, code = np.unique(labels[seen], return_inverse=True)
    names = [every[int(n)] for n in occur]
    table = np.zeros((len(hours), len(names)))
    np.add.at(table, (slot, code), seconds[seen])
    table /= np.bincount(slot, weights=seconds[seen], minlength=len(hours))[:, None]
    states = [n for n, name in enumerate(names) if name not in open_labels]
    if not states:
        # Nothing but open labels: one behaviour, called what it mostly is.
        return hours, [names[int(table.sum(axis=0).argmax())]], np.ones((len(hours), 1))
    return hours, [names[n] for n in states], table[:, states]


def _path(states: list[str], held: Floats) -> Ints:
    """The cheapest path: an hour costs its share that disagrees, a turn some hours (Viterbi's algorithm)."""
    cost = held.sum(axis=1, keepdims=True) - held
    computing = np.array([state in COMPUTING for state in states])
    turn = np.where(computing[:, None] & computing[None, :], _TURN_HOURS_COMPUTING, _TURN_HOURS)
    np.fill_diagonal(turn, 0.0)
    # Hours alike in a row are one step: a path never turns among them.
    new = np.concatenate(([True], np.abs(np.diff(cost, axis=0)).max(axis=1) > 1e-9))
    steps = np.add.reduceat(cost, np.nonzero(new)[0], axis=0)
    best, came = steps[0].copy(), np.zeros((len(steps), len(states)), dtype=np.intp)
    for at in range(1, len(steps)):
        through = best[:, None] + turn
        came[at] = through.argmin(axis=0)
        best = through.min(axis=0) + steps[at]
    chosen = np.full(len(steps), best.argmin(), dtype=np.intp)
    for at in range(len(steps) - 1, 0, -1):
        chosen[at - 1] = came[at, chosen[at]]
    return chosen[np.cumsum(new) - 1]


def _settled(path: Ints, states: list[str], decided: Mask) -> Ints:
    """Runs that are too short given to the longer neighbour, the shortest first; the shortest go, too, where there are
    more than can be shown. `decided`: hours whose label says something; the others count for no run's length."""
    runs = _joined(zip(path.tolist(), decided.tolist(), itertools.repeat(1)))
    while len(runs) > 1:
        short = Counter(state for state, hours, _ in runs if hours < PHASE_HOURS_MIN)
        candidates = [
            n for n, (state, hours, _) in enumerate(runs)
            if hours < PHASE_HOURS_MIN and (states[state] not in COMPUTING or short[state] < SHORT_TURNS_MIN)
        ]  # fmt: skip
        if not candidates and len(runs) <= PHASES_MAX:
            break
        at = min(candidates or range(len(runs)), key=lambda n: runs[n][1])
        longer = max(runs[max(at - 1, 0) : at] + runs[at + 1 : at + 2], key=lambda run: run[1])
        runs = _joined([*runs[:at], (longer[0], *runs[at][1:]), *runs[at + 1 :]])
    return np.repeat([run[0] for run in runs], [run[2] for run in runs]).astype(np.intp)


def _joined(runs: Iterable[tuple[int, float, int]]) -> list[tuple[int, float, int]]:
    groups = ((state, list(same)) for state, same in itertools.groupby(runs, key=lambda run: run[0]))
    return [(state, sum(run[1] for run in same), sum(run[2] for run in same)) for state, same in groups]


def _fabric_side(ts: Floats, seconds: Floats, fabric: Floats, hours: Floats) -> Mask | None:
    """Per hour whether the fabric is in use, where that changed once and for good; None: it did not."""
    measured = (seconds > 0) & ~np.isnan(fabric)
    slot = np.searchsorted(hours, np.ceil(ts[measured] / HOUR) * HOUR)
    weight = np.bincount(slot, weights=seconds[measured], minlength=len(hours))
    used = np.bincount(slot, weights=seconds[measured] * fabric[measured], minlength=len(hours))
    seen = weight > 0
    if seen.sum() < 2 * FABRIC_HOURS_MIN:
        return None
    share = used[seen] / weight[seen]
    n = np.arange(1, len(share))
    # Mean use on either side of every cut; the cut at which they differ most, of those with room on both sides.
    before, after = np.cumsum(share)[:-1] / n, np.cumsum(share[::-1])[::-1][1:] / (len(share) - n)
    contrast = np.where(np.minimum(n, len(share) - n) >= FABRIC_HOURS_MIN, np.abs(after - before), 0.0)
    at = int(contrast.argmax())
    low, high = sorted((before[at], after[at]))
    if low > 1 - FABRIC_AGREEMENT_MIN or high < FABRIC_AGREEMENT_MIN:
        return None
    return (hours > hours[seen][at]) == (after[at] > before[at])
