"""Loads the data of the screens from a source of telemetry, or from a simulated fleet, on a job's thread."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ...advisor.core.advice_types import Advice, Decision
from ...advisor.core.formatting import listed
from ...advisor.show.subjects import find
from ...rules.base.errors import NothingToDo, SkuwiseError, UsageError
from ..state import FINDINGS_WINDOW, Loaded, Look, WindowChoice
from .background_jobs import Tell

if TYPE_CHECKING:
    from ...advisor.core.advice_types import Fleet
    from ...advisor.core.frame import Frame
    from ...advisor.pipeline import Reasoned
    from ...advisor.plan.figures import Planner
    from ...advisor.rulebook import Rulebook
    from ...advisor.show.series.whatif_session import Workbench
    from ...advisor.state.file import State
    from ...advisor.state.fleets import StateBeside
    from ...advisor.state.ledger import Act
    from ...advisor.telemetry.source import Source
    from ...rules.catalog.price_files import StatedPrices
    from .kept_look import KeptLooks

BookOptions = tuple[Path | None, Path | None, "StatedPrices | None"]
# 2026-11-16T00:00:00Z: the demo is the same whenever it is shown.
DEMO_NOW = 1_794_787_200.0
_QUERY_WIDTH = 96


class Loader:
    """Loads from databases or a server, with the state file of the fleet. Calls are made on threads and may take long.

    `state`: the named file; None: the fleet's file in the folder `states`, or none. `book`: folder of rules, file of
    prices, stated prices; None: the built-in ones. `looks`: the folder in which looks are kept for the next run, None:
    nowhere. `name`: what is read, in words.
    """

    def __init__(
        self,
        source: Source,
        *,
        state: Path | None = None,
        states: Path | None = None,
        book: BookOptions = (None, None, None),
        clock: Callable[[], float] = time.time,
        looks: Path | None = None,
    ) -> None:
        self._source, self._state, self._states, self._book = source, state, states, book
        self.name, self._key = _named(source)
        self._clock, self._looks = clock, looks
        self._fleet: Fleet | None = None

    def state(self) -> State | None:
        """Return the state file of the fleet that was read last; None: nothing was read yet, or none is used."""
        return self._beside().of(self._fleet).state

    def recall(self, window: WindowChoice) -> Look | None:
        """Return what an earlier run read of a window, if the source still has one of its GPUs: another fleet may be in
        its place. None: nothing that can be used."""
        with suppress(SkuwiseError):  # the reading reports it
            look = self._kept_looks().get(window)
            fleet = look.advice.fleet if look is not None else None
            if look is not None and fleet and self._source.knows(fleet.members.keys(), look.advice.end):
                self._fleet = fleet
                return look
        return None

    def keep(self, loaded: Loaded) -> None:
        """Keep what was read for `recall`."""
        self._kept_looks().put(loaded)

    def _kept_looks(self) -> KeptLooks:
        from .kept_look import KeptLooks  # noqa: PLC0415 - not at the start

        basis = (self._key, *self._book, self._state, self._states, self._source.jobs)
        return KeptLooks(self._looks, basis)

    def load(self, window: WindowChoice, kept: Advice | None, tell: Tell) -> Loaded:
        """Read and judge the chosen window, and the findings' window unless `kept` has it. Raises SkuwiseError."""
        from ...advisor.show.series.health import health_of  # noqa: PLC0415

        now = self._clock()
        read = self._reader(now, tell)
        frame, reasoned = read(window)
        judged = reasoned if window == FINDINGS_WINDOW else None  # a plan is made of it, without a second frame
        advice = reasoned.advice if judged is not None else kept or read(FINDINGS_WINDOW)[1].advice
        return Loaded(window, advice, reasoned.advice, health_of(frame), now, frame, judged)

    def _reader(self, now: float, tell: Tell) -> Callable[[WindowChoice], tuple[Frame, Reasoned]]:
        from ...advisor.advise import read_and_reason  # noqa: PLC0415
        from ...advisor.telemetry.source import PrometheusServer  # noqa: PLC0415

        ledger = self._beside()
        book = self.rulebook()

        def step(done: int, total: int | None) -> None:
            tell(f"{done} of {total} databases read, {100 * done // total} %" if total else f"{done} measures read")

        # A reading that was cancelled stops at its next step.
        is_server = isinstance(self._source, PrometheusServer)
        source = replace(self._source, steps=step, **{"progress": tell} if is_server else {})

        def read(window: WindowChoice) -> tuple[Frame, Reasoned]:
            tell(f"reading {window.name} of telemetry")
            frame, reasoned = read_and_reason(
                source, book, now=now, since=window.seconds, until=None,
                ledger=ledger, read=lambda: tell(f"analyzing {window.name} of telemetry"), keeps_rows=True,
            )  # fmt: skip
            self._fleet = reasoned.advice.fleet
            return frame, reasoned

        return read

    def decide(self, advice: Advice, id_: str, act: Act, until: float | None, why: str | None) -> Decision:
        """Record what the advice proposes, as ``skuwise advise`` does, and then the decision on a recommendation.
        `until`: Unix seconds. Raises SkuwiseError."""
        from ...advisor.cli.ledger import decision_event  # noqa: PLC0415
        from ...advisor.recommend.progress import observation_of  # noqa: PLC0415
        from ...advisor.state import ledger  # noqa: PLC0415
        from ...advisor.state.fleets import note_fleet  # noqa: PLC0415

        state = self._beside().of(advice.fleet).state
        if state is None:
            raise UsageError("No ledger to keep decisions in.", "Start without --no-ledger, or set --state.")
        now = self._clock()
        event = decision_event(act, now, None, until, why)
        with state.writing() as db:
            if advice.fleet is not None:
                note_fleet(db, advice.fleet)
            ledger.note(db, advice, observation_of(advice), now)
            ledger.add(db, id_, event)
        return ledger.decision_from((event,), now, now)

    def rulebook(self) -> Rulebook:
        """Load rules, catalog and prices again. Raises RulesError."""
        from ...advisor.advise import load_rulebook  # noqa: PLC0415

        rules, prices, hourly = self._book
        return load_rulebook(rules, prices, self._clock(), hourly)

    def queries(self, look: Look, id_: str) -> str:
        """Return the queries behind the numbers of a finding, a recommendation or a workload. Raises SkuwiseError."""
        from ...advisor.cli.explain import queries_of  # noqa: PLC0415

        return queries_of(look.advice, find(look.advice, id_), width=_QUERY_WIDTH)

    def bench(self, loaded: Loaded, workload: str, tell: Tell) -> Workbench | None:
        """Return the what-if workbench of a workload; None: it is not in the findings' window. Telemetry is read again
        where another window is shown. Raises SkuwiseError."""
        from ...advisor.show.series.whatif_session import workbench  # noqa: PLC0415
        from ...advisor.state.outcomes import site_of  # noqa: PLC0415

        book, frame, at = self.rulebook(), loaded.frame, loaded.advice.generated_at
        if loaded.window != FINDINGS_WINDOW:
            tell(f"reading {FINDINGS_WINDOW.name} of telemetry")
            frame = self._source.read(book.catalog, since=FINDINGS_WINDOW.seconds, until=None, now=loaded.at)
        site = site_of(self._beside().of(loaded.advice.fleet).entries(), at)
        return workbench(frame, loaded.advice.workloads, workload, book, at, site=site)

    def planner(self, loaded: Loaded, tell: Tell) -> Planner:
        """Return the planner of the findings' window, which may be read again. Raises SkuwiseError."""
        from ...advisor.plan.figures import Planner  # noqa: PLC0415 - it needs the solver

        frame, reasoned = loaded.frame, loaded.reasoned
        if reasoned is None:
            frame, reasoned = self._reader(loaded.at, tell)(FINDINGS_WINDOW)
        if not reasoned.fleet.verdicts.nodes:
            raise NothingToDo("No node with GPUs in this window.", "Use another source.")
        return Planner(reasoned, frame, None, time.monotonic)

    def _beside(self) -> StateBeside:
        from ...advisor.state.file import State  # noqa: PLC0415
        from ...advisor.state.fleets import StateBeside  # noqa: PLC0415

        return StateBeside(lambda _: None, State(self._state) if self._state else None, self._states)


