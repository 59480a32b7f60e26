"""Which telemetry a command reads: node databases, or a server of Prometheus' API; exactly one of the two."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.progress import Steps, no_steps
from .cache_folder import cache_folder
from .sqlite.database_files import database_files

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from ...agent.base.slurm_job import SlurmJob
    from ...rules.catalog.loader import Catalog
    from ..core.frame import Frame
    from ..core.recent import Recent
    from ..rulebook import Rulebook
    from .prometheus.reader import ServerReading

_MATCHER = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*\s*(=|!=|=~|!~)\s*"([^"\\\n]|\\.)*"', re.ASCII)

# How many files are asked for some GPUs: the first may be of a node without any, or of a new one; each takes some ms.
_MOST_ASKED = 100


@dataclass(frozen=True, slots=True)
class JobTable:
    """Slurm's job table beside the telemetry. `path`: None: there is none but the databases' own. `optional`: it comes
    from the settings, and where it is not there yet, advice goes on without it."""

    path: Path | None = None
    time_zone: ZoneInfo | None = None
    cluster: str | None = None
    say: Callable[[str], None] = lambda _: None
    optional: bool = False

    def join(self, frame: Frame) -> Frame:
        """The frame with names, owners and exact times of its Slurm jobs. Raises SkuwiseError where the file that was
        named is none."""
        from .job_table import job_numbers_of, numbers_in, with_jobs  # noqa: PLC0415

        wanted, window = job_numbers_of(frame), frame.window

        def is_wanted(job: SlurmJob) -> bool:
            return (
                job.started < window.end
                and (job.ended is None or job.ended > window.start)
                and not wanted.isdisjoint(numbers_in(job))
            )

        return with_jobs(frame, self.read(is_wanted), cluster=self.cluster)

    def asked_as(self) -> tuple[object, ...]:
        """What decides which jobs it tells."""
        return (self.path, self.time_zone, self.cluster)

    def read(self, keep: Callable[[SlurmJob], bool]) -> list[SlurmJob]:
        """The runs of the file that are to be kept; what cannot be read is said. Raises as `join` does."""
        from ...agent.slurm_jobs.table_file import read_job_table  # noqa: PLC0415

        if self.path is None:
            return []
        try:
            found = read_job_table(self.path, zone=self.time_zone, keep=keep)
        except SkuwiseError as error:
            if not self.optional:
                raise
            self.say(f"Slurm job table not used: {error}")
            return []
        for line in found.warnings():
            self.say(line)
        return list(found.jobs.values())


@dataclass(frozen=True)
class Databases:
    """Files, or folders of them. `processes`: how many may read many files side by side; `steps`: files read."""

    paths: tuple[Path, ...]
    processes: int = 1
    jobs: JobTable = field(default_factory=JobTable)
    steps: Steps = no_steps

    def read(self, catalog: Catalog, *, since: float, until: float | None, now: float) -> Frame:  # noqa: ARG002
        """The frame of a window: `since` seconds up to `until` (None: the newest data)."""
        from .sqlite.reader import read_frame  # noqa: PLC0415

        frame = read_frame(
            self.paths, since_seconds=since, until=until, now=now, processes=self.processes, steps=self.steps
        )
        return self.jobs.join(frame)

    def recent(self, book: Rulebook, *, lookback_seconds: float, now: float, until: float | None = None) -> Recent:
        """The last `lookback_seconds` of the fleet, for the watch."""
        from .recent.sqlite import read_recent  # noqa: PLC0415

        return read_recent(
            self.paths, book.catalog, book.kind_priors, lookback_seconds=lookback_seconds, now=now, until=until,
            processes=self.processes, join_jobs=self.jobs.join,
        )  # fmt: skip

    def knows(self, gpus: Collection[str], at: float) -> bool:  # noqa: ARG002 - a file tells of all that it ever saw
        """Whether a file that can be read tells of one of these GPUs, by their UUIDs; many files are not all asked.
        Raises SkuwiseError where none can be read."""
        from ...agent.store.reading import queries  # noqa: PLC0415
        from .sqlite.opening import open_database  # noqa: PLC0415

        files = database_files(self.paths)[:_MOST_ASKED]
        problems: list[SkuwiseError] = []
        for path in files:
            try:
                with open_database(path) as reader:
                    told = {str(row[0]) for row in reader.fetch(queries.GPUS_SEEN)}
            except SkuwiseError as error:
                problems.append(error)
                continue
            if not told.isdisjoint(gpus):
                return True
        if len(problems) == len(files):
            raise problems[0]
        return False

    def asked_as(self) -> tuple[object, ...]:
        """What, beside the files, decides what they tell."""
        return self.jobs.asked_as()

    def newest(self, now: float) -> float | None:
        """The end of the newest data by the clocks of the nodes (Unix seconds); None: there is none, or all of it is
        later than `now`. A node whose clock is ahead tells nothing."""
        from .sqlite.reader import CLOCK_TOLERANCE_SECONDS, file_spans  # noqa: PLC0415

        spans = file_spans(database_files(self.paths)).spans
        ends = (span[1] for span in spans.values() if span is not None)
        return max((end for end in ends if end <= now + CLOCK_TOLERANCE_SECONDS), default=None)


@dataclass(frozen=True)
class PrometheusServer:
    """A server. `matches`: label matchers of every query; `environ`: where settings and credentials are named.
    `cached`: whether answers of earlier runs are used, and this run's kept. `steps`: measures read."""

    url: str
    matches: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[str], None] = lambda _: None
    cached: bool = True
    jobs: JobTable = field(default_factory=JobTable)
    steps: Steps = no_steps

    def read(self, catalog: Catalog, *, since: float, until: float | None, now: float) -> Frame:
        """The frame of a window: `since` seconds up to `until` (None: the newest data)."""
        from .prometheus.reader import read_frame  # noqa: PLC0415

        with self._reading(now) as reading:
            return self.jobs.join(read_frame(reading, catalog, since_seconds=since, until=until))

    def recent(self, book: Rulebook, *, lookback_seconds: float, now: float, until: float | None = None) -> Recent:
        """The last `lookback_seconds` of the fleet, for the watch."""
        from .recent.prometheus import read_recent  # noqa: PLC0415

        with self._reading(now) as reading:
            return read_recent(
                reading, book.catalog, book.kind_priors, lookback_seconds=lookback_seconds, until=until,
                join_jobs=self.jobs.join,
            )  # fmt: skip

    @contextmanager
    def _reading(self, now: float) -> Iterator[ServerReading]:
        """How the server is read, by its settings."""
        from ...agent.config import load_config  # noqa: PLC0415
        from .prometheus.client.cache import Cache  # noqa: PLC0415
        from .prometheus.client.client import Client  # noqa: PLC0415
        from .prometheus.reader import ServerReading  # noqa: PLC0415
        from .prometheus.settings import load_prometheus_settings  # noqa: PLC0415
        from .teams import load_team_labels  # noqa: PLC0415

        settings = load_prometheus_settings(self.environ)
        client = Client(self.url, settings, self.environ)
        try:
            scope = f"{client.url}\n{settings.identity!r}"
            folder = cache_folder(settings.cache, self.environ, "prometheus") if self.cached else None
            yield ServerReading(
                client, Cache(folder, scope), self.matches, now,
                concurrency=settings.concurrency, max_series=settings.max_series,
                fabric_roles=load_config({}, self.environ).fabric_roles, team_labels=load_team_labels(self.environ),
                progress=self.progress, steps=self.steps,
            )  # fmt: skip
        finally:
            client.close()

    def knows(self, gpus: Collection[str], at: float) -> bool:
        """Whether the server tells of one of these GPUs at a moment (Unix seconds). Raises SkuwiseError."""
        from .prometheus.rows.identity import gpus_at  # noqa: PLC0415

        with self._reading(at) as reading:
            return not gpus_at(reading.client, self.matches, at).isdisjoint(gpus)

    def asked_as(self) -> tuple[object, ...]:
        """What, beside its address and the matchers, decides what it tells: who asks, by the settings. Raises
        SkuwiseError where they cannot be."""
        from .prometheus.settings import load_prometheus_settings  # noqa: PLC0415

        return (load_prometheus_settings(self.environ).identity, *self.jobs.asked_as())

    def newest(self, now: float) -> float | None:  # noqa: ARG002 - the server has a clock of its own
        """What time it is by the server's clock (Unix seconds); None: it does not tell."""
        from .prometheus.client.client import Client  # noqa: PLC0415
        from .prometheus.settings import load_prometheus_settings  # noqa: PLC0415

        client = Client(self.url, load_prometheus_settings(self.environ), self.environ)
        try:
            return client.clock()
        finally:
            client.close()


