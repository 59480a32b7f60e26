"""Reads ``nodes/<provider>.yaml``: what a provider rents out, and at which list price in which region."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

from ..base.sanitize import quoted
from ..base.typed_fields import Fields
from ..base.yaml_loader import layers, read_table, yaml_files
from .types import Fabric, FigureSource, NodeSku, Price

LINKS = ("nvswitch", "nvlink-bridge", "pcie", "none", "xgmi", "unknown")
FABRICS = ("infiniband", "roce", "efa", "tcpx", "ethernet", "none", "unknown")
ANY_REGION = "global"  # a price of this region holds in every region of its provider
_BYTES_PER_GBIT = 1e9 / 8
_GIB = 1024**3


def load_nodes(
    rules_dir: Path | None = None, gpus: Collection[str] | None = None, providers: Collection[str] | None = None
) -> Mapping[str, NodeSku]:
    """Nodes by name (``provider/instance_type``).

    `gpus`: the names of the GPU catalog; a node with another GPU is refused (None: not checked). `providers`: only the
    files of these (``aws.yaml``), which is all that an agent on a node of a known provider needs; None: all.
    """
    nodes: dict[str, NodeSku] = {}
    for layer in layers(rules_dir):
        here: set[str] = set()
        for file in yaml_files(layer.joinpath("nodes")):
            if providers is not None and file.name.rpartition(".")[0] not in providers:
                continue
            top = Fields(str(file), read_table(file), file.name)
            provider = top.text("provider")
            if "/" in provider or "@" in provider:
                raise top.fault("provider", f"{quoted(provider)} holds a / or @", "Write the name alone.")
            sources = _sources(top.subtable("sources"))
            for name, entry in top.subtable("nodes").entries(lambda name: f"node {quoted(name)}"):
                node = _node(provider, name, entry, sources)
                if node.name in here:
                    raise entry.fault(None, "another file of this folder has this entry already", "Keep one.")
                here.add(node.name)
                if gpus is not None and node.gpu not in gpus:
                    raise entry.fault(
                        "gpu", f"gpu {quoted(node.gpu)} is not in the catalog", "Add it under gpus/ first."
                    )
                nodes[node.name] = node
            top.done()
    return MappingProxyType(nodes)


def _sources(table: Fields) -> Mapping[str, str]:
    return {key: table.text(key) for key in table.table}


def _node(provider: str, instance: str, entry: Fields, sources: Mapping[str, str]) -> NodeSku:
    name = f"{provider}/{instance}"
    memory_gib = entry.number_or_none("host_mem_gib", above=0)
    prices: dict[str, Price] = {}
    for fields in entry.tables("prices"):
        price = _price(name, fields, sources)
        if price.region in prices:
            raise fields.fault("region", f"region {quoted(price.region)} has a price already", "Keep one.")
        prices[price.region] = price
    note = entry.text_or_none("note")
    text = _named(entry, sources)
    return NodeSku(
        name=name,
        provider=provider,
        instance_type=instance,
        gpu=entry.text("gpu"),
        gpu_count=entry.whole("gpu_count", minimum=1, maximum=1024),
        intra_node_link=entry.text("link", LINKS),
        fabric=_fabric(entry.subtable("fabric")),
        vcpus=entry.whole_or_none("vcpus", minimum=1),
        host_mem_bytes=int(memory_gib * _GIB) if memory_gib is not None else None,
        prices=tuple(prices.values()),
        source=FigureSource(f"{text}. Note: {note}" if note else text, entry.as_of()),
        family=entry.text_or_none("family"),
    )


def _fabric(table: Fields) -> Fabric:
    gbit = table.number_or_none("gbit_per_second", above=0)
    return Fabric(
        kind=table.text("kind", FABRICS),
        bytes_per_second=gbit * _BYTES_PER_GBIT if gbit is not None else None,
        nics=table.whole_or_none("nics", minimum=1, maximum=256),
        rdma=table.flag_or_none("rdma"),
    )


def _price(node: str, table: Fields, sources: Mapping[str, str]) -> Price:
    region = table.text("region")
    return Price(
        id=f"{node}@{region}:list",
        sku=node,
        region=region,
        usd_per_hour=table.number("usd_per_hour", above=0),
        basis="list",
        source=_named(table, sources),
        as_of=table.as_of(),
    )


def _named(table: Fields, sources: Mapping[str, str]) -> str:
    return sources[table.text("source", tuple(sources))]
