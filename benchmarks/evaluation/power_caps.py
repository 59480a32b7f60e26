"""How far predicted time and energy under power caps are off on measured runs: one section of `make evaluate`.

What predicts is what recommends (`predict_cap`), from the run at its highest limit alone. Every network, then every
GPU, is predicted with the curve and its errors calibrated on the others; a table given by path is predicted as shipped,
since it was no part of the calibration.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from skuwise.advisor.recommend.predict.clock_model import Draw, weigh_cap
from skuwise.rules.base.output import columns
from skuwise.rules.base.sanitize import clean
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models import PowerModel, load_power_model, load_resting_power

from ..fit.power_caps import TABLE, Capped, read_caps
from ..fit.power_model import calibrate

HEAD = ("", "lines", "time median", "p90", "covers", "energy median", "p90", "covers")
BITES = 1.02  # measured slowdown from which a cap is said to bite


@dataclass(frozen=True)
class Told:
    """One prediction beside what was measured: ratios to the run at the highest limit, and the 80 % intervals."""

    capped: Capped
    time: float
    joules: float
    time_between: tuple[float, float]
    joules_between: tuple[float, float]

    @property
    def time_error(self) -> float:
        return abs(self.time / self.capped.time - 1)

    @property
    def joules_error(self) -> float:
        return abs(self.joules / self.capped.joules - 1)


def predict_lines(lines: Sequence[Capped], model: PowerModel) -> list[Told]:
    """What the model says of these lines, from the telemetry of the run before the cap."""
    results = []
    for capped in lines:
        before = Draw(capped.full.watts, capped.rest_watts, capped.full.limit_watts)
        move = weigh_cap(capped.full.gpu, before, capped.under.limit_watts, model)
        time, joules = move.prediction.interval, move.joules
        results.append(Told(capped, time.p50, joules.p50, (time.p10, time.p90), (joules.p10, joules.p90)))
    return results


def held_out(lines: Sequence[Capped], by: Callable[[Capped], str]) -> list[Told]:
    """Every group predicted by what was calibrated on the others."""
    out: list[Told] = []
    for name in sorted({by(c) for c in lines}):
        model = calibrate([c for c in lines if by(c) != name])
        out += predict_lines([c for c in lines if by(c) == name], model)
    return out


def row(name: str, results: Sequence[Told]) -> tuple[str, ...]:
    """The figures of some lines, as text."""
    if not results:
        return name, "0", *("-",) * (len(HEAD) - 2)
    time, joules = np.array([t.time_error for t in results]), np.array([t.joules_error for t in results])
    inside = [low <= t.capped.time <= high for t in results for low, high in [t.time_between]]
    energy = [low <= t.capped.joules <= high for t in results for low, high in [t.joules_between]]
    return (
        name, str(len(results)), f"{np.median(time):.1%}", f"{np.percentile(time, 90):.1%}",
        f"{np.mean(inside):.0%}",
        f"{np.median(joules):.1%}", f"{np.percentile(joules, 90):.1%}", f"{np.mean(energy):.0%}",
    )  # fmt: skip


def tell(path: Path | None) -> None:
    """Print the tables. `path`: a table that nothing was calibrated on."""
    catalog = load_catalog()
    lines, refused = read_caps(path or TABLE, catalog, load_resting_power())
    print(
        f"\n== power caps, time and energy: {clean(path or TABLE.name)}, {len(lines)} lines below a run's highest limit"
    )
    for reason, count in refused.items():
        print(f"refused {count}: {reason}")
    if not lines:
        print("nothing to predict")
        return
    if path is not None:
        rows = _rows("as shipped", predict_lines(lines, load_power_model()))
    else:
        rows = _rows("left out by network", held_out(lines, lambda c: c.network))
        rows += _rows("left out by GPU", held_out(lines, lambda c: c.gpu))
    print(columns(HEAD, rows, right=range(1, len(HEAD))))


def _rows(name: str, results: Sequence[Told]) -> list[tuple[str, ...]]:
    rows = [row(name, results), row("  where the cap bites", [t for t in results if t.capped.time > BITES])]
    for of in (lambda result: result.capped.gpu, lambda result: result.capped.network):
        rows += [row(f"  {clean(key)}", [t for t in results if of(t) == key]) for key in sorted(set(map(of, results)))]
    return rows
