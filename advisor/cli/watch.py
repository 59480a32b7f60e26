"""``skuwise watch``: incidents of today, kept on disk and told to whom they concern."""

from __future__ import annotations

import argparse
import os
import socket
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...agent.base.clock import Signals, SystemClock
from ...agent.base.durations import parse_duration
from ...rules.base.errors import EXIT_DONE, EXIT_FAILED, SkuwiseError, UsageError
from ...rules.base.output import say, write_json, write_stdout
from ...rules.base.sanitize import clean
from ..core.formatting import counted
from ..core.timestamps import minute, rfc3339
from ..notify.settings import load_mail_settings
from ..state.file import InUseError
from ..state.incidents import commit, current, listed
from .price_options import rulebook_of
from .reader_commands import reader_commands
from .state_options import add_state, fleet_state
from .watch_options import MARGIN_SECONDS, PAST_SECONDS, add_watched, watched_source

if TYPE_CHECKING:
    from ..core.incident_types import Advance, WatchPass
    from ..state.file import State
    from ..telemetry.source import Source
    from ..watch.settings import WatchSettings

EXAMPLES = (
    "skuwise watch --db /var/lib/skuwise",
    "skuwise watch --prometheus http://localhost:9090 --once",
    "skuwise watch --prometheus http://localhost:9090 --teams teams.toml --send",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of watch."""
    add_watched(parser)
    add_state(parser)
    parser.add_argument("--once", action="store_true", help="evaluate once and exit, for cron (default: keep watching)")
    parser.add_argument(
        "--every", type=parse_duration, metavar="DURATION",
        help="time between two evaluations, 1m to 1h (default: watch.every, 5m)",
    )  # fmt: skip
    parser.add_argument(
        "--teams", type=Path, metavar="FILE",
        help="TOML file with teams, matchers and recipients (default: report.teams)",
    )  # fmt: skip
    parser.add_argument(
        "--send", action="store_true",
        help="send notifications (default: watch.send; without it, print what would be sent)",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="with --once: output format (default: table)"
    )


def run(options: argparse.Namespace) -> int:
    """Watch until SIGTERM or SIGINT, or once."""
    from ..watch.settings import load_watch_settings  # noqa: PLC0415

    settings = load_watch_settings(os.environ)
    if options.every is not None:
        if not 60 <= options.every <= 3600:
            raise UsageError("--every is out of range.", "Use 1m to 1h.")
        settings = replace(settings, every_seconds=options.every)
    settings = replace(settings, send=options.send or settings.send)
    with ExitStack() as held:
        watcher = _Watcher(options, watched_source(options), settings, held)
        return watcher.once() if options.once else watcher.go_on()


class _Watcher:
    """Looks, notes what changed, tells whom it concerns; again and again. `held`: keeps other watches of the fleet out
    from the first look on, which shows whose telemetry it is."""

    def __init__(self, options: argparse.Namespace, source: Source, settings: WatchSettings, held: ExitStack) -> None:
        self._options, self._source, self._settings, self._held = options, source, settings, held
        self._state: State | None = None

    def once(self) -> int:
        """One look: how much was evaluated, and what is open. Raises SkuwiseError where the source cannot be read."""
        from ..show.incident_words import as_dict, as_table, by_urgency  # noqa: PLC0415

        state, found, _ = self._look()
        failed = self._notify(state)
        with state.reading() as db:
            shown = by_urgency(listed(db))
        if self._options.format == "json":
            write_json({
                "schema": "skuwise.watch/1", "evaluated_at": rfc3339(found.now), "data_end": rfc3339(found.data_end),
                "workloads": found.judged_holds, "without_data": found.dark, "nodes": len(found.live_nodes),
                "incidents": [as_dict(one, found.now) for one in shown],
                "notes": [{"code": note.code, "text": note.text, "fields": dict(note.fields)} for note in found.notes],
            })  # fmt: skip
        else:
            write_stdout(f"{_summary(found)}\n{as_table(shown, 0, found.now)}")
        return EXIT_FAILED if failed else EXIT_DONE

    def go_on(self) -> int:
        """Look every few minutes until somebody asks to stop. What fails is said, and tried again at the next look.
        Raises InUseError where another watch holds the fleet's file."""
        every = self._settings.every_seconds
        with closing(Signals(SystemClock())) as stop:
            say(f"watching every {every / 60:g} min")
            while True:
                began = time.monotonic()
                try:
                    state, found, told = self._look()
                    changed = {incident.id: incident for incident in told.incidents}
                    for event in told.events:
                        say(clean(f"{event.kind}: {changed[event.incident_id].sighting.text.text}"))
                    say(f"{_summary(found)}; incidents in {clean(str(state.path))}")
                    self._notify(state)
                except InUseError:
                    raise
                except SkuwiseError as error:
                    say(f"this pass failed, and is repeated in {every / 60:g} min: {error}")
                if stop.wait(max(every - (time.monotonic() - began), 1.0)):
                    say("stopping")
                    return EXIT_DONE

    def _look(self) -> tuple[State, WatchPass, Advance]:
        from ...rules.base.heap import give_back  # noqa: PLC0415
        from ...rules.policy.watch import load_watch_rules  # noqa: PLC0415
        from ..watch.fleet import Criteria  # noqa: PLC0415
        from ..watch.reading import read_recent  # noqa: PLC0415
        from ..watch.rules import evaluate  # noqa: PLC0415
        from ..watch.transitions import advance  # noqa: PLC0415

        options, now = self._options, time.time()
        # Rules and prices are read anew each time, so that a changed file counts at the next look.
        book = rulebook_of(options, now)
        # An incident keeps its beginning, so that only the first look needs the hours before.
        recent = read_recent(
            self._source, book, lookback_seconds=self._settings.longest_limit_seconds + MARGIN_SECONDS, now=now,
            until=options.until, past_seconds=0.0 if self._state is not None else PAST_SECONDS,
        )  # fmt: skip
        give_back()
        found = evaluate(recent, Criteria(self._settings.limit_seconds, load_watch_rules(options.rules), book))
        state = fleet_state(options, recent.fleet)
        if state != self._state:
            self._held.close()
            self._held.enter_context(state.alone("Another skuwise watch", lock="watch"))
            self._state = state
        with state.writing() as db:
            told = advance(current(db), found, self._settings)
            commit(db, told)
        return state, found, told

    def _notify(self, state: State) -> bool:
        """Tell people what is new; whether something failed, which was said."""
        from ..notify.incidents import NotifyRun, notify  # noqa: PLC0415
        from ..notify.routes import routes_of  # noqa: PLC0415
        from ..notify.sending import Clocks  # noqa: PLC0415

        report = load_mail_settings(os.environ)
        commands = reader_commands(self._options, report, socket.gethostname())
        told = notify(
            NotifyRun(
                routes_of(report, self._options.teams), report, self._settings, state,
                Clocks(SystemClock().now, time.sleep), say, os.environ, commands,
            )
        )  # fmt: skip
        for line in (*map(str, told.down), *(f"refused for good: {one}" for one in told.refused)):
            say(line)
        return told.failed


def _summary(found: WatchPass) -> str:
    unknown = f"; {counted(found.dark, 'subject')} without enough data" if found.dark else ""
    return (
        f"{counted(found.judged_holds, 'workload')} on {counted(len(found.live_nodes), 'node')} evaluated, data up to "
        f"{minute(found.data_end)}{unknown}"
    )
