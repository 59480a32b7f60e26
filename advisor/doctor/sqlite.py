"""What databases tell: counts by node and GPU, asked of their rollups."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ...agent.base.slurm_job import SlurmJob
from ...agent.sources.gpu_backends import DRIVER_NAMES
from ...agent.store.reading import coverage, queries
from ...agent.store.reading.coverage import FAMILIES, GPU_METRICS
from ...rules.base.errors import NothingToDo, SkuwiseError
from ..core.coded_text import CodedText
from ..core.frame import Window
from ..core.scalars import text
from ..core.timestamps import minute
from ..telemetry.sqlite.database_files import database_files
from ..telemetry.sqlite.opening import DatabaseReader, open_database
from ..telemetry.sqlite.reader import CLOCK_TOLERANCE_SECONDS, file_spans, left_out
from .facts import BUSY_LEVEL, Absent, ExpectedGpu, JobSeen, NodeCoverage, SeenExporter, SourceCoverage

HOUR = 3600.0
_Key = TypeVar("_Key", bound=Hashable)


def _sums() -> defaultdict[Any, float]:
    return defaultdict(float)


def _add(sums: dict[_Key, float], more: Mapping[_Key, float]) -> None:
    for key, value in more.items():
        sums[key] += value


@dataclass
class _Gpu:
    first: float = math.inf
    last: float = -math.inf
    seconds: float = 0.0
    busy: float = 0.0
    known: dict[str, float] = field(default_factory=_sums)  # seconds by measure
    samples: dict[str, float] = field(default_factory=_sums)

    def take(self, other: _Gpu) -> None:
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.seconds += other.seconds
        self.busy += other.busy
        _add(self.known, other.known)
        _add(self.samples, other.samples)


@dataclass
class _Found:
    """What one database or several hold, as it is summed up."""

    nodes: dict[str, tuple[object, ...]] = field(default_factory=dict)
    gpus: dict[tuple[str, str], tuple[object, ...]] = field(default_factory=dict)
    seen: dict[tuple[str, str], _Gpu] = field(default_factory=dict)
    ports: dict[tuple[str, str, str], tuple[str, float]] = field(default_factory=dict)
    hosts: dict[str, float] = field(default_factory=_sums)  # seconds
    absences: dict[str, dict[Absent, None]] = field(default_factory=dict)
    uses: dict[tuple[str, str], float] = field(default_factory=_sums)  # seconds
    jobs: list[JobSeen] = field(default_factory=list)
    job_table: dict[tuple[str, str, int], SlurmJob] = field(default_factory=dict)
    notes: list[CodedText] = field(default_factory=list)

    def take(self, one: _Found) -> None:
        """Add what one database holds, all of it: a file that cannot be read to its end tells nothing."""
        for row in one.nodes.values():
            self.take_node(row)
        self.gpus |= one.gpus
        for key, gpu in one.seen.items():
            self.seen.setdefault(key, _Gpu()).take(gpu)
        for key, (layer, seconds) in one.ports.items():
            self.take_port(key, layer, seconds)
        _add(self.hosts, one.hosts)
        for node, absences in one.absences.items():
            self.absences.setdefault(node, {}).update(absences)
        _add(self.uses, one.uses)
        self.jobs += one.jobs
        self.job_table |= one.job_table

    def take_node(self, row: tuple[object, ...]) -> None:
        """What was written of it last counts."""
        node = str(row[0])
        if node not in self.nodes or _number(row[8]) >= _number(self.nodes[node][8]):
            self.nodes[node] = row

    def take_port(self, key: tuple[str, str, str], layer: str, seconds: float) -> None:
        self.ports[key] = (layer, self.ports.get(key, ("", 0.0))[1] + seconds)


def read_databases(paths: Sequence[Path], *, since_seconds: float, until: float | None, now: float) -> SourceCoverage:
    """What files and folders of node databases tell of a window. Raises NothingToDo where they hold no sample."""
    files = database_files(paths)
    held = file_spans(files)
    spans = held.spans
    known = [one for one in spans.values() if one is not None]
    if not known:
        raise NothingToDo(f"No samples yet in {files[0]}.", "Let the agent run for a while, or use another database.")
    end = until
    if end is None:
        latest = max(one[1] for one in known)
        end = math.ceil((now if latest > now + CLOCK_TOLERANCE_SECONDS else latest) / 60.0) * 60.0
    window = Window(math.floor((end - since_seconds) / HOUR) * HOUR, float(end))
    found = _Found(notes=held.notes)
    for path in spans:
        try:
            with open_database(path) as reader:
                one = _Found()
                _read(reader, window, one)
            found.take(one)
        except SkuwiseError as error:
            if len(files) == 1:
                raise
            found.notes.append(left_out(path, error))
    if not found.seen and not any(found.absences.values()):
        first, last = min(one[0] for one in known), max(one[1] for one in known)
        raise NothingToDo(
            f"No data between {minute(window.start)} and {minute(window.end)}: the databases have data "
            f"from {minute(first)} to {minute(last)}.",
            "Choose another window with --since and --until.",
        )
    return _told(found, window, files)


def _read(reader: DatabaseReader, window: Window, found: _Found) -> None:
    bounds = {"start": window.start, "end": window.end}
    for row in reader.fetch(coverage.NODES):
        found.take_node(row)
    for row in reader.fetch(queries.GPUS.sql, bounds):
        found.gpus[str(row[0]), str(row[1])] = row
    begin = window.start
    ends = [_number(reader.fetch(sql, {})[0][1], window.start) for sql in queries.DATA_SPANS]
    for (family, row), last in zip(FAMILIES.items(), ends, strict=True):
        # Each finer family tells of what came after the coarser one; a row that was rolled up early ends in the future.
        end = min(last, math.floor(window.end / row) * row if row else window.end)
        if end > begin:
            _read_family(reader, family, {"start": begin, "end": end}, found)
            begin = end
    for row in reader.fetch(queries.USES.sql, bounds):
        start, end = max(_number(row[4]), window.start), min(_number(row[5]), window.end)
        found.uses[str(row[1]), str(row[2])] += max(end - start, 0.0)
    _read_jobs(reader, bounds, found)
    for node, _, metric, reason, detail, remedy, scope, device in reader.fetch(coverage.ABSENCES, bounds):
        # A source that cannot be read at all says so of everything it would tell; only a driver's is all of the GPUs.
        whole = metric == "*" and not (scope == "gpu" or (scope == "source" and device in (None, *DRIVER_NAMES)))
        said = Absent("-" if whole else str(metric), str(reason), str(detail or ""), str(remedy or ""))
        found.absences.setdefault(str(node), {})[said] = None


def _read_jobs(reader: DatabaseReader, bounds: dict[str, float], found: _Found) -> None:
    """Slurm's workloads, and the runs of the job table."""
    query = queries.WORKLOADS
    for row in reader.fetch(query.sql, bounds):
        about = dict(zip(query.columns, row, strict=True))
        job = about["job_id"]
        if about["scheduler"] == "slurm" and job:
            named = about["name"] not in (None, "slurm_script", f"job {job}")
            found.jobs.append(JobSeen(str(job), _number(about["first_seen"]), _number(about["last_seen"]), named))
    for row in reader.fetch(queries.SLURM_JOBS.sql, bounds):
        about = dict(zip(queries.SLURM_JOBS.columns, row, strict=True))
        ended = about["ended_at"]
        job = SlurmJob(
            str(about["job_id"]), _number(about["started_at"]), None if ended is None else _number(ended),
            array_job_id=text(about["array_job_id"]), array_task_id=text(about["array_task_id"]),
        )  # fmt: skip
        found.job_table[job.key] = job


