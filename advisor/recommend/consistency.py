"""One place between verdicts and findings: no finding contradicts what its own workload shows.

A rule judges by its thresholds; a verdict by shapes, shares of time and the words of engines. The two may rest on other
statistics of the same data, and where they disagree one of them is wrong, but not known which. Then the finding is
not told: a note says which evidence it contradicts. What is compared are codes and measures, never words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from ...rules.policy.labels import ON_DEMAND_KINDS, TRAINING_KINDS
from ..classify.types import Verdicts
from ..core.coded_text import CodedText, coded
from .finding import Found, Unjudged, node_words, series_label
from .fleet import Fleet
from .groups import Group
from .rule import busy_share

# A limit that rules this much of the busy time is no stray row of it.
LIMIT_SHARE = 0.1
# GPU-hours of work that a finding of rest may hold: rows begin and end beside it.
_REST_TOLERANCE = 1.05
# Share of the rows above a rule's level that its own percentile leaves room for, and as much again.
_ABOVE_SHARE = 0.02
_USES = ("u_c", "u_m", "u_n", "u_i", "u_p")
_LIMITS = ("compute", "hbm-bandwidth", "mixed", "nvlink", "network", "pcie")
CAPACITY = frozenset({"kv-cache-full", "kv-cache-preempted"})


@dataclass(frozen=True, slots=True)
class Contradiction:
    """`codes`: evidence of a workload's kind or bottleneck beside which a finding of the rule cannot stand. `kinds`:
    kinds that it cannot be told of. `limits`: bottlenecks that it contradicts from `LIMIT_SHARE` of the busy time on.
    `measured`: what the data themselves say against it, each as a code (None: nothing). `nodes`: whoever works on its
    nodes is asked, for it judges them with all who are there."""

    codes: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    limits: frozenset[str] = frozenset()
    measured: tuple[Callable[[Verdicts, Group, Found], str | None], ...] = ()
    nodes: bool = False


def _exchanges(_: Verdicts, group: Group, __: Found) -> str | None:
    return "nvlink-carries-its-work" if group.exchanges else None


def _works_meanwhile(verdicts: Verdicts, group: Group, found: Found) -> str | None:
    """More GPU-hours held without use than rested at all."""
    usage = verdicts.usage_of({w.id for w in group.workloads}, "workload_id", "seconds", "bottleneck")
    if usage.empty:
        return None
    parts = {w.id: w.gpu_part for w in group.workloads}
    rested = usage["seconds"].where(usage["bottleneck"] == "idle", 0.0) * usage["workload_id"].map(parts)
    most = _REST_TOLERANCE * float(rested.sum()) / 3600
    return "worked-meanwhile" if found.finding.gpu_hours > most + 0.1 else None


def _uses_more(verdicts: Verdicts, group: Group, found: Found) -> str | None:
    """Rows with a limit and a use above what the finding calls the most."""
    most = next((e.threshold for e in found.finding.evidence if e.metric == "use_p99"), None)
    if not isinstance(most, float):
        return None
    usage = verdicts.usage_of({w.id for w in group.workloads}, *_USES, "bottleneck", "seconds")
    if usage.empty:
        return None
    used = np.fmax.reduce([usage[name].to_numpy(float) for name in _USES])
    with np.errstate(invalid="ignore"):
        above = (used >= most) & usage["bottleneck"].isin(_LIMITS).to_numpy()
    seconds = usage["seconds"].to_numpy(float)
    return "uses-more-at-times" if seconds[above].sum() > _ABOVE_SHARE * seconds.sum() else None


def _trained_once(_: Verdicts, group: Group, __: Found) -> str | None:
    return "phase-of-training" if any(p.kind in TRAINING_KINDS for w in group.now for p in w.phases) else None


def _not_its_fault(_: Verdicts, group: Group, found: Found) -> str | None:
    """A fault that its other bottlenecks outweigh does not come first."""
    fault = found.fault
    if fault is None:
        return None
    own = busy_share(group, fault)
    return "limited-by-other" if any(busy_share(group, name) > own for name in _LIMITS) else None


def _silent_link(_: Verdicts, __: Group, found: Found) -> str | None:
    """A link that is waited for carries something."""
    line = next((e.value for e in found.finding.evidence if e.metric == "link_use_p50"), None)
    return "link-silent" if isinstance(line, float) and line < _SILENT else None


# An exchange at this median use of the line rate takes an eighth of the time at most, by rates of NCCL's all-reduce.
_SILENT = 0.05

CONTRADICTIONS: Mapping[str, Contradiction] = MappingProxyType(
    {
        "idle-nvlink": Contradiction(
            codes=frozenset({
                "shape-collectives", "shape-links-with-compute", "shape-links-against-compute", "nvlink-use",
                "limited-by-nvlink", "communication-nvlink",
            }),
            limits=frozenset({"nvlink"}), measured=(_exchanges,), nodes=True,
        ),
        "idle-fabric": Contradiction(
            codes=frozenset({"shape-fabric-busy", "fabric-use", "communication-fabric"}),
            kinds=frozenset(TRAINING_KINDS), nodes=True,
        ),
        # By its hours: what is said of its kind is said of the hours in which it worked.
        "held-idle": Contradiction(measured=(_works_meanwhile,)),
        "too-many-gpus": Contradiction(
            codes=CAPACITY, kinds=frozenset(TRAINING_KINDS), measured=(_uses_more, _trained_once)
        ),
        "over-tier": Contradiction(
            codes=frozenset({"shape-compute-bound", "limited-by-compute"}), limits=frozenset({"compute"})
        ),
        "memory-unused": Contradiction(codes=CAPACITY | {"shape-memory-pool"}),
        "under-tier": Contradiction(
            codes=frozenset({"ports-quiet", "nvlink-quiet", "limited-by-latency"}), kinds=frozenset(ON_DEMAND_KINDS),
            measured=(_silent_link,),
        ),
        "fix-first": Contradiction(kinds=frozenset(ON_DEMAND_KINDS), measured=(_not_its_fault,)),
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
        code = _code(fleet.verdicts, group, one, rule)
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


def _code(verdicts: Verdicts, group: Group, found: Found, rule: Contradiction) -> str | None:
    """The code of what a workload series shows against a finding; None: nothing."""
    if group is found.group and group.kind in rule.kinds:
        return f"kind-{group.kind}"
    told = {one.code for w in group.now for one in (*w.kind.evidence, *w.bottleneck.evidence)}
    if told & rule.codes:
        return min(told & rule.codes)
    limit = next((name for name in sorted(rule.limits) if busy_share(group, name) >= LIMIT_SHARE), None)
    if limit is not None:
        return f"limited-by-{limit}"
    return next((code for ask in rule.measured if (code := ask(verdicts, group, found)) is not None), None)
