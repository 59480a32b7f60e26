"""Where a workload changes what it does: change points over the labels of its hours.

Hours are labelled by their bottleneck. A path through the labels is sought that agrees with most of the time and turns
seldom: every turn costs as much as some hours of disagreement, so a label that flickers turns nothing. The hours of one
label, wherever they lie, are one behaviour, and are judged together by the judge of whole workloads.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..bottlenecks.bottleneck_verdict import RowLabels
from ..bottlenecks.judgement import Judgement, JudgementInputs, Piece
from ..features.piece_rows import PieceRows
from ..workloads.session import Session

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

HOUR = 3600.0
# What computes: a turn from one to the other is another computation, even for an hour, if it recurs (an evaluation).
COMPUTING = ("compute", "hbm-bandwidth")
# Labels that fit any behaviour: hours that hold the turn itself, or too little to tell.
OPEN = ("mixed", "unknown")
# A service or a person at work waits for demand: hours of little of it belong to the phase around them.
WAITING = ("idle", "latency", "host-input")
# Kinds that wait for demand: their hours without any are not idle, they are waiting.
DEMANDED = ("online-inference", "interactive")
# A wait, a fault or a rest shorter than this belongs to the work around it.
PHASE_HOURS_MIN = 3.0
# So many short turns of the same kind are a habit; fewer are an accident (a model that is loaded, a late checkpoint).
SHORT_TURNS_MIN = 3
# Hours of disagreement that one turn is worth: less than half of the shortest phase, since a phase has two ends.
_TURN_HOURS = 0.49 * PHASE_HOURS_MIN
_TURN_HOURS_COMPUTING = 0.45
# Day and night over 90 days stay told; whatever turns oftener is told more coarsely.
PHASES_MAX = 200
# Traffic on the fabric begins or ends once and for good: each side lasts so long and agrees in so much of its time.
FABRIC_HOURS_MIN = 6.0
FABRIC_AGREEMENT_MIN = 0.9


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What tells the hours of one phase from those of another: the label that rules them, and whether the fabric
    carries anything (None: no such change, or not known)."""

    label: str
    fabric: bool | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A span of one behaviour, Unix seconds."""

    start: float
    end: float
    behaviour: Behaviour


@dataclass(frozen=True)
class Cut:
    """The behaviours of one workload. `turned`: when it showed which; `seconds`: observed of each of `behaviours`;
    `main`: the one that most of its work is; `pieces`: what is judged apart, by behaviour (none where it never
    changes)."""

    turned: tuple[Turn, ...]
    behaviours: tuple[Behaviour, ...]
    seconds: np.ndarray
    main: int
    pieces: Mapping[int, Piece]


def cut_pieces(
    pieces: Sequence[Piece], judgements: Sequence[Judgement], places: pd.DataFrame, inputs: JudgementInputs
) -> list[Cut]:
    """Where each workload changes what it does. `judgements`: over all rows of each; `places`: whose each moment was
    (`Attribution.places`)."""
    shared = np.zeros(len(inputs.frame.gpu), dtype=np.bool_)
    shared[places.loc[places["shared"].to_numpy(bool), "row"].to_numpy(int)] = True
    rows = PieceRows.of(inputs.tables, [piece.rows for piece in pieces])
    waits = np.array([whole.kind.label in DEMANDED for whole in judgements], dtype=np.bool_)
    labels = _labels(rows, pieces, shared, inputs)
    alike = _never_turns(rows, labels, waits, inputs.labels)
    names = np.array(inputs.labels.names, dtype=object)
    first = (rows.segments.lowest(np.where(rows.seconds > 0, np.ceil(rows.gpu("ts") / HOUR), np.nan)) - 1) * HOUR
    out = []
    for n, piece in enumerate(pieces):
        own = slice(rows.segments.bounds[n], rows.segments.bounds[n + 1])
        if alike[n] >= 0:
            out.append(_unchanged(piece.session, str(names[alike[n]]), float(first[n])))
        else:
            out.append(_cut(piece, names[labels[own]], inputs, waits=bool(waits[n])))
    return out


def _labels(rows: PieceRows, pieces: Sequence[Piece], shared: npt.NDArray[np.bool_], inputs: JudgementInputs) -> Ints:
    """The label of every row, as a number. What several held at once, or a row that another's time is part of, says
    nothing of what this one did."""
    whole = np.concatenate([np.empty(0, dtype=np.bool_), *(piece.rows.whole for piece in pieces)])
    blurred = shared[rows.at] | (~whole & rows.segments.spread(rows.segments.any(whole)))
    return np.where(blurred, inputs.labels.code("unknown"), inputs.labels.own[rows.at])


def _never_turns(rows: PieceRows, labels: Ints, waits: npt.NDArray[np.bool_], named: RowLabels) -> Ints:
    """The one label that is not open to any behaviour, of workloads that show no other and are too short for their
    fabric to have come or gone; -1 of all others, whose turns must be sought."""
    segments, width = rows.segments, len(named.names)
    open_, waiting = (np.isin(named.names, labels) for labels in (OPEN, WAITING))
    closed = (rows.seconds > 0) & ~(open_[labels] | (waiting[labels] & segments.spread(waits)))
    slot = segments.number[closed] * width + labels[closed]
    occurs = np.bincount(slot, minlength=len(segments) * width).reshape(len(segments), width) > 0
    hours = segments.where(rows.seconds > 0).grouped(np.ceil(rows.gpu("ts")[rows.seconds > 0] / HOUR).astype(np.intp))
    sure = (occurs.sum(axis=1) == 1) & (hours.each.lengths < 2 * FABRIC_HOURS_MIN)
    return np.where(sure, occurs.argmax(axis=1), -1)


def _unchanged(session: Session, label: str, first: float) -> Cut:
    """A workload of one behaviour. `first`: when its first hour began (Unix seconds)."""
    start = max(session.start, first)  # what it did before nobody saw
    behaviour = Behaviour(label)
    turned = (Turn(start, session.end, behaviour),) if session.end > start else ()
    return Cut(turned, tuple(turn.behaviour for turn in turned), np.empty(0), 0, {})


def _cut(piece: Piece, labels: npt.NDArray[np.object_], inputs: JudgementInputs, *, waits: bool) -> Cut:
    """`labels`: of its rows; `waits`: whether it waits for demand."""
    session, rows = piece.session, piece.rows
    at = rows.row
    if not len(at):
        return Cut((), (), np.empty(0), 0, {})
    ts, seconds = inputs.gpu_columns["ts"][at].astype(float), rows.seconds
    fabric = _fabric_use(session, at, inputs)
    turned = turns(ts, seconds, labels, fabric, waits=waits, start=session.start, end=session.end)
    behaviours = tuple(dict.fromkeys(turn.behaviour for turn in turned))
    if len(behaviours) < 2:
        return Cut(turned, behaviours, np.empty(0), 0, {})
    number = np.array([behaviours.index(turn.behaviour) for turn in turned])[behaviour_of(turned, ts)]
    held = np.bincount(number, weights=seconds, minlength=len(behaviours))
    working = [n for n, b in enumerate(behaviours) if b.label != "idle"] or list(range(len(behaviours)))
    main = max(working, key=lambda n: held[n])
    parts = {
        n: Piece(_as_long_as(session, turned, behaviour), rows.at(number == n), by_shape=n != main)
        for n, behaviour in enumerate(behaviours)
        if n == main or behaviour.label != "idle"
    }
    return Cut(turned, behaviours, held, main, parts)


def _fabric_use(session: Session, at: np.ndarray, inputs: JudgementInputs) -> np.ndarray:
    """Per row 1 where its node's fabric is in use, 0 where silent; NaN: unknown, or others may be on the node."""
    instances, nodes = inputs.frame.parents, inputs.nodes
    held = Counter(node for node, uuid in session.gpus if (node, uuid) not in instances)
    if not all(node in nodes and count >= nodes[node].gpu_count for node, count in held.items()):
        return np.full(len(at), np.nan)
    use = inputs.row_columns["i"][at].astype(float)
    return np.where(np.isnan(use), np.nan, use >= inputs.book.kinds["fabric_used_min"].value)


