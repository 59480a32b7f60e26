"""Simulates a fleet into databases, through the store that a real agent writes."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...agent.store.writer import Writer
from ...rules.base.errors import UsageError
from ...rules.base.output import Steps, no_steps
from ...rules.catalog.loader import load_catalog
from ...rules.catalog.types import GpuSku, NodeSku
from ..core.fleet_identity import fleet_mark
from .builder import Builder, FleetPlan, PlannedNode, Truth
from .hardware import SimNode
from .seeded_rng import TABLES, stream
from .writer import HOUR, write_node

MINUTES_SECONDS = 6 * 3600.0
_FLEETS = TABLES["fleets"]


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """What was made. Times are Unix seconds; `files` are the databases, in the order of the nodes."""

    start: float
    end: float
    files: tuple[Path, ...]
    fleet: FleetPlan
    truths: tuple[Truth, ...]


def plan_fleet(scenario: str, *, seed: int, start: float, end: float) -> FleetPlan:
    """The fleet that `simulate` would write. `scenario`: of ``fleets.toml``."""
    builder = Builder(node_skus(), seed, start, end, mark=fleet_mark(scenario, seed, start, end))
    place_groups(builder, scenario)
    return builder.fleet


def place_groups(b: Builder, scenario: str) -> None:
    """Make the nodes of a scenario and put work on them."""
    nodes: list[SimNode] = []
    for group in _FLEETS[scenario]["groups"]:
        work, replicas = group["work"], count(b, "replicas", group.get("replicas", 1))
        if "sku" in group:
            how = {"tcp_port_counted": group.get("tcp_port_counted", False)}
            nodes = b.nodes(group["prefix"], count(b, scenario, group["nodes"]), group["sku"], **how)
        if work in ("service", "wide-service"):
            b.service(nodes, replicas=replicas, over_provisioned=work == "wide-service")
        elif work in ("tuning", "held"):
            for node in nodes:
                (b.tuning if work == "tuning" else b.held)(node, tuple(group.get("gpus", node.whole)))
        elif work == "bare":
            b.bare(nodes)
        else:
            b.pretraining(nodes, work)


def count(b: Builder, what: str, number: int | list[int]) -> int:
    """`number`, or one within its bounds that the seed and the name of `what` is counted decide."""
    if isinstance(number, int):
        return number
    return int(stream(b.seed, "layout", what).integers(number[0], number[1] + 1))


def simulate(
    scenario: str,
    path: Path,
    *,
    days: float = 14,
    seed: int = 0,
    until: float,
    minutes_seconds: float = MINUTES_SECONDS,
    nodes: Collection[str] = (),
    steps: Steps = no_steps,
    planner: Callable[..., FleetPlan] = plan_fleet,
    write: Callable[..., None] = write_node,
) -> SimulationReport:
    """Write a labelled fleet to `path`: one file where it ends in ``.db``, else a folder with a file for each node.

    The window is `days` long and ends at the last full hour of `until` (Unix seconds); minutes cover its last
    `minutes_seconds`. The same scenario, seed, days and until give the same fleet; of it only `nodes` are written
    (empty: all). `planner`, `write`: other fleets than `plan_fleet`'s, other tables than `write_node`'s. Raises
    UsageError where a file is already there.
    """
    end = float(np.floor(until / HOUR) * HOUR)
    start = end - float(np.round(days * 24)) * HOUR
    fleet = planner(scenario, seed=seed, start=start, end=end)
    if nodes:
        fleet = replace(fleet, nodes=[node for node in fleet.nodes if node.sim.node.node in nodes])
    single = path.suffix == ".db"
    groups = {path: fleet.nodes} if single else {path / f"{n.sim.node.node}.db": (n,) for n in fleet.nodes}
    if there := sorted(file for file in groups if file.exists()):
        raise UsageError(f"{there[0]} already exists.", "Use another path with --db, or remove the file.")
    (path.parent if single else path).mkdir(parents=True, exist_ok=True)
    minutes_from, done = max(start, end - float(np.ceil(minutes_seconds / HOUR)) * HOUR), 0
    for file, group in groups.items():
        with Writer.open(file, now=lambda: end) as writer:
            for node in group:
                name = node.sim.node.node
                steps(done, len(fleet.nodes))
                node_writer = writer.for_node(node.sim.node, start)
                write(node_writer, node, fleet.on(name), seed=seed, start=start, end=end, minutes_from=minutes_from)
                done += 1
            truths = _truths(fleet, group)
            writer.put_truth([(t.workload_id, t.kind, t.bottleneck, ",".join(t.waste)) for t in truths])
    return SimulationReport(start, end, tuple(groups), fleet, _truths(fleet, fleet.nodes))


def node_skus() -> dict[str, tuple[NodeSku, GpuSku]]:
    """The node types of the catalog that ships, with their GPUs."""
    catalog = load_catalog()
    return {name: (sku, catalog.gpus[sku.gpu]) for name, sku in catalog.nodes.items() if sku.gpu in catalog.gpus}


def _truths(fleet: FleetPlan, nodes: Sequence[PlannedNode]) -> tuple[Truth, ...]:
    names = {node.sim.node.node for node in nodes}
    used = tuple(p.truth for p in fleet.placed if names & p.nodes.keys())
    return (*dict.fromkeys(used), *(truth for truth in fleet.bare if truth.workload_id.removeprefix("node:") in names))
