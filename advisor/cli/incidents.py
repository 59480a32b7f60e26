"""``skuwise incidents``: the incidents that the watch reported, and who takes care of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click
from click import option

from ...agent.base.settings import parse_duration
from ...rules.base.click_commands import Group, examples, format_option, typed_with
from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.output import say, write_json, write_stdout
from ...rules.base.sanitize import clean
from ..core.timestamps import minute, parse_moment, rfc3339
from .options import StateOptions, state_options, terminal_width

if TYPE_CHECKING:
    from ..core.incident_types import Incident
    from ..state.file import State

UNTIL_HINT = "a date, RFC 3339 (UTC), or a duration such as 8h"
_ABOUT = "INCIDENT: its ID (4 characters or more), workload, job ID or node."


@click.group("incidents", cls=Group)
def incidents() -> None:
    """List, acknowledge and snooze the incidents of the watch."""


def _command(example: str) -> Callable[[Callable[..., int]], click.Command]:
    def decorate(function: Callable[..., int]) -> click.Command:
        run, text = click.argument("incident")(state_options()(function)), f"{function.__doc__}\n\n{_ABOUT}"
        return incidents.command(help=text, epilog=examples(f"skuwise incidents {example}"))(run)

    return decorate


@incidents.command("list", epilog=examples("skuwise incidents list", "skuwise incidents list --all --format json"))
@option("--all", "every", is_flag=True, help="also list resolved incidents; they are kept for 90 days")
@format_option("table", "json")
@state_options()
def list_(every: bool, form: str, state: StateOptions) -> int:
    """List open incidents, the most severe and expensive first."""
    from ..show.incident_words import as_dict, as_table, urgency

    files, now, shown = _incidents_by_file(state), time.time(), []
    for file, fleet, of_file in files:
        listed = [incident for incident in of_file if every or incident.resolved_at is None]
        shown += [(incident, fleet) for incident in listed]
        if form == "table":
            heading = f"{clean(fleet or str(file.path))}\n" if len(files) > 1 else ""
            write_stdout(f"{heading}{as_table(listed, len(of_file) - len(listed), now)}")
    if form == "json":
        shown.sort(key=lambda pair: urgency(pair[0]))
        values = [{"fleet": fleet or None, **as_dict(incident, now)} for incident, fleet in shown]
        write_json({"schema": "skuwise.incidents/1", "incidents": values})
    return EXIT_DONE


@_command("show i-5603c79e")
@format_option("table", "json")
def show(incident: str, form: str, state: StateOptions) -> int:
    """Show one incident: evidence, cost so far and history."""
    from ..show.incident_words import as_dict, details, labelled

    (_, shown), now = _find(incident, state), time.time()
    if form == "json":
        write_json({"schema": "skuwise.incident/1", "incident": as_dict(shown, now)})
    else:
        write_stdout(labelled(details(shown, now), terminal_width(120)))
    return EXIT_DONE


@_command("acknowledge i-5603c79e --by ann")
@option("--by", metavar="NAME", help="name of the person who takes it (default: your user name)")
def acknowledge(incident: str, by: str | None, state: StateOptions) -> int:
    """Take an incident: no reminders until it is resolved."""
    from ..show.incident_words import title
    from ..state import incidents as stored
    from .ledger import deciding_user

    file, taken = _find(incident, state)
    with file.writing() as db:
        taken = stored.acknowledge(db, taken.id, deciding_user(by), time.time())
    say(f"{taken.id} ({clean(title(taken))}) is acknowledged by {clean(taken.acknowledged_by or '')}.")
    return EXIT_DONE


@_command("snooze i-5603c79e --until 8h")
@option("--until", required=True, metavar="WHEN", help=f"end of the snooze: {UNTIL_HINT}")
def snooze(incident: str, until: str, state: StateOptions) -> int:
    """Stop the reminders of an incident until a date."""
    from ..show.incident_words import title
    from ..state import incidents as stored

    end = parse_until(until, time.time())
    file, snoozed = _find(incident, state)
    with file.writing() as db:
        stored.snooze(db, snoozed.id, end)
    say(f"{snoozed.id} ({clean(title(snoozed))}) is snoozed until {minute(end)}.")
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


def _incidents_by_file(state: StateOptions) -> list[tuple[State, str, tuple[Incident, ...]]]:
    from ..state.incidents import listed

    return state.every(partial(listed, resolved_since=0.0))


def _find(name: str, state: StateOptions) -> tuple[State, Incident]:
    """The incident of this name, an unresolved one before all others, and its state file. Raises AmbiguousError for
    several, UsageError for none."""
    from ..core.formatting import hours, usd
    from ..core.ids import Named, matching, resolve

    every, names = {i.id: (file, i) for file, _, of_file in _incidents_by_file(state) for i in of_file}, []
    for _, i in every.values():
        subject, since = i.sighting.subject, f"since {minute(i.since)}"
        jobs = tuple(filter(None, (subject.job_id, subject.workload_id)))
        cost = usd(i.cost_usd) if i.cost_usd is not None else hours(i.gpu_hours, "GPU-h")
        what = f"{i.sighting.kind} of {subject.name}"
        names.append(Named(i.id, what, subject.name, subject.nodes, jobs, since, cost))
    unresolved = [n for n in names if every[n.id][1].resolved_at is None]
    if matching(name, unresolved):
        names = unresolved
    remedy = "'skuwise incidents list --all' lists every ID."
    return every[resolve(name, names, "among the incidents", remedy, partial(typed_with, name)).id]
