"""``skuwise skus compare A B``: how long typical work takes on another GPU; always an answer, and its basis."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from dataclasses import asdict
from pathlib import Path

from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.typed_fields import suggest
from ...rules.catalog.loader import Catalog, load_catalog
from ...rules.catalog.types import GpuSku
from ...rules.models.move_model import load_move_model
from ..core.formatting import time_words
from ..moves.base.sustained_rates import PRECISIONS
from ..moves.predict.sku_comparison import Comparison, compare
from ..moves.predict.typical_work import Question, batch_on, gpus_of_a_copy, profile_of

PHASES = ("training", "prefill", "decode", "mixed")
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmbt]?)", re.IGNORECASE)


def configure_compare(parser: argparse.ArgumentParser) -> None:
    """The options of ``skus compare``."""
    parser.add_argument("source", metavar="A", help="the GPU the work runs on (H100-SXM5)")
    parser.add_argument("target", metavar="B", help="the GPU it might run on")
    parser.add_argument("--phase", choices=PHASES, default="mixed", help="what the work is (default: mixed)")
    add_model_options(parser)
    parser.add_argument("--gpus", type=whole, metavar="N", help="GPUs that work on one copy (default: what holds it)")
    parser.add_argument("--batch", type=whole, metavar="B", help="sequences at a time (default: what memory holds)")
    parser.add_argument("--input-tokens", type=whole, metavar="N", help="tokens a request brings")
    parser.add_argument("--output-tokens", type=whole, metavar="N", help="tokens it asks for")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--rules", type=Path, metavar="DIR", help="a site's own catalog files, over those that ship")
    parser.set_defaults(run=_run)


def add_model_options(parser: argparse.ArgumentParser, *, params_required: bool = False) -> None:
    """What is known of a model, for the commands that reckon without telemetry."""
    parser.add_argument(
        "--params", type=amount, metavar="N", required=params_required, help="parameters of the model: 70B, 350M"
    )
    parser.add_argument(
        "--active-params", type=amount, metavar="N", help="those a token passes through (mixture of experts): 13B"
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="bf16", help="of weights and arithmetic (default: bf16)"
    )


def amount(text: str) -> float:
    """A number above zero with a unit: 70B, 1.5M, 8e9."""
    match = _AMOUNT.fullmatch(text.strip())
    value = float(match[1]) * _UNITS[match[2].lower()] if match else math.nan
    if not 0 < value < 1e15:
        raise argparse.ArgumentTypeError(f"{text!r} is no amount; write 70B or 350M")
    return value


def whole(text: str) -> int:
    """A whole number above zero."""
    if not text.isdecimal() or not 0 < int(text) <= 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above zero")
    return int(text)


def asked_gpu(catalog: Catalog, name: str) -> GpuSku:
    """The GPU a person means. Raises UsageError, with what was probably meant."""
    found = catalog.gpu_asked(name)
    if found is None:
        near = suggest(name, [*catalog.gpus]) or "'skuwise skus list' names them all."
        raise UsageError(f"The catalog has no GPU {name!r}.", near)
    return found


def _question(options: argparse.Namespace, source: GpuSku, target: GpuSku) -> Question:
    """What was asked. Raises UsageError where parts contradict one another."""
    if options.active_params and not options.params:
        raise UsageError("--active-params needs --params.", "Give the size of the whole model as well.")
    if options.active_params and options.active_params > options.params:
        raise UsageError("--active-params is larger than --params.", "A token passes through a part of the model.")
    return Question(
        phase=options.phase,
        precision=options.precision,
        gpus=options.gpus or gpus_of_a_copy(options.params, options.precision, source, target),
        params=options.params,
        active_params=options.active_params,
        batch=options.batch,
        input_tokens=options.input_tokens,
        output_tokens=options.output_tokens,
    )


def _run(options: argparse.Namespace) -> int:
    catalog = load_catalog(options.rules)
    source, target = asked_gpu(catalog, options.source), asked_gpu(catalog, options.target)
    question = _question(options, source, target)
    model = load_move_model()
    found = compare(question, source, target, catalog.gpus[model.profiles.reference], model)
    if options.format == "json":
        text = json.dumps(_document(question, source, target, found), indent=2, allow_nan=False)
    else:
        text = _text(question, source, target, found)
    sys.stdout.write(text + "\n")
    return EXIT_DONE


def typical(source: GpuSku, target: GpuSku, catalog: Catalog) -> tuple[tuple[str, Comparison], ...]:
    """Typical work of each phase in 16 bits, as ``skus compare A B --phase P`` has it."""
    model = load_move_model()
    gpus = gpus_of_a_copy(None, "bf16", source, target)
    reference = catalog.gpus[model.profiles.reference]
    return tuple(
        (phase, compare(Question(phase=phase, precision="bf16", gpus=gpus), source, target, reference, model))
        for phase in PHASES
    )


def _document(question: Question, source: GpuSku, target: GpuSku, found: Comparison) -> dict[str, object]:
    return {
        "from": source.name,
        "to": target.name,
        "phase": question.phase,
        "precision": question.precision,
        "time_ratio": asdict(found.time_ratio),
        "blocked_by": [asdict(why) for why in found.blocked_by],
        "basis": found.basis,
    }


def _text(question: Question, source: GpuSku, target: GpuSku, found: Comparison) -> str:
    ratio = found.time_ratio
    lines = [
        f"{source.name} to {target.name}, {question.phase}, {question.precision}, {_work(question)}",
        f"  time       {time_words(ratio)}; the interval is to hold 80 % of such moves",
        f"  speed      {1 / ratio.p50:.2f} times as fast",
    ]
    if profile_of(question) is None:
        profiles = load_move_model().profiles
        here, there = (batch_on(question, sku.mem_bytes, profiles) for sku in (source, target))
        lines.append(f"  in flight  {here:.0f} sequences on {source.name}, {there:.0f} on {target.name}")
    lines.append(f"  basis      {found.basis}")
    lines += [f"  blocked    {reason}" for reason in found.blocked_by]
    if found.assumed or found.sigma > 0.25:
        lines.append("  An answer to start from, not a recommendation: benchmark first.")
    return "\n".join(lines)


def _work(question: Question) -> str:
    parts = [f"{question.gpus} GPU{'s' if question.gpus > 1 else ''} a copy"]
    if question.params:
        parts.insert(0, f"{question.params / 1e9:g} B parameters")
    if profile_of(question) is None:
        parts.append(f"{question.tokens[0]} tokens in and {question.tokens[1]} out")
    return ", ".join(parts)
