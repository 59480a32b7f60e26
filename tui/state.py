"""What the screens show: the newest state, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..advisor.core.advice_types import Advice, Decision
from ..advisor.core.verdict_types import WorkloadVerdict
from ..advisor.core.worth import marked
from ..agent.base.settings import parse_duration
from ..rules.base.errors import UsageError

if TYPE_CHECKING:
    from ..advisor.core.frame import Frame
    from ..advisor.pipeline import Reasoned
    from ..advisor.show.series.health import Health

# Data read longer ago are marked as old.
STALE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class WindowChoice:
    """A window of time that ends with the newest data."""

    name: str
    seconds: float


WINDOWS = tuple(
    WindowChoice(name, hours * 3600.0) for name, hours in {"1h": 1, "24h": 24, "7d": 7 * 24, "14d": 14 * 24}.items()
)
# Findings are judged over this window, whichever is shown: waste needs 30 h of data at least.
FINDINGS_WINDOW = WINDOWS[-1]
_DAY_SECONDS = 86400.0
_LEAST_SECONDS, _MOST_SECONDS = 60.0, 3 * 366 * _DAY_SECONDS


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
    `now`: Unix seconds; `earlier`: what an earlier run read of this source, until it is read again."""

    window: WindowChoice
    now: float
    loaded: Loaded | None = None
    progress: str | None = None
    error: str | None = None
    earlier: Look | None = None

    @property
    def look(self) -> Look | None:
        """The newest look; of an earlier run, while this one has read nothing."""
        return self.loaded if self.loaded is not None else self.earlier

    @property
    def stale(self) -> bool:
        """Whether what is shown is old, or could not be read again."""
        look = self.look
        is_old = look is not self.loaded or self.error is not None
        return look is not None and (is_old or self.now - look.at > STALE_SECONDS)


def with_decision(loaded: Loaded, recommendation: str, decision: Decision) -> Loaded:
    """Return the same with a decision marked. Sums stay as they were read: they follow with the next reading."""
    decisions = {r.id: r.decision for r in loaded.advice.recommendations if r.decision is not None}
    return replace(loaded, advice=marked(loaded.advice, {**decisions, recommendation: decision}))


def parse_window(text: str) -> WindowChoice:
    """Parse the length of a window (``3d``, ``36h``). Raises UsageError."""
    seconds = parse_duration(text)
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        raise UsageError("A window must be between one minute and three years.", "Use a length such as 3d or 36h.")
    return window_of(seconds)


def window_of(seconds: float | None) -> WindowChoice:
    """Return the window of a length; the findings' window for None or an invalid one."""
    if seconds is None or not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        return FINDINGS_WINDOW
    name = f"{seconds / 3600:g}h" if seconds % _DAY_SECONDS else f"{seconds / _DAY_SECONDS:g}d"
    return next((w for w in WINDOWS if w.seconds == seconds), WindowChoice(name, seconds))


def next_window(window: WindowChoice) -> WindowChoice:
    """Return the next longer of `WINDOWS`; from the longest back to the shortest."""
    return next((w for w in WINDOWS if w.seconds > window.seconds), WINDOWS[0])
