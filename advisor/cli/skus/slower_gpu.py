"""``skuwise skus compare A A --power-limit W`` and ``--sm-clock HZ``: the same GPU, slower; what it saves and costs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from ....rules.base.errors import UsageError
from ....rules.base.output import write_json, write_stdout
from ....rules.catalog.loader import Catalog
from ....rules.catalog.types import GpuSku
from ....rules.models.move_model import load_move_model
from ....rules.models.power_model import load_power_model
from ...core.advice_types import Interval
from ...core.coded_text import CodedText
from ...core.formatting import figure
from ...recommend.predict.clock_model import cap_range
from ...recommend.predict.sku_comparison import blocks
from ...recommend.predict.typical_clock import SlowerGpu, rest_watts, slower_gpu
from ...recommend.predict.typical_work import Question, profile_of
from .options import parse_hertz, parse_watts


def add_slower(parser: argparse.ArgumentParser) -> None:
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


def asks_slower(options: argparse.Namespace) -> bool:
    """Whether a cap or a clock is asked about. Raises UsageError for a draw that goes with neither."""
    asked = options.power_limit is not None or options.sm_clock is not None
    if options.power_at_work is not None and not asked:
        raise UsageError("--power-at-work needs --power-limit or --sm-clock.", "Add one of them.")
    return asked


def tell_slower(
    options: argparse.Namespace, question: Question, source: GpuSku, target: GpuSku, catalog: Catalog
) -> None:
    """Answer and print. Raises UsageError for two GPUs, and for what lies outside the GPU's range."""
    option = "--power-limit" if options.power_limit is not None else "--sm-clock"
    if source.name != target.name:
        raise UsageError(
            f"{option} asks about one GPU, and {source.name} and {target.name} are two.",
            f"Write it twice: skuwise skus compare {target.name} {target.name} {option} ...",
        )
    reference = catalog.gpus[load_move_model().profiles.reference]
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
    if options.format == "json":
        write_json(_document(options, question, source, found, blocked))
    else:
        lines = _text(options, question, source, found) + [f"  blocked    {why}" for why in blocked]
        write_stdout("\n".join(lines) + "\n")


def work_words(question: Question) -> str:
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


def _document(
    options: argparse.Namespace, question: Question, sku: GpuSku, found: SlowerGpu, blocked: Sequence[CodedText]
) -> dict[str, object]:
    return {
        "from": sku.name,
        "to": sku.name,
        "phase": question.phase,
        "precision": question.precision,
        "time_ratio": asdict(found.time_ratio),
        "blocked_by": [asdict(why) for why in blocked],
        "basis": found.basis,
        "power_limit_watts": options.power_limit,
        "sm_clock_hertz": options.sm_clock,
        "watts": {"before": found.move.watts_before, "after": found.move.watts_after, "measured": found.told},
        "joules_ratio": asdict(found.joules_ratio),
        "joules_a_unit": found.unit and dict(zip(("unit", "before", "after"), found.unit, strict=True)),
        "knee_watts": found.knee_watts,
    }


def _text(options: argparse.Namespace, question: Question, sku: GpuSku, found: SlowerGpu) -> list[str]:
    how = (
        f"under a power cap of {options.power_limit:g} W"
        if options.power_limit is not None
        else f"at an SM clock of {options.sm_clock / 1e6:.0f} MHz, {found.move.clock_share:.0%} of its boost clock"
    )
    lines = [
        f"{sku.name} {how}, {question.phase}, {question.precision}, {work_words(question)}",
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
    return lines


def _words(ratio: Interval, below: str, above: str) -> str:
    """A ratio with its interval, and which way it goes."""
    way = "no change" if abs(ratio.p50 - 1) < 0.005 else below if ratio.p50 < 1 else above
    return f"x{ratio.p50:.2f} ({ratio.p10:.2f} to {ratio.p90:.2f}), {way}"
