"""How far the predicted time of a generated token is off on measured serving: one section of `make evaluate`.

What predicts is `skuwise skus compare` at the batch that was run. Every model family is predicted with factors, offsets
and errors calibrated on the others; so is every engine. A table given by path is predicted as shipped. Beside it stand
the times to first token of the same runs, where memory held all requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from skuwise.advisor.moves.base.sustained_rates import family
from skuwise.advisor.moves.predict.sku_comparison import group_of
from skuwise.rules.base.sanitize import clean
from skuwise.rules.catalog.loader import Catalog, load_catalog
from skuwise.rules.models.move_model import MoveModel, load_move_model, load_profiles

from ..fit.decode_pairs import DECODE_TABLE, DecodeRun, read_runs
from ..fit.move_model import calibrate, look, measure
from ..fit.sku_pairs import TABLE, read_pairs
from ..fit.tables import refused_lines
from .moves import Told, predict_pairs, report


def held_out_runs(
    runs: Sequence[DecodeRun],
    by: Callable[[DecodeRun], str],
    model_without: Callable[[str], MoveModel],
    catalog: Catalog,
) -> tuple[list[Told], list[Told]]:
    """Every group predicted by the model without it: times of a token, and of the first."""
    decode: list[Told] = []
    first: list[Told] = []
    for group in sorted({by(run) for run in runs}):
        model = model_without(group)
        own = [run for run in runs if by(run) == group]
        tokens, firsts = predicted(own, model, catalog)
        decode += tokens
        first += firsts
    return decode, first


def predicted(runs: Iterable[DecodeRun], model: MoveModel, catalog: Catalog) -> tuple[list[Told], list[Told]]:
    """What the model says of these runs: times of a token, and of the first."""
    reference = catalog.gpus[model.profiles.reference]
    runs = list(runs)
    first = [run.prefill for run in runs if run.prefill is not None]
    return predict_pairs([run.decode for run in runs], model, reference), predict_pairs(first, model, reference)


def sections(path: Path, catalog: Catalog) -> tuple[dict[str, list[Told]], dict[str, int]]:
    """Everything there is to say of a table, and what was refused of it."""
    runs, refused = read_runs(path, catalog)
    if path.resolve() != DECODE_TABLE.resolve():
        decode, first = predicted(runs, load_move_model(), catalog)
        return {"time of a token, as shipped": decode, "time to first token, as shipped": first}, refused
    profiles = load_profiles()
    reference = catalog.gpus[profiles.reference]
    published, _ = read_pairs(TABLE, catalog)
    seen = look(published, profiles, reference, load_move_model().decode)

    def without(by: Callable[[DecodeRun], str]) -> Callable[[str], MoveModel]:
        return lambda group: calibrate(
            seen, measure([run for run in runs if by(run) != group], profiles, reference), profiles
        )

    out: dict[str, list[Told]] = {}
    for name, by in (("family", lambda run: run.family), ("engine", lambda run: run.engine)):
        decode, first = held_out_runs(runs, by, without(by), catalog)
        out[f"time of a token, held out by {name}"] = decode
        out[f"time to first token, held out by {name}"] = first
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
