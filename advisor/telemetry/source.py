"""Which telemetry a command reads: node databases, or a server of Prometheus' API; both give the same frame."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...rules.base.errors import SkuwiseError, SourceError
from ...rules.base.output import Steps, no_steps
from ..core.cache_folder import cache_folder

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from ...agent.model import SlurmJob
    from ...rules.catalog.loader import Catalog
    from ..core.frame import Frame
    from .prometheus.reader import ServerReading

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class JobTable:
    """Slurm's job table beside the telemetry, and its `queue`, of ``squeue --json``. `path`: None: there is none but
    the databases' own. `optional`, `queue_optional`: where it is not there yet, advice goes on without it. Its `repr`
    says which jobs it gives."""

    path: Path | None = None
    time_zone: ZoneInfo | None = None
    cluster: str | None = None
    say: Callable[[str], None] = field(default=lambda _: None, repr=False)
    optional: bool = False
    queue: Path | None = None
    queue_optional: bool = False

    def join(self, frame: Frame) -> Frame:
        """The frame with names, owners and exact times of its Slurm jobs. Raises SkuwiseError for no job table."""
        from ...agent.slurm_jobs.read_jobs import read_job_table  # noqa: PLC0415
        from .job_table import job_names, slurm_rows, with_jobs  # noqa: PLC0415

        if self.path is None:
            return with_jobs(frame)
        names = {name for row in slurm_rows(frame) for name in job_names(row)}
        window = frame.window

        def is_wanted(job: SlurmJob) -> bool:
            is_in_window = job.started_at < window.end and (job.ended_at is None or job.ended_at > window.start)
            return is_in_window and not names.isdisjoint(job_names(job))

        try:
            job_table = read_job_table(self.path, zone=self.time_zone, keep=is_wanted)
        except SkuwiseError as error:
            if not self.optional:
                raise
            self.say(f"Slurm job table not used: {error}")
            return with_jobs(frame)
        for line in job_table.warnings():
            self.say(line)
        return with_jobs(frame, job_table.jobs.values(), cluster=self.cluster)

    def with_queue(self, frame: Frame) -> Frame:
        """The frame, of the whole fleet, with Slurm's queue. Raises SkuwiseError for no queue."""
        if self.queue is None:
            return frame
        from ...agent.slurm_jobs.queue import read_squeue  # noqa: PLC0415
        from .waiting import with_queue  # noqa: PLC0415

        try:
            queue = read_squeue(self.queue)
        except SkuwiseError as error:
            if not self.queue_optional:
                raise
            self.say(f"Slurm's queue not used: {error}")
            return frame
        for line in queue.warnings:
            self.say(line)
        return with_queue(frame, queue, cluster=self.cluster)


@dataclass(frozen=True)
class Databases:
    """Files, or folders of them. `processes`: how many may read many files side by side; `steps`: files read."""

    paths: tuple[Path, ...]
    processes: int = 1
    jobs: JobTable = field(default_factory=JobTable)
    steps: Steps = no_steps

    def read(
        self, catalog: Catalog, *, since: float, until: float | None, now: float,  # noqa: ARG002 - GPUs have names
        resolution: float = HOUR, wanted_gpus: Collection[str] = (),
    ) -> Frame:  # fmt: skip
        """The frame of a window: `since` seconds up to `until` (None: the newest data), in rows of `resolution`
        seconds: 3600 (minutes at the edges of work), 300 or 60. `wanted_gpus`: ids of those of which rows longer than
        a minute are read; empty: of all. Rows below an hour, and hours of certain GPUs, have what the watch needs."""
        from .sqlite.reader import read_frame  # noqa: PLC0415

        frame = read_frame(
            self.paths, since_seconds=since, until=until, now=now, processes=self.processes, steps=self.steps,
            resolution=resolution, wanted=wanted_gpus if wanted_gpus or resolution < HOUR else None,
        )  # fmt: skip
        frame = self.jobs.join(frame)
        return frame if resolution < HOUR else self.jobs.with_queue(frame)

    def read_groups(self, catalog: Catalog, *, since: float, until: float | None, now: float) -> Iterator[Frame]:
        """The frame of a window, group by group of nodes where it is large (`core/frame.py`)."""
        from ..core.frame import parts_of  # noqa: PLC0415

        return parts_of(self.read(catalog, since=since, until=until, now=now))

    def knows(self, gpus: Collection[str], at: float) -> bool:  # noqa: ARG002 - a file lists every GPU it ever had
        """Whether a file lists one of these GPUs, by their UUIDs."""
        from . import queries  # noqa: PLC0415
        from .sqlite.database import database_files, open_database  # noqa: PLC0415

        for path in database_files(self.paths):
            with suppress(SkuwiseError), open_database(path) as reader:
                if any(row[0] in gpus for row in reader.fetch(queries.GPUS_SEEN)):
                    return True
        return False

    def newest(self, now: float) -> float | None:
        """The end of the newest data by the clocks of the nodes (Unix seconds); None: none of it is before `now`."""
        from .sqlite.database import database_files  # noqa: PLC0415
        from .sqlite.reader import CLOCK_TOLERANCE_SECONDS, file_spans  # noqa: PLC0415

        spans, _, _ = file_spans(database_files(self.paths))
        return max((end for _, end in spans.values() if end <= now + CLOCK_TOLERANCE_SECONDS), default=None)


