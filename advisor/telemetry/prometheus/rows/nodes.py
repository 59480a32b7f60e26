"""Nodes and GPUs as tables of the frame: what series, firmware and Kubernetes' labels tell of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

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
from ..client.response import Labels, SeriesAnswer
from ..owners.kube import KubeNode
from ..promql.labels import agent_node
from .fabric import PortKey, PortRows
from .gpus import About, GpuRows

_ROLES: Mapping[str, Role] = {"compute": "compute", "storage": "storage", "management": "management"}
_MOST_GPUS = 1024  # no node comes near
_SPELLED = re.compile(r"[^a-zA-Z0-9_]")


def _metric_label(label: str) -> str:
    """How kube-state-metrics writes a Kubernetes label."""
    return "label_" + _SPELLED.sub("_", label)


_KUBE = {_metric_label(name): name for name in (*TYPE_LABELS, *REGION_LABELS, "skuwise.io/node-sku")}
KUBE_LABELS = tuple(_KUBE)


def gpu_counts(about: Mapping[str, About]) -> dict[str, int]:
    """Whole GPUs by node."""
    whole = {(one.node, one.parent or one.uuid or key) for key, one in about.items()}
    return dict(Counter(node for node, _ in whole))


def counts_at_once(gpus: GpuRows) -> dict[str, int]:
    """The most whole GPUs of a node that were there at once: one that took another's place does not add to them."""
    spans: dict[str, dict[str, tuple[float, float]]] = {}
    for key, (start, end) in gpus.cells.seen().items():
        one = gpus.about[key]
        own, whole = spans.setdefault(one.node, {}), one.parent or one.uuid or key
        before = own.get(whole, (start, end))
        own[whole] = (min(before[0], start), max(before[1], end))
    # What was replaced within a row has rows that overlap by one.
    return {node: most_at_once(own.values(), gpus.cells.grid.step) for node, own in spans.items()}


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
    seen = gpus.cells.seen()
    named = {(one.node, one.uuid or key) for key, one in gpus.about.items()}
    columns = {
        name: gpus.cells.column(name) for name in ("mem_total_bytes", "power_limit_watts", "nvlink_bytes_per_second")
    }
    rows: list[dict[str, object]] = []
    parents: dict[tuple[str, str], dict[str, object]] = {}
    begin = gpus.cells.grid.start - gpus.cells.grid.step
    for uuid, one in gpus.about.items():
        # What a series names and nothing was observed of exists all the same.
        start = seen[uuid][0] if uuid in seen else begin
        if uuid not in seen and one.uuid and one.kind == "mig":
            continue
        row: dict[str, object] = {
            "node": one.node, "gpu_uuid": one.uuid or uuid, "name": one.name, "sku": one.sku or _sku(one.name, catalog),
            "kind": one.kind, "parent_uuid": one.parent, "mig_profile": one.mig_profile, "gpu_index": one.index,
            "driver_version": one.driver_version, "valid_from": start,
        }  # fmt: skip
        for name, matrix in columns.items():
            values = matrix[gpus.cells.rows[uuid]] if uuid in gpus.cells.rows else np.empty(0)
            known = values[~np.isnan(values)]
            row[name] = float(known[-1]) if len(known) else np.nan
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
    gpus: GpuRows,
    ports: PortRows,
    given: Mapping[str, SeriesAnswer],
    *,
    dmi: Mapping[str, Labels],
    kube: Mapping[str, Labels],
    catalog: Catalog,
    declared: Mapping[str, KubeNode] | None = None,
) -> pd.DataFrame:
    """The frame's table `nodes`. What the agent's page says of a node counts before what its parts tell.

    `declared`: nodes that Kubernetes knows to have GPUs, and how many; some of them no exporter may tell of.
    """
    others = declared or {}
    told: dict[str, Labels] = {}
    for labels in given["nodes"].labels if "nodes" in given else ():
        node = agent_node(labels)
        if node:
            told[node] = labels
    counted: dict[str, float] = {}
    answer = given.get("node GPUs")
    if answer is not None:
        for labels, values in zip(answer.labels, answer.values, strict=True):
            # A count of GPUs below one, or in parts, is no reading: hours and dollars would be invented from it.
            node, known = agent_node(labels), values[(values >= 1) & (values <= _MOST_GPUS) & (values % 1 == 0)]
            if node and len(known):
                counted[node] = float(known[-1])
    spans: dict[str, tuple[float, float]] = {}
    for uuid, (start, end) in gpus.cells.seen().items():
        node = gpus.about[uuid].node
        before = spans.get(node, (start, end))
        spans[node] = (min(before[0], start), max(before[1], end))
    counts = counts_at_once(gpus)
    whole_window = (gpus.cells.grid.start - gpus.cells.grid.step, gpus.cells.grid.end)
    for node in {one.node for one in gpus.about.values()} - set(spans):
        spans[node] = (others[node].first, others[node].last) if node in others else whole_window
    for node, one in others.items():
        begin, end = spans.get(node, (one.first, one.last))
        spans[node] = (min(begin, one.first), max(end, one.last))
    named = gpu_counts(gpus.about)
    by_node, whole = _ports_by_node(ports), _whole_by_node(gpus, catalog)
    rows = []
    for node in sorted(spans):
        row: dict[str, object] = {"node": node, "first_seen": spans[node][0], "last_seen": spans[node][1]}
        if node in told:
            own = told[node]
            row |= {name: own.get(name) for name in ("node_sku", "node_sku_source", "provider", "instance_type")}
            row["cluster"] = own.get("exported_cluster") or own.get("cluster") or ""
            row["region"] = own.get("exported_region") or own.get("region")
        else:
            row |= by_signs(whole.get(node, ()), by_node.get(node, ()), dmi.get(node), kube.get(node), catalog)
        shown = counts.get(node, named.get(node, 0))
        row["gpu_count"] = counted.get(node, float(max(shown, _declared(row, shown, others.get(node), catalog))))
        rows.append(row)
    return concat([pd.DataFrame(rows)] if rows else [], store.NODES.columns)


