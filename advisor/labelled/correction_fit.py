"""A site's correction of the kinds' model, fitted from its labelled work: as much as the labels can carry, and no more.

Log-odds of kinds are the model's plus shifts, which a Gaussian prior holds near 0 (maximum a posteriori). Few labels
shift kinds alone; from `SHAPES_FROM` on a few shapes too. Whatever is fitted is scored on labels that were left out, a
workload at a time; a correction that does not help there is refused. What stood idle is counted, not likened, so its
labels teach nothing here; what people wrote is not looked at: shapes alone are corrected.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...rules.base.errors import NothingToDo
from ...rules.models.kind_correction import SHIFT_MAX, CrossValidation, KindCorrection, digest
from ...rules.models.kind_model import KindModel
from ..core.formatting import counted
from ..verdicts.features.features import Features
from ..verdicts.kinds.kind_signals import SHAPES, levels
from ..verdicts.kinds.kinds import WORKING
from .judged import Judged

Matrix = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

LEAST = 10  # labels: with fewer, leaving some out leaves nothing to learn from
SHAPES_FROM = 20  # labels from which on shapes are shifted too
LABELS_PER_SHAPE = 10  # a shape's shifts are five numbers, and its prior halves them
SHAPES_MOST = 8
# Priors, in log-odds. The shipped weights, by their temperature, spread by about 1: a site's kinds may be as much
# likelier than there as one clear shape makes them, and a shape may speak half as loudly or half as loudly again.
KIND_SPREAD, SHAPE_SPREAD = 1.0, 0.5
TEMPERATURE_SPREAD = 0.5  # of its logarithm
FOLDS_MOST = 25
CONTRADICTED = 0.9  # a label is named as doubtful where another kind is said with so much when it is left out
_SMALL = 0.005  # log-odds: what rounds to nothing is not written down


@dataclass(frozen=True, slots=True)
class Example:
    """A labelled workload as the model sees it. `group`: what it is left out with. `about`: it, in a few words."""

    kind: str
    group: str
    about: str
    features: Features


@dataclass(frozen=True, slots=True)
class Doubt:
    """A label that all the others speak against: what they say it is, and how surely (0..1)."""

    about: str
    labelled: str
    said: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """A correction that helped labels that were left out. `doubts`: labels that may be wrong."""

    correction: KindCorrection
    doubts: tuple[Doubt, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    """Examples as arrays: levels with a leading 1 (example, 1 + shape), the model's scores, kinds, weights, groups."""

    x: Matrix
    base: Matrix
    y: Places
    weights: Matrix
    groups: tuple[str, ...]

    def where(self, mask: npt.NDArray[np.bool_]) -> _Table:
        kept = tuple(group for group, keep in zip(self.groups, mask.tolist(), strict=True) if keep)
        return _Table(self.x[mask], self.base[mask], self.y[mask], self.weights[mask], kept)


def usable(found: Iterable[Judged], idle_share_min: float) -> tuple[list[Example], Counter[str]]:
    """What a correction can be fitted on, and why the rest cannot be (reason -> labels).

    `idle_share_min`: what rested that much is called idle by counting, whatever its shape says.
    """
    kept: list[Example] = []
    left: Counter[str] = Counter()
    for one in found:
        if one.label.part == "judge":
            left["kept for validation"] += 1
        elif one.label.kind not in WORKING:
            left["labeled idle: idleness is counted, not classified"] += 1
        elif one.verdict is None or one.verdict.features.get("hours", 0.0) <= 0:
            left["not observed"] += 1
        elif one.verdict.features.get("idle_share", 0.0) >= idle_share_min:
            left["idle whenever it was observed"] += 1
        else:
            kept.append(Example(one.label.kind, one.group, one.about, one.verdict.features))
    return kept, left


