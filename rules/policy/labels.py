"""What work can be and what can hold it back: the labels of verdicts and of simulated truth."""

from __future__ import annotations

from typing import Literal, get_args

KindLabel = Literal["training", "fine-tuning", "online-inference", "batch-inference", "interactive", "idle", "unknown"]
# What a model of shapes tells apart: idleness is counted, and unknown is no kind.
WORKING_KINDS = tuple(kind for kind in get_args(KindLabel) if kind not in ("idle", "unknown"))
BottleneckLabel = Literal[
    "compute",
    "hbm-bandwidth",
    "nvlink",
    "network",
    "pcie",
    "host-input",
    "straggler",
    "latency",
    "throttled",
    "idle",
    "mixed",
    "unknown",
]
