"""How far the predicted time of a generated token is off on measured serving: one section of `make evaluate`.

What predicts is `skuwise skus compare` at the batch that was run. Every model family is predicted with factors, offsets
and errors calibrated on the others; so is every engine. A table given by path is predicted as shipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from skuwise.advisor.recommend.predict.sku_comparison import group_of
from skuwise.advisor.recommend.sustained_rates import family
from skuwise.rules.base.sanitize import clean
from skuwise.rules.catalog.loader import Catalog, load_catalog
from skuwise.rules.models.move_model import MoveModel, load_move_model, load_profiles

from ..fit.decode_pairs import DECODE_TABLE, DecodeRun, read_runs
from ..fit.move_model import calibrate, look, measure
from ..fit.sku_pairs import TABLE, read_pairs
from ..fit.tables import refused_lines
from .moves import Told, predict_pairs, report


def sections(path: Path, catalog: Catalog) -> tuple[dict[str, list[Told]], dict[str, int]]:
    """Everything there is to say of a table, and what was refused of it."""
    runs, refused = read_runs(path, catalog)
    profiles = load_profiles()
    reference = catalog.gpus[profiles.reference]

    def predicted(runs: Sequence[DecodeRun], model: MoveModel) -> list[Told]:
        return predict_pairs([run.decode for run in runs], model, reference)

    if path.resolve() != DECODE_TABLE.resolve():
        return {"time of a token, as shipped": predicted(runs, load_move_model())}, refused
    published, _ = read_pairs(TABLE, catalog)
    seen = look(published, profiles, reference, load_move_model().decode)
    out: dict[str, list[Told]] = {}
    for name in ("family", "engine"):
        told = out[f"time of a token, held out by {name}"] = []
        for group in sorted({getattr(run, name) for run in runs}):
            others = measure([run for run in runs if getattr(run, name) != group], profiles, reference)
            own = [run for run in runs if getattr(run, name) == group]
            told += predicted(own, calibrate(seen, others, profiles))
    return out, refused


def _group(told: Told) -> str:
    return group_of(told.pair.question, told.pair.a, told.pair.b)


def _gpus(told: Told) -> str:
    within = " (one generation)" if family(told.pair.a) == family(told.pair.b) else ""
    return f"{told.pair.a.name} to {told.pair.b.name}{within}"


def tell(path: Path, *, wrong: bool) -> None:
    """Print the section."""
    told, refused = sections(path, load_catalog())
    print("\n".join(report(told, (_group, lambda t: clean(t.pair.model), _gpus), wrong=wrong)))
    for line in refused_lines(refused):
        print(line)