Source = Databases | PrometheusServer


def add_source_choice(parser: argparse.ArgumentParser, *, required: bool = True) -> argparse._MutuallyExclusiveGroup:
    """The options --db and --prometheus, of which one is needed, and --match and --no-cache. Gives the choice, for
    others to join.

    `required` False: where neither is given, something else says what is read.
    """
    choice = parser.add_mutually_exclusive_group(required=required)
    choice.add_argument(
        "--db", action="append", type=Path, metavar="PATH",
        help="database, or folder of node databases (repeatable)",
    )  # fmt: skip
    choice.add_argument(
        "--prometheus", metavar="URL",
        help=("URL of a server with the Prometheus API (connection settings: section [prometheus] of "
                "skuwise.toml)"),
    )  # fmt: skip
    parser.add_argument(
        "--match", action="append", default=[], metavar="LABEL=\"V\"",
        help='with --prometheus: read only time series with this label, for example cluster="eu" (repeatable)',
    )  # fmt: skip
    parser.add_argument(
        "--no-cache", action="store_true",
        help="neither read nor write the cache of answers and of the last look",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=Path, metavar="FILE",
        help=("Slurm's job table as written by sacct --parsable2, for names, owners and times (default: "
                "setting slurm.jobs)"),
    )  # fmt: skip
    return choice


