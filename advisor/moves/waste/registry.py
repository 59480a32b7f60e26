"""All waste rules by their id, and the one call that asks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from ....rules.policy.custom import CustomRules
from ....rules.policy.exceptions import Exceptions
from ....rules.policy.thresholds import OF_NODES, WasteRule
from ...core.coded_text import CodedText
from ..context.finding_context import Found
from .custom import custom_findings
from .energy import energy
from .exceptions import without_exceptions
from .fix_first import fix_first
from .held_idle import held_idle
from .idle import idle
from .idle_fabric import RULE as IDLE_FABRIC
from .idle_fabric import idle_fabric
from .idle_nvlink import idle_nvlink
from .memory_unused import memory_unused
from .over_tier import over_tier
from .rule_context import Rule, Scope
from .telemetry_fault import telemetry_fault
from .too_many_gpus import too_many_gpus
from .under_tier import under_tier

RULES: Mapping[str, Rule] = MappingProxyType({
    "idle-fabric": idle_fabric,
    "idle": idle,
    "held-idle": held_idle,
    "too-many-gpus": too_many_gpus,
    "fix-first": fix_first,
    "under-tier": under_tier,
    "over-tier": over_tier,
    "idle-nvlink": idle_nvlink,
    "memory-unused": memory_unused,
    "energy": energy,
    "telemetry-fault": telemetry_fault,
})  # fmt: skip


def find_waste(scope: Scope, exceptions: Exceptions) -> tuple[tuple[Found, ...], tuple[CodedText, ...]]:
    """Every finding of the window, and the notes that say where no verdict was possible and from when one will be.

    A rule fires on numbers it can show; a telemetry fault, too little data, an unknown kind or an exception silences
    it. A team's work is held against the team's thresholds.
    """
    found: list[Found] = []
    notes: list[CodedText] = []
    for rule_id, judge in RULES.items():
        for own, part in _by_team(scope, scope.rules[rule_id]):
            mine, told = judge(part, own)
            found += mine
            notes += told
    kept, silenced = without_exceptions(found, scope.groups, exceptions, scope.at)
    return tuple(kept), tuple(dict.fromkeys((*notes, *silenced)))


def find_custom(
    scope: Scope, custom: CustomRules, exceptions: Exceptions
) -> tuple[tuple[Found, ...], tuple[CodedText, ...]]:
    """What a site's and its teams' own rules find: beside the waste, for they claim no money and start no move."""
    found, notes = custom_findings(scope, custom)
    kept, silenced = without_exceptions(found, scope.groups, exceptions, scope.at)
    return tuple(kept), tuple(dict.fromkeys((*notes, *silenced)))


def _by_team(scope: Scope, rule: WasteRule) -> Iterator[tuple[WasteRule, Scope]]:
    """The rule with the part of the work for which it holds: as the site has it, and as each team that changed it.

    A node's fabric is judged with all who work there in sight, so that rule asks each for its own.
    """
    if not rule.teams or rule.id in OF_NODES or rule.id == IDLE_FABRIC:
        yield rule, scope
        return
    for own in (rule, *(one for _, one in rule.teams)):
        yield own, replace(scope, groups=[g for g in scope.groups if rule.of(g.lead.owner) is own])
