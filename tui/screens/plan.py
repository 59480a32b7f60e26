"""The plan of the fleet beside today: which nodes can be returned, when, by which steps, and what if."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import COUNTED_RISKS, Advice, Recommendation, Risk
from ...advisor.core.timestamps import parse_moment
from ...advisor.show.pages.plan import heading, node_type, plan_document, quality, step_title, tiles, when_words
from ...advisor.show.titles import Titles, gain_text
from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.sanitize import clean, quoted
from ..cell_text import line
from ..data.background_jobs import Cancelled, Tell
from ..data.loaders import Loader
from ..state import Loaded
from ..widgets.frame import Drawing, Drawn, Scroll, panel
from ..widgets.rows import document_drawing, explained
from ..widgets.table import Column, ItemTable, number, quantity
from .base_page import Page, WorkWanted
from .dialogs import InputDialog, Verb

if TYPE_CHECKING:
    from ...advisor.plan.figures import Planner
    from ...advisor.plan.problem import FleetChange, Goal
    from ...advisor.plan.result import Move, Plan, PlanStep, ReturnedNode

_SLOT = "plan"
# A question that is changed again within this time is not planned for: the solver keeps all cores busy.
_PAUSE_SECONDS = 0.25
GOALS: tuple[Goal, ...] = ("cash", "nodes", "capacity", "energy")
_WORKLOADS_MOST = 1_000_000
HINT = "+4xH100-SXM5, -NODE, team=search x1.5, all x1.2, commit-ends 2027-01-01, buy; commas between them; empty: today"
# Parts of the command's page that the tables and the head of this one do not show.
_NOTES = (
    "What if", "Missing nodes", "Nodes to rent first", "Compared with advise", "Left out", "Independent of the plan",
    "Notes",
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


@dataclass(frozen=True)
class StepRow:
    """A step with its title. `recommendation` None: it is only part of the plan."""

    step: PlanStep
    title: str
    recommendation: Recommendation | None


class PlanPage(Page):
    NAME, LABEL, BEGIN = "plan", "Plan", "#pools"
    ABOUT: ClassVar[str] = (
        "The plan of 'skuwise plan' beside today: which nodes can be returned, when, and in which steps, from the "
        "telemetry of the findings' window. A first answer appears at once, while the search for a better one goes on. "
        "The keys change the question. Nothing is applied: press a to accept the recommendation of a step."
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
        Binding("o", "workload", "Workload", show=False),
        Binding("i", "what_if", "What if, for the workload", show=False),
        Binding("R", "app.reload", "Read again", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._read: Loaded | None = None
        self._question = PlanQuestion()
        self._answered: PlanQuestion | None = None  # the question of the plan that is shown
        self._plan: Plan | None = None
        self._searching = False
        self._planners: list[Planner] = []  # the planner of a reading, made by its first question
        self._asked = object()  # the newest question; answers to older ones are dropped
        self._timer: Timer | None = None

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

    @property
    def subject(self) -> str | None:
        return self.selected.step.recommendation if self.selected is not None else None

    @property
    def workload(self) -> str | None:
        return self.selected.step.workload if self.selected is not None else None

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
        """Search for the answer to the question with changes; of questions asked meanwhile the newest counts."""
        self._question, self._asked = replace(self._question, **changes), object()  # type: ignore[arg-type]
        if self._timer is not None:
            self._timer.stop()
        self.write("#plan-question", _question_words(self._question))
        self.write("#plan-quality", line(_WAIT, "$warning"))
        self._timer = self.set_timer(_PAUSE_SECONDS, self._search)

    def _search(self) -> None:
        loaded, question, asked, planners = self._loaded, self._question, self._asked, self._planners
        if loaded is None:
            return

        def work(loader: Loader, tell: Tell) -> Callable[[], None]:
            from ...advisor.plan.problem import PlanRequest  # noqa: PLC0415

            def first(plan: Plan) -> None:
                tell("planning")  # raises where the question has changed
                self.call_later(self._take, asked, plan, searching=True)

            try:
                if not planners:
                    planners.append(loader.planner(loaded, tell))
                tell("planning")
                request = PlanRequest(goal=question.goal, risk=question.risk, max_moves=question.max_moves)
                plan = planners[0].plan(request, parse_change(question.whatif), first)
            except Cancelled:
                raise
            except Exception as error:  # the page must not stay in "Planning ..."
                unexpected = f"Planning failed: unexpected {type(error).__name__}: {error}"
                why = str(error) if isinstance(error, SkuwiseError) else unexpected
                return lambda: self._refuse(asked, why)
            return lambda: self._take(asked, plan)

        self.post_message(WorkWanted(_SLOT, work))

    def narrate(self, slot: str, text: str) -> None:
        if slot == _SLOT and self._question != self._answered:
            self.write("#plan-quality", line(f"{text[:1].upper()}{text[1:]} ...", "$warning"))

    def _take(self, asked: object, plan: Plan, *, searching: bool = False) -> None:
        if asked is self._asked and self.is_attached:
            self._answered, self._plan, self._searching = self._question, plan, searching
            if not searching:
                self._asked = object()
            self._draw()

    def _refuse(self, asked: object, why: str) -> None:
        """Show why there is no such plan, and go back to the question before."""
        if asked is self._asked and self.is_attached:
            self._asked, self._question = object(), self._answered or self._question
            self.write("#plan-question", _question_words(self._question))
            self._draw()
            self.write("#plan-quality", line(clean(why), "$error"))

    def _draw(self) -> None:
        plan, loaded = self._plan, self._loaded
        if plan is None or loaded is None:
            return
        figures = [
            f"{tile.label}: {tile.value}{f' ({tile.change})' if tile.change and tile.label != 'Energy' else ''}"
            for tile in tiles(plan)
            if tile.label != "Goal"
        ]
        good = "bold $success" if plan.returned and not plan.missing else "bold"
        self.write("#plan-figures", line(heading(plan), good), line("; ".join(figures)))
        if self._answered == self._question and self._searching:
            self.write("#plan-quality", line("First answer; searching for a better plan ...", "$warning"))
        elif self._answered == self._question:
            self.write("#plan-quality", line(quality(plan), "$foreground-muted"))
        self.query_one("#pools", ItemTable).set_data(plan.pools, "No nodes.")
        self.query_one("#returned", ItemTable).set_data(sorted(plan.returned, key=_by_date), _NO_NODE)
        self.query_one("#steps", ItemTable).set_data(_step_rows(plan, loaded.advice), _NO_STEP)
        page = plan_document(plan, loaded.advice)
        notes = tuple(section for section in page.sections if section.title in _NOTES)
        page = replace(page, heading="", window="", summary="", tiles=(), sections=notes, footer=())
        self.query_one("#beside > Drawn", Drawn).set_data(document_drawing(page) if notes else lambda _: ())
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
    return [StepRow(step, step_title(step, names), by_id.get(step.recommendation or "")) for step in plan.steps]


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
    text = [
        line(f"Step {step.number}: {row.title}", "bold"),
        *([line(f"Alone: {gain_text(r)}")] if r is not None else []),
        *([line(f"Empties: {words.listed(step.frees)}")] if step.frees else []),
        line(f"After step {before}, which makes room." if before else "Can start now."),
        *([line(step.staging.text, "$warning")] if step.staging is not None else []),
        *(line(f"{name}: {value}") for name, value in (("Risk", step.risk), ("Team", step.team)) if value),
        *(line(f"  {_move(move)}") for move in step.moves),
        line(""),
    ]
    if r is None:
        return lambda _: text
    document = explained(advice, r)
    return lambda width: [*text, *document(width)]


def _move(move: Move) -> str:
    gpus = f" ({words.counted(move.gpus, 'GPU')})" if move.gpus else ""
    if move.start is None:
        return f"{move.unit}: starts on {move.end or 'a node to choose'}{gpus}"
    return f"{move.unit}: {f'{move.start} to {move.end}' if move.end else f'stops on {move.start}'}{gpus}"


def _by_date(r: ReturnedNode) -> tuple[int, str, int, str]:
    """The cash of today first, then by date; capacity last."""
    return {"cash-now": 0, "cash-at": 1}.get(r.realisation, 2), r.available_from or "", r.step or 0, r.name


def _change(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} to {after:,}"


_WAIT = "Planning ..."
_NO_NODE = "No node can be returned under these limits."
_NO_STEP = "No step: nothing to change under these limits."
_POOLS = (
    Column("node type", 14, lambda p: node_type(p.node_sku, p.pool), grows=True),
    Column("nodes", 7, lambda p: _change(p.nodes_today, p.nodes_after), lambda p: p.nodes_today, falling=True),
    Column("peak GPUs", 9, lambda p: _change(round(p.gpus_needed_today), round(p.gpus_needed)),
           lambda p: p.gpus_needed_today, falling=True),
    quantity("carries", 7, lambda p: p.carries, "x{:.2f}".format),
    Column("reserve", 7, lambda p: f"{p.reserve_gpus} of {p.reserve_wanted_gpus}", lambda p: p.reserve_gpus),
    quantity("rented", 6, lambda p: p.rented or None, "{:,}".format),
    number("GPUs", 5, lambda p: f"{p.gpus_after:,}", lambda p: p.gpus_after),
    Column("region", 8, lambda p: p.region or words.NONE),
)  # fmt: skip
_RETURNED = (
    Column("node", 14, lambda r: r.name, grows=True, middle=True),
    Column("when", 17, when_words, lambda r: r.available_from or ""),
    number("cost/month", 10, lambda r: words.usd(r.usd_per_month), lambda r: r.usd_per_month),
    Column("after step", 9, lambda r: str(r.step or ("jobs end" if r.drains else "empty now")), lambda r: r.step or 0),
    Column("GPUs", 12, lambda r: words.gpus(r.gpus, r.gpu_sku), lambda r: r.gpus, falling=True),
    Column("node type", 14, lambda r: node_type(r.node_sku, r.pool)),
)  # fmt: skip
_STEPS = (
    Column("what", 30, lambda row: f"{row.step.number}. {row.title}", lambda row: row.step.number, grows=True),
    Column("empties", 12, lambda row: ", ".join(row.step.frees) or words.NONE),
    Column("risk", 8, lambda row: row.step.risk or words.NONE),
    Column("after", 5, lambda row: ", ".join(map(str, row.step.after)) or words.NONE),
    number("moves", 5, lambda row: str(len(row.step.moves)), lambda row: len(row.step.moves)),
)  # fmt: skip
