"""What every source is (probed once, read each tick, closed at the end), and how the agent is told of one.

A source of existing metrics is a module with a `SourceSpec` and a line in `agent/sources/registry.py`. The GPU
driver is more than a source: see `agent/sources/nvidia_driver.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from ..config import AgentConfig
from ..metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS, SERVING_METRICS
from ..model import Absence, Capability, Gpu, Instant, Probe, Reading, Scope

_T = TypeVar("_T")
METRIC_NAMES = frozenset(
    metric.name for metrics in (GPU_METRICS, FABRIC_METRICS, HOST_METRICS, SERVING_METRICS) for metric in metrics
)


class Source(Protocol):
    """One thing read on this node.

    A source never raises for what can be expected of hardware (no driver, a lost GPU, a restricted counter): it leaves
    an `Absence`. What it does raise is caught by the sampler, recorded as ``source-failed``, and does not touch the
    other sources. One that has found other devices than it named says so by an attribute `wants_probe`.
    """

    name: str

    def probe(self) -> Probe:
        """Look once at what is here. May be called again after a change of hardware."""
        ...

    def read(self, instant: Instant) -> Reading:
        """One reading. Rates cover the time since this source's previous reading."""
        ...

    def close(self) -> None:
        """Let go of every handle. Idempotent."""
        ...


NOTHING_READ = Reading()  # where there is nothing to say


@runtime_checkable
class SlowSource(Protocol):
    """A source whose reading may take long: it begins, the others read, then `read` waits for what it began."""

    name: str

    def begin(self, instant: Instant) -> None:
        """Begin what `read` of the same instant gives. Returns soon and never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Fault:
    """Why something cannot be read: a stable code, the sentence, and what to do. Subject and metric come later."""

    reason: str
    detail: str
    remedy: str

    def of(self, scope: Scope, subject: str, metric: str = "*") -> Absence:
        return Absence(scope, subject, metric, self.reason, self.detail, self.remedy)

    def line(self, source: str, origin: str) -> Capability:
        """What doctor says of a source that this keeps from telling anything."""
        return Capability(source, "source", source, "*", origin, self.of("source", source))


def table_of(*faults: Fault) -> dict[str, Fault]:
    """Faults by their reason."""
    return {fault.reason: fault for fault in faults}


STAYS_MISSING = "Nothing to do: it stays missing."
COMES_BACK = "Nothing to do: the next interval counts."
# Why an interval has no rate, by `NoRate.reason`.
GAPS: Mapping[str, Fault] = table_of(
    Fault("first-reading", "A rate needs two readings; this was the first.", COMES_BACK),
    Fault("counter-reset", "The counter went back (a reset or a wrap), so there is no rate.", COMES_BACK),
    Fault("long-gap", "The gap between two readings is too long for a meaningful mean.", COMES_BACK),
)


class AbsenceSet:
    """The absences of one source in one scope, tick by tick. While they do not change, `finish` returns the very same
    frozenset, so that an unchanged set is cheap to tell."""

    def __init__(self, scope: Scope) -> None:
        self._scope: Scope = scope
        self._current: list[Absence] = []
        self._last: list[Absence] = []
        self._frozen: frozenset[Absence] = frozenset()
        self._made: dict[tuple[str, str, Fault], Absence] = {}

    def of(self, subject: str, metric: str, fault: Fault) -> Absence:
        """The same object each time."""
        key = (subject, metric, fault)
        absence = self._made.get(key)
        if absence is None:
            absence = self._made[key] = fault.of(self._scope, subject, metric)
        return absence

    def add(self, subject: str, metric: str, fault: Fault) -> None:
        """A metric of a subject is absent now (``*``: all of them)."""
        self._current.append(self.of(subject, metric, fault))

    def extend(self, absences: Iterable[Absence]) -> None:
        self._current.extend(absences)

    def only(self, absence: Absence) -> frozenset[Absence]:
        """Finish with this one alone: it explains all that was collected."""
        self._current = [absence]
        return self.finish()

    def finish(self) -> frozenset[Absence]:
        if self._current != self._last:
            self._frozen = frozenset(self._current)
            self._last = self._current
        self._current = []
        return self._frozen


@dataclass(frozen=True, slots=True)
class UnreadGpu:
    """A GPU whose driver does not tell how busy its units are: its `uuid`, and how another's page may name it (a MIG
    instance is its parent's UUID with the id of a GPU instance)."""

    uuid: str
    page_uuid: str
    instance_id: str = ""


@dataclass(frozen=True)
class SourceContext:
    """What a source may be built from. What is a function is asked again whenever the answer may have changed.

    `gpus`: those that the drivers know; `unread_gpus`: those of them whose activity is for others to tell;
    `listeners`: the PIDs that listen on a port (slow).
    """

    config: AgentConfig
    gpus: Callable[[], Sequence[Gpu]] = tuple
    unread_gpus: Callable[[], Sequence[UnreadGpu]] = tuple
    listeners: Callable[[int], frozenset[int]] = lambda _port: frozenset()
    _shared: dict[type, Any] = field(default_factory=dict)

    def shared(self, kind: type[_T], make: Callable[[], _T]) -> _T:
        """What several sources use together: whoever asks first makes it."""
        if kind not in self._shared:
            self._shared[kind] = make()
        return self._shared[kind]


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """All that the agent knows of one source before it is built.

    `metrics`: those of the model that it can give. `every_seconds`: how often it has news, on its own time; None: at
    each tick. `needs` ends the sentence "It needs ...". `build` gives None where the settings switch it off; `unasked`
    then says what is missed by that, from the GPUs and doctor's lines. What `build` raises costs this source alone.
    """

    name: str
    metrics: Collection[str]
    needs: str
    remedy: str
    build: Callable[[SourceContext], Source | None]
    every_seconds: float | None = None
    unasked: Callable[[AgentConfig, Sequence[Gpu], Sequence[Capability]], Fault | None] = lambda *_: None

    def __post_init__(self) -> None:
        if unknown := set(self.metrics) - METRIC_NAMES:
            raise ValueError(
                f"The source {self.name} gives {', '.join(sorted(unknown))}, which the model does not know."
            )
        if not (self.name and self.metrics and self.needs and self.remedy):
            raise ValueError(f"The source {self.name!r} leaves out its name, its metrics, what it needs or the remedy.")

    def built(self, context: SourceContext) -> Source | None:
        """The source; one that only says why, where it could not be built; None where it is switched off."""
        try:
            return self.build(context)
        except Exception as error:
            said = f"The source {self.name} could not be built ({type(error).__name__}: {str(error)[:200]})."
            return SilentSource(self.name, Fault("source-failed", f"{said} It needs {self.needs}.", self.remedy))


class SilentSource:
    """In place of a source that cannot be: it says why."""

    def __init__(self, name: str, fault: Fault) -> None:
        self.name = name
        self._line = fault.line(name, name)
        self._absences = frozenset({fault.of("source", name)})

    def probe(self) -> Probe:
        return Probe(capabilities=(self._line,))

    def read(self, instant: Instant) -> Reading:  # noqa: ARG002
        return Reading(absences=self._absences)

    def close(self) -> None:
        """Nothing is held."""
