"""A state file with two teams and administrators, a carrier that keeps what it carries, and a clock a test moves."""

from email.headerregistry import Address
from pathlib import Path
from typing import Any

from skuwise.advisor.core.incident_types import EventKind, Incident
from skuwise.advisor.notify.incidents import NotifyRun, key_of, notify
from skuwise.advisor.notify.routes import Routes, TeamRoute
from skuwise.advisor.notify.sending import Clocks, Tally
from skuwise.advisor.notify.settings import ReportSettings
from skuwise.advisor.state.file import State
from skuwise.advisor.state.incidents import untold
from skuwise.advisor.watch.settings import WatchSettings
from skuwise.agent.model import Instant

from .incident_builders import MORNING, add
from .outbox_builders import FakeCarrier

A, B, OPS = "a@example.org", "b@example.org", "ops@example.org"


class Bench:
    """`at`: the clock, Unix seconds; `lines`: what was printed; `watch`: settings of the watch."""

    def __init__(self, folder: Path, **watch: Any) -> None:
        self.state, self.carrier, self.at, self.lines = State(folder / "fleet.db"), FakeCarrier(), MORNING, list[str]()
        self.routes = Routes(
            TeamRoute("", (OPS,)), (TeamRoute("search", (A,), "hook"), TeamRoute("ads", (B,))),
            {("user", "alice"): "search", ("user", "bob"): "ads"}, Address("GPU watch", addr_spec="gpus@example.org"),
        )  # fmt: skip
        self.watch: dict[str, Any] = {"send": True, **watch}

    def add(self, one: Incident, *kinds: EventKind, at: float = MORNING) -> Incident:
        """An incident as it is now, with new events of it."""
        return add(self.state, one, *kinds, at=at)

    def run(self) -> NotifyRun:
        clocks = Clocks(lambda: Instant(self.at, self.at - MORNING + 1000.0), lambda _: None)
        watch = WatchSettings(**self.watch)
        return NotifyRun(self.routes, ReportSettings(), watch, self.state, clocks, self.lines.append)

    def notify(self) -> Tally:
        """One pass."""
        return notify(self.run())

    def untold(self) -> list[str]:
        with self.state.reading() as db:
            return [key_of(one) for one, _ in untold(db)]
