"""A machine whose wall clock may be wrong, and an outbox with the way to a carrier: for tests of what sends."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from skuwise.advisor.notify.delivery import Carrier, Tally, send_waiting
from skuwise.advisor.state.outbox import Outbox
from skuwise.advisor.state.parcel import Parcel
from skuwise.agent.model import Instant

from .notify_desk import FakeCarrier
from .stored_rows import rows

HOUR, DAY = 3600.0, 86400.0
NOW = 1_795_400_000.0  # a Monday of November 2026
WEEK = "2026-11-16"


@dataclass
class Machine:
    """`wrong_by`: what its wall clock adds."""

    wrong_by: float = 0.0

    def now(self) -> Instant:
        return Instant(NOW + self.wrong_by, 40 * DAY)


class Post:
    """An outbox with a carrier. `at`: the clock, unless another is given."""

    def __init__(
        self, folder: Path, carrier: FakeCarrier | None = None, clock: Callable[[], Instant] | None = None
    ) -> None:
        self.outbox, self.carrier = Outbox(folder / "outbox.db"), carrier or FakeCarrier()
        self.at, self.slept, self.said = NOW, list[float](), list[str]()
        self.clock = clock or (lambda: Instant(self.at, self.at - NOW))

    def queue(
        self, team: str, *to: str, week: str = WEEK, about: tuple[str, ...] = (), content: bytes = b"all of it"
    ) -> int:
        parcel = Parcel(week, team, "mail", f"<{team}@x>", "s", content, to, about)
        return self.outbox.queue(parcel, self.clock().wall_seconds)

    def send(self, carriers: dict[str, Carrier] | None = None) -> Tally:
        with self.outbox.sending():
            return send_waiting(
                self.outbox, carriers or {"mail": self.carrier}, clock=self.clock, sleep=self.slept.append,  # type: ignore[arg-type]
                mails_per_minute=30, say=self.said.append,
            )  # fmt: skip

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        return rows(self.outbox.path, sql)