def _read_family(reader: DatabaseReader, family: str, part: dict[str, float], found: _Found) -> None:
    for row in reader.fetch(coverage.gpus(family), {**part, "busy": BUSY_LEVEL}):
        gpu = found.seen.setdefault((str(row[0]), str(row[1])), _Gpu())
        gpu.first, gpu.last = min(gpu.first, _number(row[2])), max(gpu.last, _number(row[3]))
        gpu.seconds += _number(row[4])
        gpu.busy += _number(row[5])
        for place, measure in enumerate(GPU_METRICS):
            gpu.known[measure] += _number(row[6 + 2 * place])
            gpu.samples[measure] += _number(row[7 + 2 * place])
    for node, device, port, _, layer, seconds in reader.fetch(coverage.ports(family), part):
        found.take_port((str(node), str(device), str(port)), str(layer), _number(seconds))
    for node, seconds in reader.fetch(coverage.hosts(family), part):
        found.hosts[str(node)] += _number(seconds)


def _told(found: _Found, window: Window, files: list[Path]) -> SourceCoverage:
    firsts = [gpu.first for gpu in found.seen.values()]
    begin = max(min(firsts, default=window.end), window.start)
    longest = max((gpu.seconds for gpu in found.seen.values()), default=0.0)
    versions = tuple(sorted({str(row[6]) for row in found.nodes.values() if row[6]}))
    return SourceCoverage(
        source={"kind": "sqlite", "databases": [str(path) for path in files]},
        window=window,
        begin=begin,
        observed_hours=longest / HOUR,
        nodes=tuple(_node(name, row, found) for name, row in sorted(found.nodes.items())),
        exporters=(SeenExporter("skuwise agent", versions, len(found.nodes)),),
        resolution=_resolution(found.seen.values()),
        jobs_seen=tuple(dict.fromkeys(found.jobs)),
        job_table=tuple(found.job_table.values()),
        notes=tuple(found.notes),
    )


