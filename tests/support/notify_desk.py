"""A desk of two teams and administrators with carriers that keep what they carry, and a clock that a test moves."""

import email
from collections.abc import Callable, Mapping
from dataclasses import replace
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import default as default_policy
from pathlib import Path
from typing import Any

from skuwise.advisor.notify.delivery import CarrierDownError, Clocks
from skuwise.advisor.notify.desk import Desk
from skuwise.advisor.notify.routes import Routes, TeamRoute
from skuwise.advisor.notify.settings import ReportSettings
from skuwise.advisor.state.outbox import Outbox
from skuwise.advisor.state.parcel import Parcel, Reply
from skuwise.advisor.watch.settings import WatchSettings
from skuwise.agent.model import Instant

from .incident_builders import MORNING
from .stored_rows import rows

A, B, OPS = "a@example.org", "b@example.org", "ops@example.org"


class FakeCarrier:
    """Takes parcels in memory, for the recipients that `answer` accepts (None: it does). `down`: why it takes none."""

    def __init__(self) -> None:
        self.taken: list[Parcel] = []
        self.answer: Callable[[str], Reply | None] = lambda _: None
        self.down = ""

    def ready(self, parcel: Parcel) -> None:
        if self.down:
            raise CarrierDownError(self.down, "Try later.")

    def carry(self, parcel: Parcel) -> Mapping[str, Reply]:
        replies = {one: self.answer(one) or Reply("accepted", "250 OK") for one in parcel.recipients}
        accepted = tuple(one for one, reply in replies.items() if reply.result == "accepted")
        if accepted:
            self.taken.append(replace(parcel, recipients=accepted))
        return replies

    def close(self) -> None:
        """Nothing is open."""

    def of(self, address: str) -> list[EmailMessage]:
        """The mails that somebody has."""
        found = [one.content for one in self.taken if one.channel == "mail" and address in one.recipients]
        return [email.message_from_bytes(one, policy=default_policy) for one in found]  # type: ignore[misc]

    def subjects(self, address: str) -> list[str]:
        return [str(one["Subject"]) for one in self.of(address)]


class Bench:
    """What a test works with. `at`: the clock, Unix seconds; `lines`: what was printed."""

    def __init__(self, folder: Path, **watch: Any) -> None:
        self.folder, self.at, self.lines = folder, MORNING, []
        self.outbox = Outbox(folder / "outbox.db")
        self.carrier = FakeCarrier()
        self.report = ReportSettings(sender=Address("GPU watch", addr_spec="gpus@example.org"), mails_per_minute=600)
        self.routes = Routes(
            (OPS,), (TeamRoute("search", (A,), "hook"), TeamRoute("ads", (B,))),
            {("user", "alice"): "search", ("user", "bob"): "ads"},
        )  # fmt: skip
        self.watch: dict[str, Any] = {"send": True, **watch}

    def desk(self) -> Desk:
        clocks = Clocks(self.now, self.sleep)
        return Desk(self.routes, self.report, WatchSettings(**self.watch), self.outbox, clocks, self.lines.append)

    def now(self) -> Instant:
        return Instant(self.at, self.at - MORNING + 1000.0)

    def sleep(self, seconds: float) -> None:
        self.at += seconds

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return rows(self.outbox.path, sql)
