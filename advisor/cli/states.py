"""The option --state: which state file a command uses, that of its fleet unless one is named."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ...rules.base.click_commands import PATH, Decorator, exclusive, into
from ...rules.base.errors import NothingToDo, StoreError, UsageError
from ...rules.base.output import program, say
from ...rules.base.sanitize import clean
from ..show.page_options import Again
from ..show.reader_links import ReaderCommands
from .options import RulebookOptions, SourceOptions, Telemetry, flags

if TYPE_CHECKING:
    from ..core.advice_types import Fleet
    from ..notify.settings import ReportSettings
    from ..state.beside import StateBeside
    from ..state.file import State

Options = TypeVar("Options", SourceOptions, RulebookOptions, "StateOptions")

# Telemetry of so long identifies its fleet (seconds): one GPU or the name of the cluster is enough.
IDENTITY_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class KnownState:
    """A state file that exists. `fleet`: the name of its fleet for people; None: none was noted."""

    state: State
    fleet: str | None


@dataclass(frozen=True, slots=True)
class StateOptions:
    """The state file of a command. `state`: its path; None: that of the settings, else the fleet's own."""

    state: Path | None = None
    no_ledger: bool = False

    def words(self) -> list[str]:
        """The options again, for a command to paste."""
        return flags("--state", [self.state]) + (["--no-ledger"] if self.no_ledger else [])

    def again(self, telemetry: Telemetry) -> Again:
        """How to run another command on `telemetry` with this state file."""
        return Again(program(), " ".join(part for part in (*telemetry.words(), *self.words()) if part))

    def named(self) -> Path | None:
        """The file that the option or the settings name; None: the fleet's own is meant."""
        from ..state.file import load_state_settings

        return self.state or load_state_settings(os.environ).file

    def beside(self) -> StateBeside:
        """The recommendations and decisions beside an advice; none with --no-ledger. Raises StoreError where they
        cannot be read."""
        from ..state.beside import StateBeside
        from ..state.file import State, state_folder

        if self.no_ledger:
            return StateBeside(say)
        named = self.named()
        beside = StateBeside(say, State(named) if named else None, None if named else state_folder(os.environ))
        beside.check()
        return beside

    def of(self, fleet: Fleet) -> State:
        """The state file of a fleet, which may not exist yet. Raises UsageError where there is no folder for one,
        StoreError."""
        from ..state.file import State
        from ..state.fleets import state_of

        named = self.named()
        if named is not None:
            return State(named)
        state, warnings = state_of(_home(), fleet)
        for sentence in warnings:
            say(sentence)
        return state

    def to_write(self, fleet: Fleet) -> State:
        """The same, with the fleet noted in it. Raises UsageError where the named file is another fleet's."""
        from ..state.fleets import note_fleet, refuse_others

        state = self.of(fleet)
        with state.writing() as db:
            refuse_others(db, fleet, state.path)
            note_fleet(db, fleet)
        return state

    def every(self, source: SourceOptions) -> list[KnownState]:
        """The state file that is named, else that of the fleet of `source`, else those of all fleets.

        Among several, unreadable ones are left out with a note. Raises NothingToDo where there is none, UsageError
        where there is no folder for one, StoreError.
        """
        from ..state.file import State
        from ..state.fleets import fleets_in, names_of, state_files

        path = self.named()
        if path is None and source.is_named:
            from ...rules.catalog.loader import load_catalog
            from ..core.fleet_identity import fleet_of

            frame = source.open(quiet=True).read(load_catalog(), since=IDENTITY_SECONDS, until=None, now=time.time())
            path = self.of(fleet_of(frame)).path
        paths = state_files(_home()) if path is None else [path] if path.exists() else []
        states: list[KnownState] = []
        for state in map(State, paths):
            try:
                with state.reading() as db:
                    states.append(KnownState(state, names_of(fleets_in(db)) or None))
            except StoreError as error:
                if len(paths) == 1:
                    raise
                say(f"left out: {clean(str(error))}")
        if not states:
            advise = f"{program()} advise {source.words()}".rstrip()
            raise NothingToDo(f"No state file at {clean(str(path or _home()))} yet.", f"Run '{advise}' to create one.")
        return states


def _home() -> Path:
    from ..state.file import state_folder

    home = state_folder(os.environ)
    if home is None:
        raise UsageError("No home folder for a state file.", "Set --state PATH.")
    return home


def state_options(*, optional: bool = False) -> Decorator:
    """``--state``, also called ``--ledger``, as the argument `state`. `optional`: with --no-ledger for a command that
    can do without."""
    path = click.option(
        "--state",
        "--ledger",
        "state",
        type=PATH,
        help="state file (default: file in [state] of skuwise.toml, else the fleet's in $XDG_STATE_HOME/skuwise)",
    )
    without = click.option("--no-ledger", is_flag=True, help="show no decisions and record no recommendations")

    def check(state: StateOptions) -> None:
        exclusive(state=state.state, no_ledger=state.no_ledger)

    return into("state", StateOptions, path, *([without] if optional else []), check=check)


def reader_commands(
    source: SourceOptions, rulebook: RulebookOptions, state: StateOptions, settings: ReportSettings, host: str
) -> ReaderCommands:
    """How the readers of a mail run skuwise: with this run's options, whose paths are absolute. `host`: this machine,
    named where databases are read, since a reader may sit at another one."""
    return ReaderCommands(
        program=settings.command or program(anywhere=True),
        source=_absolute(source).words(),
        book=" ".join(_absolute(rulebook).words()),
        state=" ".join(flags("--state", [_absolute(state).state])),
        host=settings.command_host or (host if source.db and not settings.command else ""),
    )


def _absolute(options: Options) -> Options:
    """The same with absolute paths."""

    def absolute(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(map(absolute, value))
        return value.absolute() if isinstance(value, Path) else value

    return replace(options, **{field.name: absolute(getattr(options, field.name)) for field in fields(options)})
