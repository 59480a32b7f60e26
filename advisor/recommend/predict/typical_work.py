"""A published or asked workload as work: what one unit of it (a request, a step) costs on a GPU, part by part.

For language models the parts follow from size, tokens, batch and precision; for everything else, and for training, from
typical shares on a reference GPU (`rules/move_profiles.yaml`). Parts are added: kernels run one after the other.
Within a matrix product the slower of arithmetic and memory wins, softened with the exponent 3.

One step of generation: every sequence in flight gets its next token, and new prompts are read in between.

The time is a sum of what the GPUs sustain (weights, cache, products, links) and of what no faster GPU shortens (the
launches of each layer, the latency of each exchange between GPUs). The factors before these terms are calibrated on
measured pairs (`make move-model`), so that a time in seconds comes out and not a ratio alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ....rules.catalog.types import GpuSku
from ....rules.models.move_model import DecodeFactors, MoveModel, Profiles
from ..constraints import room_bytes
from ..prediction import NORM
from ..sustained_rates import BYTES, Rates, clock_ratio, rates_of

Number = float | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepTerms:
    """What one step asks of the GPUs of a copy, before any factor; numbers, or arrays of equal lengths.

    `dense_layers`, `expert_layers`: layers launched (a model has one kind). `exchanges`: between GPUs, one after the
    other. `sequences`: in flight. Seconds, at what the GPUs sustain: `weights` read, `products` of the sequences in
    flight, `cache` read, `prompts` computed that arrive in a step, `links` carrying activations.
    """

    dense_layers: Number
    expert_layers: Number
    exchanges: Number
    sequences: Number
    weights: Number
    products: Number
    cache: Number
    prompts: Number
    links: Number


def step_parts(terms: StepTerms, factors: DecodeFactors) -> Mapping[str, Number]:
    """Seconds of one step by part. Within a product the slower of reading weights and arithmetic wins, softly."""
    weights, products = factors.weights * terms.weights, factors.products * terms.products
    return {
        "matrix": factors.products * terms.prompts,
        "memory": (weights**NORM + products**NORM) ** (1.0 / NORM) + factors.cache * terms.cache,
        "links": terms.links,
        "latency": factors.layer_seconds * terms.dense_layers
        + factors.expert_layer_seconds * terms.expert_layers
        + factors.exchange_seconds * terms.exchanges
        + factors.sequence_seconds * terms.sequences,
    }


PhaseAsked = Literal["training", "prefill", "decode", "mixed"]
# Tokens of a request where nothing is said, by phase: as the published lines that are called so have them.
TOKENS = {"prefill": (2048, 128), "decode": (128, 2048), "mixed": (1024, 1024)}
PARAMS = 8e9  # where no size is said: the middle of what is published on one GPU
# Engines give the cache nine tenths of what their weights and the driver leave (TensorRT-LLM's default), which is less
# cautious than what a move may be asked to hold (`room_bytes`).
ENGINE_SHARE = 0.9
ENGINE_BYTES = 2e9
# Mixed-precision Adam: weights and gradients in 16 bits, a master copy and two moments in 32 (ZeRO, arXiv 1910.02054).
STATE_BYTES = 16.0
SMALL_PARAMS = 1e9  # networks below it are trained on one GPU, and wait longer for launches, input and memory
ONE_PASS_PARAMS = 4e9  # models below it that generate nothing are vision, language encoders and the like


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about; None: not said. `gpus` work together on one copy of the model (tensor parallelism).

    `attention_copies`: how many copies of the attention layers stand on these GPUs (attention data parallelism), each
    with `batch` sequences of its own. `cache_precision`: of the key-value cache. `within_memory`: whether no more
    sequences are in flight than memory holds.
    """

    phase: PhaseAsked
    precision: str
    gpus: int = 1
    params: float | None = None
    active_params: float | None = None
    batch: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    attention_copies: int = 1
    cache_precision: str | None = None
    within_memory: bool = True

    @property
    def sequences(self) -> int | None:
        """Sequences that are to be in flight on all its GPUs; None: not said."""
        return None if self.batch is None else self.batch * self.attention_copies

    @property
    def weights_bytes(self) -> float:
        return (self.params or PARAMS) * BYTES[self.precision]

    @property
    def computed_params(self) -> float:
        """Parameters that one token passes through."""
        params = self.params or PARAMS
        return min(self.active_params or params, params)

    @property
    def shape(self) -> ModelShape:
        return ModelShape.of(self.computed_params)

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens read and generated by one request."""
        told_in, told_out = TOKENS["mixed" if self.phase == "training" else self.phase]
        return (
            told_in if self.input_tokens is None else self.input_tokens,
            told_out if self.output_tokens is None else self.output_tokens,
        )

    @property
    def generated(self) -> int:
        """Tokens that are generated one by one: a single one falls out of reading the prompt."""
        out = self.tokens[1]
        return out if out > 1 else 0

    @property
    def kv_bytes_per_token(self) -> float:
        """Of the key-value cache; where its precision is not said, in 8 bits if the weights are so or smaller."""
        precision = self.cache_precision or self.precision
        return self.shape.kv_per_token * (1.0 if BYTES[precision] <= 1 else 2.0)

    @property
    def sequence_bytes(self) -> float:
        """The key-value cache of one sequence with all its tokens."""
        return self.kv_bytes_per_token * max(sum(self.tokens), 1)

    def touched_bytes(self, batch: float) -> float:
        """Weights read for one step: of a mixture of experts the more, the more sequences choose among them."""
        active = self.computed_params / (self.params or PARAMS)
        return self.weights_bytes * (1.0 - (1.0 - active) ** batch)

    @property
    def mixture_of_experts(self) -> bool:
        return bool(self.params and self.active_params and self.active_params < 0.9 * self.params)

    @property
    def small_training(self) -> bool:
        """Training of a network that is no large language model: small, or on one GPU where its size is not told."""
        if self.phase != "training":
            return False
        return self.gpus == 1 if self.params is None else self.params < SMALL_PARAMS

    @property
    def one_pass(self) -> bool:
        """A network that generates nothing: no tokens are told, and it is small or in INT8."""
        tokens = self.input_tokens is None and self.output_tokens is None
        small = self.params is not None and self.params < ONE_PASS_PARAMS
        return self.phase == "mixed" and tokens and (small or (self.params is None and self.precision == "int8"))


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Of a dense transformer with so many parameters, as published models have it (grouped-query attention)."""

    layers: float
    hidden: float
    kv_per_token: float  # values, keys and values of all layers

    @classmethod
    def of(cls, params: float) -> ModelShape:
        # Llama 3: 32 layers of 4096 at 8 B, 80 of 8192 at 70 B; 8 heads of 128 for keys and values in both.
        layers = 32 * (params / 8e9) ** 0.42
        return cls(layers, 4096 * (params / 8e9) ** (1 / 3), layers * 2 * 8 * 128)