def _as_long_as(session: Session, turned: tuple[Turn, ...], behaviour: Behaviour) -> Session:
    """The workload as if it had lasted as long as one of its behaviours did."""
    own = [turn for turn in turned if turn.behaviour == behaviour]
    end = max(turn.end for turn in own)
    return dataclasses.replace(session, start=end - float(sum(turn.end - turn.start for turn in own)), end=end)


def turns(
    ts: Floats, seconds: Floats, labels: npt.NDArray, fabric: Floats, *, waits: bool, start: float, end: float
) -> tuple[Turn, ...]:
    """The behaviours of one workload in their order, without holes, from `start` (or its first row) to `end`.

    One entry per row of the workload: `ts` its end, `seconds` observed, `labels` its bottleneck, `fabric` 1 where the
    compute fabric of its node was in use, 0 where it was silent, NaN where nobody knows. Rows of several nodes meet in
    their hour, so clocks that differ by minutes turn nothing. `waits`: the workload waits for demand.
    """
    if end <= start:
        return ()
    open_labels: set[str] = {*OPEN, *WAITING} if waits else {*OPEN}
    if not (seconds > 0).any():
        return (Turn(start, end, Behaviour("unknown")),)
    hours, states, held = _by_hour(ts, seconds, labels, open_labels)
    path = _path(states, held) if len(states) > 1 else np.zeros(len(hours), dtype=np.intp)
    path = _settled(path, states, held.sum(axis=1) > 0)
    side, cut = _fabric_side(ts, seconds, fabric, hours)
    start = max(start, float(hours[0]) - HOUR)  # what it did before nobody saw
    found: list[Turn] = []
    for at, hour in enumerate(hours):
        behaviour = Behaviour(states[path[at]], None if cut is None else bool(side[at]))
        if not found or found[-1].behaviour != behaviour:
            begin = start if not found else min(max(float(hour) - HOUR, start), end)
            if found:
                found[-1] = Turn(found[-1].start, begin, found[-1].behaviour)
            found.append(Turn(begin, end, behaviour))
    return tuple(turn for turn in found if turn.end > turn.start)


