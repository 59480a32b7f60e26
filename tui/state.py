"""What the screens are given: the newest state of what is known, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..advisor.core.advice_types import Advice, Decision
from ..advisor.core.timestamps import span
from ..advisor.core.verdict_types import WorkloadVerdict

if TYPE_CHECKING:
    from ..advisor.core.frame import Frame
    from ..advisor.pipeline import Reasoned
    from ..advisor.telemetry.health import Health

# What was read longer ago is marked as old: a rollup of minutes is long past then.
STALE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class WindowChoice:
    """`until`: where it ends, Unix seconds; None: with the newest data."""

    name: str
    seconds: float
    until: float | None = None


WINDOWS = (
    WindowChoice("1h", 3600.0),
    WindowChoice("24h", 86400.0),
    WindowChoice("7d", 7 * 86400.0),
    WindowChoice("14d", 14 * 86400.0),
)
# Findings are judged over this one, whichever is shown: waste needs 30 h of data at least.
FINDINGS_WINDOW = WINDOWS[-1]


@dataclass(frozen=True)
class Loaded:
    """What one reading gave. `advice`: findings and recommendations, over `FINDINGS_WINDOW`; `shown`: sums, kinds and
    shares of `window`, which was chosen; `frame`: the telemetry of it. `at`: when it was read, Unix seconds. `found`:
    what `advice` was made of, together with `frame`; None: `frame` is of another window than the findings.
    """

    window: WindowChoice
    advice: Advice
    shown: Advice
    frame: Frame
    health: Health
    at: float
    found: Reasoned | None = None

    def workload(self, id_: str) -> WorkloadVerdict | None:
        """As the chosen window tells it, or else the findings' window."""
        return next((w for w in (*self.shown.workloads, *self.advice.workloads) if w.id == id_), None)


@dataclass(frozen=True)
class State:
    """`progress`: what is being done (None: nothing); `error`: why the last reading failed; `now`: Unix seconds;
    `workload`: the one that the cursor was on when the page was left (None: none was)."""

    window: WindowChoice
    now: float
    loaded: Loaded | None = None
    progress: str | None = None
    error: str | None = None
    workload: str | None = None

    @property
    def stale(self) -> bool:
        """Whether what is shown is older than it should be, or could not be read anew."""
        return self.loaded is not None and (self.error is not None or self.now - self.loaded.at > STALE_SECONDS)

    @property
    def age(self) -> str:
        """How long ago it was read."""
        return span(max(self.now - self.loaded.at, 0.0)) if self.loaded is not None else ""


def with_decision(loaded: Loaded, recommendation: str, decision: Decision) -> Loaded:
    """The same with a decision marked. Sums stay as they were read: they follow with the next reading."""
    marked = tuple(
        replace(r, decision=decision) if r.id == recommendation else r for r in loaded.advice.recommendations
    )
    return replace(loaded, advice=replace(loaded.advice, recommendations=marked))
