"""Whether the key-value cache of a batch fits beside the weights, by typical shapes."""

from __future__ import annotations

import math

from ....rules.catalog.types import GpuSku
from ...core.coded_text import CodedText
from ..base.constraints import room_bytes
from .typical_work import Question


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
