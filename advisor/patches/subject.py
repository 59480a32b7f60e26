"""What is to be changed: an accepted recommendation with what was typed beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...rules.base.errors import UsageError
from ...rules.catalog.loader import Catalog
from ...rules.catalog.types import GpuSku, NodeSku
from ..core.advice_types import SavingsBaseline
from ..ledger.entries import LedgerEntry
from ..recommend.progress import PredictionSnapshot, WorkloadAddress
from .names import mig_profile


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file that was named with ``--manifest``, byte by byte."""

    path: Path
    raw: bytes

    @property
    def name(self) -> str:
        return self.path.name


@dataclass(frozen=True, slots=True)
class Asked:
    """What was typed beside the id. None or empty: not typed, so what the ledger knows counts.

    `replicas`: how many there are now; `node_labels`: of the target's nodes; `nodes`: that are changed; `flavor`,
    `target_flavor`: Kueue's of today and of the target; `megahertz`: SM clock of one GPU.
    """

    manifests: tuple[GivenFile, ...] = ()
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None
    container: str | None = None
    replicas: int | None = None
    node_labels: tuple[tuple[str, str], ...] = ()
    nodes: tuple[str, ...] = ()
    partition: str | None = None
    feature: str | None = None
    flavor: str | None = None
    target_flavor: str | None = None
    megahertz: int | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """A recommendation that was accepted, with the catalog that tells of its SKUs."""

    entry: LedgerEntry
    ground: PredictionSnapshot
    catalog: Catalog
    asked: Asked = field(default_factory=Asked)

    @property
    def id(self) -> str:
        return self.entry.proposal.id

    @property
    def action(self) -> str:
        return self.entry.proposal.action

    @property
    def about(self) -> str:
        return self.entry.proposal.about

    @property
    def told(self) -> SavingsBaseline:
        return self.ground.yardstick

    @property
    def of_nodes(self) -> bool:
        """Whether it is about nodes alone, and no workload."""
        return self.ground.series_id is None

    @property
    def address(self) -> WorkloadAddress:
        """How its scheduler knows the workload."""
        return self.ground.address or WorkloadAddress("", self.about)

    @property
    def gpu(self) -> GpuSku | None:
        """The GPU that it runs on today."""
        return self.catalog.gpu(self.ground.source.gpu_sku) if self.ground.source.gpu_sku else None

    @property
    def target_node(self) -> NodeSku | None:
        return self.catalog.node(self.ground.target.node_sku) if self.ground.target.node_sku else None

    def mig_profile(self) -> str:
        """Raises UsageError where the ledger does not know it, or it is none."""
        found = self.told.mig_profile
        if found is None:
            raise UsageError(
                "The ledger does not know the MIG profile of this recommendation.",
                f"Run 'skuwise ledger show {self.id}' for what to do.",
            )
        return mig_profile(found)

    def mig_per_gpu(self) -> int:
        """How many instances of its profile one GPU holds."""
        name, sku = self.mig_profile(), self.gpu
        for profile in sku.mig_profiles if sku is not None else ():
            if profile.name(sku.mem_bytes) == name:  # type: ignore[union-attr]
                return min(7 // profile.compute_slices, 8 // profile.memory_slices)
        raise UsageError(
            f"{name} is not a MIG profile of {self.ground.source.gpu_sku or 'an unknown GPU'} in the catalog.",
            "Run 'skuwise skus show GPU' for its profiles.",
        )

    def nodes_to_change(self) -> tuple[str, ...]:
        """Nodes that a patch of nodes changes. Raises UsageError where they are not known."""
        known = self.told.freed if self.action == "consolidate" else self.told.nodes if self.of_nodes else ()
        found = self.asked.nodes or known or (() if self.action == "consolidate" else self.ground.nodes)
        if not found:
            raise UsageError("The ledger does not know which nodes this recommendation changes.", "Set --node NAME.")
        return tuple(dict.fromkeys(found))
