"""Nodes and GPUs as tables of the frame: what series, firmware and Kubernetes' labels say of them."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import pandas as pd

from .....agent.jobs.identity import REGION_LABELS, TYPE_LABELS, dmi_of, label_of, sku_by_signs
from .....agent.model import FabricPort, Gpu, Role
from .....rules.catalog.loader import Catalog
from .....rules.catalog.types import MEMORY_SLICES, slices_of
from ....core.scalars import most_at_once
from ... import queries as store
from ...resolution import concat
from ..client.response import Labels, SeriesAnswer
from ..owners.kube import MOST_GPUS, KubeNode
from ..promql.promql import agent_node
from .fabric import PortRows
from .gpus import About, GpuRows
from .series_to_rows import Matrix

# GPU feature discovery: how many pods of time slicing or MPS share a device.
_REPLICAS = "label_nvidia_com_gpu_replicas"
_KUBE = {
    "label_" + re.sub(r"[^a-zA-Z0-9_]", "_", name): name
    for name in (*TYPE_LABELS, *REGION_LABELS, "skuwise.io/node-sku")
}
KUBE_LABELS = (*_KUBE, _REPLICAS)
Span = tuple[float, float]


def gpu_counts(about: Mapping[str, About]) -> Counter[str]:
    """Whole GPUs by node."""
    return Counter(node for node, _ in {(gpu.node, gpu.parent or gpu.uuid or key) for key, gpu in about.items()})


def memory_of(about: About, catalog: Catalog) -> float:
    """Memory of a GPU or an instance by the catalog, for series without it; NaN where the catalog lacks it."""
    sku = catalog.gpu(about.sku or about.name or "")
    if sku is None or about.kind == "gpu":
        return float(sku.mem_bytes) if sku is not None else float("nan")
    slices = slices_of(about.mig_profile, sku)
    return float(sku.mem_bytes) * slices.memory / MEMORY_SLICES if slices is not None else float("nan")


def gpu_table(gpus: GpuRows, catalog: Catalog) -> pd.DataFrame:
    """The frame's table `gpus`: every GPU that a series names, and the instances with rows."""
    cells, seen = gpus.cells, gpus.cells.seen()
    chosen = {key: gpu for key, gpu in gpus.about.items() if key in seen or not gpu.uuid or gpu.kind != "mig"}
    if not chosen:
        return concat([], store.GPUS.columns)
    table = pd.DataFrame(list(chosen.values())).rename(columns={"parent": "parent_uuid", "index": "gpu_index"})
    table["gpu_uuid"] = [gpu.uuid or key for key, gpu in chosen.items()]
    table["sku"] = [gpu.sku or _sku(gpu.name, catalog) for gpu in chosen.values()]
    # What a series names and nothing was observed of exists all the same.
    table["valid_from"] = [seen.get(key, (cells.grid.start - cells.grid.step,))[0] for key in chosen]
    for name in ("mem_total_bytes", "power_limit_watts", "nvlink_bytes_per_second"):
        table[name] = np.append(_last(cells.column(name)), np.nan)[[cells.rows.get(key, -1) for key in chosen]]
    size = [memory_of(gpu, catalog) for gpu in chosen.values()]
    table["mem_total_bytes"] = table["mem_total_bytes"].fillna(pd.Series(size, dtype=float))
    return concat([table], store.GPUS.columns)


