"""Two GPUs for the same work without telemetry: typical work, always an answer, and its basis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ....rules.catalog.types import GpuSku
from ....rules.models.move_model import CalibratedRange, MoveModel, Residuals
from ...core.advice_types import Interval
from ...core.coded_text import CodedText, coded
from ..constraints import arm_host, has_precision, lacks_precision, other_stack, room_bytes
from ..prediction import Z90
from ..sustained_rates import family, rates_of
from .typical_work import Parts, Question, batch_on, parts_of, profile_of, sequences_held

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


def batch_too_large(question: Question, target: GpuSku) -> CodedText | None:
    """Why a batch that was asked about cannot be in flight on `target`; None: it can, or nobody told size and batch.

    The cache is that of a dense model with grouped-query attention: smaller ones, of models that keep less, may fit.
    """
    if question.params is None or question.batch is None or question.phase == "training":
        return None
    context, each = sum(question.tokens), question.sequence_bytes / question.gpus
    weights, room = question.weights_bytes / question.gpus, room_bytes(target.mem_bytes)
    needed = weights + question.batch * each
    if needed <= room or weights > room:
        return None
    most = math.floor((room - weights) / each)
    return CodedText(
        "batch-too-large",
        f"{question.batch} sequences of {context} tokens and the weights need {needed / 1e9:,.0f} GB per GPU; "
        f"{target.name} has room for {room / 1e9:.0f} GB, at most {most} sequences (dense model)",
        {
            "sku": target.name, "batch": question.batch, "batch_at_most": most, "needed_bytes": needed,
            "room_bytes": room, "cache_bytes_per_sequence": each,
        },
    )  # fmt: skip


# Tensor parallelism of 4 and more does not work over PCIe: 1 to 5 GB/s measured where NVLink has 330.
PCIE_GROUP_MAX = 3
# Llama-3.1-8B at batch 128 ran at 0.65x on B200 against H100, and 52 of 620 matched pairs were slower: below it the
# host cannot launch steps as fast as the GPU ends them.
HOST_BOUND_PARAMS = 13e9
# Of the log of time, where neither GPU's rates are known to the catalog at this precision.
SIGMA_NOTHING_KNOWN = 0.7


@dataclass(frozen=True, slots=True)
class Comparison:
    """Time on the target over time on the source, what forbids the move, and what the answer rests on.

    `group`: the group of moves whose residuals gave the interval; `assumed`: unpublished figures; `outside`:
    in which ways the question lies outside what was calibrated. `in_flight`: where a batch of decoding was asked for,
    the sequences that memory holds of it, here and there; the time is that of one token then.
    """

    time_ratio: Interval
    blocked_by: tuple[CodedText, ...]
    basis: str
    group: str
    sigma: float
    assumed: tuple[str, ...]
    outside: tuple[CodedText, ...] = ()
    in_flight: tuple[float, float] | None = None

    @property
    def speedup(self) -> float:
        """Work a second there over here: with a batch, more sequences in flight do more, though each waits longer."""
        here, there = self.in_flight or (1.0, 1.0)
        return there / here / self.time_ratio.p50


def compare(question: Question, source: GpuSku, target: GpuSku, reference: GpuSku, model: MoveModel) -> Comparison:
    """Always answers. The same GPU takes the same time; what is assumed widens the interval and is named."""
    blocked = blocks(question, source, target)
    if source.name == target.name:
        return Comparison(Interval(1.0, 1.0, 1.0), blocked, "same GPU", "same GPU", 0.0, ())
    if min(sequences_held(question, sku.mem_bytes) for sku in (source, target)) < 1:
        # One of them cannot hold the model at all, and is blocked: the answer is for as many in flight on both.
        question = replace(question, within_memory=False)
    here = parts_of(question, source, reference, model)
    there = parts_of(question, target, reference, model)
    group = group_of(question, source, target)
    if here is None or there is None:
        ratio = source.mem_bandwidth_bytes_per_second / target.mem_bandwidth_bytes_per_second
        missing = (source if here is None else target).name
        basis = f"assumed: the catalog has no {question.precision.upper()} rate of {missing}; memory bandwidths alone"
        return _answer(ratio, SIGMA_NOTHING_KNOWN, blocked, basis, "no data", (basis,))
    kind = kind_of(question)
    in_flight = _in_flight(question, source, target, model)
    ratio = _total(there) / _total(here) * (in_flight[1] / in_flight[0] if in_flight else 1.0)
    ratio *= math.exp(model.offset(kind, family(target)) - model.offset(kind, family(source)))
    assumed = assumptions(question, source, target)
    residuals = model.groups[group]
    sigma = residuals.sigma
    doubtful = assumed_group(question, source, target)
    if doubtful is not None:
        # Of two GPUs with unpublished figures either may be off.
        unknown = sum(1 for sku in (source, target) if assumptions(question, sku))
        sigma = max(sigma, model.groups[doubtful].sigma * math.sqrt(unknown))
    beyond = outside(question, kind, model.ranges.get(kind), source, target)
    sigma *= WIDER ** len(beyond)
    answer = _answer(ratio, sigma, blocked, _basis(question, group, residuals, assumed), group, assumed)
    return replace(answer, outside=beyond, in_flight=in_flight)


def kind_of(question: Question) -> str:
    """The class of work, by which predictions are corrected and their errors grouped.

    Work at a given batch is separate: it was measured as the time of one token (decode) or of the first (prefill).
    """
    profile = profile_of(question)
    if profile == "training" and question.small_training:
        return "training of small networks"
    if profile is not None or question.batch is None or question.phase not in ("decode", "prefill"):
        return profile or question.phase
    if question.phase == "prefill":
        return "prefill at a batch"
    return "decode of experts at a batch" if question.mixture_of_experts else "decode at a batch"


def group_of(question: Question, source: GpuSku, target: GpuSku) -> str:
    """The group of moves whose published residuals give the error of this prediction."""
    kind = kind_of(question)
    spread = question.gpus > 1 and kind.split()[0] in ("decode", "prefill", "mixed")
    if spread and not (source.joined_on_board and target.joined_on_board):
        return "tensor parallelism over PCIe"
    if question.mixture_of_experts and kind == "training":
        return "training of mixtures of experts"
    relation = "within" if family(source) == family(target) else "across"
    return f"{kind}, {relation} generations"


def assumptions(question: Question, *skus: GpuSku) -> tuple[str, ...]:
    """Unpublished figures behind the answer, in words."""
    found: list[str] = []
    for sku in skus:
        rates = rates_of(sku, question.precision)
        found += rates.assumed if rates else ()
    # INT8 rates of both sides were never measured anywhere, and serving at a batch was measured in FP4 as a whole: the
    # residuals hold that already.
    known = ("INT8",) if not kind_of(question).endswith("at a batch") else ("INT8", "FP4")
    return tuple(a for a in dict.fromkeys(found) if not any(f"sustained {name} rate" in a for name in known))


def assumed_group(question: Question, source: GpuSku, target: GpuSku) -> str | None:
    """The group of the assumptions behind the answer: those on Hopper parts were checked; None: nothing is assumed."""
    doubtful = [family(sku) for sku in (source, target) if assumptions(question, sku)]
    if not doubtful:
        return None
    return "assumed, hopper" if set(doubtful) == {"hopper"} else "assumed"


def blocks(question: Question, source: GpuSku, target: GpuSku) -> tuple[CodedText, ...]:
    """Everything that forbids the move, as far as the question tells."""
    reasons = [
        other_stack(source, target) or arm_host(source, target),
        _precision(question, target),
        _memory(question, target) or batch_too_large(question, target),
        _links(question, source, target),
        _host_bound(question, source, target),
    ]
    return tuple(r for r in reasons if r)


def _answer(  # noqa: PLR0917
    ratio: float, sigma: float, blocked: tuple[CodedText, ...], basis: str, group: str, assumed: tuple[str, ...]
) -> Comparison:
    spread = math.exp(Z90 * sigma)
    return Comparison(Interval(ratio / spread, ratio, ratio * spread), blocked, basis, group, sigma, assumed)


def _in_flight(question: Question, source: GpuSku, target: GpuSku, model: MoveModel) -> tuple[float, float] | None:
    """Sequences in flight here and there where a batch of decoding is asked for."""
    if question.phase != "decode" or question.batch is None or profile_of(question) is not None:
        return None
    here, there = (batch_on(question, sku.mem_bytes, model.profiles) for sku in (source, target))
    return here, there


def _total(parts: Parts) -> float:
    return sum(parts.values())


def _basis(question: Question, group: str, residuals: Residuals, assumed: tuple[str, ...]) -> str:
    if assumed:
        return f"assumed: no published data on {' or '.join(assumed)}"
    told = "typical work" if question.params is None else f"work of {question.params / 1e9:g} B parameters"
    if residuals.pairs:
        models = f"{residuals.models} model{'s' if residuals.models > 1 else ''}"
        return f"{told}; interval from {residuals.pairs} published pairs of {models} ({group})"
    return f"{told}; interval: {residuals.basis} ({group})"


def _precision(question: Question, target: GpuSku) -> CodedText | None:
    if has_precision(target, question.precision):
        return None
    return lacks_precision(target, question.precision.upper())


def _memory(question: Question, target: GpuSku) -> CodedText | None:
    if question.params is None:
        return None
    if question.phase == "training":
        return None  # how a training job shards its state is not told
    each = question.weights_bytes / question.gpus
    room = room_bytes(target.mem_bytes)
    if each <= room:
        return None
    least = math.ceil(question.weights_bytes / room)
    return CodedText(
        "weights-too-large",
        f"the weights alone need {each / 1e9:.0f} GB per GPU; {target.name} has room for {room / 1e9:.0f} GB (at least "
        f"{least} GPUs needed)",
        {"sku": target.name, "needed_bytes": each, "room_bytes": room, "gpus_at_least": least},
    )


def _links(question: Question, source: GpuSku, target: GpuSku) -> CodedText | None:
    if question.gpus <= PCIE_GROUP_MAX or target.joined_on_board or not source.joined_on_board:
        return None
    return coded(
        "model-over-pcie", "{gpus} GPUs of one model communicate over {link}, and {sku} has only PCIe",
        gpus=question.gpus, link=source.link_name, sku=target.name,
    )  # fmt: skip


def _host_bound(question: Question, source: GpuSku, target: GpuSku) -> CodedText | None:
    if question.phase == "training" or question.params is None or question.params > HOST_BOUND_PARAMS:
        return None
    newer = family(target) == "blackwell" and family(source) != "blackwell"
    if not newer or target.link_bytes_per_second is None:
        return None
    return CodedText(
        "small-model-host-bound",
        f"a {question.params / 1e9:g} B model is limited by its host on {target.name} (a published one ran at 0.65x "
        "the speed of H100); benchmark first",
        {"sku": target.name, "params": question.params},
    )