@dataclass(frozen=True)
class PrometheusServer:
    """`matches`: label matchers of every query; `environ`: where settings and credentials are named; `cached`: whether
    answers of earlier runs are used, and this run's kept; `steps`: measures read."""

    url: str
    matches: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[str], None] = lambda _: None
    cached: bool = True
    jobs: JobTable = field(default_factory=JobTable)
    steps: Steps = no_steps

    def read(
        self, catalog: Catalog, *, since: float, until: float | None, now: float,
        resolution: float = HOUR, wanted_gpus: Collection[str] = (),
    ) -> Frame:  # fmt: skip
        """As `Databases.read`. `wanted_gpus`: ids of those of which rows below an hour are read; empty: of all."""
        from .prometheus.reader import read_frames  # noqa: PLC0415

        with self._reading(now) as reading:
            whole = {"since_seconds": since, "until": until, "resolution": resolution, "wanted_gpus": wanted_gpus}
            return self.jobs.join(next(read_frames(reading, catalog, **whole, with_queue=self.jobs.with_queue)))

    def read_groups(self, catalog: Catalog, *, since: float, until: float | None, now: float) -> Iterator[Frame]:
        """The frame of a window, group by group of nodes where it is large: one group's rows are held at a time."""
        from ..core.frame import ROWS_AT_ONCE  # noqa: PLC0415
        from .prometheus.reader import read_frames  # noqa: PLC0415

        with self._reading(now) as reading:
            for frame in read_frames(
                reading, catalog, since_seconds=since, until=until, rows_at_once=ROWS_AT_ONCE, joined=self.jobs.join,
                with_queue=self.jobs.with_queue,
            ):  # fmt: skip
                yield self.jobs.join(frame)
                del frame

    @contextmanager
    def _reading(self, now: float) -> Iterator[ServerReading]:
        from ...agent.config import load_config, load_section  # noqa: PLC0415
        from .prometheus.client.client import Client, PrometheusSettings  # noqa: PLC0415
        from .prometheus.client.range_planner import Cache  # noqa: PLC0415
        from .prometheus.reader import ServerReading  # noqa: PLC0415

        settings, agent = load_section(PrometheusSettings, "prometheus", self.environ), load_config({}, self.environ)
        folder = cache_folder(settings.cache, self.environ, "prometheus") if self.cached else None
        with closing(Client(self.url, settings, self.environ)) as client:
            yield ServerReading(
                client, Cache(folder, f"{client.url}\n{settings.identity!r}"), self.matches, now,
                concurrency=settings.concurrency, max_series=settings.max_series,
                fabric_roles=agent.fabric_roles, team_labels=agent.team_labels,
                progress=self.progress, steps=self.steps,
            )  # fmt: skip

    def knows(self, gpus: Collection[str], at: float) -> bool:
        """Whether the server has one of these GPUs at a moment (Unix seconds). Raises SkuwiseError."""
        from .prometheus.questions import gpus_at  # noqa: PLC0415

        with self._reading(at) as reading:
            return not gpus_at(reading.client, self.matches, at).isdisjoint(gpus)

    def newest(self, now: float) -> float | None:
        """The time by the server's own clock (Unix seconds); None: it has none."""
        with self._reading(now) as reading, suppress(SourceError):
            return reading.client.scalar("vector(time())", None)
        return None


Source = Databases | PrometheusServer
