"""What this node is: its name, machine and boot, its provider, and the SKU it is rented as.

The SKU comes from what is configured, then from DMI (AWS writes the instance type there), then from a node label, then
from the node's shape. A shape that fits several SKUs names none: a wrong price is worse than an unknown one. Cloud
metadata services would stand between configuration and DMI and are not asked: the agent opens no connection.

Labels are read from ``skuwise/node-labels`` under `etc`: lines ``key="value"``, as the Kubernetes downward API writes
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ... import __version__
from ...rules.base.files import read_bounded
from ...rules.catalog.types import NodeSku
from ..base.safe_text import clean_text
from ..model import FabricPort, Gpu, Node

LABELS_FILE = "skuwise/node-labels"
_SKU_LABELS = ("skuwise.io/node-sku", "SKUWISE_NODE_SKU")
TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
REGION_LABELS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")

_HEX_ID = re.compile(r"[0-9a-fA-F-]{32,36}")
_AWS_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
# cloud-init's ds-identify recognises the same marks.
_AZURE_CHASSIS = "7783-7084-3265-9085-8269-3286-77"
_ORACLE_CHASSIS = "OracleCloud.com"
# Providers whose machines always carry a mark: where DMI is readable and shows none, they are ruled out.
MARKED = frozenset({"aws", "azure", "gcp", "oci"})
# Line rates in catalogs are nominal; 5 % covers what drivers round.
_RATE_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Dmi:
    """What the firmware says. `readable`: it said anything at all."""

    provider: str | None = None
    instance_type: str | None = None
    readable: bool = False


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What the node is made of. `fabric` None: not known (ports that are down, or roles that nothing tells)."""

    gpu_sku: str
    gpu_count: int
    fabric: str | None
    fabric_bytes_per_second: float | None


def identify(
    *,
    config_node: str,
    config_cluster: str,
    config_sku: str,
    sysfs: Path,
    procfs: Path,
    etc: Path,
    environ: Mapping[str, str],
    gpus: Sequence[Gpu],
    unnamed_gpus: int = 0,
    ports: Sequence[FabricPort] = (),
    node_skus: Sequence[NodeSku] = (),
) -> Node:
    """This node. `node_skus` is the catalog; a SKU that it lacks is still named where configuration or DMI name it.

    `node_sku_source` is config, dmi, label or shape; with no SKU it is ``ambiguous-shape`` (several fit) or
    ``unknown-shape`` (none fits), or None on a node whose GPUs are none, mixed or unknown. `unnamed_gpus`: how many
    more the driver counts that do not answer; the shape of the rest names no SKU.
    """
    dmi = read_dmi(sysfs)
    labels = read_labels(etc / LABELS_FILE)
    if config_sku:
        sku, source = clean_text(config_sku), "config"
    else:
        named = {name: clean_text(environ.get(name, "")) for name in _SKU_LABELS[1:]}
        sku, source = sku_by_signs(dmi, {**named, **labels}, () if unnamed_gpus else gpus, ports, node_skus)
    known = next((s for s in node_skus if s.name == sku), None)
    return Node(
        node=_node_name(config_node, environ, procfs),
        cluster=clean_text(config_cluster),
        machine_id=_id(etc / "machine-id"),
        boot_id=_id(procfs / "sys/kernel/random/boot_id"),
        provider=dmi.provider or (known.provider if known else None),
        region=label_of(labels, REGION_LABELS),
        instance_type=dmi.instance_type or label_of(labels, TYPE_LABELS) or (known.instance_type if known else None),
        node_sku=sku,
        node_sku_source=source,
        gpu_count=sum(gpu.kind == "gpu" for gpu in gpus) + unnamed_gpus,
        agent_version=__version__,
    )


def sku_by_signs(
    dmi: Dmi, labels: Mapping[str, str], gpus: Sequence[Gpu], ports: Sequence[FabricPort], node_skus: Sequence[NodeSku]
) -> tuple[str | None, str | None]:
    """A node's SKU and where it came from, as far as firmware, labels (Kubernetes' names) and shape tell."""
    if dmi.provider and dmi.instance_type:
        return f"{dmi.provider}/{dmi.instance_type}", "dmi"
    if (labelled := _labelled_sku(labels, dmi, node_skus)) is not None:
        return labelled, "label"
    return _shaped_sku(shape_of(gpus, ports), dmi, node_skus)


def read_dmi(sysfs: Path) -> Dmi:
    """Provider and instance type as far as the firmware tells them. Serial numbers are not read."""
    folder = sysfs / "class/dmi/id"
    vendor, product, chassis = (_read(folder / n) for n in ("sys_vendor", "product_name", "chassis_asset_tag"))
    return dmi_of(vendor, product, chassis)


