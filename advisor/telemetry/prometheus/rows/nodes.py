"""Nodes and GPUs as tables of the frame: what series, firmware and Kubernetes' labels say of them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from .....agent.inventory.identity.identity import REGION_LABELS, TYPE_LABELS, dmi_of, label_of, sku_by_signs
from .....agent.model import FabricPort, Gpu, Role
from .....agent.store.reading import queries as store
from .....rules.catalog.loader import Catalog
from .....rules.catalog.mig import slices_of
from .....rules.catalog.types import MEMORY_SLICES
from ....core.intervals import most_at_once
from ...resolution import concat
from ..client.response import Floats, Labels, SeriesAnswer
from ..owners.kube import KubeNode
from ..promql.labels import agent_node
from .fabric import PortRows
from .gpus import About, GpuRows

_ROLES: Mapping[str, Role] = {"compute": "compute", "storage": "storage", "management": "management"}
_MOST_GPUS = 1024  # no node comes near
_MOST_OF_A_NODE = 16  # as many as an HGX-2 has; more are copies of devices
# GPU feature discovery: how many pods of time slicing or MPS share a device.
_REPLICAS = "label_nvidia_com_gpu_replicas"
_KUBE = {
    "label_" + re.sub(r"[^a-zA-Z0-9_]", "_", name): name
    for name in (*TYPE_LABELS, *REGION_LABELS, "skuwise.io/node-sku")
}
KUBE_LABELS = (*_KUBE, _REPLICAS)
Span = tuple[float, float]


def gpu_counts(about: Mapping[str, About]) -> dict[str, int]:
    """Whole GPUs by node."""
    whole = {(gpu.node, gpu.parent or gpu.uuid or key) for key, gpu in about.items()}
    return dict(Counter(node for node, _ in whole))


def memory_of(about: About, catalog: Catalog) -> float:
    """Memory of a GPU or an instance by the catalog, for series that do not tell it; NaN where that lacks it."""
    sku = catalog.gpu(about.sku or about.name or "")
    if sku is None:
        return float("nan")
    if about.kind == "gpu":
        return float(sku.mem_bytes)
    slices = slices_of(about.mig_profile, sku)
    return float(sku.mem_bytes) * slices.memory / MEMORY_SLICES if slices is not None else float("nan")


def gpu_table(gpus: GpuRows, catalog: Catalog) -> pd.DataFrame:
    """The frame's table `gpus`: every GPU with rows, and the parents of instances."""
    seen, grid = gpus.cells.seen(), gpus.cells.grid
    named = {(one.node, one.uuid or key) for key, one in gpus.about.items()}
    columns = {
        name: gpus.cells.column(name) for name in ("mem_total_bytes", "power_limit_watts", "nvlink_bytes_per_second")
    }
    rows: list[dict[str, object]] = []
    parents: dict[tuple[str, str], dict[str, object]] = {}
    for uuid, one in gpus.about.items():
        if uuid not in seen and one.uuid and one.kind == "mig":
            continue
        row: dict[str, object] = {
            "node": one.node, "gpu_uuid": one.uuid or uuid, "name": one.name, "sku": one.sku or _sku(one.name, catalog),
            "kind": one.kind, "parent_uuid": one.parent, "mig_profile": one.mig_profile, "gpu_index": one.index,
            # What a series names and nothing was observed of exists all the same.
            "driver_version": one.driver_version, "valid_from": seen.get(uuid, (grid.start - grid.step,))[0],
        }  # fmt: skip
        for name, matrix in columns.items():
            row[name] = _last(matrix[gpus.cells.rows[uuid]]) if uuid in gpus.cells.rows else np.nan
        if np.isnan(float(row["mem_total_bytes"])):  # type: ignore[arg-type]
            row["mem_total_bytes"] = memory_of(one, catalog)
        rows.append(row)
        if one.parent is not None and (one.node, one.parent) not in named:
            parents[one.node, one.parent] = {
                **row, "gpu_uuid": one.parent, "kind": "gpu", "parent_uuid": None, "mig_profile": None,
                "mem_total_bytes": np.nan,
            }  # fmt: skip
    table = pd.DataFrame([*rows, *parents.values()])
    return concat([table] if len(table) else [], store.GPUS.columns)


def node_table(
    gpus: GpuRows, ports: PortRows, agents: Mapping[str, Labels], counts: SeriesAnswer | None, *,
    dmi: Mapping[str, Labels], kube: Mapping[str, Labels], catalog: Catalog, declared: Mapping[str, KubeNode],
    clusters: Mapping[str, str], present: Mapping[str, Span], shared: Collection[str],
) -> pd.DataFrame:  # fmt: skip
    """The frame's table `nodes`. What the agent's page says of a node (`agents`, and `counts` of GPUs) comes before
    what follows from its parts.

    `declared`: nodes that Kubernetes knows to have GPUs, some of which no exporter may report; `clusters`: the cluster
    that the series of a node name; `present`: when Kubernetes had a node, Unix seconds; `shared`: nodes whose GPUs are
    in use by several pods at once, or divided.
    """
    counted = _agents_counts(counts)
    by_node, whole = _ports_by_node(ports), _whole_gpus(gpus, catalog)
    grid, rows = gpus.cells.grid, []
    for node in sorted({*whole, *declared}):
        devices = whole.get(node, {}).values()
        listed = [gpu for gpu, _ in devices]
        spans = [(min(own)[0], max(end for _, end in own)) for _, own in devices if own]
        # A GPU that took another's place adds nothing.
        shown = most_at_once(spans, grid.step) if spans else len(listed)
        spans += [(declared[node].first, declared[node].last)] if node in declared else []
        spans += [present[node]] if node in present else []
        spans = spans or [(grid.start - grid.step, grid.end)]
        row: dict[str, object] = {"node": node, "first_seen": min(spans)[0], "last_seen": max(end for _, end in spans)}
        if (own := agents.get(node)) is not None:
            row |= {name: own.get(name) for name in ("node_sku", "node_sku_source", "provider", "instance_type")}
            row["cluster"] = own.get("exported_cluster") or own.get("cluster") or ""
            row["region"] = own.get("exported_region") or own.get("region")
        else:
            row |= by_signs(listed, by_node.get(node, ()), dmi.get(node), kube.get(node), catalog)
            row["cluster"] = clusters.get(node, "")
        if (count := counted.get(node)) is None:
            sku = row["node_sku"]
            by_others = node in shared or (isinstance(sku, str) and catalog.node(sku) is not None)
            others = _unlisted(declared.get(node), shown, listed, kube.get(node), by_others=by_others)
            count = float(shown + others)
        rows.append({**row, "gpu_count": count})
    return concat([pd.DataFrame(rows)] if rows else [], store.NODES.columns)


