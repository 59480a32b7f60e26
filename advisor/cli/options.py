"""Options that commands share, each group a decorator that hands one frozen dataclass to the command."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from string import ascii_letters
from typing import TYPE_CHECKING, TypeVar

from click import option

from ...agent.base.settings import parse_duration
from ...rules.base.click_commands import FILE, FOLDER, PATH, Decorator, Parsed, exclusive, format_option, into
from ...rules.base.errors import NothingToDo, UsageError
from ...rules.base.output import Progress, plain, program, say, write_stdout, write_whole
from ...rules.base.sanitize import clean, quoted
from ..core.timestamps import parse_moment, rfc3339
from ..show.reader_links import ReaderCommands

if TYPE_CHECKING:
    from sqlite_utils import Database

    from ...rules.base.output import Steps
    from ...rules.catalog.price_files import StatedPrices
    from ..api.answers import CommandOptions
    from ..core.advice_types import Fleet
    from ..core.frame import Frame
    from ..notify.routes import ReportSettings
    from ..pipeline import Reasoned
    from ..rulebook import Rulebook
    from ..show.document import Document
    from ..state.file import State
    from ..state.fleets import StateBeside
    from ..telemetry.source import Source
    from ..watch.reading import Recent

Kept = TypeVar("Kept")
SINCE = "14d"
MAX_WINDOW_DAYS = 3650  # nothing is kept for longer
# Telemetry of so long identifies its fleet (seconds): one GPU or the name of the cluster is enough.
IDENTITY_SECONDS = 3600.0
# Of watch and idle, beyond the longest limit: what separates a pause from an end lies before it.
_MARGIN_SECONDS = 1.5 * 3600.0
# How far back watch and idle follow a rest that began before, as far as advice looks by default.
_PAST_SECONDS = 14 * 86400.0
_MATCHER = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*\s*(=|!=|=~|!~)\s*"([^"\\\n]|\\.)*"', re.ASCII)
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def terminal_width(most: int = 10_000) -> int:
    """Columns to print in, at most `most`; 120 in a pipe."""
    return min(shutil.get_terminal_size((120, 24)).columns, most)


def words(*groups: SourceOptions | RulebookOptions | StateOptions, absolute: bool = False) -> str:
    """The options of some groups again, for a command to paste, quoted for a shell. `absolute`: with absolute paths."""
    parts: list[str] = []
    for group in groups:
        for field in fields(group):
            value, flag = getattr(group, field.name), f"--{field.name.replace('_', '-')}"
            for part in value if isinstance(value, tuple) else () if value in (None, False) else (value,):
                text = str(part.absolute() if absolute and isinstance(part, Path) else part)
                parts += [flag] if part is True else [flag, shlex.quote(text)]
    return " ".join(parts)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Which telemetry is read: node databases (`db`), or the server at the URL `prometheus`, of it the series that
    `match`. `jobs`: Slurm's job table; None: that of the settings."""

    db: tuple[Path, ...] = ()
    prometheus: str | None = None
    match: tuple[str, ...] = ()
    jobs: Path | None = None
    queue: Path | None = None
    no_cache: bool = False

    @property
    def unit(self) -> str:
        """What the progress of reading it counts."""
        return "databases" if self.prometheus is None else "measures"

    @property
    def is_named(self) -> bool:
        """Whether the options name a source."""
        return bool(self.db) or self.prometheus is not None

    def or_settings(self) -> SourceOptions:
        """This source, else that of the weekly report. Raises UsageError where neither is named."""
        from ..notify.routes import load_mail_settings

        if self.is_named:
            return self
        report = load_mail_settings(os.environ)
        if not report.prometheus and not report.db:
            raise UsageError("No telemetry source.", "Add --db or --prometheus, or set report.db in skuwise.toml.")
        if report.prometheus and report.db:
            raise UsageError("Both report.db and report.prometheus are set.", "Remove one of them.")
        match = (*self.match, *report.match) if report.prometheus else self.match
        return replace(self, db=tuple(report.db), prometheus=report.prometheus or None, match=match)

    def open(self, steps: Steps | None = None, *, quiet: bool = False) -> Source:
        """The source itself. `quiet`: its notes are not printed. Raises UsageError for an invalid matcher, and for
        settings of [slurm] that are invalid."""
        from ...agent.config import SlurmImportSettings, load_section
        from ...rules.base.heap import use_one_arena
        from ..telemetry.source import Databases, JobTable, PrometheusServer

        use_one_arena()
        note = (lambda _: None) if quiet else say
        slurm = load_section(SlurmImportSettings, "slurm", os.environ)
        jobs = JobTable(
            self.jobs or slurm.jobs, slurm.time_zone, slurm.cluster, note, optional=self.jobs is None,
            queue=self.queue or slurm.queue, queue_optional=self.queue is None,
        )  # fmt: skip
        if self.prometheus is None:
            if self.match:
                raise UsageError("--match requires --prometheus.", "Add --prometheus URL, or remove --match.")
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            source = Databases(self.db, cores, jobs)
        else:
            for match in self.match:
                if not _MATCHER.fullmatch(match):
                    raise UsageError(f"Invalid label matcher {match!r}.", 'Use LABEL="VALUE", or one of !=, =~, !~.')
            environ, is_cached = dict(os.environ), not self.no_cache
            source = PrometheusServer(self.prometheus, self.match, environ, note, cached=is_cached, jobs=jobs)
        return source if steps is None else replace(source, steps=steps)


