"""``skuwise watch``: incidents of today, kept on disk, with notifications to the teams concerned."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from click import option

from ...rules.base.click_commands import FILE, command, format_option
from ...rules.base.errors import EXIT_DONE, EXIT_FAILED, SkuwiseError, UsageError
from ...rules.base.output import say, write_json, write_stdout
from ...rules.base.sanitize import clean
from ..core.timestamps import minute, rfc3339
from . import options

if TYPE_CHECKING:
    from ..core.incident_types import Advance, WatchPass
    from ..state.file import State
    from ..watch.settings import WatchSettings


@command(
    "skuwise watch --db /var/lib/skuwise",
    "skuwise watch --prometheus http://localhost:9090 --once",
    "skuwise watch --prometheus http://localhost:9090 --teams teams.toml --send",
)
@options.telemetry_options(required=False, since=None)
@options.state_options()
@option("--once", is_flag=True, help="evaluate once and exit, for cron (default: keep watching)")
@option("--every", type=options.DURATION, help="time between two evaluations, 1m to 1h (default: watch.every, 5m)")
@option("--teams", type=FILE, help="TOML file with teams, matchers and recipients (default: report.teams)")
@option("--send", is_flag=True, help="send notifications (default: watch.send; without it, print what would be sent)")
@format_option("table", "json")
def watch(
    telemetry: options.Telemetry,
    state: options.StateOptions,
    once: bool,
    every: float | None,
    teams: Path | None,
    send: bool,
    form: str,
) -> int:
    """Report held idle GPUs, hangs and dead telemetry as they happen."""
    from ..watch.settings import load_watch_settings

    if every is not None and not 60 <= every <= 3600:
        raise UsageError("--every is out of range.", "Use 1m to 1h.")
    settings = load_watch_settings(os.environ)
    every = every or settings.every_seconds
    settings = replace(settings, every_seconds=every, send=send or settings.send)
    with ExitStack() as lock:
        watcher = _Watcher(replace(telemetry, source=telemetry.source.or_settings()), state, teams, settings, lock)
        if not once:
            return _repeat(watcher, every)
        file, watched, _ = watcher.evaluate()
        failed = watcher.notify(file)
        _print(file, watched, form)
        return EXIT_FAILED if failed else EXIT_DONE


def _repeat(watcher: _Watcher, every: float) -> int:
    """A pass each `every` seconds until SIGTERM or SIGINT; one that fails is repeated at the next turn. Raises
    InUseError where another watch holds the fleet's file."""
    from ...agent.base.clock import Signals, SystemClock
    from ..state.file import InUseError

    with closing(Signals(SystemClock())) as stop:
        say(f"watching every {every / 60:g} min")
        while True:
            began = time.monotonic()
            try:
                file, watched, advanced = watcher.evaluate()
                changed = {incident.id: incident for incident in advanced.incidents}
                for event in advanced.events:
                    say(clean(f"{event.kind}: {changed[event.incident_id].sighting.text.text}"))
                say(f"{_summary(watched)}; incidents in {clean(str(file.path))}")
                watcher.notify(file)
            except InUseError:
                raise
            except SkuwiseError as error:
                say(f"this pass failed, and is repeated in {every / 60:g} min: {error}")
            if stop.wait(max(every - (time.monotonic() - began), 1.0)):
                say("stopping")
                return EXIT_DONE


@dataclass
class _Watcher:
    """One watch of a fleet. `lock`: keeps other watches of the fleet out, from the first pass on, which shows whose
    telemetry it is; `file`: the fleet's state file, None before."""

    telemetry: options.Telemetry
    state: options.StateOptions
    teams: Path | None
    settings: WatchSettings
    lock: ExitStack
    file: State | None = None

    def evaluate(self) -> tuple[State, WatchPass, Advance]:
        """One pass, whose incidents are kept. Raises SkuwiseError where the source or the state file cannot be read,
        InUseError where another watch holds the fleet's file."""
        from ...rules.base.heap import give_back
        from ...rules.policy.thresholds import load_levels
        from ..state.incidents import commit, current
        from ..watch.fleet import Criteria
        from ..watch.rules import evaluate
        from ..watch.transitions import advance

        now = time.time()
        # Rules and prices are read each time, so that a changed file counts at the next pass.
        book, rules = self.telemetry.rulebook.load(now), load_levels("watch.yaml", self.telemetry.rulebook.rules)
        # An incident keeps its beginning, so that only the first pass needs the hours before.
        longest, continued = self.settings.longest_limit_seconds, self.file is not None
        recent = self.telemetry.recent(book, now, longest, continued=continued)
        give_back()
        watched = evaluate(recent, Criteria(self.settings.limit_seconds, rules, book))
        file = self.state.to_write(recent.fleet)
        if file != self.file:
            self.lock.enter_context(file.alone("Another skuwise watch", lock="watch"))
            self.file = file
        with file.writing() as db:
            advanced = advance(current(db), watched, self.settings)
            commit(db, advanced)
        return file, watched, advanced

    def notify(self, file: State) -> bool:
        """Notify people of what is new. Returns whether something failed; the failures are printed."""
        from ..notify.incidents import NotifyRun, notify
        from ..notify.routes import load_mail_settings, routes_of
        from ..notify.sending import Clocks

        report = load_mail_settings(os.environ)
        routes = routes_of(report, self.teams)
        commands = options.reader_commands(self.telemetry.source, self.telemetry.rulebook, self.state, report)
        sent = notify(NotifyRun(routes, report, self.settings, file, Clocks(), say, os.environ, commands))
        for line in (*map(str, sent.down), *(f"refused for good: {address}" for address in sent.refused)):
            say(line)
        return sent.failed


def _print(file: State, watched: WatchPass, form: str) -> None:
    from ..core.advice_json import plain
    from ..show.incident_words import as_dict, as_table, urgency
    from ..state.incidents import listed

    with file.reading() as db:
        incidents = sorted(listed(db), key=urgency)
    if form != "json":
        write_stdout(f"{_summary(watched)}\n{as_table(incidents, 0, watched.now)}")
        return
    times = {"evaluated_at": rfc3339(watched.now), "data_end": rfc3339(watched.data_end)}
    counts = {"workloads": watched.judged_holds, "without_data": watched.dark, "nodes": len(watched.live_nodes)}
    rows = {"incidents": [as_dict(incident, watched.now) for incident in incidents], "notes": plain(watched.notes)}
    write_json({"schema": "skuwise.watch/1", **times, **counts, **rows})


def _summary(watched: WatchPass) -> str:
    from ..core.formatting import counted

    dark, nodes = watched.dark, counted(len(watched.live_nodes), "node")
    unknown = f"; {counted(dark, 'subject')} without enough data" if dark else ""
    data_end = minute(watched.data_end)
    return f"{counted(watched.judged_holds, 'workload')} on {nodes} evaluated, data up to {data_end}{unknown}"
