"""Fits the weights of rules/kind_model.yaml: `make model`.

Multinomial logistic regression with an L2 penalty and declared signs (bounded_fit.py) over the shapes of
`kind_signals`, each kind, and
within it each bottleneck, with the same weight in all. The temperature is found on fleets left out by scenario, so
that confidences are those of work the model has not met. Labels shuffled among the examples must fall to chance.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy
from skuwise.advisor.classify.kinds.kind_signals import SHAPES, fingerprint, levels
from skuwise.advisor.classify.kinds.kinds import WORKING
from skuwise.rules.models.kind_model import FILE, SCHEMA, KindModel
from skuwise.rules.policy.thresholds import load_kind_thresholds
from threadpoolctl import threadpool_limits

from ..scoring import Answer, calibration_error, macro_f1
from . import kind_examples
from .bounded_fit import bounded_fit
from .kind_examples import GAPS, OTHER_AGES, UNEVEN_STEPS, Example, Fleet
from .public_figures import FIGURES
from .real_series import Row, read_rows

Matrix = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

EFFECTIVE_EXAMPLES = 3000.0  # what all examples weigh together, against an L2 penalty of 1
REAL_SHARE = 0.2  # of that weight, the real series together: two metrics, one service and a benchmark
FIGURE_SHARE = 0.01  # of that weight, the published figures together
REAL_VIEW = "real"
FOLDS = 5
MIXED = ("varied", "fleet", "assorted", "small")  # scenarios that hold every kind
CHANCE_TIMES = 1.6  # how far above chance shuffled labels may come: few fleets, and many rows of each workload
NEVER = -12.0  # the intercept of a kind that is not among the examples
OUT = Path(__file__).parents[2] / "rules" / FILE

# Days of a fleet, and its windows in hours before its end.
_WINDOWS: Mapping[int, tuple[tuple[float, float], ...]] = {
    2: ((48.0, 0.0), (20.0, 0.0), (9.0, 6.0)),
    3: ((72.0, 0.0), (30.0, 6.0), (20.0, 18.0)),
    5: ((120.0, 0.0), (60.0, 36.0), (30.0, 25.0)),
}
_SCENES = ("single-gpu", "light", "fine-tuning", "standby", "batch", "notebooks")
# Seeds from 100 on; 0 to 99 are for reporting (benchmarks/evaluation/evaluate.py).
FLEETS: tuple[Fleet, ...] = (
    *kind_examples.varied_fleets(28),
    *(Fleet("assorted", 500 + k, days, _WINDOWS[days]) for k in range(9) for days in ((2, 3, 5)[k % 3],)),
    *(Fleet(scene, 302 + 4 * k, 3, _WINDOWS[3]) for k, scene in enumerate(_SCENES)),
    Fleet("fleet", 101, 2, ((48.0, 0.0), (14.0, 11.0))),
)


@dataclass(frozen=True, slots=True)
class Fitted:
    """Weights by (label, shape), intercepts by label, and the temperature that both are divided by."""

    weights: Matrix
    intercepts: Matrix
    temperature: float


@dataclass(frozen=True, slots=True)
class Table:
    """Examples as arrays: the shapes' levels (example, shape), kinds as positions in WORKING, weights, fleets."""

    x: Matrix
    y: Labels
    weights: Matrix
    groups: tuple[str, ...]

    def where(self, mask: npt.NDArray[np.bool_]) -> Table:
        groups = tuple(g for g, kept in zip(self.groups, mask.tolist(), strict=True) if kept)
        return Table(self.x[mask], self.y[mask], self.weights[mask], groups)


def table_of(examples: Iterable[Example]) -> Table:
    """The examples that a model has to tell apart: what stood idle is counted, not likened (kinds.py).

    Every kind weighs the same, and within a kind every bottleneck, among the simulated and among the real; together
    they weigh EFFECTIVE_EXAMPLES, of which the real ones REAL_SHARE.
    """
    idle = load_kind_thresholds()["idle_share_min"].value
    kept = [e for e in examples if e.kind in WORKING and e.features.get("idle_share", 0.0) < idle]
    cells = Counter((e.view == REAL_VIEW, e.kind, e.bottleneck) for e in kept)
    in_kind = Counter((is_real, kind) for is_real, kind, _ in cells)
    weights: Matrix = np.array(
        [1.0 / (cells[(r := e.view == REAL_VIEW), e.kind, e.bottleneck] * in_kind[r, e.kind]) for e in kept]
    )
    is_real = np.array([e.view == REAL_VIEW for e in kept], dtype=np.bool_)
    for part, share in ((is_real, REAL_SHARE), (~is_real, 1 - REAL_SHARE)):
        if part.any():
            weights[part] *= share / weights[part].sum()
    return Table(
        matrix([e.features for e in kept]),
        np.array([WORKING.index(e.kind) for e in kept]),  # type: ignore[arg-type]
        weights * EFFECTIVE_EXAMPLES / weights.sum(),
        tuple(e.group for e in kept),
    )