def _declared(row: Mapping[str, object], shown: int, told: KubeNode | None, catalog: Catalog) -> int:
    """GPUs that Kubernetes knows of beyond those that show themselves. Where a GPU is offered to several pods, or each
    of its instances as one, its counts are none of GPUs; the node's SKU says more."""
    if told is None or (shown and (told.divided or told.shared)):
        return 0
    sku = row.get("node_sku")
    if shown and isinstance(sku, str) and catalog.node(sku) is not None:
        return 0
    return told.gpus


def by_signs(
    own: Sequence[Gpu],
    ports: Sequence[FabricPort],
    firmware: Labels | None,
    labels: Labels | None,
    catalog: Catalog,
) -> dict[str, object]:
    """What a node is that no agent describes, by the agent's own rules: columns of the frame's `nodes`.

    `firmware`: labels of ``node_dmi_info``; `labels`: those of ``kube_node_labels``.
    """
    words = firmware or {}
    signs = dmi_of(words.get("system_vendor", ""), words.get("product_name", ""), words.get("chassis_asset_tag", ""))
    spelled = {_KUBE[name]: value for name, value in (labels or {}).items() if name in _KUBE}
    # Without a single port it is not known whether there are none, or nobody exports them.
    seen = ports or (FabricPort("unknown", 1),)
    sku, source = sku_by_signs(signs, spelled, own, tuple(seen), tuple(catalog.nodes.values()))
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


def _whole_by_node(gpus: GpuRows, catalog: Catalog) -> dict[str, list[Gpu]]:
    found: dict[str, list[Gpu]] = {}
    for uuid, one in gpus.about.items():
        if one.kind == "gpu":
            found.setdefault(one.node, []).append(Gpu(uuid, 0, one.name or "", _sku(one.name, catalog)))
    return found


def _ports_by_node(ports: PortRows) -> dict[str, tuple[FabricPort, ...]]:
    found: dict[str, list[FabricPort]] = {}
    rates = ports.cells.column("line_rate_bytes_per_second")
    for key, row in ports.cells.rows.items():
        known = rates[row][~np.isnan(rates[row])]
        found.setdefault(key[0], []).append(_port(key, ports, float(known[-1]) if len(known) else None))
    return {node: tuple(own) for node, own in found.items()}


def _port(key: PortKey, ports: PortRows, rate: float | None) -> FabricPort:
    role = _ROLES.get(ports.roles.get(key, ""), "unknown")
    return FabricPort(key[1], key[2], role, "InfiniBand", rate)


def _sku(name: str | None, catalog: Catalog) -> str | None:
    found = catalog.gpu(name) if name else None
    return found.name if found is not None else None
