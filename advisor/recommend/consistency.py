"""One place between verdicts and findings: no finding contradicts what its own workload shows.

A rule judges by its thresholds; a verdict by shapes, shares of time and the words of engines. The two may rest on other
statistics of the same data, and where they disagree one of them is wrong, but not known which. Then the finding is
not told: a note says which evidence it contradicts. What is compared are codes and measures, never words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from ...rules.policy.labels import TRAINING_KINDS
from ..classify.types import Verdicts
from ..core.coded_text import CodedText, coded
from .finding import Found, Unjudged, node_words, series_label
from .fleet import Fleet
from .groups import Group

# A limit that rules this much of the busy time is no stray row of it.
LIMIT_SHARE = 0.1
# GPU-hours of work that a finding of rest may hold: rows begin and end beside it.
_REST_TOLERANCE = 1.05
# Share of the rows above a rule's level that its own percentile leaves room for, and as much again.
_ABOVE_SHARE = 0.02
# An exchange at this median use of the line rate takes an eighth of the time at most, by rates of NCCL's all-reduce.
_SILENT = 0.05
_USES = ("u_c", "u_m", "u_n", "u_i", "u_p")
_LIMITS = ("compute", "hbm-bandwidth", "mixed", "nvlink", "network", "pcie")
_CAPACITY = frozenset({"kv-cache-full", "kv-cache-preempted"})


def _works_meanwhile(verdicts: Verdicts, group: Group, found: Found) -> bool:
    """More GPU-hours held without use than rested at all."""
    usage = [(w, verdicts.used((w.id,))) for w in group.workloads]
    rested = sum(float(rows.floats("seconds")[rows["bottleneck"] == "idle"].sum()) * w.gpu_part for w, rows in usage)
    return any(len(rows) for _, rows in usage) and found.finding.gpu_hours > _REST_TOLERANCE * rested / 3600 + 0.1


def _uses_more(verdicts: Verdicts, group: Group, found: Found) -> bool:
    """Rows with a limit and a use above what the finding calls the most."""
    most = next(e.threshold for e in found.finding.evidence if e.metric == "use_p99")
    rows = verdicts.used(w.id for w in group.workloads)
    seconds = rows.floats("seconds")
    used = np.fmax.reduce([rows.floats(name) for name in _USES])
    above = (used >= most) & np.isin(rows["bottleneck"].astype(str), _LIMITS)
    return float(seconds[above].sum()) > _ABOVE_SHARE * float(seconds.sum())


def _silent_link(_: Verdicts, __: Group, found: Found) -> bool:
    """A link that is waited for carries something."""
    line = next((e.value for e in found.finding.evidence if e.metric == "link_use_p50"), None)
    return isinstance(line, float) and line < _SILENT


@dataclass(frozen=True, slots=True)
class Contradiction:
    """`codes`: evidence of a workload's kind or bottleneck beside which a finding of the rule cannot stand. `limits`:
    bottlenecks that it contradicts from `LIMIT_SHARE` of the busy time on. `measured`: what the data themselves say
    against it, by code. `nodes`: whoever works on its nodes is asked, for it judges them with all who are there."""

    codes: frozenset[str] = frozenset()
    limits: frozenset[str] = frozenset()
    measured: Mapping[str, Callable[[Verdicts, Group, Found], bool]] = field(default_factory=dict)
    nodes: bool = False


CONTRADICTIONS: Mapping[str, Contradiction] = MappingProxyType(
    {
        "idle-nvlink": Contradiction(
            codes=frozenset({
                "shape-collectives", "shape-links-with-compute", "shape-links-against-compute", "nvlink-use",
                "limited-by-nvlink", "communication-nvlink",
            }),
            limits=frozenset({"nvlink"}), nodes=True,
            measured={"nvlink-carries-its-work": lambda _, group, __: group.exchanges},
        ),
        "idle-fabric": Contradiction(
            codes=frozenset({"shape-fabric-busy", "fabric-use", "communication-fabric"}), nodes=True
        ),
        # By its hours: what is said of its kind is said of the hours in which it worked.
        "held-idle": Contradiction(measured={"worked-meanwhile": _works_meanwhile}),
        "too-many-gpus": Contradiction(
            codes=_CAPACITY,
            measured={
                "uses-more-at-times": _uses_more,
                "phase-of-training": lambda _, g, __: any(p.kind in TRAINING_KINDS for w in g.now for p in w.phases),
            },
        ),
        "over-tier": Contradiction(
            codes=frozenset({"shape-compute-bound", "limited-by-compute"}), limits=frozenset({"compute"})
        ),
        "memory-unused": Contradiction(codes=_CAPACITY | {"shape-memory-pool"}),
        "under-tier": Contradiction(
            codes=frozenset({"ports-quiet", "nvlink-quiet", "limited-by-latency"}),
            measured={"link-silent": _silent_link},
        ),
    }
)  # fmt: skip


def contradicted(fleet: Fleet, one: Found) -> Unjudged | None:
    """That what its workload shows contradicts a finding, so there is no verdict; None: nothing does."""
    rule = CONTRADICTIONS.get(one.finding.rule)
    if rule is None:
        return None
    asked = [one.group] if one.group is not None else []
    # What its own GPUs carried is no matter of who else is there.
    if rule.nodes and all(e.metric != "nvlink_util_mean" for e in one.finding.evidence):
        nodes = {n.node for n in one.nodes}
        # Of one node of several that a group is on, nobody knows which carried what its evidence speaks of.
        others = (g for g in fleet.groups_on(one.nodes) if g is not one.group)
        asked += [g for g in others if g.nodes and {n.node for n in g.nodes} <= nodes]
    for group in asked:
        told = {e.code for w in group.now for e in (*w.kind.evidence, *w.bottleneck.evidence)}
        limits = (f"limited-by-{name}" for name in sorted(rule.limits) if group.busy_share(name) >= LIMIT_SHARE)
        measured = (code for code, shows in rule.measured.items() if shows(fleet.verdicts, group, one))
        code = next((code for codes in (sorted(told & rule.codes), limits, measured) for code in codes), None)
        if code is not None:
            of = series_label(one.group) if one.group is not None else node_words(one.nodes)
            note = CodedText(
                "finding-contradicted",
                f"No {one.finding.rule} finding for {of[:1].lower()}{of[1:]}: data of {group.lead.name} contradict it "
                f"({code}).",
                {"rule": one.finding.rule, "workload": group.lead.id, "evidence": code},
            )
            reason = coded("finding-contradicted", "its own data contradict the finding")
            return Unjudged(reason, one.nodes, one.group, note=note)
    return None