def behaviour_of(turned: tuple[Turn, ...], ts: Floats) -> Ints:
    """For each row that ends at `ts`, the position of its turn."""
    ends = np.array([turn.end for turn in turned[:-1]])
    # A row belongs to the turn that holds its hour; the last second of a turn is its own.
    return np.searchsorted(ends, np.ceil(ts / HOUR) * HOUR - 1.0, side="left").astype(np.intp)


def _by_hour(
    ts: Floats, seconds: Floats, labels: npt.NDArray, open_labels: set[str]
) -> tuple[Floats, list[str], Floats]:
    """Hours (their ends), the labels that occur, and the hours' share (0 to 1) that each label holds."""
    hour = np.ceil(ts / HOUR) * HOUR
    seen = seconds > 0
    hours, slot = np.unique(hour[seen], return_inverse=True)
    code, names = pd.factorize(labels[seen], sort=True)
    total = np.bincount(slot, weights=seconds[seen], minlength=len(hours))
    table = np.zeros((len(hours), len(names)))
    np.add.at(table, (slot, code), seconds[seen])
    table /= total[:, None]
    states = [n for n, name in enumerate(names) if name not in open_labels]
    if not states:
        # Nothing but open labels: one behaviour, called what it mostly is.
        return hours, [str(names[int(table.sum(axis=0).argmax())])], np.ones((len(hours), 1))
    return hours, [str(names[n]) for n in states], table[:, states]


def _path(states: list[str], held: Floats) -> Ints:
    """The cheapest path: an hour costs its share that disagrees, a turn some hours (Viterbi's algorithm)."""
    cost = held.sum(axis=1, keepdims=True) - held
    computing = np.array([state in COMPUTING for state in states])
    turn = np.where(computing[:, None] & computing[None, :], _TURN_HOURS_COMPUTING, _TURN_HOURS)
    np.fill_diagonal(turn, 0.0)
    # Hours alike in a row are one step: a path never turns among them.
    new = np.concatenate(([True], np.abs(np.diff(cost, axis=0)).max(axis=1) > 1e-9))
    first = np.nonzero(new)[0]
    steps = np.add.reduceat(cost, first, axis=0)
    best, came = steps[0].copy(), np.zeros((len(steps), len(states)), dtype=np.intp)
    for at in range(1, len(steps)):
        through = best[:, None] + turn
        came[at] = through.argmin(axis=0)
        best = through.min(axis=0) + steps[at]
    chosen = np.empty(len(steps), dtype=np.intp)
    chosen[-1] = best.argmin()
    for at in range(len(steps) - 1, 0, -1):
        chosen[at - 1] = came[at, chosen[at]]
    return chosen[np.cumsum(new) - 1]


