"""The open incidents of the watch: what is wrong today, what it costs so far, and who takes care of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.timestamps import minute
from ...rules.base.errors import SkuwiseError, UsageError
from ..cell_text import line, lines
from ..data.background_jobs import Tell
from ..data.loaders import Loader
from ..state import Loaded, State
from ..widgets.columns import Column
from ..widgets.movement import Scroll
from ..widgets.table import ItemTable
from .base_page import Header, ListPage, ReadingWanted, WorkWanted
from .dialogs.input_dialog import InputDialog

if TYPE_CHECKING:
    from sqlite_utils import Database

    from ...advisor.core.incident_types import Incident  # it needs numpy: not at the start

    # Decides on the incident of an id, and says what was decided.
    Decide = Callable[[Database, str], str]

_AGAIN_SECONDS = 30.0
_WIDTH = 96
_LABEL_WIDTH = 12
_NAME_MAX = 200
_NONE = "No open incidents."
_NOT_BEGUN = (
    "No state file of this fleet yet.",
    "Start the watch: skuwise watch SOURCE, or the service skuwise-watch.",
    "Incidents are shown after the telemetry has been read.",
)


class Incidents(ListPage):
    NAME, LABEL = "incidents", "Incidents"
    NEEDS_DATA = False
    FRAME = 3  # border and titles
    ABOUT: ClassVar[str] = (
        "Open incidents of 'skuwise watch', the most severe and expensive first: GPUs held but idle, jobs that stopped "
        "working, missing telemetry, reduced clocks and silent fabric. Costs are those observed so far. Press a to "
        "acknowledge an incident: there are no reminders until it is resolved. Press z to snooze it: there are no "
        "reminders until then. Press r to read the incidents again; the page does so every 30 seconds. The last panel "
        "shows the evidence and the command with more details; enter shows it alone."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "acknowledge", "Acknowledge"),
        Binding("z", "snooze", "Snooze"),
        Binding("r", "reread", "Read again"),
    ]

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self._now = 0.0
        self._problem: tuple[str, ...] = ()

    def compose_data(self) -> ComposeResult:
        with Container(id="proposed"):
            with Vertical(classes="panel fills", id="listed") as panel:
                panel.border_title = "Open incidents"
                yield ItemTable(_COLUMNS, empty="Reading the incidents ...", id="incident-table")
            with Scroll(classes="panel", id="chosen") as panel:
                panel.border_title = "Evidence"
                yield Static(id="told", classes="prose")

    def on_mount(self) -> None:
        self.begin_at(ItemTable)
        self.set_interval(_AGAIN_SECONDS, self._again)

    def on_screen_resume(self, event: events.ScreenResume) -> None:  # noqa: ARG002 - Page has its own, called as well
        self.action_reread()

    def _again(self) -> None:
        if self.is_current:
            self.action_reread()

    def set_data(self, loaded: Loaded) -> None:  # noqa: ARG002 - it says whose telemetry is read, so whose incidents
        self._again()

    def update_state(self, state: State) -> None:
        super().update_state(state)
        self._now = state.now

    def action_reread(self) -> None:
        self._do("incidents")

    def _do(self, slot: str, decide: Callable[[Database], str] | None = None) -> None:
        """Decide something on the incidents of the fleet, off the loop, then show how they stand. `decide` gives what
        to notify."""

        def work(loader: Loader, tell: Tell) -> Callable[[], None]:  # noqa: ARG001 - it is soon done
            from ...advisor.state.incidents import listed  # noqa: PLC0415 - not needed at the start

            said = None
            try:
                state = loader.state()
                if state is None or not state.path.exists():
                    return lambda: self.set_incidents((), _NOT_BEGUN)
                if decide is not None:
                    with state.writing() as db:
                        said = decide(db)
                with state.reading() as db:
                    found = listed(db)
            except UsageError as error:  # of one decision: what is listed still holds
                problem = str(error)
                return lambda: self.notify(problem, severity="error", markup=False)
            except SkuwiseError as error:
                problem = str(error)
                return lambda: self.set_incidents((), ("Incidents cannot be read.", problem))
            return lambda: self.set_incidents(found, (), said)

        self.post_message(WorkWanted(slot, work))

    def set_incidents(
        self, incidents: Sequence[Incident], problem: tuple[str, ...] = (), said: str | None = None
    ) -> None:
        """Show what was read. `problem`: why there is nothing, in lines; `said`: what was decided."""
        from ...advisor.show.incident_words import by_urgency  # noqa: PLC0415

        if not self.is_mounted:
            return
        self._problem = problem
        self.query_one(ItemTable).set_data([Row(one, self._now) for one in by_urgency(incidents)], _NONE)
        if said is not None:
            self.notify(said, markup=False)
        self.call_after_refresh(self.share)
        self.tell()

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        from ...advisor.show.incident_words import as_text  # noqa: PLC0415

        self.post_message(ReadingWanted("Incident", as_text(event.item.incident, self._now, _WIDTH)))

    def tell(self) -> None:
        row, told = self.query_one(ItemTable).item, self.query_one("#told", Static)
        if row is not None:
            from ...advisor.show.incident_words import details  # noqa: PLC0415

            told.update(lines(*(_detail(label, text) for label, text in details(row.incident, self._now))))
        else:
            told.update(lines(*(line(one) for one in self._problem)))

    def action_acknowledge(self) -> None:
        from ...advisor.cli.ledger import deciding_user  # noqa: PLC0415
        from ...advisor.state.incidents import acknowledge  # noqa: PLC0415

        def parse(text: str) -> Decide:
            by = deciding_user(text[:_NAME_MAX])
            return lambda db, id_: f"{acknowledge(db, id_, by, self._now).id} is acknowledged."

        self._ask("Acknowledge: no reminders until it is resolved.", "Your name:", parse, deciding_user(None))

    def action_snooze(self) -> None:
        from ...advisor.cli.incidents import UNTIL_HINT, parse_until  # noqa: PLC0415
        from ...advisor.state.incidents import snooze  # noqa: PLC0415

        def parse(text: str) -> Decide:
            until = parse_until(text, self._now)
            return lambda db, id_: f"{snooze(db, id_, until).id} is snoozed until {minute(until)}."

        self._ask("Snooze: no reminders until then.", f"Until: {UNTIL_HINT}", parse, "8h")

    def _ask(self, what: str, prompt: str, parse: Callable[[str], Decide], typed: str) -> None:
        """Ask for what a decision on the chosen incident needs, then decide. `parse`: the decision of what was
        typed."""
        row: Row | None = self.query_one(ItemTable).item
        if row is None:
            return

        def answered(decide: Decide | None) -> None:
            if decide is not None:
                self._do("incident decision", lambda db: decide(db, row.id))

        self.app.push_screen(InputDialog(what, f"{row.title}. {prompt}", parse, typed), answered)


class Row:
    """An incident in the list, as of `now` (Unix seconds)."""

    def __init__(self, incident: Incident, now: float) -> None:
        from ...advisor.show.incident_words import owner_words, state_word, title  # noqa: PLC0415

        self.id, self.incident = incident.id, incident
        self.title, self.state, self.owner = title(incident), state_word(incident, now), owner_words(incident)


def _detail(label: str, text: str) -> Content:
    return Content.assemble(Content.styled(f"{label:<{_LABEL_WIDTH}}", "$foreground-muted"), line(text))


def _cost(usd: float | None) -> str:
    return words.NONE if usd is None else words.usd(usd)


_RANKS = {"high": 0.0, "medium": 1.0, "low": 2.0}
_COLUMNS = (
    Column("incident", 30, lambda row: row.title, grows=True, middle=True),
    Column("state", 12, lambda row: row.state),
    Column("severity", 8, lambda row: row.incident.sighting.severity,
           lambda row: _RANKS[row.incident.sighting.severity]),
    Column("cost", 7, lambda row: _cost(row.incident.cost_usd), lambda row: row.incident.cost_usd, right=True,
           falling=True),
    Column("GPU-hours", 9, lambda row: words.hours(row.incident.gpu_hours, "").strip(),
           lambda row: row.incident.gpu_hours, right=True, falling=True),
    Column("since", 20, lambda row: minute(row.incident.since), lambda row: row.incident.since),
    Column("owner", 22, lambda row: row.owner),
    Column("id", 14, lambda row: row.id),
)  # fmt: skip
