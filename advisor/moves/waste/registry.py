"""All waste rules by their id, and the one call that asks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ....rules.thresholds import WasteRule
from ...verdicts.facts import Verdicts
from ..found import Found
from ..groups import Group
from ..money import PriceBook
from .energy import energy
from .fix_first import fix_first
from .held_idle import held_idle
from .idle import idle
from .idle_fabric import idle_fabric
from .idle_nvlink import idle_nvlink
from .memory_unused import memory_unused
from .over_tier import over_tier
from .scope import Rule, Scope
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


def find_waste(
    verdicts: Verdicts, groups: Sequence[Group], rules: Mapping[str, WasteRule], book: PriceBook, *, at: float
) -> tuple[tuple[Found, ...], tuple[str, ...]]:
    """Every finding of the window, and the notes that say where no verdict was possible and from when one will be.

    `at`: the moment of the advice, Unix seconds. A rule fires on numbers it can show; a telemetry fault, too little
    data or an unknown kind silences it.
    """
    scope = Scope(verdicts, groups, rules, book, at)
    found: list[Found] = []
    notes: list[str] = []
    for rule_id, judge in RULES.items():
        mine, told = judge(scope, rules[rule_id])
        found += mine
        notes += told
    return tuple(found), tuple(dict.fromkeys(notes))