@dataclass(frozen=True, slots=True)
class RulebookOptions:
    """What telemetry is judged by. `rules`: folder of site rules; `prices`: file of site prices; `gpu_hour_usd`:
    ``SKU=PRICE`` each."""

    rules: Path | None = None
    prices: Path | None = None
    gpu_hour_usd: tuple[str, ...] = ()

    def stated_prices(self) -> StatedPrices:
        """Prices by the hour of the options and of the settings. Raises UsageError."""
        from ..advise import stated_prices

        return stated_prices(self.gpu_hour_usd, os.environ)

    def load(self, now: float) -> Rulebook:
        """The rules, prices and models. `now`: Unix seconds. Raises RulesError, UsageError."""
        from ..advise import load_rulebook

        return load_rulebook(self.rules, self.prices, now, self.stated_prices())


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What is evaluated: `since` seconds of a source (0: the command decides) before `until` (Unix seconds; None: the
    newest data), and what judges it."""

    source: SourceOptions
    rulebook: RulebookOptions
    since: float = 0.0
    until: float | None = None

    def evaluate(
        self, book: Rulebook, now: float, ledger: StateBeside | None = None, **how: bool
    ) -> tuple[Frame, Reasoned]:
        """Read the window, with its progress on stderr, and make the advice on it. `how`: `with_market` and
        `keeps_rows` of `read_and_reason`."""
        from ..advise import read_and_reason

        with Progress("reading telemetry", self.source.unit) as reading:
            source, window = self.source.open(reading.step), {"since": self.since, "until": self.until}
            read = partial(reading.stage, "evaluating workloads")
            return read_and_reason(source, book, now=now, ledger=ledger, read=read, **window, **how)  # type: ignore[arg-type]

    def recent(self, book: Rulebook, now: float, longest: float, *, continued: bool = False) -> Recent:
        """The last hours, enough for a state of `longest` seconds. `continued`: what began earlier is known."""
        from ..watch.reading import read_recent

        lookback, past = longest + _MARGIN_SECONDS, 0.0 if continued else _PAST_SECONDS
        source = self.source.open()
        return read_recent(source, book, lookback_seconds=lookback, now=now, until=self.until, past_seconds=past)


@dataclass(frozen=True, slots=True)
class StateOptions:
    """The state file of a command. `state`: its path; None: that of the settings, else the fleet's own."""

    state: Path | None = None
    no_ledger: bool = False

    def again(self, telemetry: Telemetry) -> ReaderCommands:
        """How to run another command on `telemetry` with this state file; the default window is left out."""
        since, until = telemetry.since, telemetry.until
        size, unit = next(((size, unit) for size, unit in _UNITS if since % size == 0), _UNITS[-1])
        window = [f"--since {since / size:g}{unit}"] if since != parse_duration(SINCE) else []
        window += [f"--until {rfc3339(until)}"] if until is not None else []
        source, book = words(telemetry.source), words(telemetry.rulebook, self)
        return ReaderCommands(program(), source, book, window=" ".join(window))

    def named(self) -> Path | None:
        """The file that the option or the settings name; None: the fleet's own is meant."""
        from ..state.file import load_state_settings

        return self.state or load_state_settings(os.environ).file

    def beside(self) -> StateBeside:
        """The recommendations and decisions beside an advice; none with --no-ledger. Raises StoreError where they
        cannot be read."""
        from ..state.file import State, state_folder
        from ..state.fleets import StateBeside

        if self.no_ledger:
            return StateBeside(say)
        named = self.named()
        beside = StateBeside(say, State(named) if named else None, None if named else state_folder(os.environ))
        beside.entries()  # an error before the telemetry is read, which takes time
        return beside

    def of(self, fleet: Fleet) -> State:
        """The state file of a fleet, which may not exist yet. Raises UsageError where there is no folder for one,
        StoreError."""
        from ..state.file import State
        from ..state.fleets import state_of

        named = self.named()
        if named is not None:
            return State(named)
        return state_of(_home(), fleet, say)

    def to_write(self, fleet: Fleet) -> State:
        """The same, with the fleet noted in it. Raises UsageError where the named file is another fleet's."""
        from ..state.fleets import note_fleet, refuse_others

        state = self.of(fleet)
        with state.writing() as db:
            refuse_others(db, fleet, state.path)
            note_fleet(db, fleet)
        return state

    def every(
        self, read: Callable[[Database], Kept], source: SourceOptions | None = None
    ) -> list[tuple[State, str, Kept]]:
        """The state file that is named, else that of the fleet of `source`, else those of all fleets; with the name of
        its fleet for people (empty: none was noted) and what `read` finds in it. Raises NothingToDo where there is
        none, UsageError where there is no folder for one, StoreError."""
        from ..state.file import State
        from ..state.fleets import fleets_in, names_of, state_files

        path = self.named()
        if path is None and source is not None and source.is_named:
            from ...rules.catalog.loader import load_catalog
            from ..core.fleet_identity import fleet_of

            frame = source.open(quiet=True).read(load_catalog(), since=IDENTITY_SECONDS, until=None, now=time.time())
            path = self.of(fleet_of(frame)).path
        paths = state_files(_home()) if path is None else [path] if path.exists() else []
        states: list[tuple[State, str, Kept]] = []
        for state in map(State, paths):
            with state.reading() as db:
                states.append((state, names_of(fleets_in(db)), read(db)))
        if not states:
            advise = f"{program()} advise {words(source) if source else ''}".rstrip()
            raise NothingToDo(f"No state file at {clean(str(path or _home()))} yet.", f"Run '{advise}' to create one.")
        return states