def matrix(features: Sequence[Mapping[str, float]]) -> Matrix:
    return np.array([list(levels(f).values()) for f in features], dtype=float).reshape(-1, len(SHAPES))


def fit(table: Table, temperature: float = 1.0) -> Fitted:
    x = np.vstack([table.x, matrix([f.features for f in FIGURES])])
    share = FIGURE_SHARE * EFFECTIVE_EXAMPLES / len(FIGURES)
    weights = np.concatenate([table.weights, np.full(len(FIGURES), share)])
    y = np.concatenate([table.y, [WORKING.index(f.kind) for f in FIGURES]])  # type: ignore[arg-type]
    w, b = bounded_fit(x, y.astype(np.int64), weights, SHAPES, WORKING)
    b = np.where(np.isin(np.arange(len(WORKING)), y), b, NEVER)
    return Fitted(w, b, temperature)


def held_out(table: Table, parts: Mapping[str, int]) -> Matrix:
    """Scores (log-odds) of every example by a model that saw nothing of its part. `parts`: group -> part."""
    part = np.array([parts[group] for group in table.groups])
    out: Matrix = np.zeros((len(part), len(WORKING)))
    for number in np.unique(part):
        mine = part == number
        model = fit(table.where(~mine))
        out[mine] = table.x[mine] @ model.weights.T + model.intercepts
    return out


def by_scenario(table: Table) -> dict[str, int]:
    """Parts that keep a scenario whole, so that what is left out is of another sort; mixed fleets go by their seed."""
    scenarios = sorted({group.partition("/")[0] for group in table.groups})
    parts = {}
    for group in table.groups:
        scenario, _, seed = group.partition("/")
        mixed = scenario in MIXED
        parts[group] = len(scenarios) + int(seed) % 3 if mixed else scenarios.index(scenario)
    return parts


def by_seed(table: Table) -> dict[str, int]:
    return {group: k % FOLDS for k, group in enumerate(sorted(set(table.groups)))}


def softmax(scores: Matrix) -> Matrix:
    """Shares of each row that sum to 1, from log-odds."""
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def temperature_of(scores: Matrix, table: Table) -> float:
    """The temperature at which the held-out labels are likeliest."""

    def loss(t: float) -> float:
        p = softmax(scores / t)[np.arange(len(table.y)), table.y]
        return float(-(table.weights * np.log(np.clip(p, 1e-9, 1))).sum())

    grid = np.geomspace(0.3, 6.0, 301)
    return float(grid[int(np.argmin([loss(t) for t in grid]))])


def answers(scores: Matrix, table: Table, temperature: float) -> list[Answer]:
    p = softmax(scores / temperature)
    best = p.argmax(axis=1)
    return [
        Answer(WORKING[truth], WORKING[found], float(row[found]))
        for truth, found, row in zip(table.y.tolist(), best.tolist(), p, strict=True)
    ]


def shuffled(table: Table, seed: int) -> Table:
    """The same examples with one another's labels, fleet by fleet or all over."""
    order = np.random.default_rng(seed).permutation(len(table.y))
    return Table(table.x, table.y[order], table.weights[order], table.groups)


