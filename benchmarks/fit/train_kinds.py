"""Fits the weights of kinds from real series: rules/kind_model.yaml (`make model`, some seconds).

    python -m skuwise.benchmarks.fit.train_kinds              from real_series.csv and simulated_kinds.csv
    python -m skuwise.benchmarks.fit.train_kinds --simulate   makes simulated_kinds.csv again first (some ten minutes)

Two steps, each a multinomial logistic regression with declared signs (bounded_fit.py) over the levels of `SHAPES`. The
first learns from fleets of the first simulator what each shape says where real series lack it. The second learns from
real series, every owner with the same weight, and is drawn towards the first. The share of each kind among these
series is that of public repositories, not of a site: it is taken out, and SITE put in its place. Confidence is
calibrated (scikit-learn) on owners that were left out. The third generator never enters.
"""

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt
import sklearn
from sklearn.linear_model import LogisticRegression
from skuwise.advisor.classify.kinds.kinds import likeliest
from skuwise.advisor.classify.kinds.shapes import SHAPES, fingerprint, levels
from skuwise.rules.models import KIND_FILE, Calibration, KindModel
from skuwise.rules.policy.labels import WORKING_KINDS
from skuwise.rules.policy.thresholds import load_levels
from threadpoolctl import threadpool_limits

from . import kind_examples
from .bounded_fit import bounded_fit, declared
from .kind_examples import Example, Fleet
from .public_figures import FIGURES
from .real_series import TABLE, Row, read_rows

Matrix = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

# What all real series weigh together, and the penalties on the distance from what the simulator showed. These and SITE
# were chosen by the figures of owners left out, which flatter a little for it.
REAL_EXAMPLES, REAL_PENALTY, REAL_INTERCEPT_PENALTY = 80.0, 4.0, 20.0
SIMULATED_EXAMPLES, FIGURE_SHARE = 1500.0, 0.01
# How common each kind is where nothing is known of the site: learning most, then inference over batches; a service
# needs a sign of requests, and people seldom keep a GPU busy. A site's own names come on top.
SITE: Mapping[str, float] = {
    "training": 0.26, "fine-tuning": 0.21, "online-inference": 0.19, "batch-inference": 0.29, "interactive": 0.05,
}  # fmt: skip
LEAST_SHARE = 0.02  # of a kind in the sample, so that one that is not in it has log-odds
FOLDS = 5
OUT = Path(__file__).parents[2] / "rules" / KIND_FILE
SIMULATED = Path(__file__).with_name("simulated_kinds.csv")

# Days of a fleet, and its windows in hours before its end.
_WINDOWS: Mapping[int, tuple[tuple[float, float], ...]] = {
    2: ((48.0, 0.0), (20.0, 0.0), (9.0, 6.0)),
    3: ((72.0, 0.0), (30.0, 6.0), (20.0, 18.0)),
    5: ((120.0, 0.0), (60.0, 36.0), (30.0, 25.0)),
}
_SCENES = ("single-gpu", "light", "fine-tuning", "standby", "batch", "notebooks")
# Seeds from 100 on; 0 to 99 are for reporting (benchmarks/evaluation/evaluate.py).
FLEETS: tuple[Fleet, ...] = (
    *kind_examples.varied_fleets(28)[::2],
    *(Fleet("assorted", 500 + k, days, _WINDOWS[days]) for k in range(9) for days in ((2, 3, 5)[k % 3],)),
    *(Fleet(scene, 302 + 4 * k, 3, _WINDOWS[3]) for k, scene in enumerate(_SCENES)),
    Fleet("fleet", 101, 2, ((48.0, 0.0), (14.0, 11.0))),
)


@dataclass(frozen=True, slots=True)
class Weights:
    """`shapes`: log-odds by (kind of WORKING_KINDS, shape of SHAPES); `intercepts`: by kind."""

    shapes: Matrix
    intercepts: Matrix


def matrix(features: Iterable[Mapping[str, float]]) -> Matrix:
    """The shapes' levels, (example, shape)."""
    return np.array([list(levels(feature).values()) for feature in features], dtype=float).reshape(-1, len(SHAPES))


