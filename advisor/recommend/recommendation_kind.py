"""What a kind of recommendation is: how it is built, what it is called, and how telemetry shows what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..core.advice_types import Action, Recommendation
from ..core.formatting import listed
from .fleet_context import FleetContext
from .move_context import DrawnRecommendation
from .progress import CostAfter, MoveState, Observation, PredictionSnapshot, cost_after

# Hours at the target after which a move is done, and at the source after which it is undone: a whole day, since load
# and count follow the day.
DONE_HOURS = 24.0
# Counts come and go by themselves: what nobody asked for must have lasted a week, a week-end with it.
WEEK_HOURS = 7 * 24.0


@dataclass(frozen=True, slots=True)
class TitleSubject:
    """What a recommendation is about, as its title names it: the workload's name (None: no workload), and the nodes
    that its findings name."""

    workload: str | None = None
    nodes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The workload, else the nodes, else the fleet."""
        return self.workload or listed(self.nodes) or "the fleet"

    @property
    def place(self) -> str:
        """`` on gpu-009``; empty where no node is known."""
        return f" on {listed(self.nodes)}" if self.nodes else ""


@dataclass(frozen=True, slots=True)
class RecommendationKind:
    """All that the program knows of a kind of recommendation beside the labels of its actions (`advice_types.Action`):
    each module in ``recommend/moves`` has one, named KIND.

    `rank`: its place among the kinds where recommendations exclude one another. `build`: all of them in a fleet.
    `title`: one as an action with its object; `words`: one in a few words, for a narrow column; `subject`: it as the
    subject of "... is not recommended".

    What became of it: `state` tells where it stands by what was seen (None: that does not tell; the last argument:
    whether it is recommended there again), `cost` what its nodes cost since. It is done after `done_hours` at its
    target; where nobody asked for it after `unasked_hours` (None: never). `by_absence`: it is seen by what is not there
    any more, so the whole fleet must be in sight. `frees`: its series holds less after it. `calibrates`: its measured
    time says how the model fares on other GPUs here. `of_another`: its predicted time is another series', so it is not
    held against its own.
    """

    actions: tuple[Action, ...]
    rank: int
    build: Callable[[FleetContext], Iterable[DrawnRecommendation]]
    title: Callable[[Recommendation, TitleSubject], str]
    words: Callable[[Recommendation], str]
    subject: str
    state: Callable[[PredictionSnapshot, Observation, bool], MoveState | None]
    cost: CostAfter = cost_after
    done_hours: float = DONE_HOURS
    unasked_hours: float | None = DONE_HOURS
    by_absence: bool = False
    frees: bool = False
    calibrates: bool = False
    of_another: bool = False

    def __post_init__(self) -> None:
        if not self.actions or not self.subject:
            raise ValueError(f"The kind of recommendation {self.actions} lacks its actions, or its name in a sentence.")
