"""The option --state: which state file a command uses, that of its fleet unless one is named."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...rules.base.errors import NothingToDo, StoreError, UsageError
from ...rules.base.output import say
from ...rules.base.sanitize import clean
from ...rules.base.typed_again import program
from ..state.file import State, load_state_settings, state_folder
from ..state.fleets import fleets_in, names_of, note_fleet, refuse_others, state_files, state_of
from .source_options import source_arguments, source_of

if TYPE_CHECKING:
    from ..core.advice_types import Fleet
    from ..state.beside import StateBeside

# Telemetry of so long tells whose it is (seconds): one GPU or the name of the cluster is enough.
IDENTITY_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class KnownState:
    """A state file that is there. `fleet`: the name of its fleet for people; None: none was noted."""

    state: State
    fleet: str | None


def add_state(parser: argparse._ActionsContainer, *, optional: bool = False) -> None:
    """The option --state, also called --ledger. `optional`: a command that can do without has --no-ledger too."""
    choice = parser.add_mutually_exclusive_group() if optional else parser
    choice.add_argument(
        "--state", "--ledger", type=Path, metavar="PATH",
        help="state file with recommendations, decisions, incidents and cards (default: file in [state] of "
        "skuwise.toml, else the one of the fleet in $XDG_STATE_HOME/skuwise)",
    )  # fmt: skip
    if optional:
        choice.add_argument("--no-ledger", action="store_true", help="show no decisions and record no recommendations")


def named_state(options: argparse.Namespace) -> Path | None:
    """The file that the option or the settings name; None: the fleet's own is meant."""
    return options.state or load_state_settings(os.environ).file


def beside(options: argparse.Namespace) -> StateBeside:
    """The recommendations and decisions that stand beside an advice, as `add_state`'s options ask."""
    from ..state.beside import StateBeside

    if options.no_ledger:
        return StateBeside(say)
    named = named_state(options)
    return StateBeside(say, State(named) if named else None, None if named else state_folder(os.environ))


def fleet_state(options: argparse.Namespace, fleet: Fleet) -> State:
    """The state file to write of a fleet: the named one, else the fleet's own. The fleet is noted in it.

    Raises UsageError where the named file is another fleet's or there is no home for one, StoreError.
    """
    state = state_for(options, fleet)
    with state.writing() as db:
        refuse_others(db, fleet, state.path)
        note_fleet(db, fleet)
    return state


def state_for(options: argparse.Namespace, fleet: Fleet) -> State:
    """The state file of a fleet, which may not be there yet: the named one, else the fleet's own. Raises UsageError
    where there is no home for one, StoreError."""
    named = named_state(options)
    if named is not None:
        return State(named)
    state, warnings = state_of(_home(), fleet)
    for sentence in warnings:
        say(sentence)
    return state


def known_states(options: argparse.Namespace) -> list[KnownState]:
    """The state file that is named, else that of the fleet of --db or --prometheus, else those of all fleets.

    Among several, what cannot be read is said and left out. Raises NothingToDo where there is none, UsageError where
    there is no home for one, StoreError.
    """
    path, has_source = named_state(options), bool(options.db or options.prometheus)
    if path is None and has_source:
        from ...rules.catalog.loader import load_catalog
        from ..core.fleet_identity import fleet_of

        source = source_of(options, lambda _: None, 1)
        frame = source.read(load_catalog(), since=IDENTITY_SECONDS, until=None, now=time.time())
        path = state_for(options, fleet_of(frame)).path
    paths = state_files(_home()) if path is None else [path] if path.exists() else []
    found: list[KnownState] = []
    for state in map(State, paths):
        try:
            with state.reading() as db:
                found.append(KnownState(state, names_of(fleets_in(db)) or None))
        except StoreError as error:
            if len(paths) == 1:
                raise
            say(f"left out: {clean(str(error))}")
    if not found:
        advise = f"{program()} advise {source_arguments(options) if has_source else ''}".rstrip()
        raise NothingToDo(f"No state file at {clean(str(path or _home()))} yet.", f"Run '{advise}' to create one.")
    return found


def _home() -> Path:
    home = state_folder(os.environ)
    if home is None:
        raise UsageError("No home folder for a state file.", "Set --state PATH.")
    return home
