"""A frame from SQLite databases: a file, or a folder of them, live, stopped or copied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from ...agent.store.reader import open_reader
from ...rules.errors import NothingToDo, SkuwiseError, UsageError
from ..blind import blind_nodes, unreadable
from ..frame import Frame, Window
from ..moments import minute
from ..words import listed
from . import resolve
from .activity.databases import with_unnamed_work
from .beside import read_beside
from .database import Parts, span_of
from .joining import join

# A node's clock may be off by so much before its newest rows are taken for a fault of the clock.
CLOCK_TOLERANCE_SECONDS = 3600.0


def read_frame(
    paths: Sequence[Path],
    window: Window | None = None,
    since_seconds: float = 14 * 86400.0,
    until: float | None = None,
    *,
    now: float | None = None,
    processes: int = 1,
) -> Frame:
    """The telemetry of a window from one or more databases.

    Without a `window` it is the last `since_seconds` up to `until`, and `until` is the newest data there is; its start
    is moved back to the full hour, because the past is kept in hours. `now` (Unix seconds) guards against nodes whose
    clock runs ahead: rows from the future do not move the window. `processes`: how many may read many files
    side by side. Raises `NothingToDo` where the window holds no data.
    """
    files = database_files(paths)
    notes: list[str] = []
    spans = spans_of(files, notes)
    known = [span for span in spans.values() if span is not None]
    if not known:
        raise NothingToDo(
            f"{_names(files)} holds no samples yet.", "Let the agent run for a while, or name another database."
        )
    window = window or _default_window(known, since_seconds, until, now, notes)
    notes.extend(f"{path} holds no samples." for path, span in spans.items() if span is None)
    wanted = [path for path, span in spans.items() if span and span[0] < window.end and span[1] > window.start]
    refined = resolve.MAX_REFINED_HOURS_IN_ALL // len(files)
    parts: dict[Path, Parts] = {}
    for path, read in read_beside(wanted, window, refined, processes).items():
        if isinstance(read, Parts):
            parts[path] = read
        elif len(files) == 1:
            raise read
        else:
            notes.append(f"Left out: {path}. {read}")
    frame = join(parts, window, files, notes)
    if frame.gpu.empty:
        first, last = min(s[0] for s in known), max(s[1] for s in known)
        blind = blind_nodes(frame.absences)
        if blind:
            raise unreadable(blind)
        if window.start <= first and window.end >= last:
            raise NothingToDo(
                f"{_names(files)} holds no data of GPUs: it has data of {_nodes(frame)} from {minute(first)} to "
                f"{minute(last)}, and none of a GPU.",
                "Run 'skuwise agent doctor' on the node: it says why its GPUs cannot be read.",
            )
        raise NothingToDo(
            f"There is no GPU data between {minute(window.start)} and {minute(window.end)}: {_names(files)} holds data "
            f"from {minute(first)} to {minute(last)}.",
            "Choose another window with --since and --until.",
        )
    return with_unnamed_work(frame, wanted)


def database_files(paths: Sequence[Path]) -> list[Path]:
    """The databases that `paths` name: files as they are, folders as the ``*.db`` in them."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.glob("*.db") if p.is_file())
            if not inside:
                raise UsageError(f"The folder {path} holds no *.db file.", "Name a folder of node databases.")
            files.extend(inside)
        else:
            files.append(path)
    unique = list(dict.fromkeys(files))
    if not unique:
        raise UsageError("No database is named.", "Give one with --db PATH.")
    return unique


def spans_of(files: Sequence[Path], notes: list[str]) -> dict[Path, tuple[float, float] | None]:
    """What each file holds data for; of several, those that cannot be read are left out and named."""
    spans: dict[Path, tuple[float, float] | None] = {}
    problem: SkuwiseError | None = None
    for path in files:
        try:
            with open_reader(path) as reader:
                spans[path] = span_of(reader)
        except SkuwiseError as error:
            if len(files) == 1:
                raise
            problem = problem or error
            notes.append(f"Left out: {error}" if str(path) in str(error) else f"Left out: {path}. {error}")
    if not spans and problem is not None:
        raise problem
    return spans


def _default_window(
    known: list[tuple[float, float]], since_seconds: float, until: float | None, now: float | None, notes: list[str]
) -> Window:
    end = until
    if end is None:
        latest = max(span[1] for span in known)
        if now is not None and latest > now + CLOCK_TOLERANCE_SECONDS:
            # A clock that is ahead must not move the window of the others either.
            sound = [span[1] for span in known if span[1] <= now + CLOCK_TOLERANCE_SECONDS]
            until_then = f"with the newest row that is not, {minute(max(sound))}" if sound else "now"
            notes.append(
                f"Some rows are dated {minute(latest)}, later than now ({minute(now)}): a node's clock is ahead; the "
                f"window ends {until_then}."
            )
            latest = max(sound, default=now)
        end = math.ceil(latest / 60.0) * 60.0
    return Window(math.floor((end - since_seconds) / resolve.HOUR) * resolve.HOUR, float(end))


def _nodes(frame: Frame) -> str:
    return listed(sorted(map(str, frame.nodes["node"]))) or "no node"


def _names(files: list[Path]) -> str:
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
