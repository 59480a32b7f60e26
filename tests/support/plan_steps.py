"""Whether the steps of a plan lead from today to the layout without breaking a rule on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from skuwise.advisor.plan.draft import Answer
from skuwise.advisor.plan.found import rebuilt, short_of
from skuwise.advisor.plan.needs import Needs
from skuwise.advisor.plan.problem import Layout, PlanOption, Problem
from skuwise.advisor.plan.steps import Step

from .plan_checker import broken_rules


def wrong_steps(problem: Problem, layout: Layout, steps: Sequence[Step]) -> list[str]:
    """Where a step leaves the rules broken for a moment, it says so; the last one never does."""
    said: list[str] = []
    end = state_after(problem, layout, tuple(steps))
    if dict(end.places) != dict(layout.places) or end.kept != layout.kept or dict(end.chosen) != dict(layout.chosen):
        said.append("the steps do not end at the layout")
    if steps and not steps[-1].settled:
        said.append("the last step leaves something to be done")
    said += [f"step {i} is not settled, and not staged" for i in _loose(steps)]
    for i in range(len(steps) + 1):
        if i and not steps[i - 1].settled:
            continue
        said += [
            f"after step {i}: {one}" for one in broken_rules(problem, state_after(problem, layout, tuple(steps[:i])))
        ]
    for i, step in enumerate(steps):
        if any(not 0 <= one < i for one in step.after):
            said.append(f"step {i} comes before what it needs: {step.after}")
    freed = [name for step in steps for name in step.frees]
    if len(freed) != len(set(freed)):
        said.append("a node is given up twice")
    return said


def _loose(steps: Sequence[Step]) -> list[int]:
    """Steps that are not settled, nor do they follow a staged one."""
    found, staged = [], False
    for i, step in enumerate(steps):
        staged = step.staging is not None or (staged and not steps[i - 1].settled)
        if not step.settled and not staged:
            found.append(i)
    return found


def state_after(problem: Problem, layout: Layout, steps: tuple[Step, ...]) -> Layout:
    """The layout that is there once these first steps are done: with it a prefix is checked like any layout."""
    at = {u.id: u.node for s in problem.series for u in s.units}
    kept = {n.name for n in problem.nodes if not n.rented}
    chosen: dict[str, PlanOption] = {}
    for step in steps:
        kept |= set(step.rents)
        for unit, _, to in step.moves:
            at.pop(unit, None)
            if to is not None:
                at[unit] = to
        if step.option is not None and step.series is not None:
            chosen[step.series] = problem.by_option[step.option]
        kept -= set(step.frees)
    short = short_of(rebuilt(problem, Needs(problem), Answer(chosen, at, frozenset(kept), {})))
    return replace(layout, chosen=chosen, places=at, kept=frozenset(kept), short=short)
