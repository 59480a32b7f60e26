"""The mail's section on the plan that the fleet follows: where it stands, what regressed, what can be done next."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import formatting as words
from ...core.timestamps import day
from ...ledger.plans.standing import NodeStanding, PlanStanding, StepStanding
from ...ledger.plans.words import idle_words, progress, step_why
from .model import AsideBlock, Section, Table, section
from .reader_commands import ReaderCommands
from .truncate import Lengths

_OF_STEPS = 5  # regressed, next and nodes, each


def plan_section(plan: PlanStanding | None, lengths: Lengths, commands: ReaderCommands) -> tuple[Section, ...]:
    """Nothing where no plan is followed, or none of its steps is the reader's."""
    if plan is None or not (plan.steps or plan.nodes):
        return ()
    regressed = [s for s in plan.steps if s.state == "regressed"]
    possible = [s for s in plan.steps if s.state == "pending"]
    idle = [n for n in plan.returning if n.state in ("empty", "silent")]
    waiting = plan.count("waiting")
    rows = (
        *_rows("Regressed", [_step(s, lengths) for s in regressed], lengths),
        *_rows("Next", [_step(s, lengths) for s in possible], lengths),
        *_rows("Return", [_node(n, lengths) for n in idle], lengths),
    )
    return (
        section(
            f"Plan of {day(plan.plan.kept_at)}",
            f"{progress(plan)}.",
            Table(("", "step or node", "state"), rows),
            AsideBlock(_waiting(waiting)) if waiting else None,
            AsideBlock(commands.lead, commands.ledger_plan()),
        ),
    )


def _step(s: StepStanding, lengths: Lengths) -> tuple[str, str]:
    what = f"{s.step.number}. {lengths.sentence(s.step.what, 120)}"
    since = f"since {day(s.since)}" if s.since is not None and s.state == "regressed" else ""
    told = "; ".join(filter(None, (since, lengths.sentence(step_why(s), 120))))
    gain = s.planned_usd_per_month
    saves = ""
    if gain:
        saves = f"saves {words.usd(gain)}/month" if gain > 0 else f"costs {words.usd(-gain)}/month"
    return what, "; ".join(filter(None, (told, saves))) or words.NONE


def _node(n: NodeStanding, lengths: Lengths) -> tuple[str, str]:
    return lengths.name(n.node.node), idle_words(n)


def _rows(label: str, lines: Sequence[tuple[str, str]], lengths: Lengths) -> list[tuple[str, str, str]]:
    shown = min(_OF_STEPS, lengths.rows)
    rows = [(label if not n else "", *line) for n, line in enumerate(lines[:shown])]
    rest = len(lines) - shown
    return [*rows, ("" if rows else label, f"and {rest} more", "")] if rest > 0 else rows


def _waiting(count: int) -> str:
    return "1 step waits for another." if count == 1 else f"{count} steps wait for others."
