"""The words of a plan on the terminal: its head, the lines of its tables, one step in full, and what stands beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.content import Content

from ...advisor.core import formatting as words
from ...advisor.core.timestamps import minute
from ...advisor.show.pages.plan import (
    heading,
    node_type,
    quality,
    reconciled,
    step_title,
    tiles,
    when_words,
)
from ...advisor.show.titles import Titles, gain_text
from ..cell_text import line, lines
from ..widgets.table import Column
from .plan_question import PlanQuestion

if TYPE_CHECKING:
    from ...advisor.core.advice_types import Advice, Recommendation
    from ...advisor.core.verdict_types import WorkloadVerdict
    from ...advisor.plan.result import Move, Plan, PlanStep, PoolPlan, RentedNode, ReturnedNode

_MOVES = 40  # moves of a step that are told one by one
_NAMES = 12  # nodes named in a line
_PATCHED = ("kubernetes", "slurm")  # schedulers for which there are patches


@dataclass(frozen=True)
class StepRow:
    """A step with its title."""

    step: PlanStep
    title: str


def step_rows(plan: Plan, advice: Advice) -> list[StepRow]:
    """The steps in their order, as actions."""
    titles = Titles(advice)
    wanted = {s.recommendation for s in plan.steps}
    named = {r.id: titles.of(r) for r in advice.recommendations if r.id in wanted}
    return [StepRow(step, step_title(step, named)) for step in plan.steps]


def question_words(asked: PlanQuestion) -> Content:
    """What is asked, each part with its key."""
    moves = "any" if asked.max_moves is None else f"at most {asked.max_moves:,}"
    parts = (
        ("g", f"goal: {asked.goal}"), ("r", f"risk: {asked.risk}"), ("m", f"workloads: {moves}"),
        ("w", f"what if: {asked.whatif or 'as today'}"),
    )  # fmt: skip
    told: list[Content] = []
    for key, what in parts:
        told += [Content.styled(f"{key} ", "bold $accent"), line(f"{what}   ")]
    return Content.assemble(*told)


def quality_words(plan: Plan, *, searching: bool) -> Content:
    """How good the plan is, as far as that is known yet."""
    if searching:
        return line("First answer; searching for a better plan ...", "$warning")
    return line(quality(plan), "$foreground-muted")


def head_words(plan: Plan) -> Content:
    """The plan in a sentence, then its figures."""
    told = []
    for tile in tiles(plan):
        if tile.label != "Goal":
            apart = f" ({tile.change})" if tile.change and tile.label != "Energy" else ""
            told.append(f"{tile.label}: {tile.value}{apart}")
    good = bool(plan.returned) and not plan.missing
    return lines(line(heading(plan), "bold $success" if good else "bold"), line("; ".join(told)))


def step_words(row: StepRow, advice: Advice) -> Content:
    """All about one step: what it moves, what falls free, what it waits for, its risk, and how it is done."""
    step = row.step
    r = next(
        (recommendation for recommendation in advice.recommendations if recommendation.id == step.recommendation), None
    )
    w = next((workload for workload in advice.workloads if workload.id == step.workload), None)
    told = [line(f"Step {step.number}: {row.title}", "bold")]
    if r is not None:
        told.append(line(f"Alone: {gain_text(r, advice)}", "$success" if r.saving_usd_per_month else ""))
    if step.frees:
        told.append(line(f"Empties: {_named(step.frees)}"))
    before = ", ".join(map(str, step.after))
    told.append(line(f"After step {before}, which makes room." if before else "Can start now."))
    if step.staging is not None:
        told.append(line(step.staging.text, "$warning"))
    if step.risk is not None:
        told.append(line(f"Risk: {step.risk}"))
    if step.team is not None:
        told.append(line(f"Team: {step.team}"))
    told += [line(f"  {_move(m)}") for m in step.moves[:_MOVES]]
    if len(step.moves) > _MOVES:
        told.append(line(f"  {len(step.moves) - _MOVES} more moves"))
    if r is not None:
        told += [Content(""), line(r.text)]
        told += [line(f"Changes if: {one}") for one in r.would_change_if]
        if r.decision is not None:
            told.append(line(f"Decided: {words.decision_words(r.decision)}", "bold"))
        told += [Content(""), *(line(f"  {command}", "$accent") for command in _commands(r, w))]
    return lines(*told)


def _move(m: Move) -> str:
    gpus = f" ({words.counted(m.gpus, 'GPU')})" if m.gpus else ""
    if m.start is None:
        return f"{m.unit}: starts on {m.end or 'a node to choose'}{gpus}"
    return f"{m.unit}: {m.start} to {m.end}{gpus}" if m.end is not None else f"{m.unit}: stops on {m.start}{gpus}"


def _commands(r: Recommendation, w: WorkloadVerdict | None) -> list[str]:
    """How the step is decided, and what prints the change."""
    scheduler = w.scheduled.name if w is not None else None
    target = scheduler if scheduler in _PATCHED else None
    return [f"skuwise ledger accept {r.id}", *([f"skuwise patch {r.id} --for {target}"] if target else [])]


def pool_words(pool: PoolPlan, plan: Plan) -> str:
    """A node type in full, line by line."""
    back = [r.name for r in plan.returned if r.pool == pool.pool]
    nodes = _change(pool.nodes_today, pool.nodes_after)
    gpus = f"{pool.gpus_today:,} today, {pool.gpus_after:,} after the plan"
    peak = f"{pool.gpus_needed_today:,.0f} today, {pool.gpus_needed:,.0f} after the plan"
    at = f" (at {minute(pool.peak_at)})" if pool.peak_at is not None else ""
    told = [
        f"Node type: {pool.node_sku or pool.pool}, {pool.gpu_sku or 'unknown GPU'}, {pool.region or 'unknown region'}",
        f"Nodes: {nodes}{f', {pool.rented} of them rented' if pool.rented else ''}",
        f"GPUs: {gpus}",
        f"GPUs needed at the peak: {peak}{at}",
        f"GPUs in reserve for failures: {pool.reserve_gpus} of {pool.reserve_wanted_gpus}",
        *([f"Missing at the peak: {words.counted(pool.short_gpus, 'GPU')}"] if pool.short_gpus else []),
        *([f"Demand carried: {pool.carries:.2f} times that of the peak"] if pool.carries is not None else []),
        *([f"To return: {', '.join(back)}"] if back else []),
    ]
    return "\n".join(told)


def beside_words(plan: Plan) -> Content:
    """What was asked beside today, what is missing or rented, and what the plan leaves alone."""
    told = [line(f"What if: {change.text}", "bold") for change in plan.changes]
    told += [line(f"Missing: {node}", "$error") for node in _new_nodes(plan.missing)]
    told += [
        line(f"{node_type(p.node_sku, p.pool)}: {words.counted(p.short_gpus, 'GPU')} missing at the peak", "$error")
        for p in plan.pools
        if p.short_gpus
    ]
    told += [line(f"To rent first: {one}") for one in _new_nodes(plan.rented)]
    told += [line(one) for one in reconciled(plan)]
    left = [one for one in plan.not_in_plan if one.why.code != "plan-blocked"]
    risky = sum(one.risk_alone for one in left)
    others = len(left) - risky
    if risky:
        told.append(line(f"Left out for its risk alone: {words.counted(risky, 'recommendation')}; r raises the limit"))
    if others:
        told.append(line(f"Left out for other reasons: {words.counted(others, 'recommendation')}"))
    if plan.beside:
        told.append(line(f"Independent of the plan: {words.counted(len(plan.beside), 'recommendation')}"))
    told += [line(f"Note: {note}") for note in plan.notes]
    why: dict[str, list[str]] = {}
    for name, reason in plan.kept_nodes.items():
        why.setdefault(reason.text, []).append(name)
    told += [line(f"{_named(sorted(names))}: {reason}", "$foreground-muted") for reason, names in why.items()]
    return lines(*told) if told else line("No notes.")


def _new_nodes(nodes: Sequence[RentedNode]) -> list[str]:
    counts = Counter((n.node_sku or n.pool, n.gpus, n.gpu_sku, n.usd_per_month) for n in nodes)
    return [
        f"{words.counted(count, 'node')} of {sku} ({words.gpus(count * gpus, gpu)}"
        f"{'' if usd is None else f', {words.usd(count * usd)}/month'})"
        for (sku, gpus, gpu, usd), count in counts.items()
    ]


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES])
    return f"{shown} and {len(names) - _NAMES} more" if len(names) > _NAMES else shown


def _change(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} to {after:,}"


def _emptied(r: ReturnedNode) -> str:
    if r.step is not None:
        return str(r.step)
    return "jobs end" if r.drains else "empty now"


def by_date(returned: Sequence[ReturnedNode]) -> list[ReturnedNode]:
    """The cash of today first, then by date; capacity last."""
    ranks: Mapping[str, int] = {"cash-now": 0, "cash-at": 1}
    return sorted(returned, key=lambda r: (ranks.get(r.realisation, 2), r.available_from or "", r.step or 0, r.name))


POOLS = (
    Column("node type", 14, lambda p: node_type(p.node_sku, p.pool), grows=True, middle=True),
    Column("nodes", 7, lambda p: _change(p.nodes_today, p.nodes_after), lambda p: p.nodes_today, falling=True),
    Column("peak GPUs", 9, lambda p: _change(round(p.gpus_needed_today), round(p.gpus_needed)),
           lambda p: p.gpus_needed_today, falling=True),
    Column("carries", 7, lambda p: words.NONE if p.carries is None else f"x{p.carries:.2f}", lambda p: p.carries,
           falling=True),
    Column("reserve", 7, lambda p: f"{p.reserve_gpus} of {p.reserve_wanted_gpus}", lambda p: p.reserve_gpus),
    Column("rented", 6, lambda p: f"{p.rented:,}" if p.rented else words.NONE, lambda p: p.rented, right=True,
           falling=True),
    Column("GPUs", 5, lambda p: f"{p.gpus_after:,}", lambda p: p.gpus_after, right=True, falling=True),
    Column("region", 8, lambda p: p.region or words.NONE),
)  # fmt: skip
RETURNED = (
    Column("node", 14, lambda r: r.name, grows=True, middle=True),
    Column("when", 17, when_words, lambda r: r.available_from or ""),
    Column("cost/month", 10, lambda r: words.usd(r.usd_per_month), lambda r: r.usd_per_month, right=True, falling=True),
    Column("after step", 9, _emptied, lambda r: r.step or 0),
    Column("GPUs", 12, lambda r: words.gpus(r.gpus, r.gpu_sku), lambda r: r.gpus, falling=True),
    Column("node type", 14, lambda r: node_type(r.node_sku, r.pool), middle=True),
)  # fmt: skip
STEPS = (
    Column("step", 4, lambda row: str(row.step.number), lambda row: row.step.number, right=True),
    Column("what", 30, lambda row: row.title, grows=True),
    Column("empties", 12, lambda row: ", ".join(row.step.frees) or words.NONE,
           lambda row: len(row.step.frees), falling=True),
    Column("risk", 8, lambda row: row.step.risk or words.NONE),
    Column("after", 5, lambda row: ", ".join(map(str, row.step.after)) or words.NONE),
    Column("moves", 5, lambda row: str(len(row.step.moves)), lambda row: len(row.step.moves), right=True,
           falling=True),
)  # fmt: skip
