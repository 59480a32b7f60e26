"""What a query is about, in the values it is written with."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.advice_types import Advice, Finding
from ..core.verdict_types import WorkloadVerdict
from ..moves.base.workload_groups import group_keys, holding_now
from .literals import number_literal, text_list


@dataclass(frozen=True)
class Subject:
    """One finding of an advice. `workloads`: those of its series (on this kind of hardware), `now`: those of them that
    hold GPUs, or last did."""

    advice: Advice
    finding: Finding
    workloads: tuple[WorkloadVerdict, ...]
    now: tuple[WorkloadVerdict, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """Its own, and those that its workloads ran on."""
        return tuple(sorted({*self.finding.nodes, *(n for w in self.workloads for n in w.nodes)}))

    def values(self) -> dict[str, str]:
        """The SQL that stands for each name in braces of a block."""
        lead = self.now[-1] if self.now else None
        shares = lead.bottleneck.time_shares if lead else {}
        wired = shares.get("pcie", 0.0) + shares.get("nvlink", 0.0)
        price = next((p for p in self.advice.prices if p.id == self.finding.price), None)
        return {
            "finding_nodes": text_list(self.finding.nodes),
            "gpus": text_list(self.finding.gpus, "\n    "),
            "members": text_list(w.id for w in self.workloads),
            "now": text_list(w.id for w in self.now),
            "node_usd": number_literal(price.usd_per_hour if price else None),
            "never_worked": "1" if lead is not None and lead.kind.label == "idle" else "0",
            "one_gpu": "0" if max((len(w.gpus) for w in self.workloads), default=0) == 1 else "NULL",
            "one_node": "1" if all(len(w.nodes) == 1 for w in self.workloads) else "0",
            "link": "network_sustained" if shares.get("network", 0.0) >= wired else "pcie_sustained",
        }


def subject_of(advice: Advice, finding: Finding) -> Subject:
    """The subject of a finding of `advice`."""
    lead = next((w for w in advice.workloads if w.id == finding.workload), None)
    if lead is None:
        return Subject(advice, finding, (), ())
    keys = group_keys(advice.workloads)
    members = [w for w in advice.workloads if keys[w.id] == keys[lead.id]]
    members.sort(key=lambda w: (w.end, w.start, w.id))
    return Subject(advice, finding, tuple(members), holding_now(members, advice.end))