def dmi_of(vendor: str, product: str, chassis: str) -> Dmi:
    """What the three words of the firmware mean; empty: it does not say."""
    readable = bool(vendor or product or chassis)
    if vendor == "Amazon EC2":
        return Dmi("aws", product if _AWS_TYPE.fullmatch(product) else None, readable)
    if chassis == _AZURE_CHASSIS:
        return Dmi("azure", None, readable)
    if product == "Google Compute Engine":
        return Dmi("gcp", None, readable)
    if chassis == _ORACLE_CHASSIS:
        return Dmi("oci", None, readable)
    return Dmi(readable=readable)


def read_labels(path: Path) -> dict[str, str]:
    """``key="value"`` lines; anything else in the file is passed over."""
    try:
        lines = read_bounded(path, 1 << 20).decode("utf-8", "replace").splitlines()
    except OSError:
        return {}
    labels: dict[str, str] = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if equals and key.strip():
            labels[clean_text(key)] = clean_text(value.strip().strip('"'))
    return labels


def shape_of(gpus: Sequence[Gpu], ports: Sequence[FabricPort]) -> NodeShape | None:
    """The node's shape, or None without GPUs of one known SKU."""
    whole = [gpu for gpu in gpus if gpu.kind == "gpu"]
    skus = {gpu.sku for gpu in whole}
    if len(skus) != 1 or None in skus:
        return None
    fabric, rate = _fabric(ports)
    return NodeShape(str(skus.pop()), len(whole), fabric, rate)


def fitting_skus(shape: NodeShape, node_skus: Sequence[NodeSku], dmi: Dmi) -> list[NodeSku]:
    """The SKUs that the shape fits, of the provider if that is known."""

    def fits(sku: NodeSku) -> bool:
        if (sku.gpu, sku.gpu_count) != (shape.gpu_sku, shape.gpu_count):
            return False
        if dmi.provider is not None and sku.provider != dmi.provider:
            return False
        if dmi.provider is None and dmi.readable and sku.provider in MARKED:
            return False
        return _fabric_fits(shape, sku)

    return [sku for sku in node_skus if fits(sku)]


def _shaped_sku(shape: NodeShape | None, dmi: Dmi, node_skus: Sequence[NodeSku]) -> tuple[str | None, str | None]:
    if shape is None:
        return None, None
    found = fitting_skus(shape, node_skus, dmi)
    if len(found) == 1:
        return found[0].name, "shape"
    return None, "ambiguous-shape" if found else "unknown-shape"


def _labelled_sku(labels: Mapping[str, str], dmi: Dmi, node_skus: Sequence[NodeSku]) -> str | None:
    named = label_of(labels, _SKU_LABELS)
    if named:
        return named
    instance_type = label_of(labels, TYPE_LABELS)
    if instance_type is None:
        return None
    if dmi.provider is not None:
        return f"{dmi.provider}/{instance_type}"
    # Without a provider the type must be one that only a single provider has.
    found = {sku.name for sku in node_skus if sku.instance_type == instance_type}
    return found.pop() if len(found) == 1 else None


def _fabric(ports: Sequence[FabricPort]) -> tuple[str | None, float | None]:
    """Kind and total one-way rate of the compute ports. Without any port at all the node has no RDMA: ``none``."""
    if not ports:
        return "none", None
    compute = [port for port in ports if port.role == "compute"]
    if not compute:
        return None, None
    layers = {port.link_layer for port in compute}
    if len(layers) != 1:
        return None, None
    kind = {"InfiniBand": "infiniband", "Ethernet": "roce", "EFA": "efa"}[layers.pop()]
    rates = [port.line_rate_bytes_per_second for port in compute]
    return kind, sum(r for r in rates if r is not None) if None not in rates else None


def _fabric_fits(shape: NodeShape, sku: NodeSku) -> bool:
    if shape.fabric is None:
        return True
    if shape.fabric == "none":
        return not sku.fabric.rdma or sku.fabric.kind in ("ethernet", "tcpx", "none")
    if sku.fabric.kind != shape.fabric:
        return False
    seen, nominal = shape.fabric_bytes_per_second, sku.fabric.bytes_per_second
    return seen is None or nominal is None or abs(seen - nominal) <= _RATE_TOLERANCE * nominal


def _node_name(config_node: str, environ: Mapping[str, str], procfs: Path) -> str:
    for name in (environ.get("NODE_NAME", ""), config_node, _read(procfs / "sys/kernel/hostname")):
        if cleaned := clean_text(name):
            return cleaned
    return "localhost"


def label_of(labels: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((labels[name] for name in names if labels.get(name)), None)


def _id(path: Path) -> str | None:
    text = _read(path)
    return text.lower() if _HEX_ID.fullmatch(text) else None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return clean_text(file.read(1024))
    except OSError:
        return ""