def command_options(telemetry: Telemetry, state: StateOptions) -> CommandOptions:
    """The options of this run, for the commands whose documents answer other programs."""
    from ..api.answers import CommandOptions

    groups = (telemetry.source, telemetry.rulebook, state)
    source, rulebook, file = (tuple(shlex.split(words(group, absolute=True))) for group in groups)
    until = ("--until", rfc3339(telemetry.until)) if telemetry.until is not None else ()
    since = ("--since", f"{telemetry.since:.0f}s") if telemetry.since else ()
    return CommandOptions(source, (*since, *until), until, rulebook, file)


def _home() -> Path:
    from ..state.file import state_folder

    home = state_folder(os.environ)
    if home is None:
        raise UsageError("No home folder for a state file.", "Set --state PATH.")
    return home


def reader_commands(
    source: SourceOptions, rulebook: RulebookOptions, state: StateOptions, settings: ReportSettings
) -> ReaderCommands:
    """How the readers of a mail run skuwise: with this run's options, whose paths are absolute. This machine is named
    where databases are read, since a reader may sit at another one."""
    groups = (words(group, absolute=True) for group in (source, rulebook, StateOptions(state.state)))
    host = settings.command_host or (socket.gethostname() if source.db and not settings.command else "")
    return ReaderCommands(settings.command or program(anywhere=True), *groups, host=host)


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The format `form` of a command's result, and the file it goes to; None: stdout."""

    form: str
    output: Path | None = None

    @property
    def color(self) -> bool:
        """Whether the result goes to a terminal that takes colors, without NO_COLOR and SKUWISE_PLAIN."""
        refused = os.environ.get("TERM") == "dumb" or os.environ.get("NO_COLOR") or plain()
        return self.output is None and sys.stdout.isatty() and not refused

    def write(self, content: str | Document, width: int | None = None) -> None:
        """Write the result, with a note where it went to a file; a page in the format HTML, Markdown or, `width`
        columns wide, as text."""
        if isinstance(content, str):
            pass
        elif self.form == "html":
            from ..show.writers.html import page_html

            content = page_html(content)
        elif self.form == "markdown":
            from ..show.writers.markdown import document_markdown

            content = document_markdown(content)
        else:
            from ..show.writers.text import document_text

            content = document_text(content, width=width or terminal_width(), color=self.color)
        if self.output is None:
            write_stdout(content)
        else:
            write_whole(self.output, content)
            say(f"written to {clean(str(self.output))}")


