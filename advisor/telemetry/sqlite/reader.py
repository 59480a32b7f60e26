"""A frame from SQLite databases: a file, or a folder of them, live, stopped or copied."""

import gc
import math
import multiprocessing
import os
import resource
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext, suppress
from pathlib import Path

from ....agent.store.reader import disk_bytes
from ....rules.base.errors import NothingToDo, SkuwiseError, StoreError
from ....rules.base.heap import give_back
from ....rules.base.output import Steps, no_steps
from ...core.coded_text import CodedText, coded
from ...core.frame import Frame, Window, blind_nodes, unreadable
from ...core.timestamps import minute
from .. import queries
from .. import resolution as resolve
from ..activity import Device, DeviceSeries, engine_use, with_activity
from ..resolution import MINUTE
from ..tables import to_table
from .database import Parts, believed_of, database_files, join, open_database, read_database, read_rows, span_of

# So many rows are read by the minute at most; of larger fleets one minute of several.
MAX_ROWS = 1_200_000
STEPS = (60.0, 120.0, 300.0, 600.0)


def with_unnamed_work(frame: Frame, paths: Sequence[Path]) -> Frame:
    """The frame with unnamed work, whose begin and end are known to the minute."""
    believed = believed_of(frame.source, paths)

    def minutes(devices: Sequence[Device], window: Window) -> list[DeviceSeries]:
        most = len(devices) * window.seconds / MAX_ROWS
        step = next((step_seconds for step_seconds in STEPS if step_seconds >= most), STEPS[-1])
        span, wanted = {"start": window.start, "end": window.end, "every": step / MINUTE}, set(devices)
        series: dict[Device, DeviceSeries] = {}
        for path, nodes in believed.items():
            try:
                with open_database(path) as reader:
                    rows = [row for some in read_rows(reader, queries.ACTIVITY, span) for row in some]
                    table = to_table(rows, queries.ACTIVITY)
            except SkuwiseError:
                continue  # the frame was read from what can be read, and says so
            table = table.assign(use=engine_use(table)).sort_values("ts")
            for (node, uuid), rows in table.groupby(["node", "gpu_uuid"]):
                device = (str(node), str(uuid))
                is_believed = device in wanted and (nodes is None or node in nodes)
                if is_believed and (device not in series or len(rows) > len(series[device].ts)):
                    ts, use, mem = (rows[name].to_numpy(float) for name in ("ts", "use", "mem_used_bytes_mean"))
                    series[device] = DeviceSeries(*device, ts, step, use, mem)
        return [*series.values()]

    return with_activity(frame, minutes)


# A node's clock may be off by so much before its newest rows are taken for a fault of the clock.
CLOCK_TOLERANCE_SECONDS = 3600.0
# Files that end within so long of the newest one are as new as it is.
_NEW_SECONDS = 2 * 3600.0


def read_frame(
    paths: Sequence[Path],
    window: Window | None = None,
    since_seconds: float = 14 * 86400.0,
    until: float | None = None,
    *,
    now: float | None = None,
    resolution: float = resolve.HOUR,
    wanted: Collection[str] | None = None,
    processes: int = 1,
    steps: Steps = no_steps,
) -> Frame:
    """The telemetry of a window from one or more databases.

    Without a `window` it is the last `since_seconds` up to `until` or the newest data (of files that end within two
    hours, what half of them have); its start is moved back to a whole row. `now` (Unix seconds): rows later than it do
    not move the window. `resolution`: seconds of the coarsest rows: 3600, or 60 (minutes) or 300, whose window ends
    with a whole minute. `wanted`: the columns that the watch needs alone, and of rows longer than a minute those of
    these GPUs (empty: of all). `processes`: how many may read. Raises `NothingToDo` where the window holds no data.
    """
    files = database_files(paths)
    spans, nodes, notes = file_spans(files)
    if not spans:
        raise NothingToDo(f"No samples yet in {_names(files)}.", "Let the agent run, or use another database.")
    ends: dict[frozenset[str], float] = {}  # of the same nodes: a file and its copies count once
    for path, (_, end) in spans.items():
        ends[nodes[path]] = max(end, ends.get(nodes[path], end))
    if window is None:
        window, late = _default_window([*ends.values()], since_seconds, until, now, resolution)
        notes += late
    inside = [path for path, (start, end) in spans.items() if start < window.end and end > window.start]
    refined = resolve.MAX_REFINED_HOURS_IN_ALL // max(len(inside), 1)
    asked = (window, refined, resolution, wanted)
    read = read_files(inside, asked, processes=processes, steps=steps)
    errors = {path: error for path, error in read.items() if isinstance(error, SkuwiseError)}
    if errors and len(errors) == len(spans):
        raise next(iter(errors.values()))
    notes += [_left_out(path, error) for path, error in errors.items()]
    notes += [coded("no-samples", "No samples in {path}.", path=str(path)) for path in nodes if path not in spans]
    parts = {path: part for path, part in read.items() if isinstance(part, Parts)}
    families = resolve.families(resolution, wanted)
    frame = join(parts, window, [path for path in nodes if path not in errors], notes, families)
    if frame.gpu.empty and not wanted:
        if blind := blind_nodes(frame.absences):
            raise unreadable(blind)
        first, last = min(start for start, _ in spans.values()), max(end for _, end in spans.values())
        asked = f"No GPU data between {minute(window.start)} and {minute(window.end)}"
        what = f"{asked}: {_names(files)} has data from {minute(first)} to {minute(last)}."
        raise NothingToDo(
            what, "Choose another window with --since and --until, or run 'skuwise agent doctor' on the node."
        )
    return with_unnamed_work(frame, [*parts]) if resolution >= resolve.HOUR and wanted is None else frame


