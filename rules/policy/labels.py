"""What work can be and what can hold it back: the labels of verdicts, of simulated truth and of recordings."""

from __future__ import annotations

from typing import Literal

KindLabel = Literal["training", "fine-tuning", "online-inference", "batch-inference", "interactive", "idle", "unknown"]
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
