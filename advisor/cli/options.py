"""Options that commands share. Each group is a decorator that hands one frozen dataclass to the command."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_letters
from typing import TYPE_CHECKING

import click

from ...agent.base.durations import parse_duration
from ...rules.base.click_commands import FILE, FOLDER, PATH, Decorator, Parsed, exclusive, format_option, into
from ...rules.base.errors import UsageError
from ...rules.base.output import say, write_output
from ...rules.base.progress import Progress, progress
from ...rules.base.sanitize import quoted
from ..core.timestamps import parse_moment, rfc3339
from .output import cores, wants_color

if TYPE_CHECKING:
    from ...rules.base.progress import Steps
    from ...rules.catalog.hour_prices import StatedPrices
    from ..core.frame import Frame
    from ..pipeline import Reasoned
    from ..rulebook import Rulebook
    from ..state.beside import StateBeside
    from ..telemetry.source import Source

SINCE = "14d"
MAX_WINDOW_DAYS = 3650  # nothing is kept for longer
# Of watch and idle, beyond the longest limit: what separates a pause from an end lies before it.
MARGIN_SECONDS = 1.5 * 3600.0
# How far back watch and idle follow a rest that began before, as far as advice looks by default.
PAST_SECONDS = 14 * 86400.0
_MATCHER = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*\s*(=|!=|=~|!~)\s*"([^"\\\n]|\\.)*"', re.ASCII)
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def flags(name: str, values: Iterable[object]) -> list[str]:
    """``--name VALUE`` for each value that is set, quoted for a shell."""
    return [f"{name} {shlex.quote(str(value))}" for value in values if value is not None]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Which telemetry is read: node databases (`db`), or the server at the URL `prometheus`, of it the series that
    `match`. `jobs`: Slurm's job table; None: that of the settings."""

    db: tuple[Path, ...] = ()
    prometheus: str | None = None
    match: tuple[str, ...] = ()
    jobs: Path | None = None
    no_cache: bool = False

    @property
    def is_named(self) -> bool:
        """Whether the options name a source."""
        return bool(self.db) or self.prometheus is not None

    def words(self) -> str:
        """The options that name the source again, for a command to paste."""
        source = flags("--prometheus", [self.prometheus]) + flags("--match", self.match)
        return " ".join([*(flags("--db", self.db) or source), *flags("--jobs", [self.jobs])])

    def or_settings(self) -> SourceOptions:
        """This source, else that of the weekly report. Raises UsageError where neither is named."""
        from ..notify.settings import load_mail_settings

        if self.is_named:
            return self
        report = load_mail_settings(os.environ)
        if not report.prometheus and not report.db:
            raise UsageError(
                "No telemetry source.", "Add --db PATH or --prometheus URL, or set report.db in skuwise.toml."
            )
        if report.prometheus and report.db:
            raise UsageError("Both report.db and report.prometheus are set.", "Remove one of them.")
        match = (*self.match, *report.match) if report.prometheus else self.match
        return replace(self, db=tuple(report.db), prometheus=report.prometheus or None, match=match)

    def reading(self) -> Progress:
        """Progress of reading it, on stderr."""
        return progress("reading telemetry", "databases" if self.prometheus is None else "measures")

    def open(self, steps: Steps | None = None, *, quiet: bool = False) -> Source:
        """The source itself. `quiet`: its notes are not printed. Raises UsageError for an invalid matcher, and for
        settings of [slurm] that are invalid."""
        from ...agent.slurm_jobs.settings import load_slurm_settings
        from ...rules.base.heap import use_one_arena
        from ..telemetry.source import Databases, JobTable, PrometheusServer

        use_one_arena()
        note = (lambda _: None) if quiet else say
        slurm = load_slurm_settings(os.environ)
        jobs = JobTable(self.jobs or slurm.jobs, slurm.time_zone, slurm.cluster, note, optional=self.jobs is None)
        if self.prometheus is None:
            if self.match:
                raise UsageError("--match requires --prometheus.", "Add --prometheus URL, or remove --match.")
            source = Databases(self.db, cores(), jobs)
        else:
            for match in self.match:
                if not _MATCHER.fullmatch(match):
                    raise UsageError(
                        f"Invalid label matcher {match!r}.", 'Use LABEL="VALUE", or one of the operators !=, =~, !~.'
                    )
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

    def words(self) -> list[str]:
        """The options again, for a command to paste."""
        files = flags("--rules", [self.rules]) + flags("--prices", [self.prices])
        return files + flags("--gpu-hour-usd", self.gpu_hour_usd)

    def stated_prices(self) -> StatedPrices:
        """Prices by the hour of the options and of the settings. Raises UsageError."""
        from .price_settings import stated_prices

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

    def words(self) -> list[str]:
        """The options again, for a command to paste; the default window is left out."""
        size, unit = next(((size, unit) for size, unit in _UNITS if self.since % size == 0), _UNITS[-1])
        since = None if self.since == parse_duration(SINCE) else f"{self.since / size:g}{unit}"
        until = None if self.until is None else rfc3339(self.until)
        window = flags("--since", [since]) + flags("--until", [until])
        return [self.source.words(), *window, *self.rulebook.words()]

    def evaluate(
        self, book: Rulebook, now: float, reading: Progress, ledger: StateBeside | None = None, **how: bool
    ) -> tuple[Frame, Reasoned]:
        """Read the window and make the advice on it. `how`: `with_market` and `keeps_rows` of `read_and_reason`."""
        from ..advise import read_and_reason

        def begin() -> None:
            reading.stage("evaluating workloads")

        source, window = self.source.open(reading.step), {"since": self.since, "until": self.until}
        return read_and_reason(source, book, now=now, ledger=ledger, read=begin, **window, **how)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The format `form` of a command's result, and the file it goes to; None: stdout."""

    form: str
    output: Path | None = None

    @property
    def color(self) -> bool:
        """Whether the result goes to a terminal that takes colors."""
        return self.output is None and wants_color()

    def write(self, text: str, done: str = "written to {output}") -> None:
        """Write the result. `done`: the note on stderr where it went to a file."""
        write_output(text, self.output, done)