def _settled(path: Ints, states: list[str], told: npt.NDArray[np.bool_]) -> Ints:
    """Runs that are too short given to the longer neighbour, the shortest first; the shortest go, too, where there are
    more than can be told. `told`: hours whose label says something; the others count for no run's length."""
    weight = told.astype(float)
    starts = np.concatenate(([0], np.nonzero(np.diff(path))[0] + 1))
    runs = [
        [int(state), float(hours), int(count)]
        for state, hours, count in zip(
            path[starts], np.add.reduceat(weight, starts), np.diff([*starts, len(path)]), strict=True
        )
    ]
    while len(runs) > 1:
        short: Mapping[int, int] = _short_turns(runs)
        at = min(range(len(runs)), key=lambda n: runs[n][1])
        candidates = [
            n for n, (state, hours, _) in enumerate(runs)
            if hours < PHASE_HOURS_MIN and (states[state] not in COMPUTING or short[state] < SHORT_TURNS_MIN)
        ]  # fmt: skip
        if candidates:
            at = min(candidates, key=lambda n: runs[n][1])
        elif len(runs) <= PHASES_MAX:
            break
        neighbours = [n for n in (at - 1, at + 1) if 0 <= n < len(runs)]
        runs[at][0] = runs[max(neighbours, key=lambda n: runs[n][1])][0]
        runs = _joined(runs)
    return np.repeat([run[0] for run in runs], [run[2] for run in runs]).astype(np.intp)


def _short_turns(runs: list[list]) -> dict[int, int]:
    """State -> number of its short runs."""
    counts: dict[int, int] = {}
    for state, hours, _ in runs:
        counts[state] = counts.get(state, 0) + (hours < PHASE_HOURS_MIN)
    return counts


def _joined(runs: list[list]) -> list[list]:
    out: list[list] = []
    for state, hours, count in runs:
        if out and out[-1][0] == state:
            out[-1][1] += hours
            out[-1][2] += count
        else:
            out.append([state, hours, count])
    return out


def _fabric_side(
    ts: Floats, seconds: Floats, fabric: Floats, hours: Floats
) -> tuple[npt.NDArray[np.bool_], float | None]:
    """Per hour whether the fabric is in use, and the hour at which that changed for good; None: it did not."""
    known = (seconds > 0) & ~np.isnan(fabric)
    slot = np.searchsorted(hours, np.ceil(ts[known] / HOUR) * HOUR)
    weight = np.bincount(slot, weights=seconds[known], minlength=len(hours))
    used = np.bincount(slot, weights=seconds[known] * fabric[known], minlength=len(hours))
    seen = weight > 0
    side = np.zeros(len(hours), dtype=np.bool_)
    if seen.sum() < 2 * FABRIC_HOURS_MIN:
        return side, None
    share = used[seen] / weight[seen]
    before, after = np.cumsum(share)[:-1], np.cumsum(share[::-1])[::-1][1:]
    n = np.arange(1, len(share))
    # Mean use on either side of every cut; the cut at which they differ most, of those with room on both sides.
    mean_before, mean_after = before / n, after / (len(share) - n)
    contrast = np.where(np.minimum(n, len(share) - n) >= FABRIC_HOURS_MIN, np.abs(mean_after - mean_before), 0.0)
    at = int(contrast.argmax())
    low, high = sorted((mean_before[at], mean_after[at]))
    if low > 1 - FABRIC_AGREEMENT_MIN or high < FABRIC_AGREEMENT_MIN:
        return side, None
    cut = float(hours[seen][at])
    side[:] = (hours > cut) == (mean_after[at] > mean_before[at])
    return side, cut
