"""A desk of two teams and administrators over real servers, with a clock that a test moves."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from email.headerregistry import Address
from pathlib import Path
from typing import Any

from skuwise.advisor.incidents.settings import WatchSettings
from skuwise.advisor.mail.delivery import Clocks
from skuwise.advisor.mail.outbox import Outbox
from skuwise.advisor.mail.routes import Routes, TeamRoute
from skuwise.advisor.mail.settings import ReportSettings
from skuwise.advisor.notify.desk import Desk
from skuwise.agent.model import Instant

from .incident_fixtures import NOW
from .mail_server import PASSWORD, USER, MailServer

A, B, OPS = "a@example.org", "b@example.org", "ops@example.org"
EVERY = (A, B, OPS, "webhook")


class Bench:
    """What a test works with. `at`: the clock, Unix seconds; `lines`: what was printed."""

    def __init__(self, folder: Path, server: MailServer, hook: str = "", **watch: Any) -> None:
        self.folder, self.at, self.lines = folder, NOW, []
        self.outbox = Outbox(folder / "outbox.db")
        password = self.private("password", PASSWORD)
        self.report = ReportSettings(
            sender=Address("GPU watch", addr_spec="gpus@example.org"), smtp_host="127.0.0.1", smtp_port=server.port,
            smtp_username=USER, smtp_password_file=str(password), smtp_ca_file=str(server.ca_file),
            smtp_timeout_seconds=30.0, mails_per_minute=600,
        )  # fmt: skip
        search = str(self.private("hook", f"{hook}/services/T0/SECRET")) if hook else ""
        self.routes = Routes(
            (OPS,), (TeamRoute("search", (A,), search), TeamRoute("ads", (B,))),
            {("user", "alice"): "search", ("user", "bob"): "ads"},
        )  # fmt: skip
        self.watch: dict[str, Any] = {"send": True, **watch}

    def private(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(content)
        return path

    def desk(self, outbox: Outbox | None = None, now: Callable[[], Instant] | None = None) -> Desk:
        clocks = Clocks(now or self.now, self.sleep)
        settings = WatchSettings(**self.watch)
        return Desk(self.routes, self.report, settings, outbox or self.outbox, clocks, self.lines.append)

    def now(self) -> Instant:
        return Instant(self.at, self.at - NOW + 1000.0)

    def sleep(self, seconds: float) -> None:
        self.at += seconds

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.outbox.path)) as connection:
            return connection.execute(sql).fetchall()

    def queued(self) -> list[tuple[str, str, str]]:
        """(item, channel, recipient or team) of all that was ever queued."""
        return self.rows(
            "SELECT item, channel, recipient FROM about JOIN mails ON mails.id = about.mail "
            "JOIN deliveries ON deliveries.mail = mails.id ORDER BY 1, 2, 3"
        )
