"""Deliveries in a state file, and a carrier that keeps what it carries: for tests of what sends."""

import email
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from email.policy import default as default_policy
from pathlib import Path

from skuwise.advisor.notify.sending import Carrier, Clocks, Tally, send_due
from skuwise.advisor.notify.smtp import CarrierDownError
from skuwise.advisor.state import deliveries
from skuwise.advisor.state.deliveries import Channel, Message, Reply
from skuwise.advisor.state.file import State
from skuwise.agent.model import Instant

from .stored_rows import rows

HOUR, DAY = 3600.0, 86400.0
NOW = 1_795_400_000.0  # a Monday of November 2026
WEEK = "2026-11-16"


class FakeCarrier:
    """Takes messages in memory, for the recipients that `answer` accepts (None: it does). `down`: why it takes none."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.answer: Callable[[str], Reply | None] = lambda _: None
        self.down = ""

    def ready(self) -> None:
        if self.down:
            raise CarrierDownError(self.down, "Try later.")

    def carry(self, message: Message, begin: Callable[[], None]) -> Reply:
        begin()
        reply = self.answer(message.recipient) or Reply("accepted", "250 OK")
        if reply.result == "accepted":
            self.taken.append(message)
        return reply

    def close(self) -> None:
        """Nothing is open."""

    def of(self, address: str) -> list[EmailMessage]:
        """The mails that somebody has."""
        found = [one.content for one in self.taken if one.channel == "mail" and one.recipient == address]
        return [email.message_from_bytes(one, policy=default_policy) for one in found]  # type: ignore[misc]

    def subjects(self, address: str) -> list[str]:
        return [str(one["Subject"]) for one in self.of(address)]


class Post:
    """A state file with a carrier. `at`: the wall clock; `true_seconds`: what has passed in truth."""

    def __init__(self, folder: Path, carrier: FakeCarrier | None = None) -> None:
        self.state, self.carrier = State(folder / "fleet.db"), carrier or FakeCarrier()
        self.at, self.true_seconds, self.slept, self.said = NOW, 0.0, list[float](), list[str]()
        self.per_minute = 600

    def queue(
        self, team: str, *to: str, batch: str = WEEK, channel: Channel = "mail", items: tuple[str, ...] = (),
        content: bytes = b"all of it",
    ) -> int:  # fmt: skip
        messages = [Message(batch, team, channel, one, f"<{team}.{one}>", "s", content, items) for one in to]
        with self.state.writing() as db:
            return deliveries.queue(db, messages, self.at)

    def send(self, carriers: Mapping[Channel, Carrier] | None = None, most_seconds: float | None = None) -> Tally:
        with self.state.alone("Another sender"):
            return send_due(
                self.state, carriers or {"mail": self.carrier}, Clocks(self._now, self._sleep),
                mails_per_minute=self.per_minute, say=self.said.append, most_seconds=most_seconds,
            )  # fmt: skip

    def rows(self, columns: str = "recipient, state") -> list[tuple[object, ...]]:
        return rows(self.state.path, f"SELECT {columns} FROM deliveries ORDER BY id")

    def live(self, seconds: float) -> None:
        self.at, self.true_seconds = self.at + seconds, self.true_seconds + seconds

    def _now(self) -> Instant:
        return Instant(self.at, self.true_seconds)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.live(seconds)
