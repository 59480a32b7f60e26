"""How far predicted times of moves are off on measured pairs: one section of `make evaluate`.

What predicts is `skuwise skus compare` itself. Of the tables that ship, every line is predicted with intervals
calibrated without its whole source and without its model's whole family; a table given by path is predicted as shipped,
since it was no part of the calibration. Beside it stand the ratios of printed peaks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from skuwise.advisor.core.advice_types import Interval
from skuwise.advisor.recommend.predict.sku_comparison import compare, work_class
from skuwise.rules.base.output import columns
from skuwise.rules.base.sanitize import clean
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models import load_move_model

from ..fit.decode_pairs import REPOSITORY
from ..fit.move_model import left_out, read_lines
from ..fit.sku_pairs import Pair, read_pairs, read_published
from ..fit.tables import refused_lines

PRINTED = "ratio of printed FLOP/s"
CHANGE = math.log(1.2)  # a change of more than 20 %, whose direction must be right


@dataclass(frozen=True)
class Told:
    """One prediction beside what was measured: logs of the time ratio. `low`, `high`: the 80 % interval."""

    pair: Pair
    predicted: float
    low: float
    high: float

    @classmethod
    def of(cls, pair: Pair, ratio: Interval) -> Told:
        return cls(pair, math.log(ratio.p50), math.log(ratio.p10), math.log(ratio.p90))

    @property
    def error(self) -> float:
        """Relative error of the time ratio."""
        return abs(math.exp(self.predicted - self.pair.observed) - 1.0)

    @property
    def changes(self) -> bool:
        return abs(self.pair.observed) > CHANGE

    @property
    def same_direction(self) -> bool:
        return self.predicted * self.pair.observed > 0

    @property
    def covered(self) -> bool:
        return self.low <= self.pair.observed <= self.high


def shipped_left_out() -> tuple[dict[str, list[Told]], dict[str, int]]:
    """Published pairs and times of a token in measured serving, each with its source and its family left out."""
    lines, profiles, reference, refused = read_lines()
    results = [Told.of(pair, ratio) for pair, ratio in left_out(lines, profiles, reference)]
    served = [result for result in results if result.pair.origin.startswith(REPOSITORY)]
    published = [result for result in results if not result.pair.origin.startswith(REPOSITORY)]
    return {
        "published pairs, source and model family left out": [result for result in published if result.pair.steady],
        "time of a token, engine and model family left out": [
            result for result in served if result.pair.question.phase == "decode"
        ],
        "published pairs of unsteady runs, left out": [result for result in published if not result.pair.steady],
    }, refused


def as_shipped(pairs: Iterable[Pair]) -> list[Told]:
    catalog, model = load_catalog(), load_move_model()
    reference = catalog.gpus[model.profiles.reference]
    return [Told.of(pair, compare(pair.question, pair.a, pair.b, reference, model).time_ratio) for pair in pairs]


def printed(pairs: Iterable[Pair]) -> list[Told]:
    """The ratios of printed peaks, for comparison; lines for which a peak is missing are left out."""
    ratios: list[Told] = []
    for pair in pairs:
        here, there = (
            sku.dense_flops.get(pair.question.precision, sku.dense_flops.get("fp16")) for sku in (pair.a, pair.b)
        )
        if here and there:
            ratios.append(Told(pair, *[math.log(here / there)] * 3))
    return ratios


def row(name: str, results: Sequence[Told]) -> tuple[str, ...]:
    """The figures of some lines, as text."""
    errors = np.array([result.error for result in results])
    moved = [result for result in results if result.changes]
    right = sum(result.same_direction for result in moved)
    return (
        name,
        str(len(results)),
        f"{np.median(errors):.1%}",
        f"{np.percentile(errors, 90):.1%}",
        f"{right / len(moved):.0%} of {len(moved)}" if moved else "-",
        f"{np.mean([result.covered for result in results]):.0%}",
        f"x {math.exp(float(np.mean([result.high - result.low for result in results])) / 2):.2f}",
    )


def report(sections: Mapping[str, Sequence[Told]]) -> Iterator[str]:
    """Tables of every way to predict: in all, by source, by model family and by class of work."""
    header = ("moves", "pairs", "median error", "p90", "direction", "80 % interval covers", "mean half-width")
    groupings: Mapping[str, Callable[[Pair], str]] = {
        "source": lambda pair: pair.origin,
        "family": lambda pair: pair.family,
        "work": lambda pair: work_class(pair.question, pair.a, pair.b),
    }
    for name, section_results in sections.items():
        yield f"\n== {name}"
        if not section_results:
            yield "no pair"
            continue
        rows = [row("all", section_results)]
        for kind, of in groupings.items():
            keys = sorted({of(result.pair) for result in section_results})
            rows += [
                row(f"{kind} {clean(key)}", [result for result in section_results if of(result.pair) == key])
                for key in keys
            ]
        yield columns(header, rows, right=range(1, 7))


def tell() -> None:
    """Print how far predictions are off on the tables that ship."""
    sections, refused = shipped_left_out()
    pairs, _ = read_published(load_catalog())
    sections["lines whose two systems did not do quite the same"] = as_shipped(p for p in pairs if not p.alike)
    sections[PRINTED] = printed(pairs)
    print("\n".join([*report(sections), *refused_lines(refused)]))


def tell_table(path: Path) -> None:
    """Print how far predictions are off on a table of published pairs."""
    pairs, refused = read_pairs(path, load_catalog())
    sections = {"moves, as shipped": as_shipped(pairs), PRINTED: printed(pairs)}
    print("\n".join([*report(sections), *refused_lines(refused)]))
