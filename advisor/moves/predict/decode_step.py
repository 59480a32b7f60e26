"""One step of generation: every sequence in flight gets its next token, and new prompts are read in between.

The time is a sum of what the GPUs sustain (weights, cache, products, links) and of what no faster GPU shortens (the
launches of each layer, the latency of each exchange between GPUs). The factors before these terms are calibrated on
measured pairs (`make move-model`), so that a time in seconds comes out and not a ratio alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....rules.models.move_model import DecodeFactors
from ..base.prediction import NORM

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