def train(
    examples: Sequence[Example], seed: int = 0, chance_times: float = CHANCE_TIMES
) -> tuple[Fitted, dict[str, str]]:
    """The model and what is noted with it. Raises ValueError where shuffled labels do not fall to chance."""
    real = [one for one in examples if one.view == REAL_VIEW]
    simulated = [one for one in examples if one.view != REAL_VIEW]
    table = table_of([*kind_examples.with_gaps(kind_examples.with_other_ages(simulated, seed), seed), *real])
    with threadpool_limits(1):  # sums of one thread come out the same everywhere
        outside = held_out(table, by_scenario(table))
        temperature = temperature_of(outside, table)
        told = answers(held_out(table, by_seed(table)), table, temperature)
        lost = shuffled(table, seed)
        guessed = answers(held_out(lost, by_seed(lost)), lost, temperature)
        fitted = fit(table, temperature)
    kinds = Counter(WORKING[label] for label in table.y.tolist())
    chance = 1 / len(kinds)
    if macro_f1(guessed) > chance_times * chance:
        raise ValueError(f"Shuffled labels reach a macro-F1 of {macro_f1(guessed):.2f}: something leaks the answer.")
    return fitted, {
        "examples": ", ".join(f"{kinds[label]} {label}" for label in WORKING if kinds[label]),
        "figures": f"{len(FIGURES)} published figures (benchmarks/fit/public_figures.py)",
        "held_out_by_seed": f"macro-F1 {macro_f1(told):.3f}, calibration error {calibration_error(told):.3f}",
        "held_out_by_scenario": f"macro-F1 {macro_f1(answers(outside, table, temperature)):.3f}",
        "real_left_out": _left_out(outside, table, temperature),
        "shuffled_labels": f"macro-F1 {macro_f1(guessed):.3f}, where chance is {chance:.3f}",
        "libraries": f"scipy {scipy.__version__}, numpy {np.__version__}",
    }


def _left_out(scores: Matrix, table: Table, temperature: float) -> str:
    """How the real series of the part that is fitted on are judged by simulated fleets alone."""
    mask = np.array([group.startswith("real/") for group in table.groups], dtype=np.bool_)
    if not mask.any():
        return "none"
    said = answers(scores[mask], table.where(mask), temperature)
    return f"right {sum(a.truth == a.verdict for a in said) / len(said):.3f} of {len(said)}"


def _real_example(row: Row) -> Example:
    return Example(f"real/{row.owner}", REAL_VIEW, row.kind, "unknown", row.features)


def fit_rows(rows: Sequence[Row]) -> KindModel:
    """The model of these real series alone."""
    fitted = fit(table_of(map(_real_example, rows)))
    return KindModel(
        WORKING,
        dict(zip(WORKING, fitted.intercepts.tolist(), strict=True)),
        {shape.name: dict(zip(WORKING, fitted.weights[:, k].tolist(), strict=True)) for k, shape in enumerate(SHAPES)},
        fitted.temperature, fingerprint(SHAPES), "", {},
    )  # fmt: skip


def inputs(fleets: Sequence[Fleet] = FLEETS) -> str:
    """A digest of everything that is declared to go in: fleets, views, figures, penalty."""
    said = [*(repr(asdict(f)) for f in fleets), *kind_examples.VIEWS, *(repr(asdict(f)) for f in FIGURES),
            f"{EFFECTIVE_EXAMPLES} {FIGURE_SHARE} {REAL_SHARE}", f"{OTHER_AGES} {GAPS} {UNEVEN_STEPS}"]  # fmt: skip
    return sha256("\n".join(said).encode()).hexdigest()[:16]


def document(fitted: Fitted, noted: Mapping[str, str], declared: str) -> Iterator[str]:
    """The lines of the model's file."""
    yield "# Weights (log-odds) by which the shapes of advisor/classify/kinds/kind_signals.py speak for kinds."
    yield "# Made by `make model`; do not edit: change the shapes or the examples and make it anew."
    yield f"schema: {SCHEMA}"
    yield f'fingerprint: "{fingerprint(SHAPES)}"'
    yield f'inputs: "{declared}"'
    yield f"temperature: {fitted.temperature:.3f}"
    yield "intercepts:"
    yield from (f"  {label}: {value:.3f}" for label, value in zip(WORKING, fitted.intercepts, strict=True))
    yield "weights:"
    for k, shape in enumerate(SHAPES):
        yield f"  {shape.name}:"
        yield from (f"    {label}: {value:.3f}" for label, value in zip(WORKING, fitted.weights[:, k], strict=True))
    yield "trained:"
    yield from (f'  {name}: "{text}"' for name, text in noted.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    examples = [
        *kind_examples.gather(FLEETS, options.processes, lambda line: print(line, file=sys.stderr)),
        *map(_real_example, read_rows()),
    ]
    fitted, noted = train(examples)
    options.out.write_text("\n".join(document(fitted, noted, inputs())) + "\n")
    for name, text in noted.items():
        print(f"{name}: {text}")


if __name__ == "__main__":
    main()
