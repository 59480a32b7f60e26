"""Fits the model of power caps on measured runs and writes rules/power_model.yaml: `make power-model`.

Five figures are fitted, over time and energy alike and every network on every GPU with the same weight; the exponent of
the clock follows from the one published point of power against clock. How far predictions are off comes from lines that
were left out of the fit, by network and by GPU (conformal): the 80th percentile of the absolute error over the normal's
1.28, by class of predicted slowdown, every network on every GPU with the same weight. For an architecture without any
run it is that of the worst of the GPUs that were left out: each of the four is of another architecture.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date

import numpy as np
import pandas as pd
from msgspec.structs import asdict
from numpy.typing import NDArray
from scipy.optimize import minimize
from skuwise.advisor.recommend.predict.clock_model import Effect, under_cap
from skuwise.advisor.recommend.prediction import Z90
from skuwise.rules.base.yaml_loader import packaged_rules
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models import POWER_FILE, ClassName, PowerCurve, PowerModel, Spread, TypicalShare, load_resting_power

from .power_caps import SOURCE, TABLE, Capped, Table, read_caps
from .tables import refused_lines

# A100 serving at 1110 of 1410 MHz: a fifth less at its peak (POLCA, arXiv 2308.12908); 400 W, of them 60 at rest.
POINT_CLOCK = 1110 / 1410
POINT_DRAWN = (0.8 * 400 - 60) / (400 - 60)
# What the fit starts from, and may not leave: follows, clocked, bursts, overlap, drawn_of_cap.
START = (1.05, 0.25, 0.40, 6.0, 0.97)
LEAST = (0.8, 0.02, 0.0, 1.0, 0.90)
MOST = (1.3, 1.0, 1.0, 12.0, 1.0)
NOISE = 0.03  # of the log: the same epoch, run twice, differs by as much; smaller errors weigh as their squares
# Predicted slowdown up to which a cap does nothing, little and much: the mildest first.
BOUNDS: dict[ClassName, float] = {"without effect": 1.02, "light": 1.15, "heavy": 1.5, "deep": math.inf}
PRIOR_CELLS = 1.0  # a class that few networks and GPUs speak for is drawn to the prior
PRIOR = {"without effect": 0.05, "light": 0.06, "heavy": 0.10, "deep": 0.20}
# repeats of an epoch differ by 0.05; the rest is assumed
# Share of the room between rest and rated power that work draws where not measured.
TYPICAL = {
    "training": (0.85, "the middle of BERT's training on V100, A40 and RTX 6000 in the same runs"),
    "fp32": (0.85, "as training"),
    "prefill": (0.90, "prompts run at the power limit (POLCA)"),
    "one-pass": (0.60, "assumed: between training and decode"),
    "mixed": (0.50, "assumed: between prefill and decode"),
    "decode": (0.25, "decode on H200 draws 137 to 300 of 700 W"),
}
TYPICAL_SIGMA = (0.25, "assumed: decode on H200 alone spreads by a factor of two")

Numbers = NDArray[np.float64]


def predict(curve: PowerCurve, table: Table) -> Effect:
    """What the curve says of every line, from its run at the highest limit alone."""
    return under_cap(
        curve, watts=table.watts, rest_watts=table.rest_watts, limit_watts=table.limit_watts, cap_watts=table.cap_watts
    )


def fit(capped: Sequence[Capped]) -> PowerCurve:
    """The curve of least error over these lines."""
    table, weights = Table.of(capped), _weights([c.gpu for c in capped], [c.network for c in capped])

    def loss(x: Numbers) -> float:
        effect = predict(_curve(np.clip(x, LEAST, MOST)), table)
        errors = np.log(table.time / effect.time), np.log(table.joules / effect.joules)
        outside = float(np.sum(np.abs(x - np.clip(x, LEAST, MOST))))
        return sum(float(np.sum(weights * (np.hypot(e, NOISE) - NOISE))) for e in errors) + outside

    best = min(
        (
            minimize(loss, start, method="Nelder-Mead", options={"maxiter": 800, "xatol": 1e-3, "fatol": 1e-7})
            for start in (np.array(START), np.array(START) * (1.05, 0.7, 0.7, 1.5, 0.99))
        ),
        key=lambda done: float(done.fun),
    )
    return _curve(np.clip(best.x, LEAST, MOST))


def _curve(x: Numbers) -> PowerCurve:
    follows, clocked, bursts, overlap, drawn = (round(float(v), 3) for v in x)
    exponent = math.log((POINT_DRAWN - 1 + follows) / follows) / math.log(POINT_CLOCK)
    return PowerCurve(follows, round(exponent, 3), clocked, bursts, overlap, drawn)


def _weights(gpus: Sequence[str], networks: Sequence[str]) -> Numbers:
    """Every network on every GPU has one voice, however many batch sizes and limits it fills."""
    cells = list(zip(gpus, networks, strict=True))
    counts = Counter(cells)
    weights = np.array([1.0 / counts[cell] for cell in cells])
    return weights / weights.sum()


def left_out(capped: Sequence[Capped], by: Callable[[Capped], str]) -> pd.DataFrame:
    """Every group predicted by what was fitted on the others: `gpu`, `network`, the predicted `slowdown`, and the logs
    of observed over predicted `time` and `joules`."""
    parts = []
    for name in sorted({by(c) for c in capped}):
        apart = [c for c in capped if by(c) == name]
        table, effect = Table.of(apart), predict(fit([c for c in capped if by(c) != name]), Table.of(apart))
        errors = {"time": np.log(table.time / effect.time), "joules": np.log(table.joules / effect.joules)}
        about = {"gpu": [c.gpu for c in apart], "network": [c.network for c in apart], "slowdown": effect.time}
        parts.append(pd.DataFrame({**about, **errors}))
    return pd.concat(parts)


def calibrate(capped: Sequence[Capped]) -> PowerModel:
    """The curve and its errors from these lines alone."""
    by_gpu = left_out(capped, lambda c: c.gpu)
    errors = pd.concat([left_out(capped, lambda c: c.network), by_gpu])
    classes: list[Spread] = []
    low = 0.0
    for name, high in BOUNDS.items():
        inside, apart = (part[(part["slowdown"] > low) & (part["slowdown"] <= high)] for part in (errors, by_gpu))
        sigmas = {what: _sigma(name, inside, what) for what in ("time", "joules")}
        gpus = [part for _, part in apart.groupby("gpu")]
        worst = {what: max(sigma, *(_sigma(name, part, what) for part in gpus), 0.0) for what, sigma in sigmas.items()}
        classes.append(Spread(name, sigmas["time"], sigmas["joules"], worst["time"], worst["joules"], len(apart), high))
        low = high
    runs = {c.full.run for c in capped}
    return PowerModel(
        schema="skuwise.power-model/1",
        curve=fit(capped),
        classes=tuple(classes),
        architectures=frozenset(c.full.gpu.architecture.casefold() for c in capped),
        lowest_cap_share=round(min(c.under.limit_watts / c.full.limit_watts for c in capped), 3),
        typical={name: TypicalShare(*shares) for name, shares in TYPICAL.items()},
        typical_sigma=TYPICAL_SIGMA[0],
        typical_sigma_reason=TYPICAL_SIGMA[1],
        made={"date": date.today().isoformat(), "lines": len(capped), "runs": len(runs), "source": SOURCE},
    )


def _sigma(name: str, errors: pd.DataFrame, what: str) -> float:
    """80th percentile over the normal's, every network on every GPU weighing the same, drawn to the prior."""
    if errors.empty:
        return PRIOR[name]
    logs = np.abs(errors[what].to_numpy())
    weights = _weights(errors["gpu"].tolist(), errors["network"].tolist())
    order = np.argsort(logs)
    at = int(min(np.searchsorted(np.cumsum(weights[order]), 0.8 - 1e-9), len(logs) - 1))
    cells = len(errors[["gpu", "network"]].drop_duplicates())
    sigma = float(logs[order][at]) / Z90
    return round((cells * sigma + PRIOR_CELLS * PRIOR[name]) / (cells + PRIOR_CELLS), 3)