Parts = Mapping[str, float]


def parts_of(question: Question, sku: GpuSku, reference: GpuSku, model: MoveModel) -> Parts | None:
    """Time of one unit of work on `sku` by part: matrix, memory, vector, links, latency.

    Seconds a request for language models, else relative to the reference; the same unit on every GPU, so that sums can
    be divided. None: one of the two has no rate for the precision.
    """
    rates, standard = rates_of(sku, question.precision), rates_of(reference, question.precision)
    if rates is None or standard is None:
        return None
    profiles = model.profiles
    profile = profile_of(question)
    if profile is not None:
        shares = profiles.shares[profile]
        return {
            "matrix": shares["matrix"] * standard.matrix / rates.matrix,
            "memory": shares["memory"] * standard.memory / rates.memory,
            "vector": shares["vector"] * standard.vector / rates.vector,
            "latency": shares["latency"] * clock_ratio(standard.clock_hertz, rates.clock_hertz),
        }
    clock = clock_ratio(standard.clock_hertz, rates.clock_hertz)
    terms, batch = step_terms(question, sku.mem_bytes, rates, model.profiles, clock)
    # What no faster GPU shortens of reading a prompt is a share of the reference's time.
    in_flight = question.tokens[0] * question.sequences / question.gpus if question.sequences else math.inf
    prompt = profiles.prompt_latency_share(in_flight)
    reading = model.decode.products * 2.0 * question.computed_params * question.tokens[0] / question.gpus
    fixed = prompt / (1 - prompt) * reading / standard.matrix * clock
    generated = question.generated
    if not generated:
        return {"matrix": reading / rates.matrix, "memory": 0.0, "links": float(terms.links) / batch, "latency": fixed}
    step = {name: float(seconds) * generated / batch for name, seconds in step_parts(terms, model.decode).items()}
    return {**step, "latency": step["latency"] + fixed}


@dataclass(frozen=True, slots=True)
class ServingTimes:
    """What one replica reaches with `batch` sequences in flight; a request alone waits `first_token_seconds`."""

    batch: float
    first_token_seconds: float
    token_seconds: float
    requests_per_second: float


