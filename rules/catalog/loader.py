"""The catalog: GPUs, nodes, list prices, and nodes that differ in fabric only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..base.typed import Day, Strict, Text
from ..base.yaml_loader import packaged_rules, read
from .gpu_files import GpuLibrary, Watts, load_gpus, normalise
from .node_files import ANY_REGION, Prior, Provider, load_nodes, load_premiums, load_providers
from .types import FigureSource, GpuSku, NodeSku, Price


class Accelerator(Strict, frozen=True):
    """An accelerator for comparison, without telemetry. None: no reliable figure."""

    name: Text
    vendor: Text
    source: FigureSource
    dense_flops: Mapping[str, float] = {}
    mem_bytes: int | None = None
    mem_bandwidth_bytes_per_second: float | None = None
    note: Text | None = None


class _Accelerators(Strict, frozen=True):
    accelerators: tuple[Accelerator, ...]


class _BoardPower(Strict, frozen=True):
    source: Text
    as_of: Day
    watts: Mapping[str, Watts]


@dataclass(frozen=True)
class Catalog:
    """GPUs and nodes by name (``provider/instance_type``), and what prices rest on. `boards`: watts by normalized name
    of GPUs outside the catalog."""

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
        """The GPU of exactly this name or alias (as drivers have it); None where there is none: never the nearest."""
        return self.gpu_library.find(name)

    def gpu_asked(self, name: str) -> GpuSku | None:
        """As `gpu`, and also what a person means by a bare ``H100``. Not for telemetry."""
        key = self.gpu_library.asked.get(normalise(name))
        return self.gpu_library.find(name) or (None if key is None else self.gpus[key])

    def board_watts(self, name: str) -> float | None:
        """Board power of a GPU outside the catalog by the driver's name; None: unknown."""
        return self.boards.get(normalise(name))

    def node(self, name: str) -> NodeSku | None:
        """The node of exactly this name; None where there is none."""
        return self.nodes.get(name)

    def node_gpu_count(self, name: str) -> int | None:
        """GPUs of the node of exactly this name; None where there is none."""
        node = self.nodes.get(name)
        return node.gpu_count if node is not None else None

    def nodes_of(self, gpu: str) -> tuple[NodeSku, ...]:
        """Every node with this GPU (a catalog name)."""
        return tuple(node for node in self.nodes.values() if node.gpu == gpu)

    def price(self, node: NodeSku | str, region: str | None) -> Price | None:
        """The list price in exactly this region, or one that holds in all; None: unknown, never a neighbor's."""
        sku = self.nodes.get(node) if isinstance(node, str) else node
        by_region = {price.region: price for price in sku.prices} if sku is not None else {}
        return by_region.get(region or ANY_REGION) or by_region.get(ANY_REGION)

    def rented(self, provider: str | None) -> bool:
        """Whether a provider rents its nodes out. An unlisted one does if it has list prices."""
        listed = self.providers.get(provider or "")
        if listed is not None:
            return listed.rented
        return any(node.provider == provider and node.prices for node in self.nodes.values())

    def reference_price(self, sku: NodeSku) -> Price | None:
        """The list price where the region is unknown: the one that holds in all, else that of the provider's reference
        region, else the lowest. None: the catalog lists none."""
        provider = self.providers.get(sku.provider)
        by_region = {price.region: price for price in sku.prices}
        listed = by_region.get(ANY_REGION) or by_region.get((provider.reference_region if provider else None) or "")
        return listed or min(sku.prices, key=lambda price: (price.usd_per_hour, price.region), default=None)

    def fabric_twins(self, node: NodeSku) -> tuple[NodeSku, ...]:
        """Nodes of the same provider, family, GPU, GPU count and host whose fabric differs in kind or rate.

        An unknown host figure does not distinguish nodes.
        """
        return tuple(twin for twin in self.nodes.values() if _is_twin(node, twin))


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
    def key(node: NodeSku) -> tuple[object, ...]:
        return node.provider, node.family, node.gpu, node.gpu_count, node.intra_node_link

    def same(figure: float | None, other: float | None) -> bool:
        return figure is None or other is None or figure == other

    is_series = a.name != b.name and a.family is not None and key(a) == key(b)
    is_host = same(a.vcpus, b.vcpus) and same(a.host_mem_bytes, b.host_mem_bytes)
    same_rate = same(a.fabric.bytes_per_second, b.fabric.bytes_per_second)
    return is_series and is_host and (a.fabric.kind != b.fabric.kind or not same_rate)
