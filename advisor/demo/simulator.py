"""Simulates a fleet into databases, through the store that a real agent writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...agent.store.writing.writer import Writer
from ...rules.base.errors import UsageError
from ...rules.base.progress import Steps, no_steps
from ...rules.catalog.loader import load_catalog
from .fleet_builder import Builder
from .fleet_plan import FleetPlan, PlannedNode, Truth
from .scenarios import LAYOUTS, Layout, plan
from .skus import NODE_SKUS
from .time_grid import HOUR
from .writer import write_node

_DAY = 86400.0
MINUTES_SECONDS = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """What was made. Times are Unix seconds; `files` are the databases, in the order of the nodes.

    `lives`: hours of each workload (by id) from its first start to its last end, or to the fleet's.
    """

    scenario: str
    seed: int
    start: float
    end: float
    files: tuple[Path, ...]
    nodes: tuple[str, ...]
    gpu_count: int
    truths: tuple[Truth, ...]
    lives: Mapping[str, float]


def simulate(
    scenario: str,
    path: Path,
    *,
    days: float = 14,
    seed: int = 0,
    until: float,
    minutes_seconds: float = MINUTES_SECONDS,
    samples_seconds: float = 0,
    nodes: Collection[str] = (),
    scraped: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    steps: Steps = no_steps,
    layouts: Mapping[str, Layout] = LAYOUTS,
) -> SimulationReport:
    """Write a labelled fleet to `path`: one file where it ends in ``.db``, else a folder with a file for each node.

    The window is `days` long and ends at the last full hour of `until` (Unix seconds). Hours cover all of it, minutes
    its last `minutes_seconds`, raw samples its last `samples_seconds`. `scraped`: hours alone, as a server makes them
    that scrapes an exporter once a minute, where else an agent looks every second. The same scenario, seed, days and
    until give the same fleet; of it only `nodes` are written (empty: all). The truth about each workload stands in the
    table ``truth`` of every file that holds the workload, that about the phases of those that change in
    ``truth_phases``.
    Raises UsageError where the scenario is unknown, the length makes no sense, or a file is already there.
    """
    if not 1 / 24 <= days <= 400:
        raise UsageError(f"Invalid window of {days:g} days.", "Use 0.05 to 400 days.")
    if seed < 0:
        raise UsageError(f"Invalid seed {seed}: it is negative.", "Use 0 or more.")
    end = float(np.floor(until / HOUR) * HOUR)
    start = end - float(np.round(days * 24)) * HOUR
    fleet = plan_fleet(scenario, seed=seed, start=start, end=end, layouts=layouts)
    if nodes:
        fleet = replace(fleet, nodes=tuple(node for node in fleet.nodes if node.sim.node.node in nodes))
    files = _files(path, fleet)
    _refuse_existing(set(files))
    (path.parent if path.suffix == ".db" else path).mkdir(parents=True, exist_ok=True)
    span = {
        "seed": seed,
        "start": start,
        "end": end,
        "minutes_from": max(start, end - float(np.ceil(minutes_seconds / HOUR)) * HOUR),
        "samples_from": max(start, end - samples_seconds),
        "scraped": scraped,
    }
    single = len(set(files)) == 1
    writer = Writer.open(files[0], now=lambda: end) if single else None
    try:
        for number, (node, file) in enumerate(zip(fleet.nodes, files, strict=True), start=1):
            progress(f"{node.sim.node.node} ({number} of {len(fleet.nodes)})")
            steps(number - 1, len(fleet.nodes))
            if writer is not None:
                _write(writer, fleet, node, span)
                continue
            with Writer.open(file, now=lambda: end) as own:
                _write(own, fleet, node, span)
                _put_truths(own, _truths(fleet, (node,)))
        if writer is not None:
            _put_truths(writer, _truths(fleet, fleet.nodes))
    finally:
        if writer is not None:
            writer.close()
    return SimulationReport(
        scenario=scenario,
        seed=seed,
        start=start,
        end=end,
        files=tuple(dict.fromkeys(files)),
        nodes=tuple(node.sim.node.node for node in fleet.nodes),
        gpu_count=sum(len(node.sim.gpus) for node in fleet.nodes),
        truths=_truths(fleet, fleet.nodes),
        lives={p.truth.workload_id: (p.runs[-1][1] - p.runs[0][0]) / HOUR for p in fleet.placed},
    )


def plan_fleet(
    scenario: str, *, seed: int, start: float, end: float, layouts: Mapping[str, Layout] = LAYOUTS
) -> FleetPlan:
    """The fleet that `simulate` would write, from the catalog that ships."""
    catalog = load_catalog()
    skus = {name: (catalog.nodes[name], catalog.gpus[catalog.nodes[name].gpu]) for name in NODE_SKUS}
    return plan(scenario, Builder(skus, seed, start, end), layouts)


def _write(writer: Writer, fleet: FleetPlan, node: PlannedNode, span: dict[str, float]) -> None:
    sim = node.sim
    write_node(writer.for_node(sim.node, span["start"]), node, fleet.on(sim.node.node), **span)  # type: ignore[arg-type]


def _files(path: Path, fleet: FleetPlan) -> list[Path]:
    if path.suffix == ".db":
        return [path] * len(fleet.nodes)
    return [path / f"{node.sim.node.node}.db" for node in fleet.nodes]


def _refuse_existing(files: set[Path]) -> None:
    there = sorted(file for file in files if file.exists())
    if there:
        raise UsageError(f"{there[0]} already exists.", "Use another path with --db, or remove the file.")


def _truths(fleet: FleetPlan, nodes: Sequence[PlannedNode]) -> tuple[Truth, ...]:
    names = {node.sim.node.node for node in nodes}
    used = tuple(p.truth for p in fleet.placed if names & p.nodes.keys())
    return (*dict.fromkeys(used), *(truth for truth in fleet.bare if truth.workload_id.removeprefix("node:") in names))


def _put_truths(writer: Writer, truths: Sequence[Truth]) -> None:
    writer.put_truth([(t.workload_id, t.kind, t.bottleneck, ",".join(t.waste)) for t in truths])
    phases = [(t.workload_id, p.start, p.end, p.kind, p.bottleneck) for t in truths for p in t.phases]
    if phases:
        writer.put_true_phases(phases)
