"""Labelled series of any folder, stored and judged as an agent's own data, and held against their labels.

    python -m skuwise.benchmarks.evaluation.evaluate --labelled DIR

The format of DIR stands in docs/method.md. What is wrong with it is said with file and line.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal, get_args

from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.frame import Window
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.agent.model import Gpu, Node, Workload
from skuwise.agent.store.rollup.rollups import RollupJob
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import NothingToDo, UsageError
from skuwise.rules.catalog.loader import Catalog
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel

from ..scoring import Score
from .labelled_csv import PACKED, Row, read_series, rows_of

Part = Literal["fit", "judge"]
LABELS = "labels.csv"
_COLUMNS = {"file", "kind", "bottleneck", "start", "end", "gpu", "source", "part", "group"}


@dataclass(frozen=True, slots=True)
class Label:
    """One line of labels.csv: what the series of `file` was.

    `start`, `end`: Unix seconds, None: from the first, to the last. `bottleneck` None: not scored. `gpu`: the GPU of a
    series, as the driver or the catalog calls it. `where`: file and line, for errors. `part`: whether something may be
    fitted on it or it is for judging alone; None: nothing was said. `group`: labels of one are left out together.
    """

    where: str
    file: Path
    kind: str
    bottleneck: str | None
    start: float | None
    end: float | None
    gpu: str | None
    source: str
    part: Part | None
    group: str


@dataclass(frozen=True, slots=True)
class Judged:
    """A label and the verdict on its series. `verdict` None: nothing of it was seen. `about`: it, in a few words."""

    label: Label
    verdict: WorkloadVerdict | None
    about: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A database of its own for one label: `workload_id` in it, seen in `window`."""

    database: Path
    window: Window
    workload_id: str


def read_labels(folder: Path) -> list[Label]:
    """The labels of a folder. Raises UsageError."""
    path = folder / LABELS
    if not path.is_file():
        raise UsageError(f"No {LABELS} in {folder}.", "See docs/method.md for the expected files.")
    return [_label(folder, row) for row in rows_of(path, _COLUMNS, {"file", "kind"})]


def _label(folder: Path, row: Row) -> Label:
    file = folder / row.text("file")
    # A series lies in the folder itself: what leads out of it is refused.
    if not file.name.removesuffix(PACKED).endswith(".csv") or file.resolve().parent != folder.resolve():
        raise UsageError(
            f"{row.where}: {row.text('file')!r} is no CSV file of this folder.", "Name one, without a path."
        )
    return Label(
        where=row.where,
        file=file,
        kind=_choice(row, "kind", get_args(KindLabel)) or "",
        bottleneck=_choice(row, "bottleneck", get_args(BottleneckLabel)),
        start=parse_moment(row.text("start")) if row.text("start") else None,
        end=parse_moment(row.text("end")) if row.text("end") else None,
        gpu=row.text("gpu") or None,
        source=row.text("source"),
        part=_choice(row, "part", get_args(Part)),  # type: ignore[arg-type]
        group=row.text("group") or file.name,
    )


def _choice(row: Row, name: str, choices: tuple[str, ...]) -> str | None:
    told = row.text(name)
    if told == "unknown" or ((told or name == "kind") and told not in choices):
        raise UsageError(f"{row.where}: {name} is {told[:40]!r}.", f"Choose one of {', '.join(choices)}.")
    return told or None


def store_series(label: Label, catalog: Catalog, database: Path) -> Stored:
    """A series' ticks in a database of its own, written and rolled up as the agent does, with one workload over the
    label's span on all its GPUs. Its name tells nothing: a file called after its label must not give it away."""
    series = read_series(label.file)
    sku = catalog.gpu(label.gpu) if label.gpu else None
    if label.gpu and sku is None:
        raise UsageError(f"{label.where}: unknown GPU {label.gpu!r}.", "Run skuwise skus list for all names.")
    ticks = {name: one.ticks for name, one in series.items()}
    first = min(own[0].ts - own[0].interval_seconds for own in ticks.values())
    last = max(own[-1].ts for own in ticks.values())
    window = Window(max(first, label.start or first), min(last, label.end or last))
    if window.end <= window.start:
        raise UsageError(f"{label.where}: no data in {label.file.name} for that time span.", "Correct start and end.")
    digest = sha256(f"{label.file.name}/{label.start}".encode()).hexdigest()[:16]
    workload = Workload(f"w-{digest}", f"s-{digest}", f"series-{digest[:6]}", "process")
    with Writer.open(database, now=lambda: last) as writer:
        for name, one in series.items():
            begin = ticks[name][0].ts - ticks[name][0].interval_seconds
            gpus = [
                Gpu(
                    uuid, index, sku.name if sku else "unknown GPU", sku=sku.name if sku else None,
                    mem_total_bytes=total or (sku.mem_bytes if sku else None),
                    power_limit_watts=sku.tdp_watts if sku else None,
                    nvlink_bytes_per_second=sku.nvlink_bytes_per_second if sku else None,
                )
                for uuid, (index, total) in one.gpus.items()
            ]  # fmt: skip
            node = Node(name, "labelled", gpu_count=len(gpus))
            own = writer.for_node(node, begin)
            own.set_gpus(gpus, begin)
            own.put_ticks(ticks[name])
            for gpu in gpus:
                own.put_workload_use(workload, gpu.uuid, window.start, window.end, "allocation")
            own.set_node(node, last)
    RollupJob(database).run(last + 86400.0)  # long after the last tick every period is over
    return Stored(database, window, workload.workload_id)


def judged(folder: Path) -> Iterator[Judged]:
    """Everything that a folder labels, with the verdicts of the rules that ship. Raises UsageError."""
    book = load_rulebook(None, None, 0.0)
    with tempfile.TemporaryDirectory() as scratch:
        for n, label in enumerate(read_labels(folder)):
            stored = store_series(label, book.catalog, Path(scratch) / f"{n}.db")
            try:
                found = judge(read_frame([stored.database], stored.window), book).workloads
            except NothingToDo:
                found = ()
            verdict = next((one for one in found if one.id == stored.workload_id), None)
            yield Judged(label, verdict, f"{label.file.name} {label.source}")


def score_of(found: Iterable[Judged]) -> Score:
    """Verdicts counted against their labels."""
    out = Score()
    for one in found:
        out.count(one.label.kind, one.label.bottleneck, one.verdict, one.about)
    return out
