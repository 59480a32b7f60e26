"""Exceptions (``rules/exceptions.yaml``): findings about work that needs what looks like waste, set aside by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ....rules.policy.exceptions import Exceptions, RuleException
from ...core.coded_text import CodedText
from ...core.timestamps import day
from ..base.workload_groups import Group
from ..context.finding_context import Found, called, listed, node_words

# The fabric is the node's: whoever works there may be the one that needs it.
OF_THE_NODE = ("idle-fabric",)


def excused(groups: Sequence[Group], exceptions: Exceptions, at: float) -> tuple[Group, ...]:
    """The groups with the exceptions that fit them: one of a group's runs is enough. `at`: Unix seconds."""
    rules = {rule for one in exceptions.every for rule in one.rules}
    today = day(at)
    told = []
    for group in groups:
        found = {}
        for rule in rules:
            whys = (exceptions.of_workload(rule, w.owner, w.name, w.command, today) for w in group.workloads)
            why = next((one for one in whys if one is not None), None)
            if why is not None:
                found[rule] = why
        told.append(replace(group, excused=found) if found else group)
    return tuple(told)


def without_exceptions(
    found: Iterable[Found], groups: Sequence[Group], exceptions: Exceptions, at: float
) -> tuple[list[Found], list[CodedText]]:
    """The findings that stand, and a note for every exception that silenced some. `at`: Unix seconds."""
    kept: list[Found] = []
    silenced: dict[tuple[str, RuleException], list[str]] = {}
    for one in found:
        why = _exception(one, groups, exceptions, day(at))
        if why is None:
            kept.append(one)
        else:
            of = called(one.group) if one.group is not None else node_words(one.nodes)
            silenced.setdefault((one.finding.rule, why), []).append(of)
    notes = [
        CodedText(
            "silenced-by-exception",
            f"{rule} says nothing of {listed(names)}, by the exception {why.id} ({why.origin}): {why.reason}",
            {"rule": rule, "exception": why.id, "origin": why.origin, "reason": why.reason},
        )
        for (rule, why), names in silenced.items()
    ]
    return kept, notes


def _exception(one: Found, groups: Sequence[Group], exceptions: Exceptions, today: str) -> RuleException | None:
    rule, nodes = one.finding.rule, {n.node for n in one.nodes}
    concerned = [one.group] if one.group is not None else []
    if rule in OF_THE_NODE:
        concerned = [g for g in groups if any(nodes.intersection(w.nodes) for w in g.workloads)]
    whys = (group.excused.get(rule) for group in concerned)
    return next((why for why in whys if why is not None), None) or exceptions.of_nodes(rule, nodes, today)