def fit_correction(examples: Sequence[Example], model: KindModel) -> Fitted:
    """The correction of `model` by these examples. Raises NothingToDo where they cannot carry one, or none helps."""
    _enough(examples)
    table = _table(examples, model)
    outside = _held_out(table)
    temperature = _temperature(outside, table)
    before, after = _scores(table.base, table), _scores(outside / temperature, table)
    if after[1] >= before[1] or after[0] < before[0]:
        raise NothingToDo(
            f"A correction does not improve accuracy on held-out labels: {100 * after[0]:.0f} % correct "
            f"instead of {100 * before[0]:.0f} %, log loss {after[1]:.2f} instead of {before[1]:.2f}.",
            "The shipped model stays in use. Add labels, above all of kinds that are confused.",
        )
    shifts = _fit(table, _telling(table))
    counted = Counter(one.kind for one in examples)
    shapes = {
        shape.name: _named(shifts[:, 1 + k])
        for k, shape in enumerate(SHAPES)
        if shape.name in model.weights and np.abs(shifts[:, 1 + k]).max() >= _SMALL
    }
    correction = KindCorrection(
        model=digest(model),
        labels={label: counted[label] for label in WORKING if counted[label]},
        temperature=round(temperature, 3),
        intercepts=_named(shifts[:, 0]),
        shapes=shapes,
        cross_validated=CrossValidation(before[0], after[0], before[1], after[1]),
    )
    return Fitted(correction, tuple(_doubts(examples, outside / temperature)))


def _enough(examples: Sequence[Example]) -> None:
    kinds, groups = {one.kind for one in examples}, {one.group for one in examples}
    if len(examples) < LEAST:
        raise NothingToDo(
            f"Too few labels: {len(examples)} are usable, a correction needs {LEAST}.",
            "Add labels of work that ran for hours.",
        )
    if len(kinds) < 2:
        raise NothingToDo(
            f"All labels have the same kind, {next(iter(kinds))}: a correction needs at least two kinds.",
            "Add labels of the kinds that are confused with it.",
        )
    if len(groups) < 3:
        raise NothingToDo(
            f"All labels belong to {counted(len(groups), 'workload')}: too few to validate a correction.",
            "Add labels of other workloads.",
        )


def _table(examples: Sequence[Example], model: KindModel) -> _Table:
    # Half way between every label weighing the same and every kind: how often somebody labelled a kind says little of
    # how often there is one.
    counted = Counter(one.kind for one in examples)
    weights = np.array([1 / math.sqrt(counted[one.kind]) for one in examples])
    x = np.array([[1.0, *levels(one.features).values()] for one in examples])
    base = np.array([
        [model.intercept(label), *(model.weight(shape.name, label) for shape in SHAPES)] for label in WORKING
    ])  # fmt: skip
    y = np.array([WORKING.index(one.kind) for one in examples])  # type: ignore[arg-type]
    return _Table(x, x @ base.T, y, weights * len(examples) / weights.sum(), tuple(one.group for one in examples))


