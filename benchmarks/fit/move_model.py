"""Calibrates the intervals of predicted moves on measured pairs and writes rules/move_model.yaml: `make move-model`.

Nothing of a prediction's middle is fitted: architecture offsets by class of work and factors before the parts of a step
of generation were, and predicted sources and model families that were left out no better (docs/method.md). What is
calibrated is the width of the interval, by class of work (conformal by source): the 80 % quantile of the absolute log
error, every source with one voice, so that it holds for an unmeasured source. A class with fewer than
SOURCES_MIN sources is at least as uncertain as all work together.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

import numpy as np
from skuwise.advisor.core.advice_types import Interval
from skuwise.advisor.recommend.predict.sku_comparison import compare, typical_ratio, work_class
from skuwise.advisor.recommend.prediction import family
from skuwise.rules.base.yaml_loader import packaged_rules
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.catalog.types import GpuSku
from skuwise.rules.models import MOVE_FILE, MoveModel, Profiles, Span, WorkClass, load_profiles

from .decode_pairs import DECODE_TABLE, read_runs
from .sku_pairs import Pair, read_published
from .tables import refused_lines

LEVEL = 0.8  # of the interval
SOURCES_MIN = 4  # of three sources the largest error covers a fourth in three of four cases, less than LEVEL
FIRST_TOKEN = "first token at a batch"  # it holds the engine's queue, and is no measure for other work


@dataclass(frozen=True)
class Line:
    """A measured pair with the log of its prediction, which no measured pair changes."""

    pair: Pair
    work: str
    predicted: float

    @cached_property
    def error(self) -> float:
        """Absolute log error of the predicted time ratio."""
        return abs(self.pair.observed - self.predicted)

    @cached_property
    def architectures(self) -> frozenset[str]:
        return frozenset((family(self.pair.a), family(self.pair.b)))


def predict_lines(pairs: Sequence[Pair], profiles: Profiles, reference: GpuSku) -> list[Line]:
    """The pairs that are alike on both GPUs, predicted."""
    lines = []
    for pair in pairs:
        if pair.alike:
            typical = typical_ratio(pair.question, pair.a, pair.b, reference, MoveModel(profiles, {}, 1.0))
            assert typical is not None, pair
            lines.append(Line(pair, work_class(pair.question, pair.a, pair.b), float(np.log(typical[0]))))
    return lines


def calibrate(lines: Sequence[Line], profiles: Profiles, works: Iterable[str] = ()) -> MoveModel:
    """Widths of intervals by class of work, and by how much wider they are for an architecture that was not seen.

    `works`: classes that are to be there even without a line, as uncertain as all work together.
    """
    widths = _widths(lines, works)
    unseen: list[tuple[str, float]] = []
    for name in sorted({name for line in lines for name in line.architectures}):
        others = _widths([line for line in lines if name not in line.architectures], widths)
        unseen += [
            (line.pair.origin, line.error / others[line.work])
            for line in lines
            if name in line.architectures and line.work != FIRST_TOKEN
        ]
    factor = max(1.0, round(_quantile(unseen), 2))
    return MoveModel(profiles, {work: _work_class(lines, work, width) for work, width in widths.items()}, factor)


def _widths(lines: Sequence[Line], works: Iterable[str] = ()) -> dict[str, float]:
    models = len({(line.pair.origin, line.pair.model.split()[0]) for line in lines})
    level = LEVEL * (models + 1) / models  # of so many models at a source one more is to be covered
    pooled = _quantile([(line.pair.origin, line.error) for line in lines if line.work != FIRST_TOKEN], level)
    classes = {}
    for work in sorted({*works, *(line.work for line in lines)}):
        errors = [(line.pair.origin, line.error) for line in lines if line.work == work]
        few = len({source for source, _ in errors}) < SOURCES_MIN
        classes[work] = round(max(_quantile(errors, level), pooled if few else 0.0), 3)
    return classes


def _quantile(errors: Sequence[tuple[str, float]], level: float = LEVEL) -> float:
    """The quantile of errors by source, every source with one voice however many lines it fills; 0 of none."""
    if not errors:
        return 0.0
    count = Counter(source for source, _ in errors)
    order = sorted((error, 1.0 / count[source]) for source, error in errors)
    share = np.cumsum([voice for _, voice in order]) / len(count)
    return order[min(int(np.searchsorted(share, level - 1e-9)), len(order) - 1)][0]


def _work_class(lines: Sequence[Line], work: str, width: float) -> WorkClass:
    pairs = [line.pair for line in lines if line.work == work]
    questions = [pair.question for pair in pairs]
    return WorkClass(
        width, len(pairs), len({pair.origin for pair in pairs}), len({pair.family for pair in pairs}),
        frozenset(q.precision for q in questions), frozenset(family(sku) for p in pairs for sku in (p.a, p.b)),
        _span([q.params for q in questions if q.params]), _span([float(q.sequences) for q in questions if q.sequences]),
    )  # fmt: skip


def _span(values: Sequence[float]) -> Span | None:
    return Span(min(values), max(values)) if values else None


def left_out(lines: Sequence[Line], profiles: Profiles, reference: GpuSku) -> Iterator[tuple[Pair, Interval]]:
    """Every pair with its time ratio, the interval calibrated without its whole source and its model's whole family."""
    works = {line.work for line in lines}
    for origin, kin in sorted({(line.pair.origin, line.pair.family) for line in lines}):
        rest = [line for line in lines if line.pair.origin != origin and line.pair.family != kin]
        model = calibrate(rest, profiles, works)
        for pair in (line.pair for line in lines if (line.pair.origin, line.pair.family) == (origin, kin)):
            yield pair, compare(pair.question, pair.a, pair.b, reference, model).time_ratio


