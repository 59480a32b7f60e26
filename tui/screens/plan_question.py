"""The question to a plan: the goal, the limits, and the difference to today's fleet as somebody typed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...advisor.core.advice_types import COUNTED_RISKS, Risk
from ...advisor.core.timestamps import parse_moment
from ...rules.base.errors import UsageError
from ...rules.base.sanitize import quoted

if TYPE_CHECKING:
    from ...advisor.plan.problem import FleetChange, Goal

GOALS: tuple[Goal, ...] = ("cash", "nodes", "capacity", "energy")
_WORKLOADS_MOST = 1_000_000
HINT = "+4xH100-SXM5, -NODE, team=search x1.5, all x1.2, commit-ends 2027-01-01, buy; commas between them; empty: today"


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """`risk`: the highest of a change. `max_moves`: workloads that may be touched; None: any number. `whatif`: the
    difference to today, as `parse_change` reads it."""

    goal: Goal = "cash"
    risk: Risk = COUNTED_RISKS[-1]
    max_moves: int | None = None
    whatif: str = ""


def parse_change(text: str) -> FleetChange:
    """``+4xH100-SXM5, -gpu-07, team=search x1.5, buy`` as the options of ``skuwise plan``; empty: no change.

    With a semicolon, only semicolons separate: a name may hold commas. Raises UsageError.
    """
    from ...advisor.plan.problem import FleetChange  # noqa: PLC0415 - it needs numpy: not at the start
    from ...advisor.plan.whatif import parse_add, parse_demand  # noqa: PLC0415

    add: dict[str, int] = {}
    demand: dict[tuple[str, str], float] = {}
    remove: set[str] = set()
    ends, buy = None, False
    for part in filter(None, (part.strip() for part in text.split(";" if ";" in text else ","))):
        word, _, rest = part.partition(" ")
        if part.startswith("+"):
            sku, count = parse_add(part[1:].strip())
            add[sku] = add.get(sku, 0) + count
        elif part.startswith("-") and part[1:].strip():
            remove.add(part[1:].strip())
        elif part == "buy":
            buy = True
        elif word == "commit-ends":
            ends = parse_moment(rest.strip())
        elif "=" in part or word == "all":
            whose, factor = parse_demand(part)
            if whose in demand:
                raise UsageError(f"The demand of {' '.join(whose)} is given twice.", "Give each once.")
            demand[whose] = factor
        else:
            raise UsageError(
                f"Invalid change {quoted(part)}.",
                "Use +COUNTxSKU, -NODE, team=NAME xFACTOR, all xFACTOR, commit-ends DATE or buy.",
            )
    return FleetChange(add=add, remove=frozenset(remove), demand=demand, commitments_end=ends, buy=buy)


def parse_moves(text: str) -> tuple[int | None]:
    """How many workloads may be touched, in a tuple of one; None in it: any number. Raises UsageError."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_WORKLOADS_MOST)) else None
    if text and (number is None or number > _WORKLOADS_MOST):
        raise UsageError(f"Invalid number {quoted(text)}.", "Use a whole number, such as 10; empty: any number.")
    return (number,)
