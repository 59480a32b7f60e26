"""What a query is about, in the values it is written with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...rules.catalog.loader import Catalog
from ...rules.catalog.types import GpuSku, Price
from ...rules.models.resting_power import load_resting_power
from ..core.advice_types import INFERRED, Advice, Finding, WorkloadVerdict
from ..moves.base.workload_groups import group_keys, holding_now
from .literals import number, rows, text, texts

_NO_SKU = f"({', '.join(['NULL'] * 11)})"


@dataclass(frozen=True)
class Subject:
    """One finding of an advice. `skus`: the kinds of GPU that its nodes may have, as the catalog has them.

    `workloads`: those of its series (on this kind of hardware), `now`: those of them that hold GPUs, or last did.
    `levels`: rules/bottlenecks.yaml, by name.
    """

    advice: Advice
    finding: Finding
    skus: tuple[GpuSku, ...]
    workloads: tuple[WorkloadVerdict, ...]
    now: tuple[WorkloadVerdict, ...]
    levels: Mapping[str, float]

    @property
    def lead(self) -> WorkloadVerdict | None:
        return self.now[-1] if self.now else None

    @property
    def price(self) -> Price | None:
        """The price that its dollars rest on."""
        return next((p for p in self.advice.prices if p.id == self.finding.price), None)

    def values(self) -> dict[str, str]:
        """The SQL that stands for each name in braces of a block."""
        nodes = sorted({*self.finding.nodes, *(n for w in self.workloads for n in w.nodes)})
        shares = self.lead.bottleneck.time_shares if self.lead else {}
        wired = shares.get("pcie", 0.0) + shares.get("nvlink", 0.0)
        return {
            "start": number(self.advice.start),
            "stop": number(self.advice.end),
            "node_rows": rows(nodes),
            "finding_nodes": texts(self.finding.nodes),
            "gpus": texts(self.finding.gpus, "\n    "),
            "members": texts(w.id for w in self.workloads),
            "now": texts(w.id for w in self.now),
            "sku_rows": ",\n    ".join(_sku_rows(self.skus)) or _NO_SKU,
            "engine_max": number(self.levels["idle_engine_max"]),
            "dram_max": number(self.levels["idle_dram_max"]),
            "fault_power": number(self.levels["fault_power_share_min"]),
            "node_usd": number(self.price.usd_per_hour if self.price else None),
            "never_worked": "1" if self.lead is not None and self.lead.kind.label == "idle" else "0",
            "held": _held(w for w in self.advice.workloads if w.basis == INFERRED and set(nodes) & set(w.nodes)),
            "part": _parts("gpu_uuid", self.finding.parts),
            "held_part": _parts("u.workload_id", {w.id: w.gpu_part for w in self.workloads if w.gpu_part < 1}),
            "link": "u_i" if shares.get("network", 0.0) >= wired else "u_p",
        }


def subject_of(advice: Advice, finding: Finding, catalog: Catalog, levels: Mapping[str, float]) -> Subject:
    """The subject of a finding of `advice`."""
    here = set(finding.nodes)
    names = {w.gpu_sku for w in advice.workloads if here & set(w.nodes)}
    priced = [catalog.node(p.sku) for p in advice.prices if p.id == finding.price]
    names |= {node.gpu for node in priced if node is not None}
    known = tuple(sku for name in sorted(n for n in names if n) if (sku := catalog.gpu(name)) is not None)
    skus = known or tuple(catalog.gpus.values())  # nothing says which: all of them
    lead = next((w for w in advice.workloads if w.id == finding.workload), None)
    if lead is None:
        return Subject(advice, finding, skus, (), (), levels)
    keys = group_keys(advice.workloads)
    members = sorted((w for w in advice.workloads if keys[w.id] == keys[lead.id]), key=lambda w: (w.end, w.start, w.id))
    return Subject(advice, finding, skus, tuple(members), holding_now(members, advice.end), levels)


def _held(inferred: Iterable[WorkloadVerdict]) -> str:
    """The uses of GPUs: the view's, and those of work that the advisor inferred, which no database holds."""
    found = [f"({text(w.id)}, {text(uuid)}, {number(w.start)}, {number(w.end)})" for w in inferred for uuid in w.gpus]
    if not found:
        return "workload_gpus"
    told = ",\n        ".join(found)
    return (
        "(SELECT workload_id, node, gpu_uuid, ts_start, ts_end, shared FROM workload_gpus\n"
        "    UNION ALL\n"
        "    SELECT column1, g.node, column2, column3, column4, 0\n"
        f"    FROM (VALUES\n        {told}\n"
        "    ) JOIN (SELECT DISTINCT node, gpu_uuid FROM gpus) g ON g.gpu_uuid = column2\n"
        "    WHERE column1 NOT IN (SELECT workload_id FROM workload_gpus))"
    )


def _parts(column: str, parts: Mapping[str, float]) -> str:
    """The part of a GPU that an instance, or each one of a workload, is; 1 for whole GPUs."""
    if not parts:
        return "1"
    cases = " ".join(f"WHEN {text(name)} THEN {number(part)}" for name, part in sorted(parts.items()))
    return f"CASE {column} {cases} ELSE 1 END"


def _sku_rows(skus: Iterable[GpuSku]) -> Iterator[str]:
    """One row a name by which a driver or an agent may call a GPU."""
    resting = load_resting_power().gpus
    for sku in skus:
        achieved, rest = sku.achieved, resting.get(sku.name)
        figures = (
            sku.tensor_reference_hertz, sku.nvlink_bytes_per_second, sku.pcie_bytes_per_second, sku.tdp_watts,
            achieved.bf16_gemm, achieved.mem, achieved.link_allreduce or 1.0,
            rest.low_watts if rest else None, rest.high_watts if rest else None,
        )  # fmt: skip
        told = ", ".join(number(figure) for figure in figures)
        for called in dict.fromkeys((sku.name, *sku.aliases)):
            yield f"({text(called)}, {text(sku.name)}, {told})"
