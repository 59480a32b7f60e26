"""What this node is: its name, machine and boot, its provider, and the SKU it is rented as.

The SKU comes from the settings, then from DMI (AWS writes the instance type there), a node label, or the node's shape.
A shape that fits several SKUs names none: a wrong price is worse than an unknown one. Clouds' metadata services are not
asked.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ... import __version__
from ...rules.catalog.types import Fabric, NodeSku
from ..base.safe_text import clean_text
from ..config import AgentConfig
from ..model import FabricPort, Gpu, Node
from .processes import read_bytes

LABELS_FILE = "skuwise/node-labels"
_SKU_LABELS = ("skuwise.io/node-sku",)
TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
REGION_LABELS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")

_DMI_FILES = ("sys_vendor", "product_name", "chassis_asset_tag")  # serial numbers are not read
_HEX_ID = re.compile(r"[0-9a-fA-F-]{32,36}")
_AWS_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
# Product or chassis, as cloud-init's ds-identify recognises them.
_MARKS = {"7783-7084-3265-9085-8269-3286-77": "azure", "Google Compute Engine": "gcp", "OracleCloud.com": "oci"}
# Providers whose machines always carry a mark: where DMI is readable and shows none, they are ruled out.
MARKED = frozenset({"aws", "azure", "gcp", "oci"})
_FABRICS = {"InfiniBand": "infiniband", "Ethernet": "roce", "EFA": "efa"}
# Line rates in catalogs are nominal; 5 % covers what drivers round.
_RATE_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Dmi:
    """What the firmware says. `readable`: it said anything at all."""

    provider: str | None = None
    instance_type: str | None = None
    readable: bool = False


def identify(
    config: AgentConfig,
    etc: Path,
    environ: Mapping[str, str],
    gpus: Sequence[Gpu],
    ports: Sequence[FabricPort],
    *,
    node_skus: Sequence[NodeSku],
    unread_gpus: int = 0,
) -> Node:
    """This node. `node_skus` is the catalog; a SKU that it lacks is still named where configuration or DMI name it.
    `unread_gpus`: how many the driver counts but cannot read; a node with such has no shape that names a SKU.
    `node_sku_source` is config, dmi, label or shape; with no SKU ``ambiguous-shape`` (several fit) or ``unknown-shape``
    (none fits), or None on a node whose GPUs are none, mixed or unknown."""
    dmi = dmi_of(*(clean_text(read_bytes(config.sysfs / "class/dmi/id" / name)) for name in _DMI_FILES))
    # Lines ``key="value"``, as the Kubernetes downward API writes them; all else is passed over.
    lines = read_bytes(etc / LABELS_FILE, 1 << 20).decode("utf-8", "replace").splitlines()
    pairs = (line.partition("=") for line in lines)
    labels = {clean_text(key): clean_text(value.strip().strip('"')) for key, equals, value in pairs if equals}
    if config.node_sku:
        sku, source = clean_text(config.node_sku), "config"
    else:
        sku, source = sku_by_signs(dmi, labels, () if unread_gpus else gpus, ports, node_skus)
    node_sku = next((s for s in node_skus if s.name == sku), None)
    names = (environ.get("NODE_NAME", ""), config.node, read_bytes(config.procfs / "sys/kernel/hostname"))
    return Node(
        node=next(filter(None, map(clean_text, names)), "localhost"),
        cluster=clean_text(config.cluster),
        machine_id=_id(etc / "machine-id"),
        boot_id=_id(config.procfs / "sys/kernel/random/boot_id"),
        provider=dmi.provider or (node_sku.provider if node_sku else None),
        region=label_of(labels, REGION_LABELS),
        instance_type=dmi.instance_type
        or label_of(labels, TYPE_LABELS)
        or (node_sku.instance_type if node_sku else None),
        node_sku=sku,
        node_sku_source=source,
        gpu_count=sum(gpu.kind == "gpu" for gpu in gpus) + unread_gpus,
        agent_version=__version__,
    )


def sku_by_signs(
    dmi: Dmi, labels: Mapping[str, str], gpus: Sequence[Gpu], ports: Sequence[FabricPort], node_skus: Sequence[NodeSku]
) -> tuple[str | None, str | None]:
    """A node's SKU and where it came from, as far as firmware, labels (Kubernetes' names) and shape allow."""
    if dmi.provider and dmi.instance_type:
        return f"{dmi.provider}/{dmi.instance_type}", "dmi"
    labelled, instance_type = label_of(labels, _SKU_LABELS), label_of(labels, TYPE_LABELS)
    if labelled is None and instance_type is not None:
        # Without a provider the type must be one that only a single provider has.
        named = {sku.name for sku in node_skus if sku.instance_type == instance_type}
        labelled = f"{dmi.provider}/{instance_type}" if dmi.provider else named.pop() if len(named) == 1 else None
    if labelled is not None:
        return labelled, "label"
    whole = [gpu for gpu in gpus if gpu.kind == "gpu"]
    if not whole or whole[0].sku is None or len({gpu.sku for gpu in whole}) != 1:
        return None, None
    names = [
        sku.name
        for sku in node_skus
        if (sku.gpu, sku.gpu_count) == (whole[0].sku, len(whole))
        and (sku.provider == dmi.provider if dmi.provider else not (dmi.readable and sku.provider in MARKED))
        and _has_fabric(ports, sku.fabric)
    ]
    return (names[0], "shape") if len(names) == 1 else (None, "ambiguous-shape" if names else "unknown-shape")


def label_of(labels: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((labels[name] for name in names if labels.get(name)), None)


def dmi_of(vendor: str, product: str, chassis: str) -> Dmi:
    """What the three words of the firmware mean; empty: it does not say."""
    readable = bool(vendor or product or chassis)
    if vendor == "Amazon EC2":
        return Dmi("aws", product if _AWS_TYPE.fullmatch(product) else None, readable)
    return Dmi(_MARKS.get(chassis) or _MARKS.get(product), readable=readable)


def _has_fabric(ports: Sequence[FabricPort], fabric: Fabric) -> bool:
    """Whether the compute ports may be a SKU's. Ports that are down and unknown roles fit any; no port: no RDMA."""
    if not ports:
        return not fabric.rdma or fabric.kind in ("ethernet", "tcpx", "none")
    compute = [port for port in ports if port.role == "compute"]
    kinds = {_FABRICS[port.link_layer] for port in compute}
    if len(kinds) != 1:
        return True
    rates = [rate for port in compute if (rate := port.line_rate_bytes_per_second) is not None]
    nominal = fabric.bytes_per_second
    fits = nominal is None or len(rates) < len(compute) or abs(sum(rates) - nominal) <= _RATE_TOLERANCE * nominal
    return fits and kinds == {fabric.kind}


def _id(path: Path) -> str | None:
    text = clean_text(read_bytes(path))
    return text.lower() if _HEX_ID.fullmatch(text) else None
