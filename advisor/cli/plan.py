"""``skuwise plan``: which nodes come back, when, in which order, and what if."""

import json
import time
from collections import Counter
from typing import Any

from click import option

from ...rules.base.click_commands import Choice, command
from ...rules.base.errors import EXIT_DONE, NothingToDo, UsageError
from ...rules.base.output import Progress
from . import options

_GOALS = ("cash", "nodes", "capacity", "energy")
_RISKS = ("very-low", "low", "medium", "high")
_ROWS = 12
_PERCENT = options.number("PERCENT", "percent per month, as in 5", 1e-6, 1000, units={"": 1, "%": 1})
_SECONDS = options.number("S", "seconds from 0.1 to 3600, as in 20", 0.1, 3600)
_WHOLE = options.number("N", "a whole number, as in 10", 0, 1_000_000, kind=int)


@command(
    "skuwise plan --db /var/lib/skuwise",
    "skuwise plan --prometheus http://localhost:9090 --goal nodes --only search --max-moves 10",
    "skuwise plan --db /var/lib/skuwise --demand 'team=search x1.5' --buy",
)
@options.telemetry_options()
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
@option("--commit-ends", type=options.MOMENT, help="plan as if every commitment ended on this date (UTC)")
@option("--growth", type=_PERCENT, help="growth of all demand per month: when each node type runs out")
@option("--buy", is_flag=True, help="rent nodes where the demand needs them")
@options.output_options("table", "json", "markdown", "html")
@option("--all", "whole", is_flag=True, help="print every row (default: the first rows of each list)")
@option("--seconds", type=_SECONDS, help="longest search for a better plan (default: 3 to 32, by the number of nodes)")
@options.state_options(optional=True)
def plan(
    telemetry: options.Telemetry,
    output: options.OutputOptions,
    state: options.StateOptions,
    whole: bool,
    seconds: float | None,
    **asked: Any,  # noqa: ANN401 - the options from --goal to --buy
) -> int:
    """Plan which nodes to return, when and in which order."""
    from ..core.advice_json import document
    from ..plan.figures import Planner
    from ..plan.problem import FleetChange, PlanRequest
    from ..plan.result import SCHEMA
    from ..plan.whatif import parse_add, parse_demand
    from ..show.pages.plan import plan_document

    only, exclude, remove = (frozenset(asked[name]) for name in ("only", "exclude", "remove"))
    for team in sorted(only & exclude):
        raise UsageError(f"Team {team!r} is in --only and in --exclude.", "Remove it from one of them.")
    more: Counter[str] = Counter()
    for sku, count in map(parse_add, asked["add"]):
        more[sku] += count
    factors = [parse_demand(text) for text in asked["demand"]]
    for (kind, name), times in Counter(subject for subject, _ in factors).items():
        if times > 1:
            raise UsageError(f"The demand of {kind} {name} is given twice.", "Give each once.")
    limits = (asked["risk"], asked["reserve"], asked["tenants_apart"])
    request = PlanRequest(asked["goal"], asked["max_moves"], only, exclude, *limits)
    grows = None if asked["growth"] is None else asked["growth"] / 100
    change = FleetChange(more, remove, dict(factors), asked["commit_ends"], asked["buy"], grows)
    now, ledger = time.time(), state.beside()
    book = telemetry.rulebook.load(now)
    frame, reasoned = telemetry.evaluate(book, now, ledger, keeps_rows=True)
    if not reasoned.fleet.verdicts.nodes:
        raise NothingToDo("No node with GPUs in this window.", "Choose another window or source.")
    with Progress("planning", "plans"):
        planned = Planner(reasoned, frame, seconds, time.monotonic).plan(request, change)
    if output.form == "json":
        content = json.dumps(document(SCHEMA, planned), indent=2, allow_nan=False) + "\n"
    else:
        rows = _ROWS if output.form == "table" and not whole else None
        content = plan_document(planned, reasoned.advice, state.again(telemetry), rows)
    output.write(content)
    ledger.note(reasoned.advice, now)
    return EXIT_DONE
