"""Deliveries in a state file, a carrier that keeps what it carries, and a clock that a test moves: of what sends."""

import email
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import default as default_policy
from pathlib import Path
from typing import Any

from skuwise.advisor.core.incident_types import EventKind, Incident
from skuwise.advisor.notify.incidents import NotifyRun, key_of, notify
from skuwise.advisor.notify.routes import ReportSettings, Routes, TeamRoute
from skuwise.advisor.notify.sending import Carrier, Clocks, Tally, send_due
from skuwise.advisor.state import deliveries
from skuwise.advisor.state.deliveries import Channel, Message, Reply
from skuwise.advisor.state.file import State
from skuwise.advisor.state.incidents import untold
from skuwise.advisor.watch.settings import WatchSettings
from skuwise.agent.model import Instant

from .incident_builders import MORNING, add
from .stored_rows import rows

HOUR, DAY = 3600.0, 86400.0
NOW = 1_795_400_000.0  # a Monday of November 2026
WEEK = "2026-11-16"


class KilledError(BaseException):
    """The sender ends here, as by SIGKILL: nothing of it runs any more that would write."""


class FakeCarrier(Carrier):
    """Takes messages in memory, for the recipients that `answer` accepts (None: it does). `killed`: before it hears the
    answers to so many messages the sender is killed."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.answer: Callable[[str], Reply | None] = lambda _: None
        self.killed = 0

    def carry(self, message: Message, begin: Callable[[], None]) -> Reply:
        begin()
        reply = self.answer(message.recipient) or Reply("accepted", "250 OK")
        if reply.result == "accepted":
            self.taken.append(message)
        self.killed -= 1
        if self.killed >= 0:
            raise KilledError
        return reply

    def of(self, address: str) -> list[EmailMessage]:
        mails = [taken for taken in self.taken if (taken.channel, taken.recipient) == ("mail", address)]
        return [email.message_from_bytes(mail.content, policy=default_policy) for mail in mails]  # type: ignore[misc]

    def subjects(self, address: str) -> list[str]:
        return [str(mail["Subject"]) for mail in self.of(address)]


class Post:
    """A state file with a carrier. `at`: the wall clock; `true_seconds`: what has passed in truth."""

    def __init__(self, folder: Path) -> None:
        self.state, self.carrier = State(folder / "fleet.db"), FakeCarrier()
        self.at, self.true_seconds, self.slept, self.said = NOW, 0.0, list[float](), list[str]()
        self.per_minute = 600

    def queue(
        self, team: str, *to: str, batch: str = WEEK, channel: Channel = "mail", items: tuple[str, ...] = (),
        content: bytes = b"all of it",
    ) -> int:  # fmt: skip
        messages = [Message(batch, team, channel, who, f"<{team}.{who}>", "s", content, items) for who in to]
        with self.state.writing() as db:
            return deliveries.queue(db, messages, self.at)

    def send(self, carriers: Mapping[Channel, Carrier] | None = None, most_seconds: float | None = None) -> Tally:
        with self.state.alone("Another sender"):
            return send_due(
                self.state, carriers or {"mail": self.carrier}, Clocks(self._now, self._sleep),
                mails_per_minute=self.per_minute, say=self.said.append, most_seconds=most_seconds,
            )  # fmt: skip

    def send_killed(self) -> None:
        with suppress(KilledError):
            self.send()

    def rows(self, columns: str = "recipient, state") -> list[tuple[object, ...]]:
        return rows(self.state.path, f"SELECT {columns} FROM deliveries ORDER BY id")

    def live(self, seconds: float) -> None:
        self.at, self.true_seconds = self.at + seconds, self.true_seconds + seconds

    def _now(self) -> Instant:
        return Instant(self.at, self.true_seconds)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.live(seconds)


A, B, OPS = "a@example.org", "b@example.org", "ops@example.org"


class Bench(Post):
    """Incidents of two teams and administrators. `watch`: settings of the watch."""

    def __init__(self, folder: Path, **watch: Any) -> None:
        super().__init__(folder)
        self.at = MORNING
        self.routes = Routes(
            TeamRoute("", (OPS,)), (TeamRoute("search", (A,), "hook"), TeamRoute("ads", (B,))),
            {("user", "alice"): "search", ("user", "bob"): "ads"}, Address("GPU watch", addr_spec="gpus@example.org"),
        )  # fmt: skip
        self.watch: dict[str, Any] = {"send": True, **watch}

    def add(self, case: Incident, *kinds: EventKind, at: float = MORNING) -> Incident:
        return add(self.state, case, *kinds, at=at)

    def run(self) -> NotifyRun:
        watch, clocks = WatchSettings(**self.watch), Clocks(self._now, self._sleep)
        return NotifyRun(self.routes, ReportSettings(), watch, self.state, clocks, self.said.append)

    def notify(self) -> Tally:
        return notify(self.run())

    def untold(self) -> list[str]:
        with self.state.reading() as db:
            return [key_of(incident_event) for incident_event, _ in untold(db)]
