"""A frame from SQLite databases: a file, or a folder of them, live, stopped or copied."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ....agent.store.reading import queries
from ....rules.base.errors import NothingToDo, SkuwiseError
from ....rules.base.progress import Steps, no_steps
from ...core.coded_text import CodedText, coded
from ...core.formatting import listed
from ...core.frame import Frame, Window
from ...core.timestamps import minute
from ...core.unobservable import blind_nodes, unreadable
from .. import resolution as resolve
from .activity import with_unnamed_work
from .database import Parts, span_of
from .files import read_files
from .join import join
from .open import database_files, open_database

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
    processes: int = 1,
    steps: Steps = no_steps,
) -> Frame:
    """The telemetry of a window from one or more databases.

    Without a `window` it is the last `since_seconds` up to `until`, and `until` is the newest data there is (of files
    that end within two hours, what half of them have); its start is moved back to the full hour, because the past is
    kept in hours. `now` (Unix seconds) guards against nodes whose clock runs ahead: rows from the future do not move
    the window. `resolution`: seconds of the coarsest rows: 3600, or 60 (minutes) or 300 (minutes folded by five), whose
    window ends with a whole minute. `processes`: how many may read many files side by side. `steps`: files read, of
    all. Raises `NothingToDo` where the window holds no data.
    """
    files = database_files(paths)
    known_files = file_spans(files)
    spans, nodes, notes = known_files.spans, known_files.nodes, known_files.notes
    while True:
        known = [span for span in spans.values() if span is not None]
        if not known:
            raise NothingToDo(
                f"No samples yet in {_names(files)}.", "Let the agent run for a while, or use another database."
            )
        said: list[CodedText] = []
        chosen = window or _default_window(_ends(spans, nodes), since_seconds, until, now, said, resolution)
        held = {path: span for path, span in spans.items() if span and span[0] < chosen.end and span[1] > chosen.start}
        wanted = list(held)
        refined = resolve.MAX_REFINED_HOURS_IN_ALL // max(len(wanted), 1)
        read = read_files(wanted, chosen, refined, resolution=resolution, processes=processes, steps=steps)
        lost = {path: error for path, error in read.items() if isinstance(error, SkuwiseError)}
        if lost and len(lost) == sum(span is not None for span in spans.values()):
            raise next(iter(lost.values()))
        for path, error in lost.items():
            notes.append(left_out(path, error))
            del spans[path]
        # A file that cannot be read to its end does not move the window of the others.
        rest = _ends(spans, nodes)
        if not lost or window is not None or _default_window(rest, since_seconds, until, now, [], resolution) == chosen:
            break
    notes += said
    notes.extend(
        coded("no-samples", "No samples in {path}.", path=str(path)) for path, span in spans.items() if span is None
    )
    parts = {path: one for path, one in read.items() if isinstance(one, Parts)}
    wanted = [path for path in wanted if path in spans]
    frame = join(parts, chosen, [path for path in files if path in spans], notes)
    if frame.gpu.empty:
        first, last = min(s[0] for s in known), max(s[1] for s in known)
        blind = blind_nodes(frame.absences)
        if blind:
            raise unreadable(blind)
        if chosen.start <= first and chosen.end >= last:
            raise NothingToDo(
                f"No GPU data in {_names(files)}: it has data of {_nodes(frame)} from {minute(first)} to "
                f"{minute(last)}, but of no GPU.",
                "Run 'skuwise agent doctor' on the node to see why its GPUs cannot be read.",
            )
        raise NothingToDo(
            f"No GPU data between {minute(chosen.start)} and {minute(chosen.end)}: {_names(files)} has "
            f"data from {minute(first)} to {minute(last)}.",
            "Choose another window with --since and --until.",
        )
    return with_unnamed_work(frame, wanted) if resolution >= resolve.HOUR else frame


@dataclass(frozen=True, slots=True)
class FileSpans:
    """Of each file that can be read what it holds data for (None: nothing) and the nodes that it tells of; `notes`:
    which files cannot be read, and why."""

    spans: dict[Path, tuple[float, float] | None] = field(default_factory=dict)
    nodes: dict[Path, frozenset[str]] = field(default_factory=dict)
    notes: list[CodedText] = field(default_factory=list)


def file_spans(files: Sequence[Path]) -> FileSpans:
    """What files hold data for. Raises SkuwiseError where none of them can be read."""
    found = FileSpans()
    problem: SkuwiseError | None = None
    for path in files:
        try:
            with open_database(path) as reader:
                span, nodes = span_of(reader), frozenset(str(row[0]) for row in reader.fetch(queries.NODES_SEEN))
            found.spans[path], found.nodes[path] = span, nodes
        except SkuwiseError as error:
            problem = problem or error
            found.notes.append(left_out(path, error))
    if not found.spans and problem is not None:
        raise problem
    return found


def left_out(path: Path, error: SkuwiseError) -> CodedText:
    """The note on a file of several that cannot be read."""
    text = f"Ignored: {error}" if str(path) in str(error) else f"Ignored: {path}. {error}"
    return CodedText("file-left-out", text, {"path": str(path), "error": str(error)})


def _ends(spans: Mapping[Path, tuple[float, float] | None], nodes: Mapping[Path, frozenset[str]]) -> list[float]:
    """When the data of the same nodes ends: a file and its copies count once."""
    ends: dict[frozenset[str], float] = {}
    for path, span in spans.items():
        if span is not None:
            ends[nodes[path]] = max(span[1], ends.get(nodes[path], span[1]))
    return list(ends.values())


def _default_window(  # noqa: PLR0917
    known: Sequence[float],
    since_seconds: float,
    until: float | None,
    now: float | None,
    notes: list[CodedText],
    resolution: float,
) -> Window:
    is_short = resolution < resolve.HOUR
    end = math.floor(until / resolve.MINUTE) * resolve.MINUTE if until is not None and is_short else until
    if end is None:
        latest = max(known)
        if now is not None and latest > now + CLOCK_TOLERANCE_SECONDS:
            # A clock that is ahead must not move the window of the others either.
            sound = [end for end in known if end <= now + CLOCK_TOLERANCE_SECONDS]
            until_then = f"at the latest valid row, {minute(max(sound))}" if sound else "now"
            notes.append(
                CodedText(
                    "clock-ahead",
                    f"Some rows are dated {minute(latest)}, later than now ({minute(now)}): the clock of "
                    f"a node is ahead. The window ends {until_then}.",
                    {"latest_ts": latest, "now_ts": now},
                )
            )
            latest = max(sound, default=now)
        # Snapshots are made one after another: the end is what half of those have that are as new as the newest. One
        # file alone would make hours of its own into hours that all others lack.
        ends = sorted(end for end in known if latest - _NEW_SECONDS <= end <= latest)
        # A minute that has only begun is no row of a minute.
        whole = math.floor if is_short else math.ceil
        end = whole((ends[len(ends) // 2] if ends else latest) / resolve.MINUTE) * resolve.MINUTE
    # A length that was made of two moments is off by a rounding error.
    return Window(math.floor(round((end - since_seconds) / resolution, 6)) * resolution, float(end))


def _nodes(frame: Frame) -> str:
    return listed(sorted(map(str, frame.nodes["node"]))) or "no node"


def _names(files: list[Path]) -> str:
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
