"""``skuwise plan``: which nodes come back, when, in which order, and what if."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...rules.base.errors import EXIT_DONE, NothingToDo, UsageError
from ...rules.base.output import say, write_output
from ..core.timestamps import parse_moment
from .old_options import add_source, again_of
from .output import EVALUATING, cores, reading_telemetry, terminal_width, wants_color
from .state_options import add_state, beside

if TYPE_CHECKING:
    from ..core.advice_types import Advice
    from ..plan.problem import FleetChange, PlanRequest
    from ..plan.result import Plan

_GOALS = ("cash", "nodes", "capacity", "energy")
_RISKS = ("very-low", "low", "medium", "high")
_FORMATS = ("table", "json", "markdown", "html")
_ROWS = 12

EXAMPLES = (
    "skuwise plan --db /var/lib/skuwise",
    "skuwise plan --prometheus http://localhost:9090 --goal nodes --only search --max-moves 10",
    "skuwise plan --db /var/lib/skuwise --demand 'team=search x1.5' --buy",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of plan."""
    add_source(parser)
    parser.add_argument("--goal", choices=_GOALS, default="cash", help="what the plan maximizes (default: cash)")
    parser.add_argument("--max-moves", type=_whole, metavar="N", help="touch at most N workloads (default: any number)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEAM", help="touch only workloads of this team; repeatable"
    )
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="NAME",
        help="leave this node, workload, team, series or recommendation as it is; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--risk", choices=_RISKS, default="low", help="highest risk of a change in the plan (default: low)"
    )
    parser.add_argument(
        "--reserve", type=_whole, metavar="NODES",
        help="nodes per type to keep free for failures (default: enough 99 %% of the time at published failure rates)",
    )  # fmt: skip
    parser.add_argument("--tenants-apart", action="store_true", help="put only one team on a node")
    change = parser.add_argument_group("what if")
    change.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="COUNTxSKU",
        help="plan with more nodes, as in 4xH100-SXM5; repeatable",
    )
    change.add_argument("--remove", action="append", default=[], metavar="NODE", help="plan without a node; repeatable")
    change.add_argument(
        "--demand", action="append", default=[], metavar="DEMAND",
        help="plan for another demand, as in 'team=search x1.5', 'workload=chat x2' or 'all x1.2'; repeatable",
    )  # fmt: skip
    change.add_argument("--commit-ends", metavar="DATE", help="plan as if every commitment ended on this date (UTC)")
    change.add_argument(
        "--growth",
        type=_percent,
        metavar="PERCENT",
        help="growth of all demand per month: when each node type runs out",
    )
    change.add_argument("--buy", action="store_true", help="rent nodes where the demand needs them")
    parser.add_argument("--format", choices=_FORMATS, default="table", help="output format (default: table)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write to FILE instead of stdout, all or nothing")
    parser.add_argument("--all", action="store_true", help="print every row (default: the first rows of each list)")
    parser.add_argument(
        "--seconds",
        type=_seconds,
        metavar="S",
        help="longest search for a better plan (default: 3 to 32, by the number of nodes)",
    )
    add_state(parser, optional=True)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 1_000_000):
        raise argparse.ArgumentTypeError(f"invalid number: {text!r}. Use a whole number, as in 10.")
    return int(text)


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = 0.0
    if not 0 < value <= 1000:
        raise argparse.ArgumentTypeError(f"invalid growth: {text!r}. Use percent per month, as in 5.")
    return value / 100


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"invalid time: {text!r}. Use seconds from 0.1 to 3600, as in 20.")
    return value


def request_of(options: argparse.Namespace) -> tuple[PlanRequest, FleetChange]:
    """What the options ask for. Raises UsageError for what cannot be."""
    from ..plan.problem import FleetChange, PlanRequest
    from ..plan.whatif import parse_add, parse_demand

    both = sorted(set(options.only) & set(options.exclude))
    if both:
        raise UsageError(f"Team {both[0]!r} is in --only and in --exclude.", "Remove it from one of them.")
    add: dict[str, int] = {}
    for text in options.add:
        sku, count = parse_add(text)
        add[sku] = add.get(sku, 0) + count
    demand: dict[tuple[str, str], float] = {}
    for text in options.demand:
        whose, factor = parse_demand(text)
        if whose in demand:
            raise UsageError(f"The demand of {whose[0]} {whose[1]} is given twice.", "Give each once.")
        demand[whose] = factor
    request = PlanRequest(
        goal=options.goal, max_moves=options.max_moves, only=frozenset(options.only),
        exclude=frozenset(options.exclude), risk=options.risk, reserve_nodes=options.reserve,
        tenants_apart=options.tenants_apart,
    )  # fmt: skip
    change = FleetChange(
        add=add, remove=frozenset(options.remove), demand=demand,
        commitments_end=parse_moment(options.commit_ends) if options.commit_ends else None, buy=options.buy,
        growth_per_month=options.growth,
    )  # fmt: skip
    return request, change


def run(options: argparse.Namespace) -> int:
    """Read, judge, plan, print."""
    from ..advise import read_and_reason
    from ..plan.planner import Planner
    from .price_options import rulebook_of
    from .source_options import source_of

    request, change = request_of(options)
    source = source_of(options, say, cores())
    now, ledger = time.time(), beside(options)
    ledger.check()
    book = rulebook_of(options, now)
    with reading_telemetry(options) as reading:
        frame, found = read_and_reason(
            replace(source, steps=reading.step), book, since=options.since, until=options.until, now=now,
            ledger=ledger, read=lambda: reading.stage(EVALUATING), keeps_rows=True,
        )  # fmt: skip
        if not found.fleet.verdicts.nodes:
            raise NothingToDo("No node with GPUs in this window.", "Choose another window or source.")
        reading.stage("planning")
        plan = Planner(found, frame, options.seconds, time.monotonic).plan(request, change)
    write_output(_rendered(plan, found.advice, options), options.output)
    ledger.note(found.advice, now)
    return EXIT_DONE


def _rendered(plan: Plan, advice: Advice, options: argparse.Namespace) -> str:

    from ..show.pages.plan import plan_document

    if options.format == "json":
        from ..core.advice_json import document
        from ..plan.result import SCHEMA

        return json.dumps(document(SCHEMA, plan), indent=2, ensure_ascii=True, allow_nan=False) + "\n"
    if options.format == "table":
        from ..show.writers.text import document_text

        page = plan_document(plan, advice, again_of(options), None if options.all else _ROWS)
        return document_text(page, width=terminal_width(), color=options.output is None and wants_color())
    from ..show.writers.html import page_html
    from ..show.writers.markdown import document_markdown

    render = page_html if options.format == "html" else document_markdown
    return render(plan_document(plan, advice, again_of(options)))
