"""Which file of incidents is meant, and which incident of it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ....rules.base.errors import NothingToDo
from ....rules.base.sanitize import clean
from ....rules.base.typed_again import typed_with
from ...core.incident_types import Incident
from ...state.incident_lookup import find_incident
from ...state.incidents import IncidentStore, default_incidents
from ...watch.settings import load_watch_settings


def add_state(parser: argparse.ArgumentParser) -> None:
    """Which file is meant."""
    parser.add_argument(
        "--state", type=Path, metavar="PATH",
        help="incidents file of 'skuwise watch' (default: state in section [watch] of skuwise.toml, else "
        "$XDG_STATE_HOME/skuwise/incidents.db; that variable defaults to ~/.local/state)",
    )  # fmt: skip


def add_id(parser: argparse.ArgumentParser) -> None:
    """Which incident is meant."""
    parser.add_argument("id", metavar="ID", help="incident: its ID (4 characters or more), workload, job ID or node")
    add_state(parser)


def open_state(asked: Path | None) -> IncidentStore:
    """The file that was asked for, or the usual one. Raises NothingToDo where there is none, UsageError."""
    place = asked or load_watch_settings(os.environ).state or default_incidents(os.environ)
    if not place.exists() and not place.is_symlink():
        raise NothingToDo(
            f"No incidents file at {clean(str(place))} yet.",
            "Run 'skuwise watch SOURCE' to create it, or set --state PATH.",
        )
    return IncidentStore(place)


def asked_incident(options: argparse.Namespace, store: IncidentStore) -> Incident:
    """The incident that the command names. Raises AmbiguousError for several, UsageError for none."""
    return find_incident(store.listed(resolved_since=0.0), options.id, typed_with(options, options.id))
