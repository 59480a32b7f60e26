"""The catalog: GPUs, nodes and their list prices by region (``nodes/<provider>.yaml``), nodes that differ in fabric
only, and the price of an interconnect. Where a region or a pair of prices is missing, ``providers.yaml`` and
``premiums.yaml`` have the assumptions."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ..base.typed import AsOf, Count, Name, Positive, Sourced, Strict, Text, check_known, place
from ..base.yaml_loader import layers, packaged_rules, read, read_folders, read_layers
from .gpu_files import Watts, load_gpus, normalise, with_note
from .types import GIB, Fabric, FigureSource, GpuSku, NodeSku, Price

ANY_REGION = "global"  # a price of this region holds in every region of its provider
# The priors where there is no pair (rules/premiums.yaml).
FABRIC_PRIOR = "fabric-added"
NVLINK_PRIORS = {"nvswitch": "nvswitch", "nvlink-bridge": "nvlink-bridge"}
_BYTES_PER_GBIT = 1e9 / 8
Ratio = Annotated[float, Meta(ge=0, le=5)]

# The price of a node (by its name) in a region; None: unknown.
PriceOf = Callable[[str, str | None], Price | None]


class Prior(Strict, frozen=True):
    """An assumed price: the node with the better interconnect costs `low` to `high` more (ratio of the node's price).
    `pairs`: the observed prices behind it, with sources."""

    low: Ratio
    likely: Ratio
    high: Ratio
    basis: Literal["assumed"]
    text: Text
    as_of: AsOf
    pairs: tuple[Text, ...] = ()

    def __post_init__(self) -> None:
        if not self.low <= self.likely <= self.high:
            raise ValueError("'low', 'likely' and 'high' are out of order", "Sort them.")


class Provider(Sourced, frozen=True):
    """`rented`: False where the nodes are owned. `reference_region`: whose list price is assumed; None: none."""

    rented: bool
    reference_region: Text | None = None


class _Price(Sourced, frozen=True):
    region: Text
    usd_per_hour: Positive


class _Fabric(Strict, frozen=True):
    kind: Literal["infiniband", "roce", "efa", "tcpx", "ethernet", "none", "unknown"]
    gbit_per_second: Positive | None = None
    nics: Annotated[int, Meta(ge=1, le=256)] | None = None
    rdma: bool | None = None


class _Node(Sourced, frozen=True):
    gpu: Text
    gpu_count: Annotated[int, Meta(ge=1, le=1024)]
    link: Literal["nvswitch", "nvlink-bridge", "pcie", "none", "xgmi", "unknown"]
    fabric: _Fabric
    family: Text | None = None
    vcpus: Count | None = None
    host_mem_gib: Positive | None = None
    prices: tuple[_Price, ...] = ()
    note: Text | None = None

    def __post_init__(self) -> None:
        if len({price.region for price in self.prices}) < len(self.prices):
            raise ValueError("a region has two prices", "Keep one.")


class _Nodes(Strict, frozen=True):
    provider: Annotated[str, Meta(pattern=r"\A(?#a name without / and @)[^/@\x00-\x1f]+\Z")]
    sources: Mapping[Name, Text]
    nodes: Mapping[Name, _Node]


class _BoardPower(Sourced, frozen=True):
    watts: Mapping[str, Watts]


@dataclass(frozen=True)
class Catalog:
    """GPUs and nodes by name (``provider/instance_type``), and what prices rest on. `index` maps normalized names and
    aliases of GPUs to their names, `asked` also what only people type. `boards`: watts by normalized name of GPUs
    outside the catalog."""

    gpus: Mapping[str, GpuSku]
    index: Mapping[str, str]
    asked: Mapping[str, str]
    nodes: Mapping[str, NodeSku]
    premiums: Mapping[str, Prior]
    providers: Mapping[str, Provider] = field(default_factory=dict)
    boards: Mapping[str, float] = field(default_factory=dict)

    def gpu(self, name: str) -> GpuSku | None:
        """The GPU of exactly this name or alias (as drivers have it); None where there is none: never the nearest."""
        return self.gpus.get(self.index.get(normalise(name), ""))

    def gpu_asked(self, name: str) -> GpuSku | None:
        """As `gpu`, and also what a person means by a bare ``H100``. Not for telemetry."""
        return self.gpus.get(self.asked.get(normalise(name), ""))

    def node(self, name: str) -> NodeSku | None:
        return self.nodes.get(name)

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
        if (listed := self.providers.get(provider or "")) is not None:
            return listed.rented
        return any(node.provider == provider and node.prices for node in self.nodes.values())

    def reference_price(self, sku: NodeSku) -> Price | None:
        """The list price where the region is unknown: the one that holds in all, else that of the provider's reference
        region, else the lowest. None: the catalog lists none."""
        provider = self.providers.get(sku.provider)
        listed = self.price(sku, None) or self.price(sku, provider.reference_region if provider else None)
        return listed or min(sku.prices, key=lambda price: (price.usd_per_hour, price.region), default=None)

    def fabric_twins(self, node: NodeSku) -> tuple[NodeSku, ...]:
        """Nodes of the same family and host whose fabric differs in kind or rate. An unknown figure sets none apart."""

        def key(sku: NodeSku) -> tuple[object, ...]:
            return sku.family, sku.provider, sku.gpu, sku.gpu_count, sku.intra_node_link

        def same(*figures: float | None) -> bool:
            return None in figures or len({*figures}) == 1

        twins = (n for n in self.nodes.values() if n.name != node.name and node.family and key(n) == key(node))
        hosts = (n for n in twins if same(n.vcpus, node.vcpus) and same(n.host_mem_bytes, node.host_mem_bytes))
        fabric, rate = node.fabric.kind, node.fabric.bytes_per_second
        return tuple(n for n in hosts if n.fabric.kind != fabric or not same(n.fabric.bytes_per_second, rate))


@dataclass(frozen=True, slots=True)
class Premium:
    """The part of a node's price for its fabric (or NVLink). `twin`: the price of the node without it; None: `assumed`
    by the catalog's prior named `prior`."""

    usd_per_hour: float
    share: float
    assumed: bool
    twin: Price | None
    price: Price
    prior: str | None = None


def load_catalog(rules_dir: Path | None = None) -> Catalog:
    """The catalog that ships, with a site's own files over it. Raises RulesError with file, key and remedy."""
    gpus, index, asked = load_gpus(rules_dir)
    boards = read(packaged_rules() / "board_power.yaml", _BoardPower)
    return Catalog(
        gpus,
        index,
        asked,
        nodes=load_nodes(rules_dir, gpus),
        premiums=load_premiums(rules_dir),
        providers=load_providers(rules_dir),
        boards={normalise(name): watts for name, watts in boards.watts.items()},
    )


def load_premiums(rules_dir: Path | None = None) -> Mapping[str, Prior]:
    """Every prior by its id; a site's file replaces those it names. Raises RulesError."""
    of_layers = read_layers(rules_dir, "premiums.yaml", dict[Literal["premiums"], dict[Name, Prior]])
    return {name: prior for _, _, table in of_layers for name, prior in table.get("premiums", {}).items()}


def load_providers(rules_dir: Path | None = None) -> Mapping[str, Provider]:
    """Every provider by its name; a site's file replaces those it names. Raises RulesError."""
    of_layers = read_layers(rules_dir, "providers.yaml", dict[Literal["providers"], dict[Name, Provider]])
    return {name: provider for _, _, table in of_layers for name, provider in table.get("providers", {}).items()}


def load_nodes(rules_dir: Path | None = None, gpus: Collection[str] | None = None) -> Mapping[str, NodeSku]:
    """Nodes by name (``provider/instance_type``). `gpus`: names of the GPU catalog; a node with another GPU is refused
    (None: not checked). Raises RulesError."""

    def use(file: object, top: _Nodes) -> Mapping[str, NodeSku]:
        for instance, entry in top.nodes.items():
            at = place("nodes", instance)
            sources = (entry.source, *(price.source for price in entry.prices))
            check_known(file, at, "source", sources, top.sources)
            check_known(file, at, "gpu", [entry.gpu] if gpus is not None else (), gpus or ())
        return {f"{top.provider}/{instance}": _node(top, instance, entry) for instance, entry in top.nodes.items()}

    return read_folders([layer / "nodes" for _, layer in layers(rules_dir)], _Nodes, use)


def _node(file: _Nodes, instance: str, entry: _Node) -> NodeSku:
    name, fabric, rate = f"{file.provider}/{instance}", entry.fabric, entry.fabric.gbit_per_second
    return NodeSku(
        name=name,
        provider=file.provider,
        instance_type=instance,
        gpu=entry.gpu,
        gpu_count=entry.gpu_count,
        intra_node_link=entry.link,
        fabric=Fabric(fabric.kind, None if rate is None else rate * _BYTES_PER_GBIT, fabric.nics, fabric.rdma),
        vcpus=entry.vcpus,
        host_mem_bytes=None if entry.host_mem_gib is None else int(entry.host_mem_gib * GIB),
        prices=tuple(
            Price(f"{name}@{p.region}:list", name, p.region, p.usd_per_hour, "list", file.sources[p.source], p.as_of)
            for p in entry.prices
        ),
        source=FigureSource(with_note(file.sources[entry.source], entry.note), entry.as_of),
        family=entry.family,
    )


def fabric_premium(catalog: Catalog, price_of: PriceOf, sku: NodeSku, region: str | None) -> Premium | None:
    """From the pair with and without the fabric at the same provider and region, else the prior. None: the price is
    unknown, or the node has no RDMA fabric."""
    without = [price_of(twin.name, region) for twin in twins_without_fabric(catalog, sku)]
    return _premium(price_of(sku.name, region), without, catalog, FABRIC_PRIOR if sku.fabric.rdma else None)


def nvlink_premium(catalog: Catalog, price_of: PriceOf, sku: NodeSku, region: str | None) -> Premium | None:
    """From PCIe cards of the same GPU name at the same provider and region (a slower part where the form differs), else
    the prior. None: no price, or the catalog has no NVLink there."""

    def key(node: NodeSku) -> tuple[object, ...]:
        return node.provider, node.gpu.partition("-")[0], node.gpu_count, node.fabric.rdma

    if sku.intra_node_link not in NVLINK_PRIORS:
        return None
    cards = (node for node in catalog.nodes.values() if node.intra_node_link == "pcie" and key(node) == key(sku))
    without = [price_of(card.name, region) for card in cards]
    return _premium(price_of(sku.name, region), without, catalog, NVLINK_PRIORS[sku.intra_node_link])


def twins_without_fabric(catalog: Catalog, sku: NodeSku) -> tuple[NodeSku, ...]:
    """The same node without an RDMA fabric; where it has none itself, the same node with a slower network."""
    here = sku.fabric.bytes_per_second or 0.0
    twins = (twin for twin in catalog.fabric_twins(sku) if twin.fabric.rdma is False)
    return tuple(twin for twin in twins if sku.fabric.rdma or (twin.fabric.bytes_per_second or 0.0) < here)


def _premium(
    price: Price | None, without: Iterable[Price | None], catalog: Catalog, prior: str | None
) -> Premium | None:
    if price is None:
        return None
    comparable = [twin for twin in without if twin is not None and twin.basis == price.basis]
    if comparable:
        cheapest = min(comparable, key=lambda twin: (twin.usd_per_hour, twin.id))
        usd = max(price.usd_per_hour - cheapest.usd_per_hour, 0.0)
        return Premium(usd, usd / price.usd_per_hour, False, cheapest, price)
    if prior is None:
        return None
    likely = catalog.premiums[prior].likely
    share = likely / (1 + likely)
    return Premium(price.usd_per_hour * share, share, True, None, price, prior)