def _duration(text: str) -> float:
    seconds = parse_duration(text)
    if seconds > MAX_WINDOW_DAYS * 86400:
        raise UsageError(f"{text} is longer than {MAX_WINDOW_DAYS} days.", "Choose a shorter window.")
    return seconds


def number(
    metavar: str, use: str, low: float, high: float, *, kind: type = float, units: Mapping[str, float] = {"": 1}
) -> Parsed:
    """The type of a number from `low` to `high`, with one of `units` behind it. `use`: what its error asks for."""

    def parse(text: str) -> float:
        digits = text.strip().rstrip(f"{ascii_letters}%")
        try:
            value = kind(digits) * units[text.strip().removeprefix(digits).lower()]
        except (ValueError, KeyError):
            value = math.nan
        if not (low <= value <= high and math.isfinite(value)):
            raise UsageError(f"{quoted(text)}.", f"Use {use}.")
        return value

    return Parsed(parse, metavar)


DURATION, MOMENT = Parsed(_duration, "DURATION"), Parsed(parse_moment, "TIME")
SEED = number("N", "a whole number, 0 or more", 0, 10**18, kind=int)

_source = (
    option("--db", type=PATH, multiple=True, help="database, or folder of node databases; repeatable"),
    option("--prometheus", metavar="URL", help="server with the Prometheus API (settings: section [prometheus])"),
    option("--match", multiple=True, metavar='LABEL="V"', help="only series with this label; repeatable"),
)
_source_files = (
    option("--no-cache", is_flag=True, help="neither read nor write the cache of answers and of the last look"),
    option("--jobs", type=FILE, help="Slurm's job table, of sacct --parsable2 (default: setting slurm.jobs)"),
    option("--queue", type=FILE, help="Slurm's queue, of squeue --all --json (default: setting slurm.queue)"),
)
# The telemetry of the fleet that is meant, as the argument `source`.
fleet_options = into("source", SourceOptions, *_source)


def source_options(*, required: bool = True) -> Decorator:
    """The telemetry, as the argument `source`. `required` False: the options may name none."""

    def check(source: SourceOptions) -> None:
        exclusive(required, db=source.db, prometheus=source.prometheus)

    return into("source", SourceOptions, *_source, *_source_files, check=check)


def rules_option(overridden: str = "ones") -> Decorator:
    """``--rules``, as the argument `rules`. `overridden`: what the site's files override."""
    return option("--rules", type=FOLDER, help=f"folder of site rules, which override the built-in {overridden}")


# Rules and prices, as the argument `rulebook`.
rulebook_options = into(
    "rulebook",
    RulebookOptions,
    rules_option(),
    option("--prices", type=FILE, help="price file of your site; takes precedence over list prices"),
    option("--gpu-hour-usd", multiple=True, metavar="SKU=PRICE", help="USD per GPU-hour: H100-SXM5=2.10; repeatable"),
)


def telemetry_options(*, required: bool = True, since: str | None = SINCE) -> Decorator:
    """Source, window, rules and prices, as the argument `telemetry`. `since`: the default length of the window; None:
    the command has no such option."""
    text = f"length of the time window, as in 24h or 14d (default: {since})"
    window = [option("--since", type=DURATION, default=since, help=text)] if since else []
    window.append(option("--until", type=MOMENT, help="end of the window, RFC 3339 in UTC (default: the newest data)"))
    return into("telemetry", Telemetry, source_options(required=required), *window, rulebook_options)


def output_options(*formats: str) -> Decorator:
    """``--format`` (the first is the default) and ``--output``, as the argument `output`."""
    output = option("--output", type=FILE, help="write to FILE instead of stdout, all or nothing")
    return into("output", OutputOptions, format_option(*formats), output)


def state_options(*, optional: bool = False) -> Decorator:
    """``--state``, also called ``--ledger``, as the argument `state`. `optional`: with --no-ledger for a command that
    can do without."""
    text = "state file (default: file in [state] of skuwise.toml, else the fleet's in $XDG_STATE_HOME/skuwise)"
    path = option("--state", "--ledger", "state", type=PATH, help=text)
    without = option("--no-ledger", is_flag=True, help="show no decisions and record no recommendations")

    def check(state: StateOptions) -> None:
        exclusive(state=state.state, no_ledger=state.no_ledger)

    return into("state", StateOptions, path, *([without] if optional else []), check=check)
