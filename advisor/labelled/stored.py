"""Labelled series and recordings, brought through the real store: each in a database of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ...agent.model import FabricPort, Gpu, Node, Tick, Workload
from ...agent.store.rollup.rollups import RollupJob
from ...agent.store.writing.writer import Writer
from ...benchmarks.evaluation.recordings import read_recording
from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from ...rules.catalog.loader import Catalog
from ..core.frame import Window
from .csv_rows import PACKED
from .labels import Label
from .series import NodeSeries, read_series

_ABSTAINED = "unknown"
_Node = tuple[Node, tuple[Gpu, ...], tuple[FabricPort, ...], tuple[Tick, ...]]


@dataclass(frozen=True, slots=True)
class Stored:
    """A database of its own for one label: `workload_id` in it, seen in `window`."""

    database: Path
    window: Window
    workload_id: str


def store_series(label: Label, catalog: Catalog, database: Path) -> Stored:
    """A series' ticks in a database of its own, with one workload over the label's span on all its GPUs."""
    assert label.file is not None
    plain = label.file.name.removesuffix(PACKED).removesuffix(".csv")
    beside = next(
        (one for end in ("", PACKED) if (one := label.file.with_name(f"{plain}.fabric.csv{end}")).is_file()), None
    )
    series = read_series(label.file, beside)
    sku = catalog.gpu(label.gpu) if label.gpu else None
    if label.gpu and sku is None:
        raise UsageError(f"{label.where}: unknown GPU {clean(label.gpu)!r}.", "Run skuwise skus list for all names.")
    nodes: list[_Node] = []
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
        raise UsageError(f"{label.where}: no data in {label.file.name} for that time span.", "Correct start and end.")
    workload_id = _store(database, f"{label.file.name}/{label.start}", nodes, window)
    return Stored(database, window, workload_id)


def _span(series: Iterable[NodeSeries]) -> tuple[float, float]:
    every = list(series)
    return min(one.start for one in every), max(one.end for one in every)


def store_recording(path: Path, database: Path) -> tuple[Stored, Label]:
    """A recording's ticks likewise, with the label that it carries itself."""
    recording = read_recording(path)
    header = recording.header
    window = Window(recording.start, recording.ticks[-1].ts)
    workload_id = _store(database, path.name, [(header.node, header.gpus, header.ports, recording.ticks)], window)
    limit, told = header.label.bottleneck, f"{header.made.method}: {header.label.work}"
    label = Label(
        path.name,
        None,
        path,
        header.label.kind,
        None if limit == _ABSTAINED else limit,
        None,
        None,
        None,
        told,
        None,
        "",
    )
    return Stored(database, window, workload_id), label


def _store(
    database: Path,
    key: str,
    nodes: Sequence[_Node],
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
