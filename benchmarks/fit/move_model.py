"""Calibrates the move model on published pairs and writes rules/move_model.yaml: `make move-model`.

Three things are fitted and nothing else: what a step of generation takes beyond sustained rates (`decode_fit.py`, on
measured times per output token), how much faster or slower an architecture is at a class of work than its
sustained rates say (Hopper being the measure; ridge, so that few lines move little), and how far predictions are off,
by group of moves. A group's sigma comes from lines of models that were left out of the offsets (conformal by model):
the 80th percentile of the absolute error over the normal's 1.28, every model with the same weight, drawn toward a
stated prior by as much as PRIOR_MODELS models.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from skuwise.advisor.recommend.predict.sku_comparison import assumed_group, compare, kind_of
from skuwise.advisor.recommend.prediction import Z90
from skuwise.advisor.recommend.sustained_rates import family
from skuwise.rules.base.errors import EXIT_DONE, SkuwiseError
from skuwise.rules.base.yaml_loader import packaged_rules
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.catalog.types import GpuSku
from skuwise.rules.models.move_model import (
    DECODE_FACTORS,
    DECODE_SECONDS,
    MODEL_FILE,
    MODEL_SCHEMA,
    CalibratedRange,
    DecodeFactors,
    MoveModel,
    Profiles,
    Residuals,
    load_profiles,
)

from .decode_fit import fit_decode
from .decode_pairs import DECODE_TABLE, SOURCE, DecodeRun, read_runs
from .sku_pairs import TABLES, Pair, read_published

BASE = "hopper"
RIDGE = 1.0  # in models: a class and architecture that one model speaks for is believed by half
PRIOR_MODELS = 0.5
VOICE_LINES = 8  # lines from which a model has a whole voice
ASSUMED = "stated: a rate that nobody published"
SERVING = "between the spread of 593 matched serving configurations and their error when left out by model"
UNTOLD = "decode without a batch, published lines left out by model"
EXPERTS = "stated: engines of mixtures of experts change within months by more than GPUs differ"
FIRST_TOKEN = "stated: a time to first token holds the engine's own work and its queue"
PRIORS = {
    "training, within generations": (0.16, "rates known, NeuSight's set"),
    "training, across generations": (0.16, "rates known, NeuSight's set"),
    "training of small networks, within generations": (0.16, "rates known, NeuSight's set"),
    "training of small networks, across generations": (0.20, "between rates known and decode"),
    "training of mixtures of experts": (0.40, "35 % error on four published pairs: benchmark first"),
    "decode, within generations": (0.14, SERVING),
    "decode, across generations": (0.22, SERVING),
    "decode at a batch, within generations": (0.11, UNTOLD),
    "decode at a batch, across generations": (0.11, UNTOLD),
    "decode of experts at a batch, within generations": (0.20, EXPERTS),
    "decode of experts at a batch, across generations": (0.30, EXPERTS),
    "prefill at a batch, within generations": (0.20, FIRST_TOKEN),
    "prefill at a batch, across generations": (0.30, FIRST_TOKEN),
    "prefill, within generations": (0.16, "rates known, NeuSight's set"),
    "prefill, across generations": (0.20, "between rates known and decode"),
    "mixed, within generations": (0.14, SERVING),
    "mixed, across generations": (0.22, SERVING),
    "one-pass, within generations": (0.16, "rates known, NeuSight's set"),
    "one-pass, across generations": (0.20, "between rates known and decode"),
    "fp32, within generations": (0.16, "rates known, NeuSight's set"),
    "fp32, across generations": (0.16, "rates known, NeuSight's set"),
    "tensor parallelism over PCIe": (0.40, "hosts differ by more than GPUs"),
    "assumed, hopper": (0.30, ASSUMED),
    "assumed": (0.30, ASSUMED),
}


@dataclass(frozen=True)
class Seen:
    """A line with what does not depend on the calibration: the log of the profile's prediction and where it belongs.

    `assumed`: the group of its assumption; None: every rate it rests on was measured.
    """

    pair: Pair
    kind: str
    group: str
    assumed: str | None
    bare: float

    def error(self, offsets: Mapping[str, Mapping[str, float]]) -> float:
        """Log of observed over predicted time."""
        own = offsets.get(self.kind, {})
        return self.pair.observed - self.bare - own.get(family(self.pair.b), 0.0) + own.get(family(self.pair.a), 0.0)


Errors = Mapping[str, Sequence[tuple[str, str, float]]]  # group -> model, source, log of observed over predicted time


@dataclass(frozen=True)
class Measured:
    """What measured serving tells: the factors of a step of generation, offsets, and errors of models left out."""

    factors: DecodeFactors
    offsets: Mapping[str, Mapping[str, float]]
    errors: Errors
    pairs: Sequence[Pair]


def measure(runs: Sequence[DecodeRun], profiles: Profiles, reference: GpuSku) -> Measured:
    """Fits the factors to all runs; the errors are of models left out of factors and offsets."""

    def pairs_of(of: Sequence[DecodeRun]) -> list[Pair]:
        return [pair for run in of for pair in (run.decode, run.prefill) if pair is not None]

    def seen(of: Sequence[DecodeRun], factors: DecodeFactors) -> list[Seen]:
        return look(pairs_of(of), profiles, reference, factors)

    errors: dict[str, list[tuple[str, str, float]]] = defaultdict(list)
    for held in sorted({run.family for run in runs}):
        others = [run for run in runs if run.family != held]
        factors = fit_decode(others, reference, profiles)
        offsets = fit_offsets(seen(others, factors))
        _note(errors, held, seen([run for run in runs if run.family == held], factors), offsets)
    factors = fit_decode(runs, reference, profiles)
    return Measured(factors, fit_offsets(seen(runs, factors)), errors, pairs_of(runs))


def look(pairs: Iterable[Pair], profiles: Profiles, reference: GpuSku, factors: DecodeFactors) -> list[Seen]:
    """Predict every line once, without offsets."""
    groups = {name: Residuals(sigma, 0, 0, 0, basis) for name, (sigma, basis) in PRIORS.items()}
    bare = MoveModel(profiles, factors, {}, groups, {})
    out = []
    for pair in pairs:
        found = compare(pair.question, pair.a, pair.b, reference, bare)
        out.append(
            Seen(
                pair,
                kind_of(pair.question),
                found.group,
                assumed_group(pair.question, pair.a, pair.b),
                math.log(found.time_ratio.p50),
            )
        )
    return out


def calibrate(seen: Sequence[Seen], measured: Measured, profiles: Profiles) -> MoveModel:
    """Offsets and group errors from these lines, and what measured serving adds of its own classes."""
    errors: dict[str, list[tuple[str, str, float]]] = defaultdict(list)
    for name, found in measured.errors.items():
        errors[name] += found
    for held in sorted({s.pair.family for s in seen}):
        # Classes are fitted apart, so those without this model need not be fitted anew.
        kinds = {s.kind for s in seen if s.pair.family == held}
        offsets = fit_offsets([s for s in seen if s.pair.family != held and s.kind in kinds])
        _note(errors, held, [s for s in seen if s.pair.family == held], offsets)
    groups = {name: _residuals(name, errors.get(name, [])) for name in PRIORS}
    # Of a class that both have, the first token at a batch, measured serving has by far the more lines.
    offsets = {**fit_offsets(seen), **measured.offsets}
    return MoveModel(profiles, measured.factors, offsets, groups, ranges_of([s.pair for s in seen], measured.pairs))


def ranges_of(*tables: Iterable[Pair]) -> dict[str, CalibratedRange]:
    """By class of work, what its lines are of."""
    kinds: dict[str, list[Pair]] = defaultdict(list)
    for table in tables:
        for pair in table:
            kinds[kind_of(pair.question)].append(pair)
    return {kind: _range(pairs) for kind, pairs in sorted(kinds.items())}


def _range(pairs: Sequence[Pair]) -> CalibratedRange:
    params = [p.question.params for p in pairs if p.question.params]
    batches = [float(p.question.sequences) for p in pairs if p.question.sequences]
    return CalibratedRange(
        (min(params), max(params)) if params else None,
        (min(batches), max(batches)) if batches else None,
        frozenset(p.question.precision for p in pairs),
        frozenset(family(sku) for p in pairs for sku in (p.a, p.b)),
    )


def _note(
    errors: dict[str, list[tuple[str, str, float]]],
    held: str,
    lines: Iterable[Seen],
    offsets: Mapping[str, Mapping[str, float]],
) -> None:
    for one in lines:
        errors[one.assumed or one.group].append((held, one.pair.source, one.error(offsets)))


def fit_offsets(seen: Iterable[Seen]) -> dict[str, dict[str, float]]:
    """By class of work and architecture: log of time beyond the profile's, the base being 0."""
    rows: dict[str, list[tuple[str, str, str, float]]] = defaultdict(list)
    for one in seen:
        a, b = family(one.pair.a), family(one.pair.b)
        if a != b and not one.assumed and one.group != "tensor parallelism over PCIe":
            rows[one.kind].append((one.pair.family, a, b, one.error({})))
    return {kind: _ridge(found) for kind, found in sorted(rows.items())}


