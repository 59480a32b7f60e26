"""What inference servers say of their KV cache: whether a workload is short of memory, whatever limits its time.

Capacity is no label of its own: an engine whose cache is full still spends its time on memory bandwidth or compute. It
is an overlay, a sentence in the evidence, and tells that more memory would let more requests in.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pandas as pd

from ...core.coded_text import CodedText, coded
from ...core.verdict_types import BottleneckVerdict
from ..workloads.engine_facts import kv_percentile


@dataclass(frozen=True, slots=True)
class Capacity:
    """`kv_p95`: 95th percentile of the KV cache in use (0..1, to a percent; None: no server told), over all servers of
    the workload; `preemptions`: requests thrown out for want of room (None: not told)."""

    kv_p95: float | None
    preemptions: float | None
    hours: float


def capacity_of(serving: pd.DataFrame, workload_id: str) -> Capacity | None:
    """What the servers of a workload told (`Frame.serving`); None where none did."""
    if serving.empty:
        return None
    own = serving[serving["workload_id"] == workload_id]
    if own.empty:
        return None
    preempted = own["preemptions"].dropna()
    return Capacity(
        kv_percentile(own), float(preempted.sum()) if len(preempted) else None, float(own["seconds"].sum()) / 3600
    )


def tokens_of(serving: pd.DataFrame, workload_id: str) -> float | None:
    """Tokens that the servers of a workload generated in the window; None where none told."""
    if serving.empty or "generated_tokens" not in serving:
        return None
    told = serving.loc[serving["workload_id"] == workload_id, "generated_tokens"].dropna()
    return float(told.sum()) if len(told) else None


def with_capacity(verdict: BottleneckVerdict, capacity: Capacity | None, kv_p95_min: float) -> BottleneckVerdict:
    """The verdict with the overlay ``hbm-capacity`` in its evidence, where the cache is full or requests were thrown
    out of it; unchanged otherwise."""
    if capacity is None:
        return verdict
    said: list[CodedText] = []
    if capacity.kv_p95 is not None and capacity.kv_p95 > kv_p95_min:
        said.append(
            coded(
                "kv-cache-full",
                "KV cache {kv_p95:.0%} full (95th percentile, {hours:.0f} h): limited by GPU memory "
                "capacity (hbm-capacity).",
                kv_p95=capacity.kv_p95,
                hours=capacity.hours,
            )
        )
    if capacity.preemptions is not None and capacity.preemptions >= 1:
        said.append(
            coded(
                "kv-cache-preempted",
                "{requests:.0f} requests preempted from the KV cache in {hours:.0f} h: limited by GPU "
                "memory capacity (hbm-capacity).",
                requests=capacity.preemptions,
                hours=capacity.hours,
            )
        )
    return dataclasses.replace(verdict, evidence=(*verdict.evidence, *said)) if said else verdict
