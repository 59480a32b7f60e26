"""Two GPUs for the same work without telemetry: typical work, always an answer, and its basis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ....rules.catalog.types import GpuSku
from ....rules.models.weights import EXPERTS, TRAINING, MoveModel, Span, WorkClass
from ...core.advice_types import Interval
from ...core.coded_text import CodedText, coded
from ..constraints import arm_host, has_precision, lacks_precision, other_stack, room_bytes
from ..prediction import family, interval_of, rates_of
from .typical_work import Question, batch_on, parts_of, profile_of, sequences_held

# Half as much again as the least and the most is still as measured: sizes come in steps (7 B, 13 B, 70 B).
SLACK = 1.5
_SAME = {"fp16": "bf16"}  # one rate on every GPU here
# Tensor parallelism of 4 and more does not work over PCIe: 1 to 5 GB/s measured where NVLink has 330.
PCIE_GROUP_MAX = 3
# Of the log of time, where neither GPU's rates are known to the catalog at this precision.
SIGMA_NOTHING_KNOWN = 0.7


@dataclass(frozen=True, slots=True)
class Comparison:
    """Time on the target over time on the source, what forbids the move, and what the answer rests on. `work`: the
    class whose errors give the interval; `assumed`: unpublished figures; `outside`: what was not measured. `in_flight`:
    at a batch of decoding, the sequences that memory holds here and there; the time is of one token then."""

    time_ratio: Interval
    blocked_by: tuple[CodedText, ...]
    basis: str
    work: str
    sigma: float
    assumed: tuple[str, ...] = ()
    outside: tuple[CodedText, ...] = ()
    in_flight: tuple[float, float] | None = None

    @property
    def speedup(self) -> float:
        """Work a second there over here: with a batch, more sequences in flight do more, though each waits longer."""
        here, there = self.in_flight or (1.0, 1.0)
        return there / here / self.time_ratio.p50


def compare(question: Question, source: GpuSku, target: GpuSku, reference: GpuSku, model: MoveModel) -> Comparison:
    """Always answers. The same GPU takes the same time; a missing figure widens the interval and is named."""
    blocked = blocks(question, source, target)
    if source.name == target.name:
        return Comparison(Interval(1.0, 1.0, 1.0), blocked, "same GPU", "same GPU", 0.0)
    if (typical := typical_ratio(question, source, target, reference, model)) is None:
        ratio = source.mem_bandwidth_bytes_per_second / target.mem_bandwidth_bytes_per_second
        missing = next(sku.name for sku in (source, target, reference) if rates_of(sku, question.precision) is None)
        basis = f"assumed: the catalog has no {question.precision.upper()} rate of {missing}; memory bandwidths alone"
        interval = interval_of(ratio, SIGMA_NOTHING_KNOWN)
        return Comparison(interval, blocked, basis, "no data", SIGMA_NOTHING_KNOWN, (basis,))
    ratio, in_flight = typical
    work = work_class(question, source, target)
    class_ = model.classes[work]
    rates = [rates_of(sku, question.precision) for sku in (source, target)]
    # Sustained INT8 rates were measured nowhere and FP4 rates hardly, but whole workloads were: errors hold that.
    whole = ("sustained INT8", "sustained FP4")
    every = dict.fromkeys(what for rate in rates if rate is not None for what in rate.assumed)
    assumed = tuple(what for what in every if not any(figure in what for figure in whole))
    outside = tuple(_outside(question, class_, source, target))
    unseen = assumed or any(why.code == "architecture-not-calibrated" for why in outside)
    sigma = class_.sigma * (model.unseen if unseen else 1.0)
    text = "typical work" if question.params is None else f"work of {question.params / 1e9:g} B parameters"
    rests = f"interval from {class_.lines} measured pairs of {class_.families} model families, {work}"
    basis = f"assumed: no published data on {' or '.join(assumed)}" if assumed else f"{text}; {rests}"
    if outside:
        basis += "; outside what was measured"
    return Comparison(interval_of(ratio, sigma), blocked, basis, work, sigma, assumed, outside, in_flight)


def typical_ratio(
    question: Question, source: GpuSku, target: GpuSku, reference: GpuSku, model: MoveModel
) -> tuple[float, tuple[float, float] | None] | None:
    """Time on the target over time on the source (at a batch of decoding: of one token, with the sequences in flight
    here and there); None: a rate is missing."""
    if min(sequences_held(question, sku.mem_bytes) for sku in (source, target)) < 1:
        # One of them cannot hold the model at all, and is blocked: the answer is for as many in flight on both.
        question = replace(question, within_memory=False)
    here, there = (parts_of(question, sku, reference, model) for sku in (source, target))
    if here is None or there is None:
        return None
    ratio = sum(there.values()) / sum(here.values())
    if question.phase != "decode" or question.batch is None or profile_of(question) is not None:
        return ratio, None
    before, after = (batch_on(question, sku.mem_bytes, model.profiles) for sku in (source, target))
    return ratio * after / before, (before, after)


def work_class(question: Question, source: GpuSku, target: GpuSku) -> str:
    """The class of work whose measured errors give the interval."""
    if (profile := profile_of(question)) is not None:
        return TRAINING if profile == "training" else "networks of one pass"
    if question.phase == "prefill" and question.batch is not None:
        return "first token at a batch"
    if _host_bound(question, source, target):
        return "small models on Blackwell"
    if question.mixture_of_experts:
        return EXPERTS
    if question.gpus > 1 and not (source.joined_on_board and target.joined_on_board):
        return "tensor parallelism over PCIe"
    return "serving"


def _outside(question: Question, work_class: WorkClass, source: GpuSku, target: GpuSku) -> Iterator[CodedText]:
    """In which ways the question lies outside what was measured, with the figures."""

    def beyond(value: float | None, span: Span | None) -> Span | None:
        return span if value is not None and span and not span.least / SLACK <= value <= span.most * SLACK else None

    params, batch = question.params, question.sequences
    if params is not None and (span := beyond(params, work_class.params)):
        least, most, asked = (f"{n / 1e9:{',.0f' if n >= 1e11 else '.3g'}}" for n in (span.least, span.most, params))
        covered = f"published benchmarks cover {least} to {most} B parameters, not {asked} B"
        yield CodedText("size-not-calibrated", covered, {"params": params, "least": span.least, "most": span.most})
    if batch is not None and (span := beyond(batch, work_class.batch)):
        have = "published benchmarks have {least:.0f} to {most:.0f} sequences in flight, not {batch}"
        yield coded("batch-not-calibrated", have, batch=batch, least=span.least, most=span.most)
    measured = {_SAME.get(precision, precision) for precision in work_class.precisions}
    if _SAME.get(question.precision, question.precision) not in measured:
        use = f"{', '.join(sorted(name.upper() for name in work_class.precisions))}, not {question.precision.upper()}"
        fields = {"precision": question.precision}
        yield CodedText("precision-not-calibrated", f"published benchmarks use {use}", fields)
    for sku in (source, target):
        if family(sku) not in work_class.architectures:
            why = f"no published benchmark of such work on {sku.architecture} ({sku.name})"
            yield CodedText("architecture-not-calibrated", why, {"sku": sku.name, "architecture": family(sku)})


def blocks(question: Question, source: GpuSku, target: GpuSku) -> tuple[CodedText, ...]:
    """Everything in the question that forbids the move."""
    reasons = [
        other_stack(source, target) or arm_host(source, target),
        None if has_precision(target, question.precision) else lacks_precision(target, question.precision.upper()),
        _memory(question, target),
    ]
    if question.gpus > PCIE_GROUP_MAX and source.joined_on_board and not target.joined_on_board:
        limit = "joins only pairs by its bridge" if target.nvlink_by_bridge else "has only PCIe"
        text = f"{{gpus}} GPUs of one model communicate over {{link}}, and {{sku}} {limit}"
        fields = {"gpus": question.gpus, "link": source.link_name, "sku": target.name}
        reasons.append(coded("model-over-pcie", text, **fields))
    if _host_bound(question, source, target):
        params = question.params or 0.0
        text = f"a {params / 1e9:g} B model may be limited by its host on {target.name} (of measured ones a token took"
        text += " 0.6 to 3.4 times as long on B200 as on H100); benchmark first"
        reasons.append(CodedText("small-model-host-bound", text, {"sku": target.name, "params": params}))
    return tuple(reason for reason in reasons if reason)


def _memory(question: Question, target: GpuSku) -> CodedText | None:
    """Why the weights, or a batch that was asked about, do not fit; None: they do, or the size is unknown (or how a
    training job shards its state). The cache is that of a dense model with grouped-query attention."""
    if question.params is None or question.phase == "training":
        return None
    room, weights = room_bytes(target.mem_bytes), question.weights_bytes / question.gpus
    has = f"per GPU; {target.name} has room for {room / 1e9:.0f} GB"
    if weights > room:
        least = math.ceil(question.weights_bytes / room)
        text = f"the weights alone need {weights / 1e9:.0f} GB {has} (at least {least} GPUs needed)"
        fields = {"sku": target.name, "needed_bytes": weights, "room_bytes": room, "gpus_at_least": least}
        return CodedText("weights-too-large", text, fields)
    each = question.sequence_bytes / question.gpus
    needed = weights + (question.batch or 0) * each
    if needed <= room:
        return None
    most, what = math.floor((room - weights) / each), f"{question.batch} sequences of {sum(question.tokens)} tokens"
    text = f"{what} and the weights need {needed / 1e9:,.0f} GB {has}, at most {most} sequences (dense model)"
    fields = {"sku": target.name, "batch": question.batch, "batch_at_most": most, "needed_bytes": needed}
    return CodedText("batch-too-large", text, {**fields, "room_bytes": room, "cache_bytes_per_sequence": each})


def _host_bound(question: Question, source: GpuSku, target: GpuSku) -> bool:
    """Whether the host may launch the steps of a small model more slowly than the target ends them."""
    # Up to it the host may launch steps more slowly than Blackwell ends them: of models of 8 to 30.5 B, a token took
    # 0.6 to 3.4 times as long on B200 as on H100 (ML.ENERGY, vLLM), where what they sustain says 0.5.
    small = question.phase != "training" and question.params is not None and question.params <= 31e9
    newer = family(target) == "blackwell" and family(source) != "blackwell"
    return small and newer and target.link_bytes_per_second is not None
