"""How far predicted time and energy under power caps are off on measured runs: one section of `make evaluate`.

What predicts is what recommends (`predict_cap`), from the run at its highest limit alone. Every network, then every
GPU, is predicted with the curve and its errors calibrated on the others.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from skuwise.advisor.core.advice_types import Interval
from skuwise.advisor.recommend.predict.clock_model import Draw, weigh_cap
from skuwise.rules.base.output import columns
from skuwise.rules.base.sanitize import clean
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models import load_resting_power

from ..fit.power_caps import TABLE, Capped, read_caps
from ..fit.power_model import calibrate

HEAD = ("", "lines", "time median", "p90", "covers", "energy median", "p90", "covers")
BITES = 1.02  # measured slowdown from which a cap is said to bite


@dataclass(frozen=True)
class Told:
    """One prediction beside what was measured: ratios to the run at the highest limit, with their 80 % intervals."""

    capped: Capped
    time: Interval
    joules: Interval


def held_out(lines: Sequence[Capped], by: Callable[[Capped], str]) -> list[Told]:
    """Every group predicted by what was calibrated on the others, from the telemetry of the run before the cap."""
    results = []
    for name in sorted({by(c) for c in lines}):
        model = calibrate([c for c in lines if by(c) != name])
        for capped in (c for c in lines if by(c) == name):
            before = Draw(capped.full.watts, capped.rest_watts, capped.full.limit_watts)
            move = weigh_cap(capped.full.gpu, before, capped.under.limit_watts, model)
            results.append(Told(capped, move.prediction.interval, move.joules))
    return results


def row(name: str, results: Sequence[Told]) -> tuple[str, ...]:
    """The figures of some lines, as text."""
    if not results:
        return name, "0", *("-",) * (len(HEAD) - 2)

    def told(pairs: Iterable[tuple[Interval, float]]) -> tuple[str, ...]:
        predicted, measured = zip(*pairs, strict=True)
        errors = np.abs(np.array([p.p50 for p in predicted]) / measured - 1)
        inside = [p.p10 <= value <= p.p90 for p, value in zip(predicted, measured, strict=True)]
        return f"{np.median(errors):.1%}", f"{np.percentile(errors, 90):.1%}", f"{np.mean(inside):.0%}"

    times, energies = ((t.time, t.capped.time) for t in results), ((t.joules, t.capped.joules) for t in results)
    return name, str(len(results)), *told(times), *told(energies)


def tell() -> None:
    """Print the tables."""
    lines, refused = read_caps(TABLE, load_catalog(), load_resting_power())
    print(f"\n== power caps, time and energy: {TABLE.name}, {len(lines)} lines below a run's highest limit")
    for reason, count in refused.items():
        print(f"refused {count}: {reason}")
    rows = _rows("left out by network", held_out(lines, lambda c: c.network))
    rows += _rows("left out by GPU", held_out(lines, lambda c: c.gpu))
    print(columns(HEAD, rows, right=range(1, len(HEAD))))


def _rows(name: str, results: Sequence[Told]) -> list[tuple[str, ...]]:
    rows = [row(name, results), row("  where the cap bites", [t for t in results if t.capped.time > BITES])]
    for of in (lambda result: result.capped.gpu, lambda result: result.capped.network):
        rows += [row(f"  {clean(key)}", [t for t in results if of(t) == key]) for key in sorted(set(map(of, results)))]
    return rows
