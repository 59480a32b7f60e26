"""``skuwise skus compare A B``: how long typical work takes on another GPU; always an answer, and its basis."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ....rules.base.errors import EXIT_DONE, UsageError
from ....rules.base.output import write_json, write_stdout
from ....rules.catalog.loader import Catalog, load_catalog
from ....rules.catalog.types import GpuSku
from ....rules.models.move_model import load_move_model
from ...core.formatting import time_words
from ...moves.predict.precision_levers import levers_of
from ...moves.predict.sku_comparison import Comparison, compare
from ...moves.predict.typical_work import Question, batch_on, gpus_of_a_copy, profile_of
from .options import add_catalog, add_model, asked_gpu, check_model, parse_whole

PHASES = ("training", "prefill", "decode", "mixed")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="A", help="the GPU the work runs on (H100-SXM5)")
    parser.add_argument("target", metavar="B", help="the GPU it might run on")
    parser.add_argument("--phase", choices=PHASES, default="mixed", help="what the work is (default: mixed)")
    add_model(parser)
    parser.add_argument(
        "--gpus", type=parse_whole, metavar="N", help="GPUs that work on one copy (default: what holds it)"
    )
    parser.add_argument(
        "--batch", type=parse_whole, metavar="B", help="sequences at a time (default: what memory holds)"
    )
    parser.add_argument("--input-tokens", type=parse_whole, metavar="N", help="tokens a request brings")
    parser.add_argument("--output-tokens", type=parse_whole, metavar="N", help="tokens it asks for")
    add_catalog(parser)


def _question(options: argparse.Namespace, source: GpuSku, target: GpuSku) -> Question:
    """What was asked. Raises UsageError where parts contradict one another."""
    if options.active_params and not options.params:
        raise UsageError("--active-params needs --params.", "Give the size of the whole model as well.")
    check_model(options)
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


def run(options: argparse.Namespace) -> int:
    catalog = load_catalog(options.rules)
    source, target = asked_gpu(catalog, options.source), asked_gpu(catalog, options.target)
    question = _question(options, source, target)
    model = load_move_model()
    found = compare(question, source, target, catalog.gpus[model.profiles.reference], model)
    if options.format == "json":
        write_json(_document(question, source, target, found))
    else:
        write_stdout(f"{_text(question, source, target, found)}\n")
    return EXIT_DONE


def compare_typical(source: GpuSku, target: GpuSku, catalog: Catalog) -> tuple[tuple[str, Comparison], ...]:
    """Typical work of each phase in 16 bits, as ``skus compare A B --phase P`` has it."""
    model = load_move_model()
    gpus = gpus_of_a_copy(None, "bf16", source, target)
    reference = catalog.gpus[model.profiles.reference]
    return tuple(
        (phase, compare(Question(phase=phase, precision="bf16", gpus=gpus), source, target, reference, model))
        for phase in PHASES
    )


def _document(question: Question, source: GpuSku, target: GpuSku, found: Comparison) -> dict[str, object]:
    levers = [asdict(one) for one in levers_of(question, target)]
    return {
        "from": source.name,
        "to": target.name,
        "phase": question.phase,
        "precision": question.precision,
        "time_ratio": asdict(found.time_ratio),
        "blocked_by": [asdict(why) for why in found.blocked_by],
        "basis": found.basis,
        **({"levers": levers} if levers else {}),
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
    lines += [f"  lever      {one}" for one in levers_of(question, target)]
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
