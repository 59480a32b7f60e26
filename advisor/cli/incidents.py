"""``skuwise incidents``: what the watch found, and who takes care of it."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ...agent.base.durations import parse_duration
from ...rules.base.click_commands import Group, examples
from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.output import say, write_json, write_stdout
from ...rules.base.sanitize import clean
from ...rules.base.typed_again import program
from ..core import formatting as words
from ..core.incident_types import Incident
from ..core.naming import AmbiguousError, Named, matching, unknown
from ..core.timestamps import minute, parse_moment, rfc3339
from ..show.incident_words import as_dict, as_table, as_text, by_urgency, title
from ..state import incidents as store
from ..state.file import State
from .output import terminal_width
from .state_options import KnownState, known_states

UNTIL_HINT = "a date, RFC 3339 (UTC), or a duration such as 8h"
_WIDTH_MAX = 120
_ABOUT = "INCIDENT: its ID (4 characters or more), workload, job ID or node."

_state = click.option(
    "--state", type=Path, metavar="PATH",
    help="state file (default: file in [state] of skuwise.toml, else those of all fleets in $XDG_STATE_HOME/skuwise)",
)  # fmt: skip
_format = click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="output format (default: table)"
)


@click.group(
    "incidents", cls=Group, subcommand_metavar="COMMAND ...",
    epilog="Run 'skuwise incidents COMMAND --help' for details.", context_settings={"max_content_width": 120},
)  # fmt: skip
def incidents() -> None:
    """List, acknowledge and snooze the incidents of the watch."""


@incidents.command("list", epilog=examples("skuwise incidents list", "skuwise incidents list --all --format json"))
@click.option("--all", "every", is_flag=True, help="also list resolved incidents; they are kept for 90 days")
@_format
@_state
def list_(every: bool, form: str, state: Path | None) -> int:
    """List open incidents, the most severe and expensive first."""
    known, now = _listed(state), time.time()
    wanted = {one.id: (file, one) for file, found in known for one in found if every or one.resolved_at is None}
    if form == "json":
        shown = by_urgency(one for _, one in wanted.values())
        values = [{"fleet": wanted[one.id][0].fleet, **as_dict(one, now)} for one in shown]
        write_json({"schema": "skuwise.incidents/1", "incidents": values})
        return EXIT_DONE
    for file, found in known:
        shown = [one for one in found if one.id in wanted]
        heading = f"{clean(file.fleet or str(file.state.path))}\n" if len(known) > 1 else ""
        write_stdout(f"{heading}{as_table(shown, len(found) - len(shown), now)}")
    return EXIT_DONE


def _command(**about: Any) -> Callable[[Callable[..., int]], click.Command]:  # noqa: ANN401 - as click's
    """A command on one incident."""

    def decorate(function: Callable[..., int]) -> click.Command:
        command = click.argument("incident")(_state(function))
        return incidents.command(help=f"{function.__doc__}\n\n{_ABOUT}", **about)(command)

    return decorate


@_command(epilog=examples("skuwise incidents show i-5603c79e", "skuwise incidents show i-5603c79e --format json"))
@_format
def show(incident: str, form: str, state: Path | None) -> int:
    """Show one incident: evidence, cost so far and history."""
    (_, one), now = _asked(incident, state, "show"), time.time()
    if form == "json":
        write_json({"schema": "skuwise.incident/1", "incident": as_dict(one, now)})
    else:
        write_stdout(as_text(one, now, terminal_width(_WIDTH_MAX)))
    return EXIT_DONE


@_command(epilog=examples("skuwise incidents acknowledge i-5603c79e --by ann"))
@click.option("--by", metavar="NAME", help="name of the person who takes it (default: your user name)")
def acknowledge(incident: str, by: str | None, state: Path | None) -> int:
    """Take an incident: no reminders until it is resolved."""
    from .ledger.decisions import deciding_user

    file, one = _asked(incident, state, "acknowledge")
    with file.writing() as db:
        one = store.acknowledge(db, one.id, deciding_user(by), time.time())
    say(f"{one.id} ({clean(title(one))}) is acknowledged by {clean(one.acknowledged_by or '')}.")
    return EXIT_DONE


@_command(epilog=examples("skuwise incidents snooze i-5603c79e --until 8h"))
@click.option("--until", required=True, metavar="WHEN", help=f"end of the snooze: {UNTIL_HINT}")
def snooze(incident: str, until: str, state: Path | None) -> int:
    """Stop the reminders of an incident until a date."""
    end = parse_until(until, time.time())
    file, one = _asked(incident, state, "snooze")
    with file.writing() as db:
        store.snooze(db, one.id, end)
    say(f"{one.id} ({clean(title(one))}) is snoozed until {minute(end)}.")
    return EXIT_DONE


def parse_until(text: str, now: float) -> float:
    """The end of a snooze, Unix seconds: a moment, or a length of time from `now`. Raises UsageError for what is
    neither, or is not ahead."""
    try:
        until = parse_moment(text)
    except UsageError as error:
        try:
            until = now + parse_duration(text.strip())
            rfc3339(until)
        except (UsageError, ValueError, OverflowError):
            raise UsageError(f"Invalid end of a snooze {text!r}.", f"Use {UNTIL_HINT}.") from error
    if until <= now:
        raise UsageError(f"{minute(until)} is in the past.", "Set a later date.")
    return until


def _listed(path: Path | None) -> list[tuple[KnownState, tuple[Incident, ...]]]:
    """Every incident of the state file that is named, else of those of all fleets."""
    found: list[tuple[KnownState, tuple[Incident, ...]]] = []
    for state in known_states(argparse.Namespace(state=path, db=None, prometheus=None)):
        with state.state.reading() as db:
            found.append((state, store.listed(db, resolved_since=0.0)))
    return found


def _asked(asked: str, path: Path | None, command: str) -> tuple[State, Incident]:
    """The incident that `asked` names, of those that are not resolved before all, and its state file. Raises
    AmbiguousError for several, UsageError for none."""
    every = {one.id: (known.state, one) for known, found in _listed(path) for one in found}
    names = [_named(one) for _, one in every.values()]
    found = matching(asked, [name for name in names if every[name.id][1].resolved_at is None]) or matching(asked, names)
    if not found:
        raise unknown(asked, names, "among the incidents", "'skuwise incidents list --all' lists every ID.")
    if len(found) > 1:
        state = "" if path is None else f" --state {shlex.quote(str(path))}"
        raise AmbiguousError(asked, found, lambda id_: f"{program()} incidents {command} {id_}{state}")
    return every[found[0].id]


def _named(one: Incident) -> Named:
    subject = one.sighting.subject
    jobs = tuple(known for known in (subject.job_id, subject.workload_id) if known)
    cost = words.usd(one.cost_usd) if one.cost_usd is not None else words.hours(one.gpu_hours, "GPU-h")
    return Named(
        one.id, f"{one.sighting.kind} of {subject.name}", subject.name, subject.nodes, jobs,
        f"since {minute(one.since)}", cost,
    )  # fmt: skip