class DemoLoader(Loader):
    """Simulates a small fleet into a temporary folder, once, and loads from there. Leaving it removes the folder. Three
    days, and minutes of the two hours that incidents are found in, suffice for every page; 14 days take three times as
    long."""

    def __init__(self, scenario: str = "small", days: float = 3) -> None:
        from ...advisor.telemetry.source import Databases  # noqa: PLC0415

        super().__init__(Databases(()), clock=lambda: DEMO_NOW)
        self.name = f"demo: the simulated fleet '{scenario}'"
        self._folder = tempfile.TemporaryDirectory(prefix="skuwise-tui-", ignore_cleanup_errors=True)
        self._scenario, self._days = scenario, days

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self._folder.cleanup()

    def load(self, window: WindowChoice, kept: Advice | None, tell: Tell) -> Loaded:
        from ...advisor.demo.simulator import simulate  # noqa: PLC0415
        from ...advisor.telemetry.source import Databases  # noqa: PLC0415

        def step(done: int, total: int | None) -> None:
            tell(f"simulating node {done + 1} of {total}")

        if self._state is None:
            # A new folder each time: a reading that was cancelled may have left half a fleet.
            folder = Path(tempfile.mkdtemp(dir=self._folder.name))
            fleet = folder / "fleet.db"
            simulate(self._scenario, fleet, days=self._days, until=DEMO_NOW, minutes_seconds=7200.0, steps=step)
            self._source, self._state = Databases((fleet,)), folder / "state.db"
        return super().load(window, kept, tell)


def _named(source: Source) -> tuple[str, tuple[str, ...]]:
    """What is read, in words, and the same in every run."""
    from ...advisor.telemetry.source import PrometheusServer  # noqa: PLC0415

    if isinstance(source, PrometheusServer):
        return source.url, (source.url, *source.matches)
    names = [str(path) for path in source.paths]
    return listed(names), tuple(sorted(str(path.resolve()) for path in source.paths))