def _unlisted(
    offered: KubeNode | None, listed: int, gpus: Sequence[Gpu], labels: Labels | None, *, by_others: bool
) -> int:
    """GPUs that Kubernetes offers beyond the `listed` ones that exporters report, of which the numbers are those of
    `gpus`.

    Time slicing and HAMi offer each device several times, under its own name or as ``.shared``: devices are those that
    the exporter lists, and as many of them more as the capacity does not explain by copies. `by_others`: devices are
    offered several times for sure, or the SKU in the catalog says how many there are.
    """
    if offered is None or (listed and (offered.divided or by_others)):
        return 0
    replicas = (labels or {}).get(_REPLICAS, "")
    copies = int(replicas) if re.fullmatch(r"[1-9][0-9]{0,2}", replicas) else 1
    # How many pods share a device is not known: one device at least.
    shares = -(-offered.shares // copies) if copies > 1 else min(offered.shares, 1)
    count = offered.gpus // copies + shares
    numbered = max((gpu.index + 1 for gpu in gpus), default=0)
    if listed and (count > _MOST_OF_A_NODE or (numbered <= listed and count % listed == 0)):
        count = numbered
    return max(count - listed, 0)


def _agents_counts(answer: SeriesAnswer | None) -> dict[str, float]:
    """GPUs of a node by its agent. A count below one, or in parts, is no reading: hours would be invented from it."""
    found = {}
    for labels, values in zip(answer.labels, answer.values, strict=True) if answer is not None else ():
        node, known = agent_node(labels), values[(values >= 1) & (values <= _MOST_GPUS) & (values % 1 == 0)]
        if node and len(known):
            found[node] = float(known[-1])
    return found


def by_signs(
    own: Sequence[Gpu], ports: Sequence[FabricPort], firmware: Labels | None, labels: Labels | None, catalog: Catalog
) -> dict[str, object]:
    """What a node is that no agent describes, by the agent's own rules: columns of the frame's `nodes`.

    `firmware`: labels of ``node_dmi_info``; `labels`: those of ``kube_node_labels``.
    """
    words = firmware or {}
    signs = dmi_of(words.get("system_vendor", ""), words.get("product_name", ""), words.get("chassis_asset_tag", ""))
    spelled = {_KUBE[name]: value for name, value in (labels or {}).items() if name in _KUBE}
    # Without a single port it is not known whether there are none, or nobody exports them.
    seen = tuple(ports) or (FabricPort("unknown", 1),)
    sku, source = sku_by_signs(signs, spelled, own, seen, tuple(catalog.nodes.values()))
    known = catalog.node(sku) if sku else None
    return {
        "cluster": "",
        "provider": signs.provider or (known.provider if known else None),
        "region": label_of(spelled, REGION_LABELS),
        "instance_type": signs.instance_type
        or label_of(spelled, TYPE_LABELS)
        or (known.instance_type if known else None),
        "node_sku": sku,
        "node_sku_source": source,
    }


def _whole_gpus(gpus: GpuRows, catalog: Catalog) -> dict[str, dict[str, tuple[Gpu, list[Span]]]]:
    """Node -> id -> whole GPU, and when it or a part of it was observed."""
    found: dict[str, dict[str, tuple[Gpu, list[Span]]]] = defaultdict(dict)
    seen = gpus.cells.seen()
    for key, one in gpus.about.items():
        whole = one.parent or one.uuid or key
        gpu = Gpu(whole, int(np.nan_to_num(one.index)), one.name or "", _sku(one.name, catalog))
        found[one.node].setdefault(whole, (gpu, []))[1].extend([seen[key]] if key in seen else [])
    return found


def _ports_by_node(ports: PortRows) -> dict[str, list[FabricPort]]:
    found: dict[str, list[FabricPort]] = defaultdict(list)
    rates = ports.cells.column("line_rate_bytes_per_second")
    for key, row in ports.cells.rows.items():
        rate = _last(rates[row])
        role = _ROLES.get(ports.roles.get(key, ""), "unknown")
        found[key[0]].append(FabricPort(key[1], key[2], role, "InfiniBand", None if np.isnan(rate) else rate))
    return found


def _last(values: Floats) -> float:
    """The newest value; NaN where all are missing."""
    known = values[~np.isnan(values)]
    return float(known[-1]) if len(known) else float("nan")


def _sku(name: str | None, catalog: Catalog) -> str | None:
    found = catalog.gpu(name) if name else None
    return found.name if found is not None else None
