"""The ledger beside an advice: what was decided before is marked in it, and what it recommends is noted afterwards.

Advice is read wherever it can be read. A state file at the default place that cannot be read or written is said and
done without; one that was named with ``--state`` must be readable, and where it cannot be written that is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...rules.base.errors import StoreError
from ...rules.base.sanitize import clean
from ..core.advice_types import Advice, Decision, Fleet
from ..recommend.predict.calibration import NO_SITE, Site
from ..recommend.progress import observation_of
from . import ledger
from .file import State
from .fleets import note_fleet, refuse_others, state_of
from .outcomes import ledger_events, site_of


@dataclass(frozen=True, slots=True)
class StateBeside:
    """The state file beside one advice.

    `state`: the file that was named, or the fleet's own once `of` has found it; None: none is used. `folder`: of the
    files of all fleets, where none was named. `fleet`: whose telemetry is read, once it is known.
    """

    say: Callable[[str], None]
    state: State | None = None
    folder: Path | None = None
    fleet: Fleet | None = None

    @property
    def is_named(self) -> bool:
        """Whether the user asked for this file."""
        return self.state is not None and self.folder is None

    def check(self) -> None:
        """Raises StoreError where a named file cannot be read: before telemetry is, which takes time."""
        if self.is_named:
            self.entries()

    def of(self, fleet: Fleet | None) -> StateBeside:
        """The state file of a fleet; as it is where its fleet is known already. Raises UsageError where the named file
        is another fleet's, StoreError where it cannot be read."""
        if fleet is None or self.fleet is not None:
            return self
        if self.folder is None:
            if self.state is not None:
                with self.state.reading() as db:
                    refuse_others(db, fleet, self.state.path)
            return replace(self, fleet=fleet)
        try:
            state, warnings = state_of(self.folder, fleet)
        except StoreError as error:
            self.say(f"no ledger: {error}")
            return replace(self, folder=None, fleet=fleet)
        for sentence in warnings:
            self.say(sentence)
        return replace(self, state=state, fleet=fleet)

    def entries(self) -> tuple[ledger.LedgerEntry, ...]:
        """What stands in the ledger. Raises StoreError if it was named."""
        if self.state is None:
            return ()
        try:
            with self.state.reading() as db:
                return ledger.entries(db)
        except StoreError as error:
            if self.is_named:
                raise
            self.say(f"no ledger: {error}")
            return ()

    def decisions(self, now: float) -> Mapping[str, Decision]:
        """What somebody decided, by recommendation, as far as it holds at `now`. Raises StoreError if it was named."""
        decisions = {entry.recommendation.id: entry.decision(now) for entry in self.entries()}
        return {id_: decision for id_, decision in decisions.items() if decision.state not in ("proposed", "expired")}

    def site(self, now: float) -> Site:
        """What the moves that were done here say of predictions; nothing where there is no ledger to read."""
        try:
            # What cannot be read was said when decisions were asked for.
            return site_of(replace(self, say=_quiet).entries(), now)
        except StoreError:
            return NO_SITE

    def note(self, advice: Advice, now: float) -> None:
        """Note what the advice recommends and what became of what stands there, and say so."""
        state = replace(self, say=_quiet).of(advice.fleet).state
        if state is None:
            return
        try:
            if not advice.recommendations:
                with state.reading() as db:
                    if not ledger.entries(db):
                        return  # nothing to begin a file for
            with state.writing() as db:
                if advice.fleet is not None:
                    note_fleet(db, advice.fleet)
                events = ledger_events(ledger.entries(db), observation_of(advice), now)
                new = ledger.note(db, advice, now, events)
        except StoreError as error:
            self.say(f"not recorded in the ledger: {error}")
            return
        for id_, event in events:
            if event.act in ("done", "regressed"):
                self.say(f"{id_} is {event.act}: {clean(event.why or '')}")
        count = len(advice.recommendations)
        noun = "recommendation" if count == 1 else "recommendations"
        self.say(f"{count} {noun} recorded in {state.path} ({new} new)")


def _quiet(text: str) -> None:
    pass
