"""Energy of simulated fleets against their truth: the second-by-second power that the rollups were made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.demo.counters import observe
from skuwise.advisor.demo.seeded_rng import stream
from skuwise.advisor.demo.time_grid import stretches
from skuwise.advisor.demo.writer import demand
from skuwise.advisor.pipeline import AdviseOptions, advise
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.benchmarks.generators.first import plan_fleet, simulate
from skuwise.tests.support.rulebooks import rulebook

UNTIL = 1_790_000_000.0 // 3600 * 3600
SECONDS = 4 * 3600.0
KWH = 3.6e6


def truth(scenario: str, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """kWh by node and by workload of the seconds that the agent saw, summed before anything is rolled up. Of instances
    the whole GPU's energy is told, so only nodes are known there."""
    start = UNTIL - SECONDS
    fleet = plan_fleet(scenario, seed=seed, start=start, end=UNTIL)
    nodes: dict[str, float] = {}
    workloads: dict[str, float] = {}
    for planned in fleet.nodes:
        sim = planned.sim
        placed = fleet.on(sim.node.node)
        edges = [moment for p in placed for run in p.runs for moment in run]
        grid, rng = stream(seed, sim.node.node, "grid"), stream(seed, sim.node.node, "signals")
        for stretch in stretches(start, UNTIL, grid, whole_from=start, edges=edges, gaps=planned.gaps):
            assert stretch.whole
            t = stretch.seconds.ravel()
            load = demand(sim, placed, t)
            joules = observe(load, sim, rng, stretch.seconds.shape[1]).gpus["energy_joules"].astype(np.float64)
            nodes[sim.node.node] = nodes.get(sim.node.node, 0.0) + float(np.nansum(joules)) / KWH
            for one in placed:
                gpus = list(one.nodes[sim.node.node])
                for begin, stop in one.runs:
                    own = (t > begin) & (t <= stop)
                    drawn = float(np.nansum(joules[gpus][:, own])) / KWH
                    key = one.truth.workload_id
                    workloads[key] = workloads.get(key, 0.0) + drawn
    return nodes, workloads


def advised(scenario: str, seed: int, folder: Path) -> Advice:
    path = folder / "fleet"
    simulate(scenario, path, days=SECONDS / 86400, seed=seed, until=UNTIL, minutes_seconds=SECONDS)
    frame = read_frame([path], since_seconds=SECONDS)
    return advise(frame, rulebook(), AdviseOptions(UNTIL), np.random.default_rng(1))


def closes(advice: Advice) -> None:
    """Uses, nodes and workloads with what is nobody's sum to the fleet's energy."""
    e = advice.summary.energy
    assert e is not None and e.by_use is not None and e.kwh is not None
    u = e.by_use
    parts = (u.workloads, u.shared, u.allocated_idle, u.unallocated, u.drained)
    assert sum(parts) == pytest.approx(e.kwh, rel=1e-3)
    assert sum(n.kwh or 0.0 for n in advice.node_energy) == pytest.approx(e.kwh, rel=1e-3)
    assert sum(g.kwh or 0.0 for n in advice.node_energy for g in n.gpus) == pytest.approx(e.kwh, rel=1e-3)
    own = sum(w.energy.kwh or 0.0 for w in advice.workloads if w.energy is not None)
    assert own == pytest.approx(u.workloads + u.allocated_idle, rel=1e-3)
    assert sum(o.kwh or 0.0 for o in e.owners) == pytest.approx(own, rel=1e-3)
    assert sum(p.kwh or 0.0 for p in e.phases) == pytest.approx(own, rel=1e-3)
    assert e.measured_gpu_hours + e.unmeasured_gpu_hours == pytest.approx(advice.summary.gpu_hours, rel=1e-3)
    assert e.idle_kwh == pytest.approx((e.idle_held_kwh or 0.0) + (e.idle_free_kwh or 0.0), rel=1e-3)


@pytest.mark.parametrize("scenario", ["small", "fine-tuning", "phases"])
def test_the_energy_of_a_fleet_is_the_simulators_within_a_percent(scenario: str, tmp_path: Path) -> None:
    nodes, workloads = truth(scenario, 3)
    advice = advised(scenario, 3, tmp_path)
    e = advice.summary.energy
    assert e is not None and e.basis == "counter"
    assert e.kwh == pytest.approx(sum(nodes.values()), rel=0.01)
    assert {n.node: n.kwh for n in advice.node_energy} == pytest.approx(nodes, rel=0.01)
    found = {w.id: w.energy.kwh for w in advice.workloads if w.energy is not None}
    expected = {key: kwh for key, kwh in workloads.items() if kwh > 0.01}
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=0.01)
    closes(advice)


def test_instances_share_their_gpus_energy_and_it_closes(tmp_path: Path) -> None:
    nodes, _ = truth("mig", 0)
    advice = advised("mig", 0, tmp_path)
    e = advice.summary.energy
    assert e is not None and e.kwh == pytest.approx(sum(nodes.values()), rel=0.01)
    closes(advice)
    for w in advice.workloads:
        assert w.energy is not None and w.energy.kwh is not None and w.energy.kwh > 0
