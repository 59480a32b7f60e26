"""``skuwise skus compare A B``: how long typical work takes on another GPU; always an answer, and its basis.

``skus compare A A --power-limit 500W`` and ``--sm-clock 1110MHz`` ask about the same GPU, slower (slower_gpu.py).
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ....rules.base.errors import EXIT_DONE, UsageError
from ....rules.base.output import write_json, write_stdout
from ....rules.catalog.loader import Catalog, load_catalog
from ....rules.catalog.types import GpuSku
from ....rules.models.move_model import load_move_model
from ...core.formatting import time_words
from ...recommend.predict.precision_levers import levers_of
from ...recommend.predict.sku_comparison import Comparison, compare
from ...recommend.predict.typical_work import PhaseAsked, Question, batch_on, gpus_of_a_copy, profile_of
from ...recommend.sustained_rates import PRECISIONS
from .options import add_catalog, add_model, asked_gpu, check_model, parse_whole
from .slower_gpu import add_slower, asks_slower, tell_slower, work_words

PHASES: tuple[PhaseAsked, ...] = ("training", "prefill", "decode", "mixed")

EXAMPLES = ("skuwise skus compare H100-SXM5 L40S --phase decode --params 13B",)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="A", help="GPU that the work runs on, as in H100-SXM5")
    parser.add_argument("target", metavar="B", help="GPU to compare it with")
    parser.add_argument("--phase", choices=PHASES, default="mixed", help="phase of the work (default: mixed)")
    add_model(parser)
    parser.add_argument(
        "--gpus",
        type=parse_whole,
        metavar="N",
        help="GPUs per copy of the model (default: as many as its memory needs)",
    )
    parser.add_argument(
        "--batch", type=parse_whole, metavar="B", help="concurrent sequences (default: as many as fit in memory)"
    )
    parser.add_argument(
        "--attention-copies", type=parse_whole, default=1, metavar="N",
        help="copies of the attention layers on these GPUs, each with its own batch (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--cache-precision",
        choices=PRECISIONS,
        metavar="P",
        help="precision of the key-value cache (default: as the weights)",
    )
    parser.add_argument("--input-tokens", type=parse_whole, metavar="N", help="input tokens per request")
    parser.add_argument("--output-tokens", type=parse_whole, metavar="N", help="output tokens per request")
    add_slower(parser)
    add_catalog(parser)


def _question(options: argparse.Namespace, source: GpuSku, target: GpuSku) -> Question:
    """What was asked. Raises UsageError where parts contradict one another."""
    if options.active_params and not options.params:
        raise UsageError("--active-params needs --params.", "Give the size of the whole model as well.")
    check_model(options)
    gpus = options.gpus or _gpus(options.phase, options.params, options.precision, source, target)
    if gpus % options.attention_copies:
        raise UsageError(
            f"--attention-copies {options.attention_copies} does not divide {gpus} GPUs.",
            "Every copy of the attention layers takes as many GPUs (--gpus).",
        )
    return Question(
        phase=options.phase,
        precision=options.precision,
        gpus=gpus,
        params=options.params,
        active_params=options.active_params,
        batch=options.batch,
        input_tokens=options.input_tokens,
        output_tokens=options.output_tokens,
        attention_copies=options.attention_copies,
        cache_precision=options.cache_precision,
    )


def run(options: argparse.Namespace) -> int:
    catalog = load_catalog(options.rules)
    source, target = asked_gpu(catalog, options.source), asked_gpu(catalog, options.target)
    question = _question(options, source, target)
    if asks_slower(options):
        tell_slower(options, question, source, target, catalog)
        return EXIT_DONE
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
    reference = catalog.gpus[model.profiles.reference]

    def asked(phase: PhaseAsked) -> Question:
        return Question(phase=phase, precision="bf16", gpus=_gpus(phase, None, "bf16", source, target))

    return tuple((phase, compare(asked(phase), source, target, reference, model)) for phase in PHASES)


def _gpus(phase: str, params: float | None, precision: str, *skus: GpuSku) -> int:
    return gpus_of_a_copy(params, precision, *skus, training=phase == "training")


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
        "speedup": found.speedup,
        "outside": [asdict(why) for why in found.outside],
        **({"levers": levers} if levers else {}),
    }


def _text(question: Question, source: GpuSku, target: GpuSku, found: Comparison) -> str:
    ratio = found.time_ratio
    each = ", for each token" if found.in_flight else ""
    lines = [
        f"{source.name} to {target.name}, {question.phase}, {question.precision}, {work_words(question)}",
        f"  time       {time_words(ratio)}{each}; 80 % prediction interval",
        f"  speed      {found.speedup:.2f} times {'as many tokens a second' if found.in_flight else 'as fast'}",
    ]
    if profile_of(question) is None:
        profiles = load_move_model().profiles
        here, there = found.in_flight or (batch_on(question, sku.mem_bytes, profiles) for sku in (source, target))
        lines.append(f"  in flight  {here:.0f} sequences on {source.name}, {there:.0f} on {target.name}")
    lines.append(f"  basis      {found.basis}")
    lines += [f"  outside    {reason}" for reason in found.outside]
    lines += [f"  blocked    {reason}" for reason in found.blocked_by]
    lines += [f"  lever      {one}" for one in levers_of(question, target)]
    if found.assumed or found.sigma > 0.25:
        lines.append("  This is a rough estimate, not a recommendation. Benchmark first.")
    return "\n".join(lines)