def node_table(
    gpus: GpuRows, ports: PortRows, agents: Mapping[str, Labels], counts: SeriesAnswer | None, *,
    dmi: Mapping[str, Labels], kube: Mapping[str, Labels], catalog: Catalog, declared: Mapping[str, KubeNode],
    clusters: Mapping[str, str], present: Mapping[str, Span],
) -> pd.DataFrame:  # fmt: skip
    """The frame's table `nodes`. What the agent's page says of a node (`agents`, and `counts` of GPUs) comes before
    what follows from its parts.

    `declared`: nodes that Kubernetes knows to have GPUs, some of which no exporter may report; `clusters`: the cluster
    that the series of a node name; `present`: when Kubernetes had a node, Unix seconds.
    """
    by_node: dict[str, list[FabricPort]] = defaultdict(list)
    rates = _last(ports.cells.column("line_rate_bytes_per_second")).tolist()
    for (node, device, port), rate in zip(ports.cells.rows, rates, strict=True):
        role = cast("Role", ports.roles.get((node, device, port), "unknown"))
        by_node[node].append(FabricPort(device, port, role, "InfiniBand", None if math.isnan(rate) else rate))
    # A count below one, or in parts, is no reading: hours would be invented from it.
    counted: dict[str | None, float] = {}
    for labels, values in zip(counts.labels, counts.values, strict=True) if counts is not None else ():
        value = values[(values >= 1) & (values <= MOST_GPUS) & (values % 1 == 0)]
        counted |= {agent_node(labels): float(value[-1])} if len(value) else {}
    grid, seen = gpus.cells.grid, gpus.cells.seen()
    whole: dict[str, dict[str, Gpu]] = defaultdict(dict)
    observed: dict[str, dict[str, Span]] = defaultdict(dict)
    for key, facts in gpus.about.items():
        uuid = facts.parent or facts.uuid or key
        gpu = Gpu(uuid, int(np.nan_to_num(facts.index)), facts.name or "", _sku(facts.name, catalog))
        whole[facts.node].setdefault(uuid, gpu)
        if key in seen:
            begin, end = observed[facts.node].get(uuid, seen[key])
            observed[facts.node][uuid] = min(begin, seen[key][0]), max(end, seen[key][1])
    rows = []
    for node in sorted({*whole, *declared}):
        listed, offered, spans = list(whole[node].values()), declared.get(node), list(observed[node].values())
        # A GPU that took another's place adds nothing.
        shown = most_at_once(spans, grid.step) if spans else len(listed)
        spans += [(offered.first, offered.last)] if offered is not None else []
        spans += [present[node]] if node in present else []
        spans = spans or [(grid.start - grid.step, grid.end)]
        row: dict[str, object] = {"node": node, "first_seen": min(spans)[0], "last_seen": max(end for _, end in spans)}
        if (agent := agents.get(node)) is not None:
            row |= {name: agent.get(name) for name in ("node_sku", "node_sku_source", "provider", "instance_type")}
            row["cluster"] = agent.get("exported_cluster") or agent.get("cluster") or ""
            row["region"] = agent.get("exported_region") or agent.get("region")
        else:
            row |= _by_signs(listed, by_node[node], dmi.get(node, {}), kube.get(node, {}), catalog)
            row["cluster"] = clusters.get(node, "")
        count = float(shown)
        if offered is not None and not (shown and (offered.divided or catalog.node(str(row["node_sku"] or "")))):
            count += _unlisted(offered, shown, listed, kube.get(node, {}).get(_REPLICAS, ""))
        rows.append({**row, "gpu_count": counted.get(node, count)})
    return concat([pd.DataFrame(rows)], store.NODES.columns)


def _unlisted(offered: KubeNode, listed: int, gpus: Sequence[Gpu], replicas: str) -> int:
    """GPUs that Kubernetes offers beyond the `listed` ones that exporters report, which are `gpus`.

    Time slicing and HAMi offer each device twice or more, under its own name or as ``.shared``, MIG each instance:
    devices are then those that the exporter lists, and those that their numbers show to be missing.
    """
    copies = int(replicas) if re.fullmatch(r"[1-9][0-9]{0,2}", replicas) else 1
    # How many pods share a device is not known: one device at least.
    shares = math.ceil(offered.shares / copies) if copies > 1 else min(offered.shares, 1)
    count = offered.gpus // copies + shares
    if listed and count >= 2 * listed:
        count = max((gpu.index + 1 for gpu in gpus), default=0)
    return max(count - listed, 0)


def _by_signs(
    gpus: Sequence[Gpu], ports: Sequence[FabricPort], firmware: Labels, labels: Labels, catalog: Catalog
) -> dict[str, object]:
    """What a node is that no agent describes, by the agent's own rules. `firmware`: labels of ``node_dmi_info``;
    `labels`: those of ``kube_node_labels``."""
    signs = dmi_of(*(firmware.get(name, "") for name in ("system_vendor", "product_name", "chassis_asset_tag")))
    spelled = {_KUBE[name]: value for name, value in labels.items() if name in _KUBE}
    # Without a single port it is unknown whether there are none, or none is exported.
    seen = tuple(ports) or (FabricPort("unknown", 1),)
    sku, source = sku_by_signs(signs, spelled, gpus, seen, tuple(catalog.nodes.values()))
    entry = catalog.node(sku) if sku else None
    kind = signs.instance_type or label_of(spelled, TYPE_LABELS) or (entry and entry.instance_type)
    return {
        "provider": signs.provider or (entry and entry.provider), "region": label_of(spelled, REGION_LABELS),
        "instance_type": kind, "node_sku": sku, "node_sku_source": source,
    }  # fmt: skip


def _last(values: Matrix) -> Matrix:
    """The newest value of each row; NaN where all are missing."""
    newest = values.shape[1] - 1 - (~np.isnan(values))[:, ::-1].argmax(axis=1)
    return values[np.arange(len(values)), newest]


def _sku(name: str | None, catalog: Catalog) -> str | None:
    entry = catalog.gpu(name) if name else None
    return entry.name if entry is not None else None
