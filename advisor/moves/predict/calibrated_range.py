"""Whether what is asked lies within what its class of work was calibrated on; beyond it the interval is wider."""

from __future__ import annotations

from collections.abc import Iterator

from ....rules.catalog.types import GpuSku
from ....rules.models.move_model import CalibratedRange
from ...core.coded_text import CodedText
from ..base.sustained_rates import family
from .typical_work import Question

# Half as much again as the least and the most is still as calibrated: sizes come in steps (7 B, 13 B, 70 B).
SLACK = 1.5
# By how much the interval (of the log) widens for each way to lie outside. Stated: no line tells.
WIDER = 1.25
_SAME = {"fp16": "bf16"}  # one rate on every GPU here


def outside(
    question: Question, kind: str, known: CalibratedRange | None, source: GpuSku, target: GpuSku
) -> tuple[CodedText, ...]:
    """In which ways the question lies outside, with the figures; empty: in none. `kind`: the class of work."""
    if known is None:
        return (CodedText("class-not-calibrated", f"no published benchmark of {kind}", {"kind": kind}),)
    return tuple(_ways(question, known, source, target))


def _ways(question: Question, known: CalibratedRange, source: GpuSku, target: GpuSku) -> Iterator[CodedText]:
    params, batch = question.params, question.sequences
    if params is not None and known.params is not None and _beyond(params, known.params):
        least, most = known.params
        yield CodedText(
            "size-not-calibrated",
            f"published benchmarks cover {_size(least)} to {_size(most)} B parameters, not {_size(params)} B",
            {"params": params, "least": least, "most": most},
        )
    if batch is not None and known.batch is not None and _beyond(batch, known.batch):
        least, most = known.batch
        yield CodedText(
            "batch-not-calibrated",
            f"published benchmarks have {least:.0f} to {most:.0f} sequences in flight, not {batch}",
            {"batch": batch, "least": least, "most": most},
        )
    precision = _SAME.get(question.precision, question.precision)
    if precision not in {_SAME.get(one, one) for one in known.precisions}:
        yield CodedText(
            "precision-not-calibrated",
            f"published benchmarks use {', '.join(sorted(p.upper() for p in known.precisions))}, not "
            f"{question.precision.upper()}",
            {"precision": question.precision},
        )
    for sku in (source, target):
        if family(sku) not in known.architectures:
            yield CodedText(
                "architecture-not-calibrated",
                f"no published benchmark of such work on {sku.architecture} ({sku.name})",
                {"sku": sku.name, "architecture": family(sku)},
            )


def _size(params: float) -> str:
    return f"{params / 1e9:,.0f}" if params >= 1e11 else f"{params / 1e9:.3g}"


def _beyond(value: float, span: tuple[float, float]) -> bool:
    return not span[0] / SLACK <= value <= span[1] * SLACK
