"""Real labelled series: read from a folder, brought through the real store, judged, and held against their labels.

    python -m skuwise.benchmarks.evaluation.evaluate --labelled DIR

The format of DIR stands in docs/method.md. What is wrong with it is said with file and line, and nothing is scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import get_args

from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.core.frame import Window
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.rulebook import Rulebook
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.verdicts.judge import judge
from skuwise.agent.model import FabricPort, Gpu, Node, Tick, Workload
from skuwise.agent.sources.replay.recording import read_recording
from skuwise.agent.store.rollup.rollups import RollupJob
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import NothingToDo, UsageError
from skuwise.rules.base.sanitize import clean
from skuwise.rules.catalog.loader import Catalog
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel

from ..scoring import ABSTAINED, Score
from .labelled_series import NodeSeries, Row, read_series, rows_of

LABELS = "labels.csv"
RECORDING = ".jsonl.gz"
_COLUMNS = frozenset({"workload", "file", "kind", "bottleneck", "start", "end", "gpu", "source"})
_KINDS = tuple(name for name in get_args(KindLabel) if name != ABSTAINED)
_BOTTLENECKS = tuple(name for name in get_args(BottleneckLabel) if name != ABSTAINED)


@dataclass(frozen=True, slots=True)
class Label:
    """One line of labels.csv. One of `workload` (id or name in the node databases) and `file` (a series) is given.

    `start`, `end`: Unix seconds, None: from the first, to the last. `bottleneck` None: not scored. `gpu`: the GPU of a
    series, as the driver or the catalog calls it. `where`: file and line, for errors.
    """

    where: str
    workload: str | None
    file: Path | None
    kind: str
    bottleneck: str | None
    start: float | None
    end: float | None
    gpu: str | None
    source: str


@dataclass(frozen=True, slots=True)
class _Judgeable:
    """A database of its own for one label: `workload_id` in it, seen in `window`."""

    database: Path
    window: Window
    workload_id: str
    kind: str
    bottleneck: str | None
    about: str


def read_labels(folder: Path) -> tuple[Label, ...]:
    """The labels of a folder, checked to the last cell. Raises UsageError; none where there is no labels.csv."""
    path = folder / LABELS
    if not path.exists():
        return ()
    labels = []
    spans: dict[Path, list[tuple[float, float]]] = {}
    for row in rows_of(path, _COLUMNS, frozenset({"kind"})):
        label = _label(folder, row)
        if label.file is not None:
            begin, stop = label.start or 0.0, label.end or float("inf")
            if any(begin < later and earlier < stop for earlier, later in spans.get(label.file, [])):
                raise row.error(f"another label of {label.file.name} covers the same time", "Let labels not overlap.")
            spans.setdefault(label.file, []).append((begin, stop))
        labels.append(label)
    return tuple(labels)


def _label(folder: Path, row: Row) -> Label:
    workload, name = row.text("workload"), row.text("file")
    if bool(workload) == bool(name):
        raise row.error("a label is of a workload or of a file", "Fill in one of the two.")
    bottleneck = row.text("bottleneck")
    start, end = _moment(row, "start"), _moment(row, "end")
    if start is not None and end is not None and end <= start:
        raise row.error("end is not after start", "Give the span from its start to its end.")
    return Label(
        where=f"{LABELS}:{row.line}",
        workload=workload or None,
        file=_file(folder, row, name) if name else None,
        kind=row.choice("kind", _KINDS, ""),
        bottleneck=row.choice("bottleneck", _BOTTLENECKS, bottleneck) if bottleneck else None,
        start=start,
        end=end,
        gpu=row.text("gpu") or None,
        source=row.text("source"),
    )


def _moment(row: Row, name: str) -> float | None:
    told = row.text(name)
    if not told:
        return None
    try:
        return parse_moment(told)
    except UsageError as error:
        raise row.error(f"{name} is {clean(told)[:40]!r}, which is no moment", error.remedy) from error


def _file(folder: Path, row: Row, name: str) -> Path:
    """A series in the folder itself: what leads out of it is refused."""
    path = folder / name
    plain = Path(name).name == name and name.endswith(".csv") and name != LABELS and "\0" not in name
    if not plain or not path.is_file() or path.resolve().parent != folder.resolve():
        raise row.error(f"{clean(name)[:80]!r} is no CSV file of this folder", "Name one by its bare name.")
    return path


def evaluate_folder(folder: Path, scratch: Path) -> Score:
    """Judge everything that the folder labels. `scratch`: an empty folder for databases. Raises UsageError."""
    if not folder.is_dir():
        raise UsageError(f"{clean(folder)} is no folder.", "Name one that holds labels.csv and series.")
    labels, book = read_labels(folder), load_rulebook(None, None, 0.0)
    recordings = sorted(folder.glob(f"*{RECORDING}"))
    if not labels and not recordings:
        raise UsageError(
            f"{clean(folder)} holds no {LABELS} and no recording.", "docs/method.md says what it may hold."
        )
    out = Score()
    stored = [_store_series(label, book.catalog, scratch / f"{n}.db") for n, label in enumerate(labels) if label.file]
    stored += [_store_recording(path, scratch / f"r{n}.db") for n, path in enumerate(recordings)]
    for one in stored:
        found = _verdicts([one.database], one.window, book).get(one.workload_id)
        out.count(one.kind, one.bottleneck, found, clean(one.about))
    _score_databases(out, folder, [label for label in labels if label.workload is not None], book)
    return out


def _score_databases(out: Score, folder: Path, labels: Sequence[Label], book: Rulebook) -> None:
    """Labels of workloads in the folder's node databases; those of one span are judged together."""
    if labels and not any(folder.glob("*.db")):
        raise UsageError(f"{labels[0].where}: the folder holds no node database.", "Put *.db files beside labels.csv.")
    spans: dict[tuple[float | None, float | None], list[Label]] = {}
    for label in labels:
        spans.setdefault((label.start, label.end), []).append(label)
    for (start, end), own in spans.items():
        window = Window(start if start is not None else 0.0, end) if end is not None else None
        if window is None:
            newest = read_frame([folder]).window.end
            window = Window(start if start is not None else newest - 14 * 86400.0, newest)
        judged = _verdicts([folder], window, book)
        for label in own:
            found = [w for w in judged.values() if label.workload in (w.id, w.name)]
            if len(found) > 1:
                raise UsageError(
                    f"{label.where}: {clean(label.workload)!r} names {len(found)} workloads.", "Give the workload_id."
                )
            about = clean(f"{label.workload} {label.source}")
            out.count(label.kind, label.bottleneck, found[0] if found else None, about)


