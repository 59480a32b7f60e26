"""Of whom rows are wanted, where those of all would be more than is needed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

Device = tuple[str, str]  # node and GPU


@dataclass(frozen=True, slots=True)
class Only:
    """`nodes`: rows of these (None: of all); `gpus`: of these GPUs (None: of all, and of what is no GPU)."""

    nodes: Collection[str] | None = None
    gpus: Collection[Device] | None = None

    def takes(self, node: str, gpu: str | None) -> bool:
        """Whether rows of a device are wanted. `gpu`: None of what is none."""
        return (self.nodes is None or node in self.nodes) and (
            self.gpus is None or gpu is None or (node, gpu) in self.gpus
        )
