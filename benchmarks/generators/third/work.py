"""What a workload does to its GPUs and hosts, a value a second."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .hardware import Part
from .rhythm import F

# Ratios of a GPU, as DCGM defines them (0..1), and bytes per second of a GPU.
RATIOS = ("engine", "sm", "occupancy", "tensor", "dram")
BYTES = ("nvlink_tx", "nvlink_rx", "pcie_tx", "pcie_rx", "fabric_tx", "fabric_rx")
CHANNELS = (*RATIOS, *BYTES, "memory", "clock", "cpu", "iowait", "read", "write", "storage_rx")


@dataclass(slots=True)
class Load:
    """Every channel over the same seconds. `memory`: share of the GPU's; `clock`: SM clock over boost; `cpu`: cores
    that work for each GPU; `iowait`: share of the host's cores; `read`, `write`: bytes per second of local disks;
    `fabric_*`: bytes per second of a GPU to other nodes; `storage_rx`: of the node from shared storage.

    `ranks`: channel -> a course for one rank in place of the common one, by its number. `queue`: requests in work, of
    engines that show them; `kv_share`: how full their KV cache is; `tokens`: a second.
    """

    engine: F
    sm: F
    occupancy: F
    tensor: F
    dram: F
    memory: F
    clock: F
    nvlink_tx: F
    nvlink_rx: F
    pcie_tx: F
    pcie_rx: F
    fabric_tx: F
    fabric_rx: F
    cpu: F
    iowait: F
    read: F
    write: F
    storage_rx: F
    ranks: dict[int, dict[str, F]] = field(default_factory=dict)
    queue: F | None = None
    kv_share: F | None = None
    tokens: F | None = None
    throttled: F | None = None

    @property
    def seconds(self) -> int:
        return len(self.engine)

    def of(self, channel: str, rank: int) -> F:
        rank_loads = self.ranks.get(rank, {})
        common: F = getattr(self, channel)
        return rank_loads.get(channel, common)


def at_rest(seconds: int, memory: float = 0.0) -> Load:
    """A context (or none, with no memory) and nothing that runs."""
    zero = np.zeros(seconds, np.float32)
    channels: dict[str, Any] = {name: zero.copy() for name in CHANNELS}
    channels["memory"] += np.float32(memory)
    channels["clock"] += 1
    channels["cpu"] += np.float32(0.02)
    return Load(**channels)


def power(part: Part, load: Load, rank: int, context: float, at: npt.NDArray[np.int64] | slice = slice(None)) -> F:
    """Watts at each second, or at some. `context`: where a context at rest lies between the part's least and most
    (0..1)."""
    low, high = part.context_watts
    base = np.where(load.of("memory", rank)[at] > 0.01, low + context * (high - low), part.idle_watts)
    sm, tensor, dram = (load.of(name, rank)[at] for name in ("sm", "tensor", "dram"))
    links = load.of("nvlink_tx", rank)[at] / (part.nvlink or 1e12)
    drawn = (part.tdp - high) * (0.22 * sm + 0.75 * tensor + 0.5 * dram + 0.12 * links)
    watts = base + drawn * load.of("clock", rank)[at] ** 2
    return np.minimum(watts, part.tdp * 1.01).astype(np.float32)
