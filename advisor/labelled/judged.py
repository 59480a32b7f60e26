"""Everything that a folder labels, judged: each label with the verdict on it.

The format of a folder stands in docs/method.md. What is wrong with it is said with file and line, and nothing more is
judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...rules.base.errors import NothingToDo, UsageError
from ...rules.base.sanitize import clean
from ..core.frame import Window
from ..core.verdict_types import WorkloadVerdict
from ..rulebook import Rulebook
from ..telemetry.sqlite.reader import read_frame
from ..verdicts.judge import judge
from .labels import LABELS, Label, Part, read_labels
from .stored import store_recording, store_series

RECORDING = ".jsonl.gz"
_DAYS = 14


@dataclass(frozen=True, slots=True)
class Judged:
    """A label and the verdict on what it names. `verdict` None: nothing of it was seen. `about`: it, in a few words.
    `group`: what it is one with, where examples are left out."""

    label: Label
    verdict: WorkloadVerdict | None
    about: str
    group: str


def judged_folder(folder: Path, scratch: Path, book: Rulebook, leave: Part | None = None) -> Iterator[Judged]:
    """Judge everything that the folder labels. `scratch`: an empty folder for databases. `leave`: labels of this part
    come without a verdict. Raises UsageError."""
    if not folder.is_dir():
        raise UsageError(f"{clean(folder)} is not a folder.", "Use a folder with labels.csv and series.")
    labels = read_labels(folder)
    recordings = sorted(folder.glob(f"*{RECORDING}"))
    if not labels and not recordings:
        raise UsageError(
            f"No {LABELS} and no recording in {clean(folder)}.", "See docs/method.md for the expected files."
        )
    for label in labels:
        if leave is not None and label.part == leave:
            name = label.file.name if label.file is not None else str(label.workload)
            yield Judged(label, None, clean(f"{name} {label.source}"), label.group or name)
    labels = [label for label in labels if leave is None or label.part != leave]
    series = [label for label in labels if label.file is not None]
    stored = [(store_series(label, book.catalog, scratch / f"{n}.db"), label) for n, label in enumerate(series)]
    stored += [store_recording(path, scratch / f"r{n}.db") for n, path in enumerate(recordings)]
    for one, label in stored:
        name = label.file.name if label.file is not None else label.where
        found = _verdicts([one.database], one.window, book).get(one.workload_id)
        yield Judged(label, found, clean(f"{name} {label.source}"), label.group or name)
    yield from _of_databases(folder, [label for label in labels if label.workload is not None], book)


def _of_databases(folder: Path, labels: Sequence[Label], book: Rulebook) -> Iterator[Judged]:
    """Labels of workloads in the folder's node databases; those of one span are judged together."""
    if labels and not any(folder.glob("*.db")):
        raise UsageError(f"{labels[0].where}: no node database in the folder.", "Put *.db files next to labels.csv.")
    spans: dict[tuple[float | None, float | None], list[Label]] = {}
    for label in labels:
        spans.setdefault((label.start, label.end), []).append(label)
    for (start, end), own in spans.items():
        window = Window(start if start is not None else 0.0, end) if end is not None else None
        if window is None:
            newest = read_frame([folder]).window.end
            window = Window(start if start is not None else newest - _DAYS * 86400.0, newest)
        judged = _verdicts([folder], window, book)
        for label in own:
            found = [w for w in judged.values() if label.workload in (w.id, w.name)]
            if len(found) > 1:
                raise UsageError(
                    f"{label.where}: ambiguous name {clean(label.workload)!r}, {len(found)} workloads match.",
                    "Use the workload_id.",
                )
            group = label.group or (found[0].series_id if found else "") or str(label.workload)
            yield Judged(label, found[0] if found else None, clean(f"{label.workload} {label.source}"), group)


def _verdicts(paths: Sequence[Path], window: Window, book: Rulebook) -> Mapping[str, WorkloadVerdict]:
    try:
        return {w.id: w for w in judge(read_frame(paths, window), book).workloads}
    except NothingToDo:
        return {}