def duration(text: str) -> float:
    """A length of time (``2h``), seconds. Raises UsageError."""
    seconds = parse_duration(text)
    if seconds > MAX_WINDOW_DAYS * 86400:
        raise UsageError(f"{text} is longer than {MAX_WINDOW_DAYS} days.", "Choose a shorter window.")
    return seconds


def moment(text: str) -> float:
    """A moment, Unix seconds. Raises UsageError."""
    ts = parse_moment(text)
    if ts < 0:
        raise UsageError(f"{text} is before 1970.", "Choose a later time.")
    return ts


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


DURATION, MOMENT = Parsed(duration, "DURATION"), Parsed(moment, "TIME")
SEED = number("N", "a whole number", -(10**18), 10**18, kind=int)

_source = (
    click.option("--db", type=PATH, multiple=True, help="database, or folder of node databases; repeatable"),
    click.option("--prometheus", metavar="URL", help="server with the Prometheus API (settings: section [prometheus])"),
    click.option(
        "--match", multiple=True, metavar='LABEL="V"', help="only series of the server with this label; repeatable"
    ),
)
_no_cache = click.option(
    "--no-cache", is_flag=True, help="neither read nor write the cache of answers and of the last look"
)
_jobs = click.option("--jobs", type=FILE, help="Slurm's job table, of sacct --parsable2 (default: setting slurm.jobs)")


def source_options(*, required: bool = True) -> Decorator:
    """The telemetry, as the argument `source`. `required` False: the options may name none."""

    def check(source: SourceOptions) -> None:
        exclusive(required, db=source.db, prometheus=source.prometheus)

    return into("source", SourceOptions, *_source, _no_cache, _jobs, check=check)


# The telemetry of the fleet that is meant, as the argument `source`.
fleet_options = into("source", SourceOptions, *_source)


def rules_option(overridden: str = "ones") -> Decorator:
    """``--rules``, as the argument `rules`. `overridden`: what the site's files override."""
    text = f"folder of site rules, which override the built-in {overridden}"
    return click.option("--rules", type=FOLDER, help=text)


gpu_hour_option = click.option(
    "--gpu-hour-usd",
    multiple=True,
    metavar="SKU=PRICE",
    help="US dollars per GPU-hour, as in H100-SXM5=2.10; repeatable",
)
_prices = click.option("--prices", type=FILE, help="price file of your site; takes precedence over list prices")
# Rules and prices, as the argument `rulebook`.
rulebook_options = into("rulebook", RulebookOptions, rules_option(), _prices, gpu_hour_option)


def telemetry_options(*, required: bool = True, since: str | None = SINCE) -> Decorator:
    """Source, window, rules and prices, as the argument `telemetry`. `since`: the default length of the window; None:
    the command has no such option."""
    text = f"length of the time window, as in 24h or 14d (default: {since})"
    window = [click.option("--since", type=DURATION, default=since, help=text)] if since else []
    window.append(
        click.option("--until", type=MOMENT, help="end of the window, RFC 3339 in UTC (default: the newest data)")
    )
    return into("telemetry", Telemetry, source_options(required=required), *window, rulebook_options)


output_option = click.option("--output", type=FILE, help="write to FILE instead of stdout, all or nothing")


def output_options(*formats: str) -> Decorator:
    """``--format`` (the first is the default) and ``--output``, as the argument `output`."""
    return into("output", OutputOptions, format_option(*formats), output_option)
