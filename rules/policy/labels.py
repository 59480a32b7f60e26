"""What work can be, what can hold it back and who owns it: labels of verdicts and of simulated truth."""

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner of a workload, as far as telemetry has it; None: unknown."""

    team: str | None = None
    user: str | None = None
    account: str | None = None
    namespace: str | None = None

    @property
    def name(self) -> str | None:
        """The team, else the namespace, account or user; None: unknown."""
        return self.team or self.namespace or self.account or self.user
