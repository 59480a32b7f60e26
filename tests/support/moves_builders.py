# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""Hand-built verdicts: nodes, workloads and constant use, for tests of the moves and the renderers."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from skuwise.advisor.classify.types import BareGpu, FabricFacts, NodeFacts, NodePower, TokenEnergy, Verdicts
from skuwise.advisor.classify.workloads.inventory import MEASURED, GpuCoverage, Inventory, NodeInventory
from skuwise.advisor.core.advice_types import Advice, Finding, Recommendation
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.column_rows import ColumnRows, columns_of
from skuwise.advisor.core.frame import Window
from skuwise.advisor.core.verdict_types import BottleneckVerdict, Coverage, KindVerdict, Owner, WorkloadVerdict
from skuwise.advisor.pipeline import reason_on
from skuwise.advisor.recommend.prediction import Use
from skuwise.rules.catalog.loader import Catalog, load_catalog
from skuwise.rules.catalog.types import Price
from skuwise.tests.support.rulebooks import rulebook

END = 1_790_000_000.0 // 3600 * 3600
DAYS = 14
START = END - DAYS * 86400
IB = "azure/Standard_ND96isr_H100_v5"
PLAIN = "azure/Standard_ND96is_H100_v5"


@cache
def catalog() -> Catalog:
    return load_catalog()


def fabric(**changes) -> FabricFacts:
    values = {
        "ports_compute": tuple(f"mlx5_{i}/1" for i in range(8)), "readable": True, "reason": None,
        "util_p995": 0.0005, "util_max": 0.0, "hours": 336.0, "last_active_ts": None,
        "line_rate_bytes_per_second": 8 * 50e9, "link_layer": "InfiniBand", "hours_known": 336.0,
    }  # fmt: skip
    return FabricFacts(**{**values, **changes})


def node(name: str = "n1", sku: str | None = IB, **changes) -> NodeFacts:
    values = {
        "node": name, "cluster": "c", "provider": "azure", "region": "eastus", "node_sku": sku,
        "node_sku_source": "config", "gpu_sku": "H100-SXM5", "gpu_count": 8, "first_seen": START, "last_seen": END,
        "hours_observed": 336.0, "fabric": fabric(), "span_hours": 336.0, "gpu_name": "NVIDIA H100 80GB HBM3",
    }  # fmt: skip
    return NodeFacts(**{**values, **changes})


def gpus_of(name: str, count: int = 8) -> tuple[str, ...]:
    return tuple(f"GPU-{name}-{i}" for i in range(count))


def workload(name: str = "chat", nodes: tuple[str, ...] = ("n1",), *, kind="online-inference", **changes):
    gpus = changes.pop("gpus", tuple(g for n in nodes for g in gpus_of(n)))
    verdict = kind if isinstance(kind, KindVerdict) else KindVerdict(kind, 0.95, (CodedText("said", "by its shape"),))
    start, end = changes.get("start", START), changes.get("end", END)
    values = {
        "id": f"w-{name}", "series_id": f"s-{name}", "name": name, "owner": Owner(user="ann"), "nodes": nodes,
        "gpus": gpus, "gpu_sku": "H100-SXM5", "node_sku": IB, "start": start, "end": end,
        "gpu_hours": len(gpus) * (end - start) / 3600, "cost_usd": None, "kind": verdict,
        "bottleneck": BottleneckVerdict("hbm-bandwidth", 0.9, {"hbm-bandwidth": 1.0}), "phases": (),
        "coverage": Coverage(1.0, 1.0), "features": {"mem_flat": 1.0, "cpu": 0.1},
    }  # fmt: skip
    return WorkloadVerdict(**{**values, **changes})


def usage(
    w: WorkloadVerdict, *, u_c=0.15, u_m=0.6, u_n=0.0, u_i=0.0, u_p=0.01, g=0.95, memory=0.9, label="hbm-bandwidth"
):
    about = {
        "seconds": 3600.0, "u_c": u_c, "u_m": u_m, "u_n": u_n, "u_i": u_i, "u_p": u_p, "c": u_c, "m": u_m, "n": u_n,
        "i": u_i, "p": u_p, "g": g, "duty": g, "tensor_nvlink_correlation": math.nan,
        "tensor_fabric_correlation": math.nan, "bottleneck": label, "mem_used_ratio": memory, "power_watts": 400.0,
    }  # fmt: skip
    hours = np.arange(w.start + 3600, w.end + 1, 3600)
    gpus = pd.DataFrame({"workload_id": w.id, "node": w.nodes[0], "gpu_uuid": w.gpus})
    return gpus.merge(pd.DataFrame({"ts": hours, **about}), how="cross")


def bare(name: str, index: int = 0, **changes) -> BareGpu:
    values = {
        "node": name, "gpu_uuid": f"GPU-{name}-{index}", "gpu_sku": "H100-SXM5", "hours": 336.0, "idle_hours": 336.0,
        "engine_mean": 0.0, "dram_mean": 0.0, "power_mean_watts": 70.0, "idle_power_watts": 69.0,
        "last_ts": END,
    }  # fmt: skip
    return BareGpu(**{**values, **changes})