def source_of(options: argparse.Namespace, progress: Callable[[str], None], processes: int) -> Source:
    """The source that the options name. `progress`: notes on the way; `processes`: how many may read databases.

    Raises UsageError for an invalid matcher.
    """
    jobs = job_table(options.jobs, os.environ, progress)
    if options.prometheus is None:
        if options.match:
            raise UsageError("--match requires --prometheus.", "Add --prometheus URL, or remove --match.")
        return Databases(tuple(options.db), processes, jobs)
    for match in options.match:
        if not _MATCHER.fullmatch(match):
            raise UsageError(
                f"Invalid label matcher {match!r}.", 'Use LABEL="VALUE", or one of the operators !=, =~, !~.'
            )
    return PrometheusServer(
        options.prometheus,
        tuple(options.match),
        dict(os.environ),
        progress,
        cached=not options.no_cache,
        jobs=jobs,
    )


def job_table(named: Path | None, environ: Mapping[str, str], say: Callable[[str], None]) -> JobTable:
    """The job table that --jobs names, else the settings. Raises UsageError for settings that cannot be."""
    from ...agent.slurm_jobs.settings import load_slurm_settings  # noqa: PLC0415

    settings = load_slurm_settings(environ)
    return JobTable(named or settings.jobs, settings.time_zone, settings.cluster, say, optional=named is None)


def source_arguments(options: argparse.Namespace) -> str:
    """The options that name the source again, for a command line that somebody may copy."""
    jobs = [] if options.jobs is None else [f"--jobs {shlex.quote(str(options.jobs))}"]
    if options.prometheus is None:
        return " ".join([*(f"--db {shlex.quote(str(path))}" for path in options.db), *jobs])
    matches = [f"--match {shlex.quote(match)}" for match in options.match]
    return " ".join([f"--prometheus {shlex.quote(options.prometheus)}", *matches, *jobs])