def _ridge(rows: list[tuple[str, str, str, float]]) -> dict[str, float]:
    names = sorted({name for _, a, b, _ in rows for name in (a, b)} - {BASE})
    counts: dict[tuple[str, str, str], int] = defaultdict(int)
    for model, a, b, _ in rows:
        counts[model, a, b] += 1
    # Every model has one voice for a pair of architectures, however many lines it fills.
    weights = np.array([1.0 / counts[model, a, b] for model, a, b, _ in rows])
    design = np.array([[(b == n) - (a == n) for n in names] for _, a, b, _ in rows], dtype=float)
    errors = np.array([error for *_, error in rows])
    normal = design.T @ (weights[:, None] * design) + RIDGE * np.eye(len(names))
    solved = np.linalg.solve(normal, design.T @ (weights * errors))
    return {name: round(float(value), 3) for name, value in zip(names, solved, strict=True)}


def _residuals(name: str, errors: list[tuple[str, str, float]]) -> Residuals:
    prior, basis = PRIORS[name]
    if not errors:
        return Residuals(prior, 0, 0, 0, basis)
    per_model: dict[str, int] = defaultdict(int)
    for model, _, _ in errors:
        per_model[model] += 1
    # A model with a few lines has a part of a voice, so that one odd line alone is not half of what is known.
    voice = {model: min(count / VOICE_LINES, 1.0) for model, count in per_model.items()}
    voices = sum(voice.values())
    order = sorted((abs(error), voice[model] / per_model[model]) for model, _, error in errors)
    cumulated = np.cumsum([weight for _, weight in order]) / voices
    quantile = order[int(min(np.searchsorted(cumulated, 0.8 - 1e-9), len(order) - 1))][0]
    sigma = (voices * quantile / Z90 + PRIOR_MODELS * prior) / (voices + PRIOR_MODELS)
    sources = len({source for _, source, _ in errors})
    return Residuals(round(sigma, 3), len(errors), len(per_model), sources, f"prior {prior:g}: {basis}")