def works(kind: str, features: Mapping[str, float]) -> bool:
    """Whether shapes decide an example: idle work is counted instead (kinds.py)."""
    return kind in WORKING_KINDS and features.get("idle_share", 0.0) < load_levels("kinds.yaml").idle_share_min


def fit_simulated(examples: Sequence[Example], seed: int = 0) -> Weights:
    """From simulated work and published figures: every kind, and within it every bottleneck, with the same weight."""
    shown = [*kind_examples.with_gaps(kind_examples.with_other_ages(examples, seed), seed)]
    kept = [e for e in shown if works(e.kind, e.features)]
    cells = Counter((e.kind, e.bottleneck) for e in kept)
    in_kind = Counter(kind for kind, _ in cells)
    weights = np.array([1.0 / (cells[e.kind, e.bottleneck] * in_kind[e.kind]) for e in kept])
    weights *= SIMULATED_EXAMPLES / weights.sum()
    weights = np.concatenate([weights, np.full(len(FIGURES), FIGURE_SHARE * SIMULATED_EXAMPLES / len(FIGURES))])
    y = _positions([*(e.kind for e in kept), *(f.kind for f in FIGURES)])
    x = matrix([*(e.features for e in kept), *(f.features for f in FIGURES)])
    return Weights(*bounded_fit(x, y, weights, SHAPES, WORKING_KINDS, centre=declared(SHAPES, WORKING_KINDS)))


def fit_real(x: Matrix, y: Labels, owners: Sequence[str], simulated: Matrix) -> Weights:
    """From real series: levels, positions of kinds and whose each is."""
    count = Counter(owners)
    weights = np.array([1.0 / count[owner] for owner in owners])
    weights *= REAL_EXAMPLES / weights.sum()
    shares = np.bincount(y, weights=weights, minlength=len(WORKING_KINDS)) / REAL_EXAMPLES + LEAST_SHARE
    matrix, intercepts = bounded_fit(
        x, y, weights, SHAPES, WORKING_KINDS, centre=simulated, offset=np.log(shares / shares.sum()),
        penalty=REAL_PENALTY, intercept_penalty=REAL_INTERCEPT_PENALTY,
    )  # fmt: skip
    return Weights(matrix, intercepts + np.log([SITE[kind] for kind in WORKING_KINDS]))


def fit_rows(rows: Sequence[Row], noted: Mapping[str, str] | None = None) -> KindModel:
    """The model of these real series, calibrated on owners left out."""
    kept = [row for row in rows if works(row.kind, row.features)]
    x, y, owners = matrix(row.features for row in kept), _positions([row.kind for row in kept]), [r.owner for r in kept]
    simulated = read_simulated()
    with threadpool_limits(1):  # sums of one thread come out the same everywhere
        weights = fit_real(x, y, owners, simulated)
        slope, offset = _calibration(kept, x, y, simulated)
    columns: dict[str, dict[str, float]] = {
        shape.name: dict(zip(map(str, WORKING_KINDS), map(float, of), strict=True))
        for shape, of in zip(SHAPES, weights.shapes.T, strict=True)
    }
    intercepts = dict(zip(map(str, WORKING_KINDS), map(float, weights.intercepts), strict=True))
    return KindModel(
        intercepts, columns, Calibration(slope, offset), fingerprint(SHAPES), inputs=inputs(rows), trained=noted or {}
    )  # fmt: skip


def _calibration(rows: Sequence[Row], x: Matrix, y: Labels, simulated: Matrix) -> tuple[float, float]:
    """Slope and offset that turn the log-odds of what is said into those of its being right, on owners left out."""
    owners = np.array([row.owner for row in rows])
    part = {owner: n % FOLDS for n, owner in enumerate(sorted(set(owners)))}
    parts = np.array([part[owner] for owner in owners])
    said, right = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    for number in np.unique(parts):
        out = parts == number
        weights = fit_real(x[~out], y[~out], owners[~out].tolist(), simulated)
        for at, p in zip(
            np.nonzero(out)[0].tolist(), softmax(x[out] @ weights.shapes.T + weights.intercepts), strict=True
        ):
            label, said[at] = likeliest(dict(zip(WORKING_KINDS, p.tolist(), strict=True)))
            right[at] = label in rows[at].kinds
    odds = np.log(np.clip(said, 1e-4, 1 - 1e-4)) - np.log1p(-np.clip(said, 1e-4, 1 - 1e-4))
    fitted = LogisticRegression(C=10.0).fit(odds[:, None], right)
    slope = min(max(float(fitted.coef_[0, 0]), 0.2), 5.0)  # what is likelier is never less often right
    return round(slope, 3), round(float(fitted.intercept_[0]), 3)


