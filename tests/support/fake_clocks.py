"""A machine whose wall clock may be wrong, and a carrier that answers as it is told: for tests of what sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from skuwise.advisor.mail.parcel import Parcel, Reply
from skuwise.agent.model import Instant

HOUR, DAY = 3600.0, 86400.0
NOW = 1_795_400_000.0  # a Monday of November 2026


@dataclass
class Machine:
    """`true`: Unix seconds as they are; `wrong_by`: what its wall clock adds; `booted`: when it began to run."""

    true: float = NOW
    wrong_by: float = 0.0
    booted: float = NOW - 40 * DAY

    def now(self) -> Instant:
        return Instant(self.true + self.wrong_by, self.true - self.booted)

    def live(self, seconds: float) -> None:
        self.true += seconds

    def boot(self, seconds: float = 60.0) -> None:
        """Off for so long, and on again."""
        self.true += seconds
        self.booted = self.true - 1.0


class KilledError(BaseException):
    """The sender ends here, as by SIGKILL: nothing of it runs any more that would write."""


@dataclass
class Server:
    """`answer`: what it says; `killed`: whether the sender is killed before it hears that. `accepted`: for whom it had
    a mail, each time; `tried`: every try, with the true time of it."""

    machine: Machine
    answer: str = "accepted"
    killed: bool = False
    accepted: list[str] = field(default_factory=list)
    tried: list[tuple[str, float]] = field(default_factory=list)

    def ready(self, parcel: Parcel) -> None:
        pass

    def carry(self, parcel: Parcel) -> Mapping[str, Reply]:
        assert self.answer in ("accepted", "later", "refused")
        self.tried += [(one, self.machine.true) for one in parcel.recipients]
        if self.answer == "accepted":
            self.accepted += parcel.recipients
        if self.killed:
            raise KilledError
        return {one: Reply(self.answer, f"451 {self.answer}") for one in parcel.recipients}  # type: ignore[arg-type]

    def close(self) -> None:
        pass