def text_of(model: PowerModel) -> str:
    """The file, to be read in a review."""
    lines = [
        "# Power, time and energy of one GPU under a power cap or at a lower SM clock; its figures: docs/method.md.",
        "# Made by `make power-model` from benchmarks/fit/power_caps.csv; do not edit: change the table, make it anew.",
        "# classes: sigma of the log of observed over predicted time and energy, by predicted slowdown, of runs left",
        "#   out by network and by GPU; elsewhere: for architectures without any run, the worst GPU of those left out.",
        "# typical: share of the room between rest and rated power that work draws where nobody measured it (stated).",
        f"schema: {model.schema}",
        "curve:",
        *(f"  {name}: {value:.3f}" for name, value in asdict(model.curve).items()),
        "classes:",
    ]
    for s in model.classes:
        up_to = "" if math.isinf(s.up_to) else f", up_to: {s.up_to:g}"
        lines += [
            f"  - {{name: {s.name}{up_to}, lines: {s.lines}, time: {s.time:.3f}, energy: {s.energy:.3f},",
            f"     time_elsewhere: {s.time_elsewhere:.3f}, energy_elsewhere: {s.energy_elsewhere:.3f}}}",
        ]
    lines.append(f"architectures: [{', '.join(sorted(model.architectures))}]")
    lines.append(f"lowest_cap_share: {model.lowest_cap_share:.3f}")
    lines.append("typical:")
    lines += [f'  {name}: {{share: {share:.2f}, reason: "{why}"}}' for name, (share, why) in TYPICAL.items()]
    lines += [f"typical_sigma: {TYPICAL_SIGMA[0]:.2f}", f'typical_sigma_reason: "{TYPICAL_SIGMA[1]}"']
    lines.append("made:")
    lines += [f'  {name}: "{v}"' if isinstance(v, str) else f"  {name}: {v}" for name, v in model.made.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    capped, refused = read_caps(TABLE, load_catalog(), load_resting_power())
    print("\n".join(refused_lines(refused)), file=sys.stderr)
    model = calibrate(capped)
    (packaged_rules() / POWER_FILE).write_text(text_of(model), encoding="utf-8")
    print(f"{model.made['lines']} lines of {model.made['runs']} runs: {POWER_FILE}", file=sys.stderr)


if __name__ == "__main__":
    main()
