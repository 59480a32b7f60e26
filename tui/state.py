"""What the screens are given: the newest state of what is known, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..advisor.core.advice_types import Advice, Decision
from ..advisor.core.timestamps import span
from ..advisor.core.verdict_types import WorkloadVerdict
from ..advisor.core.worth import marked

if TYPE_CHECKING:
    from ..advisor.core.frame import Frame
    from ..advisor.pipeline import Reasoned
    from ..advisor.show.series.health import Health

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
class Look:
    """What one reading told. `advice`: findings and recommendations, over `FINDINGS_WINDOW`; `shown`: sums, kinds and
    shares of `window`, which was chosen. `at`: when it was read, Unix seconds.
    """

    window: WindowChoice
    advice: Advice
    shown: Advice
    health: Health
    at: float

    def workload(self, id_: str | None) -> WorkloadVerdict | None:
        """As the chosen window tells it, or else the findings' window."""
        return next((w for w in (*self.shown.workloads, *self.advice.workloads) if w.id == id_), None)


@dataclass(frozen=True)
class Loaded(Look):
    """The same with the telemetry behind it. `frame`: of the chosen window. `found`: what `advice` was made of,
    together with `frame`; None: `frame` is of another window than the findings.
    """

    frame: Frame
    found: Reasoned | None = None


@dataclass(frozen=True)
class State:
    """`progress`: what is being done (None: nothing); `error`: why the last reading failed; `now`: Unix seconds;
    `workload`: the one that the cursor was on when the page was left (None: none was). `earlier`: what an earlier run
    saw of this source, until it is read anew."""

    window: WindowChoice
    now: float
    loaded: Loaded | None = None
    progress: str | None = None
    error: str | None = None
    workload: str | None = None
    earlier: Look | None = None

    @property
    def look(self) -> Look | None:
        """The newest there is; of an earlier run, while this one has read nothing."""
        return self.loaded if self.loaded is not None else self.earlier

    @property
    def stale(self) -> bool:
        """Whether what is shown is older than it should be, or could not be read anew."""
        look = self.look
        if look is None:
            return False
        return look is not self.loaded or self.error is not None or self.now - look.at > STALE_SECONDS

    @property
    def age(self) -> str:
        """How long ago it was read."""
        return span(max(self.now - self.look.at, 0.0)) if self.look is not None else ""


def with_decision(loaded: Loaded, recommendation: str, decision: Decision) -> Loaded:
    """The same with a decision marked. Sums stay as they were read: they follow with the next reading."""
    decisions = {r.id: r.decision for r in loaded.advice.recommendations if r.decision is not None}
    return replace(loaded, advice=marked(loaded.advice, {**decisions, recommendation: decision}))
