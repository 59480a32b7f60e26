"""Nodes as a plan sees them: pools of nodes that stand in for one another, commitments, what the host can take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np
import pandas as pd

from ...rules.catalog.types import GpuSku
from ..classify.types import NodeFacts, Verdicts
from ..core.coded_text import CodedText, coded
from ..recommend.fleet import Fleet
from ..recommend.pricing import cash_of
from .limits import CPU_MAX, FAILURES_PER_NODE_DAY, HOST_MEM_MAX, REPAIR_DAYS, RESERVE_QUANTILE
from .problem import FOREVER, PlanNode


def pool_key(cluster: str, provider: str | None, region: str | None, sku: str) -> str:
    """Nodes of one key stand in for one another: the same machine at the same place, so the same fabric and links."""
    return "/".join((cluster, provider or "-", region or "-", sku))


def pool_of(node: NodeFacts) -> str:
    """A node of unknown SKU is alike to those with as many GPUs of its kind and the same kind of fabric."""
    fabric = "fabric" if node.fabric is not None and node.fabric.ports_compute else "no-fabric"
    shape = f"{node.gpu_count}x{node.gpu_sku or node.gpu_name or node.node}-{fabric}"
    return pool_key(node.cluster, node.provider, node.region, node.node_sku or shape)


def plan_node(fleet: Fleet, verdicts: Verdicts, node: NodeFacts, held: CodedText | None) -> PlanNode:
    sku = fleet.catalog.node(node.node_sku) if node.node_sku else None
    price = fleet.book.saving_price(node)
    cash = cash_of(price, 1, fleet.at)
    bound = None if cash and cash.date is None else FOREVER
    if cash and cash.date is not None:
        bound = datetime.fromisoformat(cash.date).replace(tzinfo=UTC).timestamp()
    rest = [r.free_watts or r.held_watts for r in verdicts.rest_levels if r.node == node.node]
    known = [watts for watts in rest if watts is not None]
    memory = sku.host_mem_bytes if sku is not None else None
    return PlanNode(
        name=node.node, pool=pool_of(node), gpu_sku=node.gpu_sku, node_sku=node.node_sku, gpus=node.gpu_count,
        usd_per_hour=price.usd_per_hour if price is not None else None, price=price.id if price is not None else None,
        bound_until=bound,
        # Where the cores are not known they count in hundredths of the host, the same for all nodes of a pool.
        cpu_cores=round(CPU_MAX * ((sku.vcpus if sku is not None else None) or 100), 1),
        host_mem_bytes=round(HOST_MEM_MAX * memory, -8) if memory else None, held=held,
        # Of some GPUs only: the others draw about as much.
        idle_watts=float(np.mean(known)) * node.gpu_count if known else None,
        island_gpus=island_of(fleet.catalog.gpu(node.gpu_sku) if node.gpu_sku else None), region=node.region,
    )  # fmt: skip


def island_of(gpu: GpuSku | None) -> int:
    """GPUs that an NVLink bridge joins: two cards, of H200 NVL four. 0: a board joins all, which is assumed where
    nothing is known, too."""
    return 0 if gpu is None or not gpu.nvlink_by_bridge else 4 if gpu.name.startswith("H200") else 2


def why_held(verdicts: Verdicts, node: NodeFacts, floor_hours: float) -> CodedText | None:
    """Why a node may neither be emptied nor take more work: it is unknown what runs there. None: it may."""
    dark = [one for one in verdicts.inventory.unobserved if one.node == node.node]
    if dark:
        return coded("plan-gpus-unobserved", "no data from {count} of its GPUs", count=sum(len(o.gpus) for o in dark))
    known = verdicts.inventory.nodes.get(node.node)
    if known is not None and known.unaccounted_pods:
        return coded(
            "plan-pods-not-named", "{count} pods requested its GPUs, and no metric names them",
            count=len(known.unaccounted_pods),
        )  # fmt: skip
    if node.hours_observed < floor_hours:
        return coded(
            "plan-too-little-data", "{hours:.0f} of the {floor:g} h of data that a verdict needs",
            hours=node.hours_observed, floor=floor_hours,
        )  # fmt: skip
    if (known is not None and known.end is not None) or node.last_seen < verdicts.window.end - 86400.0:
        return coded("plan-node-silent", "it has stopped sending data")
    return None


def reserve_nodes(nodes: int) -> int:
    """Nodes to keep free so that those that fail and are away find a place, in 99 % of the time: Poisson around the
    mean number that is away at once. 0 of a pool of none."""
    mean, away, chance = nodes * FAILURES_PER_NODE_DAY * REPAIR_DAYS, 0, 0.0
    while nodes and (chance := chance + math.exp(-mean) * mean**away / math.factorial(away)) < RESERVE_QUANTILE:
        away += 1
    return min(away, nodes)


def host_use(host: pd.DataFrame) -> Mapping[str, tuple[float, float]]:
    """Node -> share of its cores that are busy (95th percentile of its hours) and bytes of memory in use (their
    maximum); 0: not measured, which limits nothing."""
    found: dict[str, tuple[float, float]] = {}
    for name, own in host.groupby("node") if not host.empty else ():
        cpu, memory = (
            own.get(column, pd.Series(dtype=float)).dropna() for column in ("cpu_util_mean", "mem_used_bytes_max")
        )
        found[str(name)] = (float(cpu.quantile(0.95)) if len(cpu) else 0.0, float(memory.max()) if len(memory) else 0.0)
    return found
