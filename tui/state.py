"""What the screens show: the newest state, as frozen values."""

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

# Data read longer ago are marked as old.
STALE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class WindowChoice:
    """A window of time. `until`: its end, Unix seconds; None: the newest data."""

    name: str
    seconds: float
    until: float | None = None


WINDOWS = (
    WindowChoice("1h", 3600.0),
    WindowChoice("24h", 86400.0),
    WindowChoice("7d", 7 * 86400.0),
    WindowChoice("14d", 14 * 86400.0),
)
# Findings are judged over this window, whichever is shown: waste needs 30 h of data at least.
FINDINGS_WINDOW = WINDOWS[-1]


@dataclass(frozen=True)
class Look:
    """Result of a reading. `advice`: findings and recommendations, over `FINDINGS_WINDOW`; `shown`: sums, kinds and
    shares of the chosen `window`. `at`: when it was read, Unix seconds.
    """

    window: WindowChoice
    advice: Advice
    shown: Advice
    health: Health
    at: float

    def workload(self, id_: str | None) -> WorkloadVerdict | None:
        """Return a workload of the chosen window, or else of the findings' window; None: it is in neither."""
        return next((w for w in (*self.shown.workloads, *self.advice.workloads) if w.id == id_), None)


@dataclass(frozen=True)
class Loaded(Look):
    """A look with its telemetry. `frame`: of the chosen window. `reasoned`: what `advice` was made of, together with
    `frame`; None: `frame` is of another window than the findings.
    """

    frame: Frame
    reasoned: Reasoned | None = None


@dataclass(frozen=True)
class State:
    """What the screens show. `progress`: what is being done (None: nothing); `error`: why the last reading failed;
    `now`: Unix seconds; `workload`: the workload under the cursor when the page was left (None: none). `earlier`: what
    an earlier run read of this source, until it is read again."""

    window: WindowChoice
    now: float
    loaded: Loaded | None = None
    progress: str | None = None
    error: str | None = None
    workload: str | None = None
    earlier: Look | None = None

    @property
    def look(self) -> Look | None:
        """The newest look; of an earlier run, while this one has read nothing."""
        return self.loaded if self.loaded is not None else self.earlier

    @property
    def stale(self) -> bool:
        """Whether what is shown is old, or could not be read again."""
        look = self.look
        if look is None:
            return False
        return look is not self.loaded or self.error is not None or self.now - look.at > STALE_SECONDS

    @property
    def age(self) -> str:
        """Time since it was read, in words."""
        return span(max(self.now - self.look.at, 0.0)) if self.look is not None else ""


def with_decision(loaded: Loaded, recommendation: str, decision: Decision) -> Loaded:
    """Return the same with a decision marked. Sums stay as they were read: they follow with the next reading."""
    decisions = {r.id: r.decision for r in loaded.advice.recommendations if r.decision is not None}
    return replace(loaded, advice=marked(loaded.advice, {**decisions, recommendation: decision}))
