"""``skuwise watch``: incidents of today, kept on disk and told to whom they concern."""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...agent.base.clock import Signals, SystemClock
from ...agent.base.durations import parse_duration
from ...rules.base.errors import EXIT_DONE, EXIT_FAILED, SkuwiseError, UsageError
from ...rules.base.output import say, write_stdout
from ...rules.base.sanitize import clean
from ..core.formatting import counted
from ..core.timestamps import minute, rfc3339
from ..notify.settings import load_mail_settings
from .price_options import rulebook_of
from .reader_commands import reader_commands
from .watch_options import MARGIN_SECONDS, PAST_SECONDS, add_watched, watched_source

if TYPE_CHECKING:
    from ..core.incident_types import Advance, Incident, WatchPass
    from ..state.incidents import IncidentStore
    from ..telemetry.source import Source
    from ..watch.settings import WatchSettings

SCHEMA = "skuwise.watch/1"

EXAMPLES = (
    "skuwise watch --db /var/lib/skuwise",
    "skuwise watch --prometheus http://localhost:9090 --once",
    "skuwise watch --prometheus http://localhost:9090 --teams teams.toml --send",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of watch."""
    add_watched(parser)
    parser.set_defaults(ledger=None)
    parser.add_argument("--once", action="store_true", help="evaluate once and exit, for cron (default: keep watching)")
    parser.add_argument(
        "--every", type=parse_duration, metavar="DURATION",
        help="time between two evaluations, 1m to 1h (default: watch.every, 5m)",
    )  # fmt: skip
    parser.add_argument(
        "--state", type=Path, metavar="PATH",
        help="file of incidents (default: watch.state, else incidents.db beside the ledger)",
    )  # fmt: skip
    parser.add_argument(
        "--teams",
        type=Path,
        metavar="FILE",
        help="TOML file with teams, matchers and recipients (default: report.teams)",
    )
    parser.add_argument(
        "--send", action="store_true",
        help="send notifications (default: watch.send; without it, print what would be sent)",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="with --once: output format (default: table)"
    )


def run(options: argparse.Namespace) -> int:
    """Watch until SIGTERM or SIGINT, or once."""
    from ..state.incidents import IncidentStore, default_incidents  # noqa: PLC0415
    from ..watch.settings import load_watch_settings  # noqa: PLC0415

    settings = load_watch_settings(os.environ)
    if options.every is not None:
        if not 60 <= options.every <= 3600:
            raise UsageError("--every is out of range.", "Use 1m to 1h.")
        settings = replace(settings, every_seconds=options.every)
    if options.send:
        settings = replace(settings, send=True)
    if options.state is not None:
        settings = replace(settings, state=options.state)
    store = IncidentStore(settings.state or default_incidents(os.environ))
    watcher = _Watcher(options, watched_source(options), settings, store)
    with store.watching():
        return watcher.once() if options.once else watcher.go_on()


class _Watcher:
    """Looks, notes what changed, tells whom it concerns; again and again."""

    def __init__(
        self, options: argparse.Namespace, source: Source, settings: WatchSettings, store: IncidentStore
    ) -> None:
        self._options, self._source, self._settings, self._store = options, source, settings, store
        self._has_looked = False

    def once(self) -> int:
        """One look, printed whole. Raises SkuwiseError where the source cannot be read."""
        found, _ = self._look()
        failed = self._notify()
        incidents = [one for one in self._store.listed() if one.resolved_at is None]
        write_stdout(_page(found, incidents, self._options.format))
        return EXIT_FAILED if failed else EXIT_DONE

    def go_on(self) -> int:
        """Look every few minutes until somebody asks to stop. What fails is said, and tried again at the next look."""
        every = self._settings.every_seconds
        with closing(Signals(SystemClock())) as stop:
            say(f"watching every {every / 60:g} min; incidents in {self._store.path}")
            while True:
                began = time.monotonic()
                try:
                    found, told = self._look()
                    changed = {one.id: one for one in told.incidents}
                    for event in told.events:
                        one = changed.get(event.incident_id)
                        if one is not None:
                            say(clean(f"{event.kind}: {one.sighting.text.text}"))
                    say(_summary(found))
                    self._notify()
                except SkuwiseError as error:
                    say(f"this pass failed, and is repeated in {every / 60:g} min: {error}")
                if stop.wait(max(every - (time.monotonic() - began), 1.0)):
                    say("stopping")
                    return EXIT_DONE

    def _look(self) -> tuple[WatchPass, Advance]:
        from ...rules.policy.watch import load_watch_rules  # noqa: PLC0415
        from ..watch.evaluate import evaluate  # noqa: PLC0415
        from ..watch.reading import read_recent  # noqa: PLC0415
        from ..watch.scene import Criteria  # noqa: PLC0415
        from ..watch.transitions import advance  # noqa: PLC0415

        options, now = self._options, time.time()
        # Rules and prices are read anew each time, so that a changed file counts at the next look.
        book = rulebook_of(options, now)
        lookback = self._settings.longest_limit_seconds + MARGIN_SECONDS
        # An incident keeps its beginning, so that only the first look needs the hours before.
        recent = read_recent(
            self._source, book, lookback_seconds=lookback, now=now, until=options.until,
            past_seconds=0.0 if self._has_looked else PAST_SECONDS,
        )  # fmt: skip
        self._has_looked = True
        criteria = Criteria(self._settings.limit_seconds, load_watch_rules(options.rules), book)
        found = evaluate(recent, criteria)
        told = advance(self._store.current(), found, self._settings)
        self._store.commit(told)
        return found, told

    def _notify(self) -> bool:
        """Tell people what is new; whether something failed, which was said."""
        from ..notify.delivery import Clocks  # noqa: PLC0415
        from ..notify.desk import desk_of  # noqa: PLC0415
        from ..notify.dispatch import dispatch  # noqa: PLC0415

        report = load_mail_settings(os.environ)
        clock = SystemClock()
        desk = desk_of(
            os.environ, self._settings, Clocks(clock.now, time.sleep), say, teams=self._options.teams,
            commands=reader_commands(self._options, report, socket.gethostname()),
        )  # fmt: skip
        told = dispatch(self._store, desk)
        for fault in told.faults:
            say(str(fault))
        for one in told.refused:
            say(f"refused for good: {one}")
        return told.failed


def _page(found: WatchPass, incidents: Sequence[Incident], form: str) -> str:
    """What one look shows: how much was evaluated, and what is open."""
    from ..views.document.incident_table import as_dict, as_table, by_urgency  # noqa: PLC0415

    shown = by_urgency(incidents)
    if form == "json":
        told = {
            "schema": SCHEMA, "evaluated_at": rfc3339(found.now), "data_end": rfc3339(found.data_end),
            "workloads": found.judged_holds, "without_data": found.dark, "nodes": len(found.live_nodes),
            "incidents": [as_dict(one, found.now) for one in shown],
            "notes": [{"code": note.code, "text": note.text, "fields": dict(note.fields)} for note in found.notes],
        }  # fmt: skip
        return json.dumps(told, indent=2, allow_nan=False) + "\n"
    return _summary(found) + "\n" + as_table(shown, 0, found.now)


def _summary(found: WatchPass) -> str:
    unknown = f"; {counted(found.dark, 'subject')} without enough data" if found.dark else ""
    return (
        f"{counted(found.judged_holds, 'workload')} on {counted(len(found.live_nodes), 'node')} evaluated, data up to "
        f"{minute(found.data_end)}{unknown}"
    )
