"""How far predicted times of moves are off on published pairs: one section of `make evaluate`.

What predicts is `skuwise skus compare` itself. Every model is predicted with offsets and errors calibrated on the
others, then every source; a table given by path is predicted as shipped, since it was no part of the calibration.
Beside it stand the ratios of printed peaks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from skuwise.advisor.recommend.predict.sku_comparison import compare, kind_of
from skuwise.rules.base.sanitize import clean
from skuwise.rules.base.text_table import columns
from skuwise.rules.catalog.loader import Catalog, load_catalog
from skuwise.rules.catalog.types import GpuSku
from skuwise.rules.models.move_model import MoveModel, Profiles, load_move_model, load_profiles

from ..fit.decode_pairs import DECODE_TABLE, read_runs
from ..fit.move_model import Measured, Seen, calibrate, look, measure
from ..fit.sku_pairs import NEWER_TABLE, TABLE, Pair, read_pairs
from ..fit.tables import refused_lines

CHANGE = math.log(1.2)  # a change of more than 20 %, whose direction must be right


@dataclass(frozen=True)
class Told:
    """One prediction beside what was published: logs of the time ratio. `low`, `high`: the 80 % interval."""

    pair: Pair
    predicted: float
    low: float
    high: float

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


def predict_pairs(pairs: Iterable[Pair], model: MoveModel, reference: GpuSku) -> list[Told]:
    """What the model says of these lines."""
    out = []
    for pair in pairs:
        ratio = compare(pair.question, pair.a, pair.b, reference, model).time_ratio
        out.append(Told(pair, math.log(ratio.p50), math.log(ratio.p10), math.log(ratio.p90)))
    return out


def held_out(
    seen: Sequence[Seen], measured: Measured, by: Callable[[Pair], str], profiles: Profiles, reference: GpuSku
) -> list[Told]:
    """Every group predicted by what was calibrated on the others; `measured` is of serving that no line is of."""
    out: list[Told] = []
    for group in sorted({by(s.pair) for s in seen}):
        model = calibrate([s for s in seen if by(s.pair) != group], measured, profiles)
        out += predict_pairs([s.pair for s in seen if by(s.pair) == group], model, reference)
    return out


def printed(pairs: Iterable[Pair], rate: Callable[[GpuSku, Pair], float | None]) -> list[Told]:
    """The ratio of printed peaks, for comparison; lines for which a peak is missing are left out."""
    out = []
    for pair in pairs:
        here, there = rate(pair.a, pair), rate(pair.b, pair)
        if here and there:
            ratio = math.log(here / there)
            out.append(Told(pair, ratio, ratio, ratio))
    return out


def printed_flops(sku: GpuSku, pair: Pair) -> float | None:
    return sku.dense_flops.get(pair.question.precision) or sku.dense_flops.get("fp16")


def printed_bandwidth(sku: GpuSku, _: Pair) -> float | None:
    return sku.mem_bandwidth_bytes_per_second


def row(name: str, told: Sequence[Told]) -> tuple[str, ...]:
    """The figures of some lines, as text."""
    errors = np.array([t.error for t in told])
    moved = [t for t in told if t.changes]
    right = sum(t.same_direction for t in moved)
    return (
        name,
        str(len(told)),
        f"{np.median(errors):.1%}",
        f"{np.percentile(errors, 90):.1%}",
        f"{right / len(moved):.0%} of {len(moved)}" if moved else "-",
        f"{sum(t.covered for t in told) / len(told):.0%}",
    )


def report(
    sections: Mapping[str, Sequence[Told]], groupings: Sequence[Callable[[Told], str]], *, wrong: bool
) -> Iterable[str]:
    """Tables of every way to predict: in all, and by each grouping."""
    header = ("moves", "pairs", "median error", "p90", "direction", "80 % interval")
    for name, told in sections.items():
        if not told:
            yield f"\n== {name}: no pair"
            continue
        rows = [row("all", told)]
        for of in groupings:
            rows += [row(key, [t for t in told if of(t) == key]) for key in sorted({of(t) for t in told})]
        yield f"\n== {name}"
        yield columns(header, rows, right=range(1, 6))
        if wrong:
            for t in sorted(told, key=lambda t: -t.error)[:20]:
                question = t.pair.question
                yield (
                    f"  {clean(t.pair.model)} {question.phase} {question.precision}, {question.gpus} GPUs, "
                    f"{t.pair.a.name} to {t.pair.b.name}: x{math.exp(t.pair.observed):.2f}, "
                    f"predicted x{math.exp(t.predicted):.2f}"
                )


def _short(source: str) -> str:
    """Its beginning and its end: tables of one repository begin alike."""
    return source if len(source) <= 64 else f"{source[:30]}...{source[-31:]}"


def evaluate(path: Path | None, catalog: Catalog) -> tuple[dict[str, list[Told]], dict[str, int]]:
    """Everything there is to say of a table (None: of those that ship), and what was refused of it."""
    profiles = load_profiles()
    reference = catalog.gpus[profiles.reference]
    sections: dict[str, list[Told]] = {}
    if path is not None:
        pairs, refused = read_pairs(path, catalog)
        sections["moves, as shipped"] = predict_pairs(pairs, load_move_model(), reference)
    else:
        first, refused = read_pairs(TABLE, catalog)
        newer, unread = read_pairs(NEWER_TABLE, catalog)
        pairs, refused = [*first, *newer], dict(Counter(refused) + Counter(unread))
        measured = measure(read_runs(DECODE_TABLE, catalog)[0], profiles, reference)
        seen, seen_newer = (
            look([p for p in table if p.alike], profiles, reference, measured.factors) for table in (first, newer)
        )
        every = [*seen, *seen_newer]
        sections["moves, held out by model"] = held_out(every, measured, lambda p: p.family, profiles, reference)
        sections["moves, held out by source"] = held_out(every, measured, lambda p: p.source, profiles, reference)
        sections["newer lines, calibrated on the first table alone"] = predict_pairs(
            [s.pair for s in seen_newer], calibrate(seen, measured, profiles), reference
        )
        unlike = [p for p in pairs if not p.alike]
        sections["lines whose two systems did not do quite the same"] = predict_pairs(
            unlike, load_move_model(), reference
        )
    sections["ratio of printed FLOP/s"] = printed(pairs, printed_flops)
    sections["ratio of printed memory bandwidths"] = printed(pairs, printed_bandwidth)
    return sections, refused


def tell(path: Path | None, *, wrong: bool) -> None:
    """Print the section."""
    sections, refused = evaluate(path, load_catalog())
    groupings = (lambda t: _short(t.pair.source), lambda t: kind_of(t.pair.question))
    print("\n".join(report(sections, groupings, wrong=wrong)))
    for line in refused_lines(refused):
        print(line)
