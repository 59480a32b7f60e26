"""The plan of the fleet beside today: which nodes can be returned, when, by which steps, and what if."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import COUNTED_RISKS, Advice, Recommendation, Risk
from ...advisor.core.timestamps import parse_moment
from ...advisor.show.document import Document
from ...advisor.show.pages import plan as shown
from ...advisor.show.titles import Titles, gain_text
from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.sanitize import clean, quoted
from ..cell_text import line
from ..data.background_jobs import Cancelled, Tell
from ..data.loaders import Loader
from ..state import Loaded
from ..widgets.figures import document_drawing, explained
from ..widgets.frame import Drawing, Drawn, InputDialog, Scroll, Verb, panel
from ..widgets.table import Column, ItemTable, number, quantity
from .base_page import Page, WorkWanted

if TYPE_CHECKING:
    from ...advisor.plan.figures import Planner
    from ...advisor.plan.problem import FleetChange, Goal
    from ...advisor.plan.result import Move, Plan, PlanStep, ReturnedNode

# A question that is changed within this time is not planned for: the solver keeps all cores busy.
_PAUSE_SECONDS = 0.25
GOALS: tuple[Goal, ...] = ("cash", "nodes", "capacity", "energy")
HINT = "+4xH100-SXM5, -NODE, team=search x1.5, all x1.2, commit-ends 2027-01-01, buy; commas between them; empty: today"
# Parts of the command's page that the tables and the head of this one do not show.
_NOTES = (
    "What if", "Missing nodes", "Nodes to rent first", "Waiting jobs that start", "Compared with advise", "Left out",
    "Independent of the plan", "Notes",
)  # fmt: skip


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

    add, demand, remove = dict[str, int](), dict[tuple[str, str], float](), set[str]()
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
            raise UsageError(f"Invalid change {quoted(part)}.", f"Use {HINT}.")
    return FleetChange(add=add, remove=frozenset(remove), demand=demand, commitments_end=ends, buy=buy)


def parse_moves(text: str) -> tuple[int | None]:
    """How many workloads may be touched, in a tuple of one; None in it: any number. Raises UsageError."""
    if text and not (text.isascii() and text.isdigit() and len(text) <= 7):
        raise UsageError(f"Invalid number {quoted(text)}.", "Use a whole number, such as 10; empty: any number.")
    return (int(text) if text else None,)


class StepRow(NamedTuple):
    """A step with its title. `recommendation` None: it is only part of the plan."""

    step: PlanStep
    title: str
    recommendation: Recommendation | None


class PlanPage(Page):
    NAME, LABEL, BEGIN = "plan", "Plan", "#pools"
    IDS = attrgetter("step.recommendation", "step.workload")
    ABOUT: ClassVar[str] = (
        "The plan of 'skuwise plan' beside today: which nodes can be returned, when, and in which steps. The keys "
        "change the question. Nothing is applied: press a to accept the recommendation of a step."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g", "next('goal')", "Goal", priority=True),
        Binding("w", "change", "What if"),
        Binding("r", "next('risk')", "Risk"),
        Binding("m", "moves", "Moves"),
        Binding("a", "decide('accepted')", "Accept"),
        Binding("z", "decide('snoozed')", "Snooze", show=False),
        Binding("d", "decide('dismissed')", "Dismiss", show=False),
        Binding("x", "forget", "Reset"),
        Binding("i", "what_if", "What if, for the workload", show=False),
        Binding("R", "app.reload", "Read again", show=False),
    ]

    _read: Loaded | None = None
    _question = PlanQuestion()
    _answered: PlanQuestion | None = None  # the question of the plan that is shown
    _ended: PlanQuestion | None = None  # the question whose search has ended
    _plan: Plan | None = None

    def __init__(self) -> None:
        super().__init__()
        self._planners: list[Planner] = []  # the planner of a reading, made by its first question

    def compose_data(self) -> ComposeResult:
        yield Vertical(*(Static(id=f"plan-{part}") for part in ("figures", "question", "quality")), id="plan-head")
        with Scroll(id="board"):
            with Vertical(classes="half", id="fleet-half"):
                pools = ItemTable(_POOLS, empty=_WAIT, identity=lambda p: p.pool, id="pools")
                yield panel("Today and after, by node type", pools, id="pools-panel")
                returned = ItemTable(_RETURNED, empty=_WAIT, identity=lambda r: r.name, id="returned")
                yield panel("Nodes to return", returned, id="returned-panel")
            with Vertical(classes="half", id="steps-half"):
                steps = ItemTable(_STEPS, empty=_WAIT, identity=lambda row: str(row.step.number), id="steps")
                yield panel("Steps", steps, id="steps-panel")
                yield panel("Step", Drawn(_NO_STEP), id="step", scrolls=True)
                yield panel("Notes", Drawn("No notes."), id="beside", scrolls=True)

    @property
    def selected(self) -> StepRow | None:
        return self.query_one("#steps", ItemTable).item

    # Questions and answers

    def set_data(self, loaded: Loaded) -> None:
        """Plan again for another reading. Another window, or a decision that is only marked yet, changes nothing."""
        before, self._read = self._read, loaded
        if before is not None and (
            before.advice is loaded.advice or (before.reasoned is not None and before.reasoned is loaded.reasoned)
        ):
            self._draw()
            return
        if before is None and loaded.advice.summary.cost_usd is None:
            self._question = PlanQuestion(goal="nodes")
        self._planners = []
        self._ask()

    def _ask(self, **changes: object) -> None:
        self._question = question = replace(self._question, **changes)  # type: ignore[arg-type] - fields of it
        loaded, planners = self._loaded, self._planners
        self.write("#plan-question", _question_words(question))
        self.write("#plan-quality", line(_WAIT, "$warning"))

        def work(loader: Loader, tell: Tell) -> Callable[[], None]:
            from ...advisor.plan.problem import PlanRequest  # noqa: PLC0415

            def first(plan: Plan) -> None:
                tell("planning")  # raises where the question has changed
                self.call_later(self._take, question, plan, searching=True)

            time.sleep(_PAUSE_SECONDS)
            tell("planning")
            try:
                if not planners and loaded is not None:
                    planners.append(loader.planner(loaded, tell))
                request = PlanRequest(goal=question.goal, risk=question.risk, max_moves=question.max_moves)
                plan = planners[0].plan(request, parse_change(question.whatif), first)
            except Cancelled:
                raise
            except Exception as error:  # the page must not stay in "Planning ..."
                unexpected = f"Planning failed: unexpected {type(error).__name__}: {error}"
                why = str(error) if isinstance(error, SkuwiseError) else unexpected
                return lambda: self._refuse(question, why)
            return lambda: self._take(question, plan)

        if loaded is not None:
            self.post_message(WorkWanted("plan", work))

    def _take(self, question: PlanQuestion, plan: Plan, *, searching: bool = False) -> None:
        # A first answer may arrive after the last one: it goes through another queue.
        if question is self._question and self.is_attached and not (searching and question is self._ended):
            self._answered, self._plan = question, plan
            self._ended = None if searching else question
            self._draw()
            text = "First answer; searching for a better plan ..." if searching else shown.quality(plan)
            self.write("#plan-quality", line(text, "$warning" if searching else "$foreground-muted"))

    def _refuse(self, question: PlanQuestion, why: str) -> None:
        if question is self._question and self.is_attached:
            self._question = self._answered or question
            self.write("#plan-question", _question_words(self._question))
            self.write("#plan-quality", line(clean(why), "$error"))

    def _draw(self) -> None:
        plan, loaded = self._plan, self._loaded
        if plan is None or loaded is None:
            return
        figures = [
            f"{tile.label}: {tile.value}{f' ({tile.change})' if tile.change and tile.label != 'Energy' else ''}"
            for tile in shown.tiles(plan)
            if tile.label != "Goal"
        ]
        good = "bold $success" if plan.returned and not plan.missing else "bold"
        self.write("#plan-figures", line(shown.heading(plan), good), line("; ".join(figures)))
        self.query_one("#pools", ItemTable).set_data(plan.pools, "No nodes.")
        self.query_one("#returned", ItemTable).set_data(sorted(plan.returned, key=_by_date), _NO_NODE)
        self.query_one("#steps", ItemTable).set_data(_step_rows(plan, loaded.advice), _NO_STEP)
        page = shown.plan_document(plan, loaded.advice)
        notes = tuple(section for section in page.sections if section.title in _NOTES)
        drawing = document_drawing(Document("", "", sections=notes)) if notes else lambda _: ()
        self.query_one("#beside > Drawn", Drawn).set_data(drawing)
        self._show_step()

    def _show_step(self) -> None:
        row, loaded = self.selected, self._loaded
        drawing = step_words(row, loaded.advice) if row is not None and loaded is not None else lambda _: ()
        self.query_one("#step > Drawn", Drawn).set_data(drawing)

    # Keys

    def on_item_table_moved(self, event: ItemTable.Moved) -> None:
        if event.table.id == "steps":
            self._show_step()

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        if event.table.id == "returned":
            self.want("node", event.item.name)

    def action_next(self, name: str) -> None:
        """Ask with the next goal or the next limit of the risk."""
        from ...advisor.plan.problem import RISKS  # noqa: PLC0415

        values: Sequence[str] = GOALS if name == "goal" else RISKS
        self._ask(**{name: values[(values.index(getattr(self._question, name)) + 1) % len(values)]})

    def action_forget(self) -> None:
        self._question = PlanQuestion(goal=self._question.goal)
        self._ask()

    def _enter(self, name: str, title: str, hint: str, parse: Callable[[str], tuple[Any]], now: str) -> None:
        dialog = InputDialog(title, hint, parse, now)
        self.app.push_screen(dialog, lambda answer: answer and self._ask(**{name: answer[0]}))

    def action_moves(self) -> None:
        now = "" if self._question.max_moves is None else str(self._question.max_moves)
        hint = "how many workloads the plan may touch; empty: any number"
        self._enter("max_moves", "Most workloads to touch", hint, parse_moves, now)

    def action_change(self) -> None:
        self._enter("whatif", "What if", HINT, lambda text: parse_change(text) and (text,), self._question.whatif)

    def action_decide(self, verb: Verb) -> None:
        row = self.selected
        if row is not None and row.step.recommendation is not None:
            self.want("decision", verb, row.step.recommendation, row.title)
        elif row is not None:
            what = {"rent": "rents nodes", "give-up": "returns empty nodes"}.get(row.step.kind, "moves replicas")
            self.notify(f"This step only {what}. There is no recommendation to decide on.")

    def action_what_if(self) -> None:
        row = self.selected
        if row is not None and row.step.workload is not None:
            r = row.recommendation
            self.want("whatif", row.step.workload, r.target.node_sku if r is not None else None)


def _step_rows(plan: Plan, advice: Advice) -> list[StepRow]:
    titles, by_id = Titles(advice), {r.id: r for r in advice.recommendations}
    names = {s.recommendation: titles.of(by_id[s.recommendation]) for s in plan.steps if s.recommendation in by_id}
    return [StepRow(step, shown.step_title(step, names), by_id.get(step.recommendation or "")) for step in plan.steps]


def _question_words(question: PlanQuestion) -> Content:
    moves = "any" if question.max_moves is None else f"at most {question.max_moves:,}"
    parts = (
        ("g", f"goal: {question.goal}"), ("r", f"risk: {question.risk}"), ("m", f"workloads: {moves}"),
        ("w", f"what if: {question.whatif or 'as today'}"),
    )  # fmt: skip
    return Content("   ").join(Content.assemble(line(key, "bold $accent"), line(f" {part}")) for key, part in parts)


def step_words(row: StepRow, advice: Advice) -> Drawing:
    """A step: its moves, the nodes it empties, the steps before it, its risk; then its recommendation."""
    step, r = row.step, row.recommendation
    before = ", ".join(map(str, step.after))
    parts = (
        f"Alone: {gain_text(r)}" if r is not None else "",
        f"Empties: {words.listed(step.frees)}" if step.frees else "",
        f"After step {before}, which makes room." if before else "Can start now.",
        step.staging.text if step.staging is not None else "",
        f"Risk: {step.risk}" if step.risk else "",
        f"Team: {step.team}" if step.team else "",
        *(f"  {_move(move)}" for move in step.moves),
    )
    text = [line(f"Step {step.number}: {row.title}", "bold"), *map(line, filter(None, parts)), line("")]
    document = explained(advice, r) if r is not None else lambda _: ()
    return lambda width: [*text, *document(width)]


def _move(move: Move) -> str:
    gpus = f" ({words.counted(move.gpus, 'GPU')})" if move.gpus else ""
    if move.start is None:
        return f"{move.unit}: starts on {move.end or 'a node to choose'}{gpus}"
    return f"{move.unit}: {f'{move.start} to {move.end}' if move.end else f'stops on {move.start}'}{gpus}"


def _by_date(r: ReturnedNode) -> tuple[int, str, int, str]:
    return {"cash-now": 0, "cash-at": 1}.get(r.realisation, 2), r.available_from or "", r.step or 0, r.name


change = shown.change_words
_WAIT = "Planning ..."
_NO_NODE = "No node can be returned under these limits."
_NO_STEP = "No step: nothing to change under these limits."
_POOLS = (
    Column("node type", 14, lambda p: shown.node_type(p.node_sku, p.pool), grows=True),
    Column("nodes", 7, lambda p: change(p.nodes_today, p.nodes_after), lambda p: p.nodes_today, falling=True),
    Column("peak GPUs", 9, lambda p: change(p.gpus_needed_today, p.gpus_needed), lambda p: p.gpus_needed_today,
           falling=True),
    quantity("carries", 7, lambda p: p.carries, "x{:.2f}".format),
    Column("reserve", 7, lambda p: f"{p.reserve_gpus} of {p.reserve_wanted_gpus}", lambda p: p.reserve_gpus),
    quantity("rented", 6, lambda p: p.rented or None, "{:,}".format),
    number("GPUs", 5, lambda p: f"{p.gpus_after:,}", lambda p: p.gpus_after),
    Column("region", 8, lambda p: p.region or words.NONE),
)  # fmt: skip
_RETURNED = (
    Column("node", 14, lambda r: r.name, grows=True, middle=True),
    Column("when", 17, shown.when_words, lambda r: r.available_from or ""),
    number("cost/month", 10, lambda r: words.usd(r.usd_per_month), lambda r: r.usd_per_month),
    Column("after step", 9, lambda r: str(r.step or ("jobs end" if r.drains else "empty now")), lambda r: r.step or 0),
    Column("GPUs", 12, lambda r: words.gpus(r.gpus, r.gpu_sku), lambda r: r.gpus, falling=True),
    Column("node type", 14, lambda r: shown.node_type(r.node_sku, r.pool)),
)  # fmt: skip
_STEPS = (
    Column("what", 30, lambda row: f"{row.step.number}. {row.title}", lambda row: row.step.number, grows=True),
    Column("empties", 12, lambda row: ", ".join(row.step.frees) or words.NONE),
    Column("risk", 8, lambda row: row.step.risk or words.NONE),
    Column("after", 5, lambda row: ", ".join(map(str, row.step.after)) or words.NONE),
    number("moves", 5, lambda row: str(len(row.step.moves)), lambda row: len(row.step.moves)),
)  # fmt: skip