def _verdicts(paths: Sequence[Path], window: Window, book: Rulebook) -> Mapping[str, WorkloadVerdict]:
    try:
        return {w.id: w for w in judge(read_frame(paths, window), book).workloads}
    except NothingToDo:
        return {}


def _store_series(label: Label, catalog: Catalog, database: Path) -> _Judgeable:
    """A series' ticks in a database of its own, with one workload over the label's span on all its GPUs."""
    assert label.file is not None
    beside = label.file.with_suffix(".fabric.csv")
    series = read_series(label.file, beside if beside.is_file() else None)
    sku = catalog.gpu(label.gpu) if label.gpu else None
    if label.gpu and sku is None:
        raise UsageError(f"{label.where}: the catalog has no GPU {clean(label.gpu)!r}.", "skuwise skus list names all.")
    nodes: list[tuple[Node, tuple[Gpu, ...], tuple[FabricPort, ...], tuple[Tick, ...]]] = []
    for name, one in series.items():
        gpus = tuple(
            Gpu(
                uuid, index, sku.name if sku else "unknown GPU", sku=sku.name if sku else None,
                mem_total_bytes=total or (sku.mem_bytes if sku else None),
                power_limit_watts=sku.tdp_watts if sku else None,
                nvlink_bytes_per_second=sku.nvlink_bytes_per_second if sku else None,
            )
            for uuid, (index, total) in one.gpus.items()
        )  # fmt: skip
        nodes.append((Node(name, "labelled", gpu_count=len(gpus)), gpus, tuple(one.ports.values()), one.ticks))
    first, last = _span(series.values())
    window = Window(max(first, label.start or first), min(last, label.end or last))
    if window.end <= window.start:
        raise UsageError(f"{label.where}: {label.file.name} holds nothing of that span.", "Correct start and end.")
    workload_id = _store(database, f"{label.file.name}/{label.start}", nodes, window)
    return _Judgeable(database, window, workload_id, label.kind, label.bottleneck, f"{label.file.name} {label.source}")


def _span(series: Iterable[NodeSeries]) -> tuple[float, float]:
    every = list(series)
    return min(one.start for one in every), max(one.end for one in every)


def _store_recording(path: Path, database: Path) -> _Judgeable:
    """A recording's ticks likewise; the label is its own."""
    recording = read_recording(path)
    header = recording.header
    window = Window(recording.start, recording.ticks[-1].ts)
    workload_id = _store(database, path.name, [(header.node, header.gpus, header.ports, recording.ticks)], window)
    limit = header.label.bottleneck
    return _Judgeable(
        database, window, workload_id, header.label.kind, None if limit == ABSTAINED else limit,
        f"{path.name} {header.made.method}: {header.label.work}",
    )  # fmt: skip


def _store(
    database: Path,
    key: str,
    nodes: Sequence[tuple[Node, tuple[Gpu, ...], tuple[FabricPort, ...], tuple[Tick, ...]]],
    window: Window,
) -> str:
    """Write ticks as the agent does, roll them up as it does, and return the id of the workload that holds the GPUs.

    The workload's name tells nothing: a file called after its label must not give it away.
    """
    digest = sha256(key.encode()).hexdigest()[:16]
    workload = Workload(f"w-{digest}", f"s-{digest}", f"series-{digest[:6]}", "process")
    last = max(ticks[-1].ts for *_, ticks in nodes)
    with Writer.open(database, now=lambda: last) as writer:
        for node, gpus, ports, ticks in nodes:
            first = ticks[0].ts - ticks[0].interval_seconds
            own = writer.for_node(node, first)
            own.set_gpus(gpus, first)
            own.set_ports(ports, first)
            own.put_ticks(ticks)
            for gpu in gpus:
                if gpu.kind == "gpu" or not any(other.parent_uuid == gpu.uuid for other in gpus):
                    own.put_workload_use(workload, gpu.uuid, window.start, window.end, "allocation")
            own.set_node(node, last)
    # Long after the last tick every period is over.
    RollupJob(database).run(last + 86400.0)
    return workload.workload_id
