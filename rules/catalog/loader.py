"""The catalog as one value: GPUs, nodes, list prices, and what lies between two nodes that differ in fabric alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..base.typed import Day, Text
from ..base.yaml_loader import packaged_rules, read
from .gpu_files import GpuLibrary, Watts, load_gpus, normalise
from .node_files import ANY_REGION, Prior, Provider, load_nodes, load_premiums, load_providers
from .types import FigureSource, GpuSku, NodeSku, Price


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What a person may compare a GPU with, but skuwise cannot observe. None: no figure that can be relied on."""

    name: Text
    vendor: Text
    source: FigureSource
    dense_flops: Mapping[str, float] = field(default_factory=dict)
    mem_bytes: int | None = None
    mem_bandwidth_bytes_per_second: float | None = None
    note: Text | None = None


@dataclass(frozen=True)
class Catalog:
    """Everything that is for sale, as far as it is known. `nodes` by ``provider/instance_type``, `gpus` by name."""

    gpu_library: GpuLibrary
    nodes: Mapping[str, NodeSku]
    premiums: Mapping[str, Prior]
    providers: Mapping[str, Provider] = field(default_factory=dict)
    boards: Mapping[str, float] = field(default_factory=dict)
    accelerators: tuple[Accelerator, ...] = ()

    @property
    def gpus(self) -> Mapping[str, GpuSku]:
        return self.gpu_library.gpus

    def gpu(self, name: str) -> GpuSku | None:
        """The GPU of exactly this name or alias (as drivers say it); None where there is none: never the nearest."""
        return self.gpu_library.find(name)

    def board_watts(self, name: str) -> float | None:
        """Board power of a GPU outside the catalog, as the driver calls it; None: not known."""
        return self.boards.get(normalise(name))

    def gpu_asked(self, name: str) -> GpuSku | None:
        """As `gpu`, and also what a person means by a bare ``H100``. Not for telemetry."""
        found = self.gpu_library.find(name)
        key = self.gpu_library.asked.get(normalise(name))
        return found if found is not None or key is None else self.gpus[key]

    def node(self, name: str) -> NodeSku | None:
        """The node of exactly this name; None where there is none."""
        return self.nodes.get(name)

    def node_gpu_count(self, name: str) -> int | None:
        """GPUs of the node of exactly this name; None where there is none."""
        node = self.nodes.get(name)
        return node.gpu_count if node is not None else None

    def nodes_of(self, gpu: str, gpu_count: int | None = None) -> tuple[NodeSku, ...]:
        """Every node with this GPU (a catalog name), and with this many of them where given."""
        return tuple(n for n in self.nodes.values() if n.gpu == gpu and (gpu_count is None or n.gpu_count == gpu_count))

    def price(self, node: NodeSku | str, region: str | None) -> Price | None:
        """The list price in exactly this region, or one that holds in all; None: unknown, never a neighbour's."""
        sku = self.nodes.get(node) if isinstance(node, str) else node
        if sku is None:
            return None
        by_region = {price.region: price for price in sku.prices}
        return by_region.get(region or ANY_REGION) or by_region.get(ANY_REGION)

    def rented(self, provider: str | None) -> bool:
        """Whether a provider is known to rent its nodes out; an unknown one may be the team's own hall."""
        known = self.providers.get(provider or "")
        if known is not None:
            return known.rented
        return any(n.provider == provider and n.prices for n in self.nodes.values())

    def reference_price(self, sku: NodeSku) -> Price | None:
        """The list price where no region is known: the one that holds in all, else that of the provider's reference
        region, else the lowest. None: the catalog lists none."""
        provider = self.providers.get(sku.provider)
        by_region = {price.region: price for price in sku.prices}
        named = by_region.get(ANY_REGION) or by_region.get((provider.reference_region if provider else None) or "")
        return named or min(sku.prices, key=lambda p: (p.usd_per_hour, p.region), default=None)

    def fabric_twins(self, node: NodeSku) -> tuple[NodeSku, ...]:
        """Nodes of the same provider, family, GPU, GPU count and host whose fabric is another, in kind or in rate.

        A host figure that is not known on one side does not tell two nodes apart.
        """
        return tuple(twin for twin in self.nodes.values() if _is_twin(node, twin))


@dataclass(frozen=True, slots=True)
class _BoardPower:
    source: Text
    as_of: Day
    watts: Mapping[str, Watts]


@dataclass(frozen=True, slots=True)
class _Accelerators:
    accelerators: tuple[Accelerator, ...]


def load_catalog(rules_dir: Path | None = None) -> Catalog:
    """The catalog that ships, with a site's own files over it. Raises RulesError with file, key and remedy."""
    library = load_gpus(rules_dir)
    boards = read(packaged_rules().joinpath("board_power.yaml"), _BoardPower)
    return Catalog(
        library,
        load_nodes(rules_dir, library.gpus),
        load_premiums(rules_dir),
        load_providers(rules_dir),
        {normalise(name): watts for name, watts in boards.watts.items()},
        read(packaged_rules().joinpath("accelerators.yaml"), _Accelerators).accelerators,
    )


def _is_twin(a: NodeSku, b: NodeSku) -> bool:
    return (
        a.name != b.name
        and a.family is not None
        and (a.provider, a.family, a.gpu, a.gpu_count, a.intra_node_link)
        == (b.provider, b.family, b.gpu, b.gpu_count, b.intra_node_link)
        and _same(a.vcpus, b.vcpus)
        and _same(a.host_mem_bytes, b.host_mem_bytes)
        and (a.fabric.kind != b.fabric.kind or not _same(a.fabric.bytes_per_second, b.fabric.bytes_per_second))
    )


def _same(a: float | None, b: float | None) -> bool:
    return a is None or b is None or a == b
