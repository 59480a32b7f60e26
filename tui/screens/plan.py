"""The plan of the fleet beside today: which nodes come back, when, by which steps, and what if."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...rules.base.errors import SkuwiseError
from ...rules.base.sanitize import clean
from ..cell_text import line
from ..content.plan_question import HINT, PlanQuestion, parse_change, parse_moves
from ..content.plan_text import (
    POOLS,
    RETURNED,
    STEPS,
    StepRow,
    beside_words,
    by_date,
    head_words,
    pool_words,
    quality_words,
    question_words,
    step_rows,
    step_words,
)
from ..data.background_jobs import Cancelled, Tell
from ..data.loaders import Loader
from ..state import Loaded
from ..widgets.panel import Scroll, panel, put
from ..widgets.table import ItemTable
from .base_page import NodeWanted, Page, ReadingWanted, WhatIfWanted, WorkWanted
from .dialogs.decision_dialog import Verb
from .dialogs.input_dialog import InputDialog
from .recommendations import DecisionWanted

if TYPE_CHECKING:
    from ...advisor.plan.planner import Planner
    from ...advisor.plan.result import Plan

_SLOT = "plan"
# A question that is changed again within this time is not searched for: solving keeps all cores busy.
_PAUSE_SECONDS = 0.25


@dataclass
class FirstPlan(Message):
    """There is a first answer to a question; a better one is being searched for."""

    asked: object
    plan: Plan


class PlanPage(Page):
    NAME, LABEL, BEGIN = "plan", "Plan", "#pools"
    ABOUT: ClassVar[str] = (
        "The plan beside today: which nodes can be returned, when, and in which steps, as 'skuwise plan' computes "
        "it. A first answer appears at once; the search for a better one goes on in the background. Press g for the "
        "goal, r for the highest risk of a change and m for the most workloads to touch. Press w for another fleet or "
        "demand, and x to reset all but the goal. The plan uses the telemetry of the findings' window. Nothing is "
        "applied: press a to accept the recommendation of a step, as with 'skuwise ledger'. Enter shows a step or a "
        "node type in full, and opens a node. R reads the source again."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g", "goal", "Goal", priority=True),
        Binding("w", "change", "What if"),
        Binding("r", "risk", "Risk"),
        Binding("m", "moves", "Moves"),
        Binding("a", "decide('accepted')", "Accept"),
        Binding("z", "decide('snoozed')", "Snooze", show=False),
        Binding("d", "decide('dismissed')", "Dismiss", show=False),
        Binding("x", "forget", "Reset"),
        Binding("o", "workload", "Workload", show=False),
        Binding("i", "what_if", "What if, for the workload", show=False),
        Binding("R", "app.reload", "Read again", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._read: Loaded | None = None
        self._question: PlanQuestion | None = None  # None: nothing was asked yet
        self._answered: PlanQuestion | None = None  # what the plan that is shown answers
        self._plan: Plan | None = None
        self._searching = False
        self._plans: dict[PlanQuestion, Plan] = {}
        self._made: list[Planner] = []  # the planner of a reading, once one was needed; another list for another one
        self._asked = object()  # the newest question; what answers an older one is not shown
        self._timer: Timer | None = None

    def compose_data(self) -> ComposeResult:
        with Vertical(id="plan-head"):
            yield Static(id="plan-figures", classes="prose")
            yield Static(id="plan-question", classes="prose")
            yield Static(id="plan-quality", classes="prose")
            yield Static(id="plan-wrong", classes="prose")
        with Scroll(id="board"):
            with Vertical(classes="half", id="fleet-half"):
                pools = ItemTable(POOLS, empty=_WAIT, identity=lambda p: p.pool, id="pools")
                yield panel("Today and after, by node type", pools, id="pools-panel")
                returned = ItemTable(RETURNED, empty=_WAIT, identity=lambda r: r.name, id="returned")
                yield panel("Nodes to return", returned, id="returned-panel")
            with Vertical(classes="half", id="steps-half"):
                steps = ItemTable(STEPS, empty=_WAIT, identity=lambda row: str(row.step.number), id="steps")
                yield panel("Steps", steps, id="steps-panel")
                yield panel("Step", Static(classes="prose"), id="step", scrolls=True)
                yield panel("Notes", Static(classes="prose"), id="beside", scrolls=True)

    @property
    def subject(self) -> str | None:
        row = self._chosen
        return row.step.recommendation if row is not None else None

    @property
    def workload(self) -> str | None:
        row = self._chosen
        return row.step.workload if row is not None else None

    @property
    def _chosen(self) -> StepRow | None:
        return self.query_one("#steps", ItemTable).item

    # Asking and being answered

    def set_data(self, loaded: Loaded) -> None:
        """Plan anew for another reading. Another window, or a decision that is only marked yet, changes nothing."""
        before, self._read = self._read, loaded
        if before is not None and (
            before.advice is loaded.advice or (before.reasoned is not None and before.reasoned is loaded.reasoned)
        ):
            self._draw()
            return
        self._made = []
        self._plans.clear()
        if self._question is None:
            self._question = PlanQuestion() if words.has_prices(loaded.advice.summary) else PlanQuestion(goal="nodes")
        self._ask(self._question)

    def _ask(self, question: PlanQuestion) -> None:
        """Show the answer that is known, or have it searched for; of questions asked meanwhile the newest counts."""
        self._question, self._asked = question, object()
        if self._timer is not None:
            self._timer.stop()
        put(self.query_one("#plan-question", Static), question_words(question))
        plan = self._plans.get(question)
        if plan is not None:
            self._take(self._asked, plan)
            return
        self._tell_quality("Planning ...", "$warning")
        self._timer = self.set_timer(_PAUSE_SECONDS, self._search)

    def _search(self) -> None:
        loaded, question, asked, made = self._loaded, self._question, self._asked, self._made
        if loaded is None or question is None:
            return

        def work(loader: Loader, tell: Tell) -> Callable[[], None]:
            def first(plan: Plan) -> None:
                tell("planning")  # ends here where nobody waits for it any more
                self.post_message(FirstPlan(asked, plan))

            try:
                if not made:
                    made.append(loader.planner(loaded, tell))
                tell("planning")
                plan = made[0].plan(question.request, question.change, first)
            except Cancelled:
                raise
            except SkuwiseError as error:
                told = str(error)
                return lambda: self._refuse(asked, told)
            except Exception as error:  # the page must not wait for ever
                told = f"Planning failed: unexpected {type(error).__name__}: {error}"
                return lambda: self._refuse(asked, told)
            return lambda: self._take(asked, plan)

        self.post_message(WorkWanted(_SLOT, work))

    def narrate(self, slot: str, text: str) -> None:
        """What is read before anything can be planned."""
        if slot == _SLOT and self._question != self._answered:
            self._tell_quality(f"{text[:1].upper()}{text[1:]} ...", "$warning")

    def on_first_plan(self, message: FirstPlan) -> None:
        message.stop()
        self._take(message.asked, message.plan, searching=True)

    def _take(self, asked: object, plan: Plan, *, searching: bool = False) -> None:
        """Show the answer to the newest question."""
        if asked is not self._asked or self._question is None or not self.is_attached:
            return
        self._answered, self._plan, self._searching = self._question, plan, searching
        if not searching:
            self._plans[self._question] = plan
            self._asked = object()  # the first answer comes another way, and may come after the last
        self._tell_wrong("")
        self._draw()

    def _refuse(self, asked: object, why: str) -> None:
        """Say why there is no such plan, and go back to the question before."""
        if asked is not self._asked or not self.is_attached:
            return
        self._asked = object()
        before = self._answered
        if before is not None and before != self._question:
            self._ask(before)
        else:
            self._tell_quality("", "")
        self._tell_wrong(why)

    # Drawing

    def _draw(self) -> None:
        plan, loaded = self._plan, self._loaded
        if plan is None or loaded is None:
            return
        self.query_one("#plan-figures", Static).update(head_words(plan))
        if self._answered == self._question:
            self.query_one("#plan-quality", Static).update(quality_words(plan, searching=self._searching))
        self.query_one("#pools", ItemTable).set_data(plan.pools, "No nodes.")
        self.query_one("#returned", ItemTable).set_data(by_date(plan.returned), _NO_NODE)
        self.query_one("#steps", ItemTable).set_data(step_rows(plan, loaded.advice), _NO_STEP)
        self.query_one("#beside > .prose", Static).update(beside_words(plan))
        self._tell()

    def _tell_quality(self, text: str, style: str) -> None:
        put(self.query_one("#plan-quality", Static), line(text, style))

    def _tell_wrong(self, text: str) -> None:
        wrong = self.query_one("#plan-wrong", Static)
        wrong.update(line(clean(text), "$error"))
        wrong.display = bool(text)

    def _tell(self) -> None:
        row, loaded = self._chosen, self._loaded
        told = step_words(row, loaded.advice) if row is not None and loaded is not None else line("No step selected.")
        put(self.query_one("#step > .prose", Static), told)

    # Keys

    def on_item_table_moved(self, event: ItemTable.Moved) -> None:
        if event.table.id == "steps":
            self._tell()

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        event.stop()
        loaded, plan = self._loaded, self._plan
        if loaded is None or plan is None:
            return
        if event.table.id == "returned":
            self.post_message(NodeWanted(event.item.name))
        elif event.table.id == "pools":
            self.post_message(ReadingWanted("Node type", pool_words(event.item, plan)))
        else:
            self.post_message(ReadingWanted("Step", step_words(event.item, loaded.advice).plain))

    def action_goal(self) -> None:
        if self._question is not None:
            self._ask(self._question.next_goal)

    def action_risk(self) -> None:
        if self._question is not None:
            self._ask(self._question.next_risk)

    def action_forget(self) -> None:
        if self._question is not None:
            self._ask(PlanQuestion(goal=self._question.goal))

    def action_moves(self) -> None:
        question = self._question
        if question is None:
            return

        def taken(answer: tuple[int | None] | None) -> None:
            if answer is not None and self._question is not None:
                self._ask(replace(self._question, max_moves=answer[0]))

        told = "" if question.max_moves is None else str(question.max_moves)
        hint = "how many workloads the plan may touch; empty: any number"
        self.app.push_screen(InputDialog("Most workloads to touch", hint, parse_moves, told), taken)

    def action_change(self) -> None:
        question = self._question
        if question is None:
            return

        def parsed(text: str) -> str:
            parse_change(text)
            return text

        def taken(answer: str | None) -> None:
            if answer is not None and self._question is not None:
                self._ask(replace(self._question, whatif=answer))

        self.app.push_screen(InputDialog("What if", HINT, parsed, question.whatif), taken)

    def action_decide(self, act: Verb) -> None:
        row = self._chosen
        if row is not None and row.step.recommendation is not None:
            self.post_message(DecisionWanted(act, row.step.recommendation, row.title))
        elif row is not None:
            what = {"rent": "rents nodes", "give-up": "returns empty nodes"}.get(row.step.kind, "moves replicas")
            self.notify(f"This step only {what}. There is no recommendation to decide on.")

    def action_what_if(self) -> None:
        loaded, id_ = self._loaded, self.subject
        if self.workload is None or loaded is None:
            return
        r = next((recommendation for recommendation in loaded.advice.recommendations if recommendation.id == id_), None)
        self.post_message(WhatIfWanted(self.workload, r.target.node_sku if r is not None else None))


_WAIT = "Planning ..."
_NO_NODE = "No node can be returned under these limits."
_NO_STEP = "No step: nothing to change under these limits."
