"""Reads ``nodes/<provider>.yaml``, ``providers.yaml`` and ``premiums.yaml``: node types, their list prices by region,
and the assumptions where a region or a pair of prices is missing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ..base.sanitize import quoted, suggest
from ..base.typed import AsOf, Count, Day, Name, Positive, Strict, Text, place, wrong
from ..base.yaml_loader import read_folders, read_named
from .gpu_files import with_note
from .types import Fabric, FigureSource, NodeSku, Price

ANY_REGION = "global"  # a price of this region holds in every region of its provider
_BYTES_PER_GBIT = 1e9 / 8
_GIB = 1024**3
Ratio = Annotated[float, Meta(ge=0, le=5)]


class Prior(Strict, frozen=True):
    """An assumed price: the node with the better interconnect costs `low` to `high` more (ratio of the node's price).

    `pairs`: the observed prices behind it, with sources. Every text that uses a prior says that it is assumed.
    """

    low: Ratio
    likely: Ratio
    high: Ratio
    basis: Literal["assumed"]
    text: Text
    as_of: Day
    pairs: tuple[Text, ...] = ()

    def __post_init__(self) -> None:
        if not self.low <= self.likely <= self.high:
            raise ValueError("'low', 'likely' and 'high' are out of order", "Sort them.")


class Provider(Strict, frozen=True):
    """`rented`: False where the nodes are owned. `reference_region`: whose list price is assumed; None: none."""

    rented: bool
    source: Text
    as_of: AsOf
    reference_region: Text | None = None

    def __post_init__(self) -> None:
        if self.reference_region == ANY_REGION:
            raise ValueError(f"'reference_region' is {ANY_REGION}, which is no region", "Remove it.")
        if self.reference_region is not None and not self.rented:
            raise ValueError("owned nodes have no list price to assume", "Remove 'reference_region'.")


class _Price(Strict, frozen=True):
    region: Text
    usd_per_hour: Positive
    source: Text
    as_of: AsOf


class _Fabric(Strict, frozen=True):
    kind: Literal["infiniband", "roce", "efa", "tcpx", "ethernet", "none", "unknown"]
    gbit_per_second: Positive | None = None
    nics: Annotated[int, Meta(ge=1, le=256)] | None = None
    rdma: bool | None = None


class _Node(Strict, frozen=True):
    gpu: Text
    gpu_count: Annotated[int, Meta(ge=1, le=1024)]
    link: Literal["nvswitch", "nvlink-bridge", "pcie", "none", "xgmi", "unknown"]
    fabric: _Fabric
    source: Text
    as_of: AsOf
    family: Text | None = None
    vcpus: Count | None = None
    host_mem_gib: Positive | None = None
    prices: tuple[_Price, ...] = ()
    note: Text | None = None

    def __post_init__(self) -> None:
        if len({price.region for price in self.prices}) < len(self.prices):
            raise ValueError("a region has two prices", "Keep one.")


class _File(Strict, frozen=True):
    provider: Annotated[str, Meta(pattern=r"\A(?#a name without / and @)[^/@\x00-\x1f]+\Z")]
    sources: Mapping[Name, Text]
    nodes: Mapping[Name, _Node]


def load_premiums(rules_dir: Path | None = None) -> Mapping[str, Prior]:
    """Every prior by its id; a site's file replaces those it names. Raises RulesError."""
    return read_named(rules_dir, "premiums.yaml", Prior)


def load_providers(rules_dir: Path | None = None) -> Mapping[str, Provider]:
    """Every provider by its name; a site's file replaces those it names. Raises RulesError."""
    return read_named(rules_dir, "providers.yaml", Provider)


def load_nodes(rules_dir: Path | None = None, gpus: Collection[str] | None = None) -> Mapping[str, NodeSku]:
    """Nodes by name (``provider/instance_type``). `gpus`: names of the GPU catalog; a node with another GPU is refused
    (None: not checked). Raises RulesError."""

    def use(file: object, top: _File) -> Mapping[str, NodeSku]:
        for instance, entry in top.nodes.items():
            at = place("nodes", instance)
            for source in (entry.source, *(price.source for price in entry.prices)):
                if source not in top.sources:
                    near = suggest(source, top.sources) or f"Known are {', '.join(top.sources)}."
                    raise wrong(file, at, f"unknown source {quoted(source)}", near)
            if gpus is not None and entry.gpu not in gpus:
                raise wrong(file, at, f"gpu {quoted(entry.gpu)} is not in the catalog", "Add it under gpus/ first.")
        return {f"{top.provider}/{instance}": _node(top, instance, entry) for instance, entry in top.nodes.items()}

    return read_folders(rules_dir, "nodes", _File, use)


def _node(file: _File, instance: str, entry: _Node) -> NodeSku:
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
        host_mem_bytes=None if entry.host_mem_gib is None else int(entry.host_mem_gib * _GIB),
        prices=tuple(
            Price(
                f"{name}@{price.region}:list", name, price.region, price.usd_per_hour, "list",
                file.sources[price.source], price.as_of,
            )
            for price in entry.prices
        ),
        source=FigureSource(with_note(file.sources[entry.source], entry.note), entry.as_of),
        family=entry.family,
    )  # fmt: skip