def text_of(model: MoveModel, pairs: Sequence[Pair], runs: int, made: date) -> str:
    """The file, to be read in a review."""
    lines = [
        "# How far predictions of time were off on published pairs, by group of moves, and what architectures add.",
        "# Made by `make move-model` from benchmarks/fit/*_pairs.csv; do not edit: change the tables, make it anew.",
        "# decode: what a step of generation takes beyond sustained rates; seconds of a layer's launches and of an",
        "# exchange between GPUs, factors before the time to read weights and cache and to multiply.",
        "# offsets: log of time beyond what sustained rates say, by class of work and architecture; hopper is 0.",
        "# ranges: by class of work, what its lines are of; beyond it intervals are wider.",
        "# sigma: standard deviation of the log of observed over predicted time; models left out one by one.",
        f"schema: {MODEL_SCHEMA}",
        "decode:",
        *(f"  {name}: {getattr(model.decode, name):g}" for name in (*DECODE_SECONDS, *DECODE_FACTORS)),
        "offsets:",
    ]
    for kind, values in model.offsets.items():
        lines.append(f"  {kind}: {{{', '.join(f'{name}: {value:.3f}' for name, value in values.items())}}}")
    lines.append("groups:")
    for name, r in model.groups.items():
        lines += [
            f'  "{name}":',
            f"    {{sigma: {r.sigma:.3f}, pairs: {r.pairs}, models: {r.models}, sources: {r.sources},",
            f'     basis: "{r.basis}"}}',
        ]
    lines.append("ranges:")
    for name, known in model.ranges.items():
        lines += [
            f'  "{name}":',
            *(f"    {key}: {{least: {span[0]:.4g}, most: {span[1]:.4g}}}" for key, span in _spans(known)),
            f"    precisions: [{', '.join(sorted(known.precisions))}]",
            f"    architectures: [{', '.join(sorted(known.architectures))}]",
        ]
    lines += ["made:", f'  date: "{made.isoformat()}"', f'  pairs: "{len(pairs)}"', f'  runs: "{runs}"']
    lines.append(f'  sources: "{"; ".join(sorted({p.source for p in pairs} | {SOURCE}))}"')
    return "\n".join(lines) + "\n"


def _spans(known: CalibratedRange) -> Iterable[tuple[str, tuple[float, float]]]:
    return [(key, span) for key, span in (("params", known.params), ("batch", known.batch)) if span is not None]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, action="append", metavar="FILE", help="instead of the tables that ship")
    parser.add_argument("--output", type=Path, metavar="FILE", help="instead of rules/move_model.yaml")
    options = parser.parse_args(argv)
    try:
        catalog = load_catalog()
        profiles = load_profiles()
        pairs, refused = read_published(catalog, options.pairs or TABLES)
        runs, unread = read_runs(DECODE_TABLE, catalog)
        refused |= unread
        for reason, count in refused.items():
            print(f"refused {count}: {reason}", file=sys.stderr)
        reference = catalog.gpus[profiles.reference]
        measured = measure(runs, profiles, reference)
        alike = [pair for pair in pairs if pair.alike]
        model = calibrate(look(alike, profiles, reference, measured.factors), measured, profiles)
        target = options.output or Path(str(packaged_rules())) / MODEL_FILE
        target.write_text(text_of(model, alike, len(runs), date.today()), encoding="utf-8")
        print(f"{len(alike)} pairs, {len(runs)} measured, {len(model.groups)} groups: {target}", file=sys.stderr)
        return EXIT_DONE
    except SkuwiseError as error:
        print(f"move-model: {error}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