def file_spans(
    files: Sequence[Path],
) -> tuple[dict[Path, tuple[float, float]], dict[Path, frozenset[str]], list[CodedText]]:
    """Start and end of the data of each file that has any (Unix seconds); the nodes that each file reports on; notes on
    files that cannot be read. Raises SkuwiseError where none of them can."""
    spans: dict[Path, tuple[float, float]] = {}
    nodes: dict[Path, frozenset[str]] = {}
    errors: dict[Path, SkuwiseError] = {}
    for path in files:
        try:
            with open_database(path) as reader:
                span = span_of(reader)
                nodes[path] = frozenset(str(row[0]) for row in reader.fetch(queries.NODES_SEEN))
        except SkuwiseError as error:
            errors[path] = error
            continue
        if span is not None:
            spans[path] = span
    if errors and not nodes:
        raise next(iter(errors.values()))
    return spans, nodes, [_left_out(path, error) for path, error in errors.items()]


def _left_out(path: Path, error: SkuwiseError) -> CodedText:
    text = f"Ignored: {error}" if str(path) in str(error) else f"Ignored: {path}. {error}"
    return CodedText("file-left-out", text, {"path": str(path), "error": str(error)})


def _default_window(
    ends: Sequence[float], since_seconds: float, until: float | None, now: float | None, resolution: float
) -> tuple[Window, list[CodedText]]:
    """The last `since_seconds`, and a note where rows from the future do not move it. `ends`: of each node's data."""
    # A minute that has only begun is no row of a minute.
    whole = math.floor if resolution < resolve.HOUR else math.ceil
    notes: list[CodedText] = []
    if until is not None:
        end = whole(until / resolve.MINUTE) * resolve.MINUTE if resolution < resolve.HOUR else until
    else:
        latest = max(ends)
        if now is not None and latest > now + CLOCK_TOLERANCE_SECONDS:
            text = (
                f"Some rows are dated {minute(latest)}, later than now ({minute(now)}): the clock of a node is ahead. "
                "They do not move the window."
            )
            notes.append(CodedText("clock-ahead", text, {"latest_ts": latest, "now_ts": now}))
            latest = max((end for end in ends if end <= now + CLOCK_TOLERANCE_SECONDS), default=now)
        # Snapshots are made one after another: the end is what half of those have that are as new as the newest. One
        # file alone would turn its hours into hours that all others lack.
        new = sorted(end for end in ends if latest - _NEW_SECONDS <= end <= latest) or [latest]
        end = whole(new[len(new) // 2] / resolve.MINUTE) * resolve.MINUTE
    # A length that was made of two moments is off by a rounding error.
    return Window(math.floor(round((end - since_seconds) / resolution, 6)) * resolution, float(end)), notes


def _names(files: Sequence[Path]) -> str:
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


# Bytes of databases that are worth a process: it takes as long to start as this process takes to read half as many.
BYTES_EACH = 24 << 20
# What a file costs beside its bytes, as bytes.
_BYTES_A_FILE = 1 << 20
# What a process may hold beside what it begins with: 2 MB of a node's file take some 20 MB.
_MEMORY_BYTES = 1 << 30


# What `read_database` reads of each file.
Asked = tuple[Window, int, float, Collection[str] | None]


def read_file(path: Path, asked: Asked) -> Parts | SkuwiseError:
    """The tables of one database, or why it cannot be read."""
    try:
        with open_database(path) as reader:
            return read_database(reader, *asked)
    except SkuwiseError as error:
        return error
    except MemoryError:
        return StoreError(f"{path} cannot be read: it takes too much memory.", "Leave the file out.")


def read_files(
    paths: Sequence[Path], asked: Asked, *, processes: int = 1, steps: Steps = no_steps, bytes_each: int = BYTES_EACH
) -> dict[Path, Parts | SkuwiseError]:
    """Each database by itself, in their order. `processes`: how many may read; `bytes_each`:
    what is worth one; `steps`: files read, of all. What another process fails to answer is read here."""
    weights = {path: disk_bytes(path) + _BYTES_A_FILE for path in paths}
    helpers = min(processes, len(paths), sum(weights.values()) // bytes_each)
    parts: dict[Path, Parts | SkuwiseError] = {}
    give_back()
    # A fork begins with all that is loaded; where other threads run, it may begin with a lock that one of them holds.
    context = multiprocessing.get_context("fork" if threading.active_count() == 1 else "forkserver")
    with ProcessPoolExecutor(helpers, context, initializer=_begin) if helpers > 1 else nullcontext() as pool:
        futures: dict[Path, Future[Parts | SkuwiseError]] = {}
        with suppress(BrokenProcessPool):
            if pool is not None:
                largest_first = sorted(paths, key=lambda path: -weights[path])
                futures |= ((path, pool.submit(read_file, path, asked)) for path in largest_first)
        for path in paths:
            try:
                parts[path] = futures.pop(path).result() if path in futures else read_file(path, asked)
            except BrokenProcessPool:
                parts[path] = read_file(path, asked)
            steps(len(parts), len(paths))
    return parts


def _begin() -> None:
    gc.disable()  # a process ends before garbage matters, and looking for it took a sixth of the time
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        held = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (held + _MEMORY_BYTES, held + _MEMORY_BYTES))
