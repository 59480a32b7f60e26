"""What is asked of a plan: the goal, the limits, and a fleet or a demand that is not today's, as somebody typed it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...advisor.core.advice_types import COUNTED_RISKS, Risk
from ...advisor.core.timestamps import parse_moment
from ...rules.base.errors import UsageError
from ...rules.base.sanitize import quoted

if TYPE_CHECKING:
    from ...advisor.plan.problem import FleetChange, Goal, PlanRequest

GOALS: tuple[Goal, ...] = ("cash", "nodes", "capacity", "energy")
MOVES_MAX = 1_000_000
HINT = "+4xH100-SXM5, -NODE, team=search x1.5, all x1.2, commit-ends 2027-01-01, buy; commas between them; empty: today"
_COMMIT_ENDS = "commit-ends"


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """`risk`: the highest of a change. `max_moves`: workloads that may be touched; None: any number. `whatif`: what is
    not as today, as `parse_change` reads it."""

    goal: Goal = "cash"
    risk: Risk = COUNTED_RISKS[-1]
    max_moves: int | None = None
    whatif: str = ""

    @property
    def request(self) -> PlanRequest:
        from ...advisor.plan.problem import PlanRequest  # noqa: PLC0415 - it needs numpy: not at the start

        return PlanRequest(goal=self.goal, risk=self.risk, max_moves=self.max_moves)

    @property
    def change(self) -> FleetChange:
        """Raises UsageError."""
        return parse_change(self.whatif)

    @property
    def next_goal(self) -> PlanQuestion:
        return replace(self, goal=GOALS[(GOALS.index(self.goal) + 1) % len(GOALS)])

    @property
    def next_risk(self) -> PlanQuestion:
        from ...advisor.plan.problem import RISKS  # noqa: PLC0415

        return replace(self, risk=RISKS[(RISKS.index(self.risk) + 1) % len(RISKS)])


def parse_change(text: str) -> FleetChange:
    """``+4xH100-SXM5, -gpu-07, team=search x1.5, buy`` as the options of ``skuwise plan`` mean it; empty: nothing.

    Where a semicolon stands, only semicolons separate: a name may hold commas. Raises UsageError.
    """
    from ...advisor.plan.problem import FleetChange  # noqa: PLC0415
    from ...advisor.plan.whatif import parse_add, parse_demand  # noqa: PLC0415

    add: dict[str, int] = {}
    demand: dict[tuple[str, str], float] = {}
    remove: set[str] = set()
    ends, buy = None, False
    for part in filter(None, (one.strip() for one in text.split(";" if ";" in text else ","))):
        word, _, rest = part.partition(" ")
        if part.startswith("+"):
            sku, count = parse_add(part[1:].strip())
            add[sku] = add.get(sku, 0) + count
        elif part.startswith("-") and part[1:].strip():
            remove.add(part[1:].strip())
        elif part == "buy":
            buy = True
        elif word == _COMMIT_ENDS:
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
    if not text:
        return (None,)
    if not (text.isascii() and text.isdigit() and int(text[:8]) <= MOVES_MAX and len(text) <= len(str(MOVES_MAX))):
        raise UsageError(f"Invalid number {quoted(text)}.", "Use a whole number, such as 10; empty: any number.")
    return (int(text),)