def _resolution(seen: Iterable[_Gpu]) -> dict[str, float]:
    whole = _Gpu()
    for gpu in seen:
        whole.take(gpu)
    return {measure: whole.known[measure] / count for measure, count in whole.samples.items() if count > 0}


def _node(name: str, row: tuple[object, ...], found: _Found) -> NodeCoverage:
    ports = {key: told for key, told in found.ports.items() if key[0] == name}
    known: dict[str, float] = {"host": found.hosts.get(name, 0.0) / HOUR}
    for measure, layers in (("infiniband", ("InfiniBand",)), ("ethernet", ("Ethernet", "EFA"))):
        own = [seconds for layer, seconds in ports.values() if layer in layers]
        if own:
            known[measure] = max(own) / HOUR
    declared = row[5]
    return NodeCoverage(
        node=name, gpus=tuple(_gpus(name, found)),
        declared=declared if isinstance(declared, int) and 0 < declared <= 1024 else None,
        node_sku=text(row[3]), node_sku_source=text(row[4]), provider=text(row[1]), region=text(row[2]),
        known={measure: hours for measure, hours in known.items() if hours > 0}, fabric_ports=len(ports),
        absences=tuple(sorted(found.absences.get(name, {}), key=lambda one: one.reason != "no-driver")), agent=True,
    )  # fmt: skip


def _gpus(node: str, found: _Found) -> Iterable[ExpectedGpu]:
    """Physical GPUs of a node. Of a sliced one, what all of its instances tell."""
    parts: dict[str, dict[str, _Gpu]] = {}
    skus: dict[str, str | None] = {}
    for (at, uuid), row in found.gpus.items():
        if at != node:
            continue
        parent = str(row[5]) if row[5] else None
        skus[parent or uuid] = skus.get(parent or uuid) or text(row[3]) or text(row[2])
        own = parts.setdefault(parent or uuid, {})
        if parent:
            own[uuid] = found.seen.get((node, uuid), _Gpu())
    for at, uuid in found.seen:
        if at == node and (node, uuid) not in found.gpus:
            parts.setdefault(uuid, {})
    for whole, instances in parts.items():
        seen = [one for one in instances.values() if one.seconds > 0] or (
            [found.seen[node, whole]] if (node, whole) in found.seen else []
        )
        used = [found.uses.get((node, uuid), 0.0) for uuid in (whole, *instances)]
        hours = max((one.seconds for one in seen), default=0.0) / HOUR
        yield ExpectedGpu(
            whole, skus.get(whole), hours, min((one.first for one in seen), default=math.nan),
            max((one.last for one in seen), default=math.nan),
            {m: min(one.known.get(m, 0.0) for one in seen) / HOUR for m in GPU_METRICS} if seen else {},
            busy := max((one.busy for one in seen), default=0.0) / HOUR,
            min(max(used) / HOUR, busy), len(instances),
        )  # fmt: skip


def _number(value: object, default: float = 0.0) -> float:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else default