def _telling(table: _Table) -> Places:
    """The columns of the shapes that are shifted: the few by which, each alone and kinds already shifted, most would be
    gained."""
    count = min(SHAPES_MOST, len(table.y) // LABELS_PER_SHAPE) if len(table.y) >= SHAPES_FROM else 0
    every = np.arange(1, table.x.shape[1])
    if count == 0:
        return every[:0]
    p = softmax(table.base + table.x @ _fit(table, every[:0]).T)
    x, weights = table.x[:, 1:], table.weights[:, None]
    slope = (weights * (p - np.eye(len(WORKING))[table.y])).T @ x
    curve = (weights * p * (1 - p)).T @ x**2 + 1 / SHAPE_SPREAD**2
    moved = (slope**2 / curve).sum(axis=0)
    best = np.argsort(-moved, kind="stable")[:count]
    return np.sort(every[best[moved[best] > 0]])


def _fit(table: _Table, columns: Places) -> Matrix:
    """Shifts by (kind, 1 + shape), of kinds and of the shapes in `columns`, by Newton's method; the rest are 0."""
    used = np.concatenate([np.zeros(1, dtype=np.int64), columns])
    x, kinds = table.x[:, used], len(WORKING)
    spread = np.where(used == 0, KIND_SPREAD, SHAPE_SPREAD)
    penalty = np.tile(1 / spread**2, kinds)
    truth = np.eye(kinds)[table.y]
    at = np.zeros(kinds * len(used))

    def loss(shifts: Matrix) -> float:
        scores = table.base + x @ shifts.reshape(kinds, -1).T
        return float((table.weights * _surprise(scores, table.y)).sum() + 0.5 * (penalty * shifts**2).sum())

    now = loss(at)
    for _ in range(50):
        p = softmax(table.base + x @ at.reshape(kinds, -1).T)
        slope = ((table.weights[:, None] * (p - truth)).T @ x).ravel() + penalty * at
        step = np.linalg.solve(_curve(table.weights, p, x) + np.diag(penalty), slope)
        length = 1.0
        while (then := loss(at - length * step)) > now and length > 1e-4:
            length /= 2
        if now - then < 1e-9 * max(1.0, now):
            break
        at, now = at - length * step, then
    shifts = np.zeros((kinds, table.x.shape[1]))
    shifts[:, used] = at.reshape(kinds, -1).clip(-SHIFT_MAX, SHIFT_MAX)
    return shifts


def _curve(weights: Matrix, p: Matrix, x: Matrix) -> Matrix:
    """The second derivative of the surprise by all shifts, kind after kind."""
    kinds, columns = p.shape[1], x.shape[1]
    out = np.empty((kinds, columns, kinds, columns))
    for a in range(kinds):
        for b in range(kinds):
            shares = weights * p[:, a] * (float(a == b) - p[:, b])
            out[a, :, b, :] = (x * shares[:, None]).T @ x
    return out.reshape(kinds * columns, kinds * columns)


def _held_out(table: _Table) -> Matrix:
    """Scores of every example by a correction that saw nothing of its group, or of the few groups left out with it."""
    names = sorted(set(table.groups))
    fold = {name: k % min(FOLDS_MOST, len(names)) for k, name in enumerate(names)}
    mine = np.array([fold[group] for group in table.groups])
    out = np.zeros_like(table.base)
    for number in np.unique(mine):
        left = mine == number
        rest = table.where(~left)
        shifts = _fit(rest, _telling(rest))
        out[left] = table.base[left] + table.x[left] @ shifts.T
    return out


def _temperature(scores: Matrix, table: _Table) -> float:
    """The temperature at which the labels left out are likeliest, held near 1 as the shifts are held near 0."""
    grid = np.geomspace(0.4, 4.0, 116)
    held = 0.5 * (np.log(grid) / TEMPERATURE_SPREAD) ** 2
    losses = [float((table.weights * _surprise(scores / t, table.y)).sum()) for t in grid]
    return float(grid[int(np.argmin(np.array(losses) + held))])


def _scores(scores: Matrix, table: _Table) -> tuple[float, float]:
    """Share right of the labels, and their mean surprise in nats as they weigh."""
    right = float((scores.argmax(axis=1) == table.y).mean())
    return right, float((table.weights * _surprise(scores, table.y)).sum() / table.weights.sum())


def _doubts(examples: Sequence[Example], scores: Matrix) -> Iterable[Doubt]:
    for one, row in zip(examples, softmax(scores), strict=True):
        said = int(row.argmax())
        if WORKING[said] != one.kind and row[said] >= CONTRADICTED:
            yield Doubt(one.about, one.kind, WORKING[said], float(row[said]))


def softmax(scores: Matrix) -> Matrix:
    """Shares of each row that sum to 1, from log-odds."""
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def _surprise(scores: Matrix, y: Places) -> Matrix:
    """How unlikely each label is, in nats."""
    top = scores.max(axis=1)
    return top + np.log(np.exp(scores - top[:, None]).sum(axis=1)) - scores[np.arange(len(y)), y]


def _named(shifts: Matrix) -> dict[str, float]:
    """Shifts by kind, those that round to nothing left out."""
    rounded = zip(WORKING, shifts.tolist(), strict=True)
    return {label: round(value, 3) for label, value in rounded if abs(value) >= _SMALL}