def softmax(scores: Matrix) -> Matrix:
    """Shares of each row that sum to 1, from log-odds."""
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def _positions(kinds: Sequence[str]) -> Labels:
    return np.array([WORKING_KINDS.index(kind) for kind in kinds], dtype=np.int64)  # type: ignore[arg-type]


def read_simulated(path: Path = SIMULATED) -> Matrix:
    """What simulated fleets said of each shape, (kind, shape). Raises ValueError where it is not of these shapes."""
    with path.open(newline="") as file:
        rows = {row["shape"]: [float(row[kind]) for kind in WORKING_KINDS] for row in csv.DictReader(file)}
    if set(rows) != {shape.name for shape in SHAPES}:
        raise ValueError(f"{path.name} is of other shapes: make it anew with --simulate.")
    return np.array([rows[shape.name] for shape in SHAPES]).T


def write_simulated(weights: Weights, path: Path = SIMULATED) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("shape", *WORKING_KINDS))
        for shape, said in zip(SHAPES, weights.shapes.T, strict=True):
            writer.writerow((shape.name, *(f"{value:.3f}" for value in said)))


def inputs(rows: Sequence[Row]) -> str:
    """A digest of everything that goes in: series, what the simulator showed, weights."""
    said = [
        *(f"{row.file} {row.window} {row.owner} {row.kind} {sorted(row.features.items())}" for row in rows),
        SIMULATED.read_text(), f"{REAL_EXAMPLES} {REAL_PENALTY} {REAL_INTERCEPT_PENALTY} {sorted(SITE.items())}",
    ]  # fmt: skip
    return sha256("\n".join(said).encode()).hexdigest()[:16]


def document(model: KindModel) -> Iterator[str]:
    """The lines of the model's file."""
    yield "# Weights (log-odds) by which the shapes of advisor/classify/kinds/shapes.py speak for kinds."
    yield "# Made by `make model`; do not edit: change the shapes or the examples and make it anew."
    yield f"schema: {model.schema}"
    yield f'fingerprint: "{model.fingerprint}"'
    yield f'inputs: "{model.inputs}"'
    yield f"calibration: {{slope: {model.calibration.slope:.3f}, offset: {model.calibration.offset:.3f}}}"
    yield "intercepts:"
    yield from (f"  {label}: {model.intercepts[label]:.3f}" for label in WORKING_KINDS)
    yield "weights:"
    for name, by_kind in model.weights.items():
        yield f"  {name}: {{" + ", ".join(f"{label}: {by_kind[label]:.3f}" for label in WORKING_KINDS) + "}"
    yield "trained:"
    yield from (f'  {name}: "{text}"' for name, text in model.trained.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--simulate", action="store_true", help="simulate the fleets of the first step anew")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.simulate:
        examples = kind_examples.gather(FLEETS, options.processes, lambda line: print(line, file=sys.stderr))
        write_simulated(fit_simulated(examples))
    rows = read_rows(TABLE)
    kinds = Counter(row.kind for row in rows)
    model = fit_rows(rows, {
        "series": f"{len({row.file for row in rows})} of {len({row.owner for row in rows})} owners, in "
        f"{len(rows)} windows: " + ", ".join(f"{kinds[kind]} {kind}" for kind in (*WORKING_KINDS, "idle")),
        "simulated": f"{len(FLEETS)} fleets of the first simulator, {len(FIGURES)} published figures",
        "libraries": f"scikit-learn {sklearn.__version__}, numpy {np.__version__}",
    })  # fmt: skip
    options.out.write_text("\n".join(document(model)) + "\n")
    print(f"calibration: slope {model.calibration.slope}, offset {model.calibration.offset}")


if __name__ == "__main__":
    main()
