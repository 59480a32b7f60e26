"""``skuwise skus compare A B``: how long typical work takes on another GPU; always an answer, and its basis.

``skus compare A A --power-limit 500W`` and ``--sm-clock 1110MHz`` ask about the same GPU, slower: what it saves and
costs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict

from ....rules.base.errors import EXIT_DONE, UsageError
from ....rules.base.output import write_json, write_stdout
from ....rules.catalog.loader import Catalog, load_catalog
from ....rules.catalog.types import GpuSku
from ....rules.models.weights import load_move_model, load_power_model
from ...core.advice_types import Interval
from ...core.coded_text import CodedText
from ...core.formatting import figure, time_words
from ...recommend.predict.clock_model import cap_range
from ...recommend.predict.precision_levers import levers_of
from ...recommend.predict.sku_comparison import Comparison, blocks, compare
from ...recommend.predict.typical_clock import SlowerGpu, rest_watts, slower_gpu
from ...recommend.predict.typical_work import PhaseAsked, Question, batch_on, gpus_of_a_copy, profile_of
from ...recommend.sustained_rates import PRECISIONS
from .options import add_catalog, add_model, asked_gpu, check_model, parse_hertz, parse_watts, parse_whole

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
    slower = parser.add_mutually_exclusive_group()
    slower.add_argument(
        "--power-limit", type=parse_watts, metavar="W", help="compare the same GPU (A A) under this power limit: 500W"
    )
    slower.add_argument(
        "--sm-clock", type=parse_hertz, metavar="HZ", help="compare the same GPU (A A) at this SM clock: 1110MHz"
    )
    parser.add_argument(
        "--power-at-work",
        type=parse_watts,
        metavar="W",
        help="power draw of one GPU at work (default: typical for this work)",
    )
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
    reference = catalog.gpus[load_move_model().profiles.reference]
    if options.power_limit is not None or options.sm_clock is not None:
        document, lines = _slower(options, question, source, target, reference)
    elif options.power_at_work is not None:
        raise UsageError("--power-at-work needs --power-limit or --sm-clock.", "Add one of them.")
    else:
        found = compare(question, source, target, reference, load_move_model())
        document, lines = _document(question, source, target, found), _text(question, source, target, found)
    if options.format == "json":
        write_json(document)
    else:
        write_stdout("\n".join(lines) + "\n")
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


def _answer(
    question: Question, source: GpuSku, target: GpuSku, found: Comparison | SlowerGpu, blocked: Iterable[CodedText]
) -> dict[str, object]:
    """What every answer has in JSON."""
    return {
        "from": source.name,
        "to": target.name,
        "phase": question.phase,
        "precision": question.precision,
        "time_ratio": asdict(found.time_ratio),
        "blocked_by": [asdict(why) for why in blocked],
        "basis": found.basis,
    }


def _document(question: Question, source: GpuSku, target: GpuSku, found: Comparison) -> dict[str, object]:
    levers = [asdict(lever) for lever in levers_of(question, target)]
    return {
        **_answer(question, source, target, found, found.blocked_by),
        "speedup": found.speedup,
        "outside": [asdict(why) for why in found.outside],
        **({"levers": levers} if levers else {}),
    }


def _text(question: Question, source: GpuSku, target: GpuSku, found: Comparison) -> list[str]:
    ratio = found.time_ratio
    each = ", for each token" if found.in_flight else ""
    lines = [
        f"{source.name} to {target.name}, {question.phase}, {question.precision}, {_work_words(question)}",
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
    lines += [f"  lever      {lever}" for lever in levers_of(question, target)]
    if found.assumed or found.sigma > 0.25:
        lines.append("  This is a rough estimate, not a recommendation. Benchmark first.")
    return lines


def _slower(
    options: argparse.Namespace, question: Question, source: GpuSku, target: GpuSku, reference: GpuSku
) -> tuple[dict[str, object], list[str]]:
    """The answer on one GPU under a cap or at a clock, as JSON and as text. Raises UsageError for two GPUs, and for
    what lies outside the GPU's range."""
    option = "--power-limit" if options.power_limit is not None else "--sm-clock"
    if source.name != target.name:
        raise UsageError(
            f"{option} asks about one GPU, and {source.name} and {target.name} are two.",
            f"Write it twice: skuwise skus compare {target.name} {target.name} {option} ...",
        )
    watts, rest = options.power_at_work, rest_watts(source)
    if watts is not None and not rest < watts <= source.tdp_watts:
        raise UsageError(
            f"{watts:g} W is not what {source.name} draws at work: more than the {rest:.0f} W at rest, and at most "
            f"{source.tdp_watts:g} W.",
            "Give the mean of one GPU while it works.",
        )
    found = slower_gpu(
        question, source, reference, cap_watts=options.power_limit, clock_hertz=options.sm_clock, watts=watts
    )
    if isinstance(found, CodedText):
        text = found.text
        raise UsageError(f"{text[:1].upper()}{text[1:]}.", _remedy(option, found.code, source))
    blocked = (*blocks(question, source, target), *found.blocked_by)
    document = _answer(question, source, source, found, blocked)
    document |= {
        "power_limit_watts": options.power_limit,
        "sm_clock_hertz": options.sm_clock,
        "watts": {"before": found.move.watts_before, "after": found.move.watts_after, "measured": found.told},
        "joules_ratio": asdict(found.joules_ratio),
        "joules_a_unit": found.unit and dict(zip(("unit", "before", "after"), found.unit, strict=True)),
        "knee_watts": found.knee_watts,
    }
    how = (
        f"under a power cap of {options.power_limit:g} W"
        if options.power_limit is not None
        else f"at an SM clock of {options.sm_clock / 1e6:.0f} MHz, {found.move.clock_share:.0%} of its boost clock"
    )
    lines = [
        f"{source.name} {how}, {question.phase}, {question.precision}, {_work_words(question)}",
        f"  time       {_words(found.time_ratio, 'faster', 'slower')}; 80 % prediction interval",
        f"  power      {found.move.watts_before:.0f} to {found.move.watts_after:.0f} W per GPU at work",
        f"  energy     {_words(found.joules_ratio, 'less', 'more')} for the same work",
    ]
    if found.unit is not None:
        unit, before, after = found.unit
        lines.append(f"  joules     {figure(before)} to {figure(after)} J per {unit}, all GPUs of a copy together")
    if found.knee_watts is not None:
        lines.append(f"  knee       below {found.knee_watts:.0f} W the same work takes more energy again")
    lines.append(f"  basis      {found.basis}")
    if not found.told:
        lines.append("  This is a rough estimate. Set --power-at-work W to the measured draw of the GPU.")
    return document, [*lines, *(f"  blocked    {why}" for why in blocked)]


def _work_words(question: Question) -> str:
    """What is asked about, as words of one line."""
    parts = [f"{question.gpus} GPU{'s' if question.gpus > 1 else ''} a copy"]
    if question.params:
        parts.insert(0, f"{question.params / 1e9:g} B parameters")
    if profile_of(question) is None:
        parts.append(f"{question.tokens[0]} tokens in and {question.tokens[1]} out")
    return ", ".join(parts)


def _remedy(option: str, code: str, sku: GpuSku) -> str:
    if code == "no-rate-at-precision":
        return "Ask at another --precision."
    if option == "--sm-clock":
        return f"Ask for {sku.boost_hertz / 2e6:.0f}MHz to {sku.boost_hertz / 1e6:.0f}MHz."
    model = load_power_model()
    low, high = cap_range(sku, model)
    return f"Ask for {max(low, model.lowest_cap_share * high):.0f} to {high:.0f} W."


def _words(ratio: Interval, below: str, above: str) -> str:
    """A ratio with its interval, and which way it goes."""
    way = "no change" if abs(ratio.p50 - 1) < 0.005 else below if ratio.p50 < 1 else above
    return f"x{ratio.p50:.2f} ({ratio.p10:.2f} to {ratio.p90:.2f}), {way}"
