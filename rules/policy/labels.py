"""What work can be and what can hold it back: the labels of verdicts and of simulated truth."""

from __future__ import annotations

from typing import Literal

KindLabel = Literal["training", "fine-tuning", "online-inference", "batch-inference", "interactive", "idle", "unknown"]
TRAINING_KINDS: tuple[KindLabel, ...] = ("training", "fine-tuning")
# Work that waits for nobody, and work that somebody's requests, or somebody at a desk, decide about.
JOB_KINDS: tuple[KindLabel, ...] = (*TRAINING_KINDS, "batch-inference")
ON_DEMAND_KINDS: tuple[KindLabel, ...] = ("online-inference", "interactive")
# What a model of shapes tells apart: idleness is counted, and unknown is no kind.
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
