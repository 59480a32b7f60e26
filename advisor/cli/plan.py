"""``skuwise plan``: which nodes come back, when, in which order, and what if."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING

from click import option

from ...rules.base.click_commands import Choice, command
from ...rules.base.errors import EXIT_DONE, NothingToDo, UsageError
from ...rules.base.progress import progress
from .options import (
    MOMENT,
    OutputOptions,
    StateOptions,
    Telemetry,
    number,
    output_options,
    state_options,
    telemetry_options,
    terminal_width,
)

if TYPE_CHECKING:
    from ..core.advice_types import Advice
    from ..plan.problem import Goal, Risk
    from ..plan.result import Plan
    from ..show.page_options import Again

_GOALS = ("cash", "nodes", "capacity", "energy")
_RISKS = ("very-low", "low", "medium", "high")
_ROWS = 12
_PERCENT = number("PERCENT", "percent per month, as in 5", 1e-6, 1000, units={"": 1, "%": 1})
_SECONDS = number("S", "seconds from 0.1 to 3600, as in 20", 0.1, 3600)
_WHOLE = number("N", "a whole number, as in 10", 0, 1_000_000, kind=int)


@command(
    "skuwise plan --db /var/lib/skuwise",
    "skuwise plan --prometheus http://localhost:9090 --goal nodes --only search --max-moves 10",
    "skuwise plan --db /var/lib/skuwise --demand 'team=search x1.5' --buy",
)
@telemetry_options()
@option("--goal", type=Choice(_GOALS), default="cash", help="what the plan maximizes (default: cash)")
@option("--max-moves", type=_WHOLE, help="touch at most N workloads (default: any number)")
@option("--only", multiple=True, metavar="TEAM", help="touch only workloads of this team; repeatable")
@option(
    "--exclude", multiple=True, metavar="NAME", help="leave this node, workload, team or recommendation; repeatable"
)
@option("--risk", type=Choice(_RISKS), default="low", help="highest risk of a change in the plan (default: low)")
@option("--reserve", type=_WHOLE, help="nodes per type to keep free for failures (default: enough 99 % of the time)")
@option("--tenants-apart", is_flag=True, help="put only one team on a node")
@option("--add", multiple=True, metavar="COUNTxSKU", help="plan with more nodes, as in 4xH100-SXM5; repeatable")
@option("--remove", multiple=True, metavar="NODE", help="plan without a node; repeatable")
@option(
    "--demand", multiple=True, metavar="DEMAND", help="'team=search x1.5', 'workload=chat x2', 'all x1.2'; repeatable"
)
@option("--commit-ends", type=MOMENT, help="plan as if every commitment ended on this date (UTC)")
@option("--growth", type=_PERCENT, help="growth of all demand per month: when each node type runs out")
@option("--buy", is_flag=True, help="rent nodes where the demand needs them")
@output_options("table", "json", "markdown", "html")
@option("--all", "whole", is_flag=True, help="print every row (default: the first rows of each list)")
@option("--seconds", type=_SECONDS, help="longest search for a better plan (default: 3 to 32, by the number of nodes)")
@state_options(optional=True)
def plan(
    telemetry: Telemetry,
    goal: Goal,
    max_moves: int | None,
    only: tuple[str, ...],
    exclude: tuple[str, ...],
    risk: Risk,
    reserve: int | None,
    tenants_apart: bool,
    add: tuple[str, ...],
    remove: tuple[str, ...],
    demand: tuple[str, ...],
    commit_ends: float | None,
    growth: float | None,
    buy: bool,
    output: OutputOptions,
    whole: bool,
    seconds: float | None,
    state: StateOptions,
) -> int:
    """Plan which nodes to return, when and in which order."""
    from ..plan.planner import Planner
    from ..plan.problem import FleetChange, PlanRequest
    from ..plan.whatif import parse_add, parse_demand

    for team in sorted({*only} & {*exclude}):
        raise UsageError(f"Team {team!r} is in --only and in --exclude.", "Remove it from one of them.")
    more: Counter[str] = Counter()
    for sku, count in map(parse_add, add):
        more[sku] += count
    factors = [parse_demand(text) for text in demand]
    for (kind, name), times in Counter(subject for subject, _ in factors).items():
        if times > 1:
            raise UsageError(f"The demand of {kind} {name} is given twice.", "Give each once.")
    request = PlanRequest(goal, max_moves, frozenset(only), frozenset(exclude), risk, reserve, tenants_apart)
    grows = None if growth is None else growth / 100
    change = FleetChange(more, frozenset(remove), dict(factors), commit_ends, buy, grows)
    now, ledger = time.time(), state.beside()
    book = telemetry.rulebook.load(now)
    frame, reasoned = telemetry.evaluate(book, now, ledger, keeps_rows=True)
    if not reasoned.fleet.verdicts.nodes:
        raise NothingToDo("No node with GPUs in this window.", "Choose another window or source.")
    with progress("planning", "plans"):
        planned = Planner(reasoned, frame, seconds, time.monotonic).plan(request, change)
    again = state.again(telemetry)
    output.write(_rendered(planned, reasoned.advice, output, again, None if whole else _ROWS))
    ledger.note(reasoned.advice, now)
    return EXIT_DONE


def _rendered(planned: Plan, advice: Advice, output: OutputOptions, again: Again, rows: int | None) -> str:
    from ..show.pages.plan import plan_document

    match output.form:
        case "json":
            from ..core.advice_json import document
            from ..plan.result import SCHEMA

            return json.dumps(document(SCHEMA, planned), indent=2, ensure_ascii=True, allow_nan=False) + "\n"
        case "table":
            from ..show.writers.text import document_text

            page = plan_document(planned, advice, again, rows)
            return document_text(page, width=terminal_width(), color=output.color)
        case "html":
            from ..show.writers.html import page_html

            return page_html(plan_document(planned, advice, again))
        case _:
            from ..show.writers.markdown import document_markdown

            return document_markdown(plan_document(planned, advice, again))