def text_of(model: MoveModel, lines: Sequence[Line]) -> str:
    """The file, to be read in a review."""
    out = [
        "# How far predictions of time were off on measured pairs, by class of work.",
        "# Made by `make move-model` from the tables in benchmarks/fit; do not edit: change the tables, make it anew.",
        "# width: half of the 80 % interval of the log of the time ratio, every source with one voice: it is that of a",
        "#   source and a model family that nobody measured. lines, sources, families: what it rests on.",
        "# params, batch, precisions, architectures: what these lines are of; an answer beyond it says so.",
        "# unseen: by how much wider for an architecture that such work was not measured on, or an unpublished rate.",
        "schema: skuwise.move-model/2",
        f"unseen: {model.unseen:g}",
        "classes:",
    ]
    for work, figures in sorted(model.classes.items()):
        spans = (("params", figures.params), ("batch", figures.batch))
        out += [
            f"  {work}:",
            f"    width: {figures.width:.3f}",
            *(f"    {name}: {getattr(figures, name)}" for name in ("lines", "sources", "families")),
            *(f"    {name}: {{least: {span.least:.4g}, most: {span.most:.4g}}}" for name, span in spans if span),
            f"    precisions: [{', '.join(sorted(figures.precisions))}]",
            f"    architectures: [{', '.join(sorted(figures.architectures))}]",
        ]
    sources = sorted({line.pair.source for line in lines})
    out += ["made:", f'  date: "{date.today().isoformat()}"', f'  sources: "{"; ".join(sources)}"']
    return "\n".join(out) + "\n"


def read_lines() -> tuple[list[Line], Profiles, GpuSku, dict[str, int]]:
    """All lines of the tables that ship, predicted; and how many were refused for which reason."""
    catalog, profiles = load_catalog(), load_profiles()
    published, refused = read_published(catalog)
    served, unread = read_runs(DECODE_TABLE, catalog)
    reference = catalog.gpus[profiles.reference]
    return predict_lines([*published, *served], profiles, reference), profiles, reference, refused | unread


def main() -> None:
    lines, profiles, _, refused = read_lines()
    print("\n".join(refused_lines(refused)), file=sys.stderr)
    (packaged_rules() / MOVE_FILE).write_text(text_of(calibrate(lines, profiles), lines), encoding="utf-8")
    print(f"{len(lines)} pairs: {MOVE_FILE}", file=sys.stderr)


if __name__ == "__main__":
    main()