def verdicts(nodes, workloads=(), *, uses=None, bare_gpus=(), ready=True, idle_hours=None) -> Verdicts:
    """Occupancy follows from the workloads; the rest is unallocated. `idle_hours`: workload id -> GPU-hours."""
    rows = []
    for n in nodes:
        total = n.gpu_count * n.span_hours
        for w in workloads:
            if n.node in w.nodes:
                hours = min(w.gpu_hours / len(w.nodes), total)
                idle = (idle_hours or {}).get(w.id, 0.0) / len(w.nodes)
                kind = "shared" if w.shared else "workload"
                rows.append((n.node, "", kind, None if w.shared else w.id, hours - idle))
                if idle:
                    rows.append((n.node, "", "allocated_idle", w.id, idle))
                total -= hours
        rows.append((n.node, "", "unallocated", None, total))
    frames = uses if uses is not None else [usage(w) for w in workloads]
    table = pd.concat(frames, ignore_index=True) if frames else usage(workload()).iloc[0:0]
    return Verdicts(
        window=Window(START, END), workloads=tuple(workloads), nodes=tuple(nodes), bare=tuple(bare_gpus),
        occupancy=pd.DataFrame(rows, columns=["node", "gpu_uuid", "class", "workload_id", "gpu_hours"]),
        usage=ColumnRows(columns_of(table), np.arange(len(table))), waste_ready={w.id: ready for w in workloads},
        inventory=inventory(nodes),
    )  # fmt: skip


def inventory(nodes) -> Inventory:
    """Every GPU of these nodes observed for as long as its node says, by every measure."""
    counted = {}
    for n in nodes:
        hours, names = n.hours_observed, gpus_of(n.node, n.gpu_count)
        about = hours, n.first_seen, n.last_seen, dict.fromkeys(MEASURED, hours)
        gpus = tuple(GpuCoverage(n.node, uuid, *about) for uuid in names)
        counted[n.node] = NodeInventory(n.node, n.gpu_count, "declared", gpus, (), host_hours=hours)
    observed = max((n.hours_observed for n in nodes), default=0.0)
    return Inventory(counted, END, span_seconds=DAYS * 86400.0, seconds_by_hour={0.0: observed * 3600.0})


def advice_of(given: Verdicts, prices=(), seed: int = 1, *, with_market: bool = False, **rules) -> Advice:
    """The advice on these verdicts. `rules`: what the rulebook says other than the one that ships."""
    return reason_on(
        given, rulebook(catalog(), prices=prices, **rules), END, seed,
        source={"kind": "sqlite", "paths": ["fleet.db"]}, with_market=with_market,
    ).advice  # fmt: skip


def fired(advice: Advice) -> list[str]:
    """The rules of all findings."""
    return sorted(f.rule for f in advice.findings)


def found(advice: Advice, rule: str) -> Finding:
    """The only finding of a rule."""
    (finding,) = [f for f in advice.findings if f.rule == rule]
    return finding


def ways(advice: Advice, action: str) -> list[Recommendation]:
    return [r for r in advice.recommendations if r.action == action]


def price_of(sku: str = IB, usd: float = 50.0, basis: str = "negotiated", until: str | None = None) -> Price:
    """A team's own price of a node an hour."""
    return Price(f"{sku}@eastus:{basis}", sku, "eastus", usd, basis, "contract 1", "2026-10-01", until)


def founding() -> Verdicts:
    """Two replicas of a service, each on a whole InfiniBand node whose fabric is silent."""
    pair = [workload("chat", ("n1",)), workload("chat", ("n2",), id="w-chat-2")]
    return drawing(verdicts([node("n1"), node("n2")], pair, uses=[usage(w, u_n=0.2) for w in pair]), tokens_a_joule=2.0)


def drawing(given: Verdicts, watts: float = 300.0, tokens_a_joule: float | None = None) -> Verdicts:
    """The verdicts with every hour of their occupancy at so many watts by the counter, spread over the hours of the
    day. `tokens_a_joule`: of each workload's energy."""
    seen = given.occupancy[(given.occupancy["class"] != "unobserved") & (given.occupancy["gpu_hours"] > 0)]
    table = pd.DataFrame({"hour": range(24)}).merge(seen, how="cross")
    part, still = table["gpu_hours"] / 24, table["class"].isin(("allocated_idle", "unallocated"))
    phase = np.where(table["workload_id"].isna(), "", np.where(still, "idle", "decode"))
    joules = part * 3600 * watts
    table = table.assign(
        idle=still, phase=phase, gpu_hours=part, measured_hours=part, joules=joules, counted_joules=joules
    )
    held = table.groupby("workload_id")["joules"].sum() if tokens_a_joule else {}
    tokens = {str(key): TokenEnergy(joules * tokens_a_joule, joules, DAYS * 24.0) for key, joules in held.items()}
    drawn = {n.node: (n.gpu_count, watts * n.gpu_count) for n in given.nodes}
    power = {name: NodePower(now, now, now, 700.0 * gpus, 3600.0) for name, (gpus, now) in drawn.items()}
    return replace(given, energy=table, tokens=tokens, power=power)


def use_of(*, u_c: float, u_m: float, g: float, u_n: float = 0.0, u_i: float = 0.0, u_p: float = 0.0) -> Use:
    """One row of constant use."""
    columns = [np.array([x], dtype=float) for x in (u_c, u_m, u_n, u_i, u_p, g, 3600.0)]
    no = np.array([False])
    return Use(*columns, exposed_nvlink=no, exposed_network=no)
