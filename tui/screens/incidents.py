"""The open incidents of the watch: what is wrong today, what it costs so far, and who takes care of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.timestamps import minute
from ...rules.base.errors import SkuwiseError, UsageError
from ..cell_text import line
from ..data.background_jobs import Tell
from ..data.loaders import Loader
from ..state import Loaded, State
from ..widgets.frame import InputDialog, panel
from ..widgets.table import Column, ItemTable, number
from .base_page import Page, WorkWanted

if TYPE_CHECKING:
    from sqlite_utils import Database

    from ...advisor.core.incident_types import Incident  # it needs numpy: not at the start

    # Decides on the incident of an id; returns the text of the notification.
    Decide = Callable[[Database, str], str]

_AGAIN_SECONDS = 30.0
_LABEL_WIDTH = 12
_NO_STATE = (
    "No state file of this fleet yet.",
    "Start the watch: skuwise watch SOURCE, or the service skuwise-watch.",
    "Incidents are shown after the telemetry has been read.",
)


class Incidents(Page):
    NAME, LABEL = "incidents", "Incidents"
    NEEDS_DATA = False
    ABOUT: ClassVar[str] = (
        "Open incidents of 'skuwise watch', the most severe and expensive first, with the costs observed so far. "
        "Acknowledging ends the reminders until an incident is resolved. They are read again every 30 seconds."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "acknowledge", "Acknowledge"),
        Binding("z", "snooze", "Snooze"),
        Binding("r", "reread", "Read again"),
    ]

    _now = 0.0
    _problem: tuple[str, ...] = ()

    def compose_data(self) -> ComposeResult:
        with Container(id="proposed"):
            table = ItemTable(_COLUMNS, empty="Reading the incidents ...", id="incident-table")
            yield panel("Open incidents", table, id="listed", classes="fills")
            yield panel("Evidence", Static(id="evidence", classes="prose"), id="chosen", scrolls=True)

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(_AGAIN_SECONDS, self.action_reread)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.action_reread()

    def set_data(self, loaded: Loaded) -> None:  # noqa: ARG002 - another source may have other incidents
        self.action_reread()

    def update_state(self, state: State) -> None:
        super().update_state(state)
        self._now = state.now

    def action_reread(self) -> None:
        if self.is_current:
            self._list("incidents")

    def _list(self, slot: str, decide: Callable[[Database], str] | None = None) -> None:
        def work(loader: Loader, _tell: Tell) -> tuple[Sequence[Row], tuple[str, ...]]:
            """Return the rows, and why there are none, in lines."""
            from ...advisor.show.incident_words import urgency  # noqa: PLC0415 - not needed at the start
            from ...advisor.state.incidents import listed  # noqa: PLC0415

            try:
                state = loader.state()
                if state is None or not state.path.exists():
                    return (), _NO_STATE
                if decide is not None:
                    with state.writing() as db:
                        message = decide(db)
                    self.app.call_from_thread(self.notify, message, markup=False)
                with state.reading() as db:
                    return [Row(incident, self._now) for incident in sorted(listed(db), key=urgency)], ()
            except UsageError:  # of one decision: it is shown as a notification, and the list is still valid
                raise
            except SkuwiseError as error:
                return (), ("Incidents cannot be read.", str(error))

        def show(result: tuple[Sequence[Row], tuple[str, ...]]) -> None:
            if self.is_mounted:
                rows, self._problem = result
                self.query_one(ItemTable).set_data(rows, "No open incidents.")
                self.on_item_table_moved()

        self.post_message(WorkWanted(slot, work, show))

    def on_item_table_opened(self) -> None:
        from ...advisor.show.incident_words import details, labelled  # noqa: PLC0415

        self.want("text", "Incident", labelled(details(self.selected.incident, self._now), 96))

    def on_item_table_moved(self) -> None:
        text = [line(sentence) for sentence in self._problem]
        for label, value in self.selected.details if self.selected is not None else ():
            text.append(Content.assemble(Content.styled(f"{label:<{_LABEL_WIDTH}}", "$foreground-muted"), line(value)))
        self.write("#evidence", *text)

    def action_acknowledge(self) -> None:
        from ...advisor.cli.ledger import deciding_user  # noqa: PLC0415
        from ...advisor.state.incidents import acknowledge  # noqa: PLC0415

        def parse(text: str) -> Decide:
            by = deciding_user(text[:200])
            return lambda db, id_: f"{acknowledge(db, id_, by, self._now).id} is acknowledged."

        self._ask("Acknowledge: no reminders until it is resolved.", "Your name:", parse, deciding_user(None))

    def action_snooze(self) -> None:
        from ...advisor.cli.incidents import UNTIL_HINT, parse_until  # noqa: PLC0415
        from ...advisor.state.incidents import snooze  # noqa: PLC0415

        def parse(text: str) -> Decide:
            until = parse_until(text, self._now)
            return lambda db, id_: f"{snooze(db, id_, until).id} is snoozed until {minute(until)}."

        self._ask("Snooze: no reminders until then.", f"Until: {UNTIL_HINT}", parse, "8h")

    def _ask(self, what: str, prompt: str, parse: Callable[[str], Decide], default: str) -> None:
        """Ask for what a decision on the selected incident needs, then decide. `parse`: the decision from the input."""
        row: Row | None = self.selected
        if row is None:
            return

        def answered(decide: Decide | None) -> None:
            if decide is not None:
                self._list("incident decision", lambda db: decide(db, row.id))

        self.app.push_screen(InputDialog(what, f"{row.title}. {prompt}", parse, default), answered)


class Row:
    """An incident in the list, as of `now` (Unix seconds)."""

    def __init__(self, incident: Incident, now: float) -> None:
        from ...advisor.show.incident_words import details, owner_words, state_word, title  # noqa: PLC0415

        self.id, self.incident, self.details = incident.id, incident, details(incident, now)
        self.title, self.state, self.owner = title(incident), state_word(incident, now), owner_words(incident)


_RANKS = {"high": 0.0, "medium": 1.0, "low": 2.0}
_COLUMNS = (
    Column("incident", 30, lambda row: row.title, grows=True, middle=True),
    Column("state", 12, lambda row: row.state),
    Column("severity", 8, lambda row: row.incident.sighting.severity,
           lambda row: _RANKS[row.incident.sighting.severity]),
    number("cost", 7, lambda row: words.usd(row.incident.cost_usd), lambda row: row.incident.cost_usd),
    number("GPU-hours", 9, lambda row: words.bare_hours(row.incident.gpu_hours), lambda row: row.incident.gpu_hours),
    Column("since", 20, lambda row: minute(row.incident.since), lambda row: row.incident.since),
    Column("owner", 22, lambda row: row.owner),
    Column("id", 14, lambda row: row.id),
)  # fmt: skip