def serving_times(
    question: Question, sku: GpuSku, reference: GpuSku, model: MoveModel, token_seconds: float | None = None
) -> ServingTimes | None:
    """The times of a language model's requests on `sku`. `token_seconds`: the longest a token may take; fewer sequences
    are put in flight until that is kept. None: no rate for the precision, or not even one sequence keeps it."""
    # What is planned keeps to what a move may be asked to hold.
    room = room_bytes(sku.mem_bytes) * question.gpus - question.weights_bytes
    held = room / question.sequence_bytes
    batch = max(math.floor(min(batch_on(question, sku.mem_bytes, model.profiles), held)), 1)
    while True:
        tried = replace(question, batch=batch)
        parts = parts_of(tried, sku, reference, model)
        if parts is None:
            return None
        alone = parts_of(replace(question, batch=1, output_tokens=1), sku, reference, model)
        assert alone is not None
        each = sum(parts.values())
        per_token = each * batch / max(tried.tokens[1], 1)
        if token_seconds is None or per_token <= token_seconds:
            return ServingTimes(batch, sum(alone.values()), per_token, 1.0 / each)
        if batch == 1:
            return None
        batch = max(batch * 3 // 4, 1)


def profile_of(question: Question) -> str | None:
    """The typical profile that stands for the work; None: it is reckoned from size and tokens."""
    if question.precision == "fp32":
        return "fp32"
    if question.phase == "training":
        return "training"
    return "one-pass" if question.one_pass else None


def batch_on(question: Question, mem_bytes: float, profiles: Profiles) -> float:
    """Sequences in flight: as told where memory holds them, else as many as it holds, up to what engines run."""
    kept = sequences_held(question, mem_bytes)
    if question.sequences is not None:
        # More than memory holds wait. Where not even one fits, the weights do not: that is said apart.
        most = kept if question.within_memory and kept >= 1 else math.inf
        return min(float(question.sequences), most)
    return max(min(float(profiles.sequences_max), kept), 1.0)


def sequences_held(question: Question, mem_bytes: float) -> float:
    """Sequences whose cache fits beside the weights, with all their tokens; negative where the weights do not fit."""
    room = ENGINE_SHARE * (mem_bytes - ENGINE_BYTES) * question.gpus - ENGINE_SHARE * question.weights_bytes
    return room / question.sequence_bytes


def gpus_of_a_copy(params: float | None, precision: str, *skus: GpuSku, training: bool = False) -> int:
    """GPUs that hold one copy where nobody says: the least power of two at which weights leave half of the room.

    Of training: at which its sharded states do, at most those of one node; all of them where no size is told.
    """
    room = min(room_bytes(sku.mem_bytes) for sku in skus)
    if training:
        return 8 if params is None else next((n for n in (1, 2, 4) if STATE_BYTES * params <= n * room), 8)
    weights = (params or PARAMS) * BYTES[precision]
    return next((n for n in (1, 2, 4, 8, 16) if weights <= n * room / 2), 16)


def step_terms(
    question: Question, mem_bytes: float, rates: Rates, profiles: Profiles, clock: float = 1.0
) -> tuple[StepTerms, float]:
    """What one step of generation asks for, with the prompts that arrive meanwhile, and the sequences in flight.

    Where nothing is generated, the step is one that reads the prompts of all. `clock`: by how much longer launches take
    than on the reference.
    """
    tokens_in, tokens_out = question.tokens
    batch = batch_on(question, mem_bytes, profiles)
    prompts = batch * tokens_in / max(question.generated, 1)
    matrix, memory = question.gpus * rates.matrix, question.gpus * rates.memory
    flops = 2.0 * question.computed_params
    shape, experts = question.shape, question.mixture_of_experts
    # Two all-reduces a layer over activations of 16 bits.
    exchanges = 2 * shape.layers if question.gpus > 1 else 0.0
    reduced = exchanges * shape.hidden * 2.0 * 2.0 * (question.gpus - 1) / question.gpus / rates.all_reduce
    terms = StepTerms(
        dense_layers=0.0 if experts else shape.layers * clock,
        expert_layers=shape.layers * clock if experts else 0.0,
        exchanges=exchanges * clock,
        sequences=batch,
        weights=question.touched_bytes(batch) / memory,
        products=flops * batch / matrix,
        cache=batch * (tokens_in + tokens_out / 2) * question.kv_bytes_per_token / memory,
        prompts=flops * prompts / matrix,
        links=reduced * (prompts + (batch if question.generated else 0.0)),
    )
    return terms, batch
