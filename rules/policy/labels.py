"""What work can be and what can hold it back: the labels of verdicts and of simulated truth."""

from __future__ import annotations

from typing import Literal

KindLabel = Literal["training", "fine-tuning", "online-inference", "batch-inference", "interactive", "idle", "unknown"]
TRAINING_KINDS: tuple[KindLabel, ...] = ("training", "fine-tuning")
# Work that runs by itself, and work that follows requests or a person at a desk.
JOB_KINDS: tuple[KindLabel, ...] = (*TRAINING_KINDS, "batch-inference")
ON_DEMAND_KINDS: tuple[KindLabel, ...] = ("online-inference", "interactive")
# The kinds that a model of shapes distinguishes: idleness is measured, and unknown is no kind.
WorkingKind = Literal["training", "fine-tuning", "online-inference", "batch-inference", "interactive"]
WORKING_KINDS: tuple[KindLabel, ...] = (*TRAINING_KINDS, "online-inference", "batch-inference", "interactive")
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
