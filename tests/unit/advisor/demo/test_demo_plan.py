"""Fleets before they are written: layouts, truth, and the seconds that are made."""

import functools
import itertools
from collections.abc import Iterator
from typing import get_args

import numpy as np
import pytest
from skuwise.advisor import demo
from skuwise.advisor.core.fleet_identity import is_simulated
from skuwise.advisor.demo.builder import FleetPlan, Placed, PlannedNode
from skuwise.advisor.demo.hardware import SimNode
from skuwise.advisor.demo.seeded_rng import drawn, smooth, stream, uniform_at
from skuwise.advisor.demo.writer import HOUR, WINDOW_SECONDS, Counters, Stretch, demand, stretches
from skuwise.benchmarks.generators import first
from skuwise.benchmarks.generators.first import SCENARIOS, plan_fleet
from skuwise.benchmarks.generators.first.nodes import observe
from skuwise.rules.base.errors import UsageError
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel
from skuwise.rules.policy.thresholds import load_waste_rules

END = 1_763_683_200.0
DAY = 86400.0
WINDOW = {"start": END - 14 * DAY, "end": END}


@pytest.mark.parametrize("scenario", sorted(set(first.SCENARIOS) - {"fleet"}))
def test_truth_is_told_in_the_agreed_words(scenario, seed_of):
    fleet = first.plan_fleet(scenario, seed=seed_of(2), **WINDOW)
    truths = [*{p.truth for p in fleet.placed}, *fleet.bare]
    assert len({t.workload_id for t in truths}) == len(truths) > 0
    for truth in truths:
        assert truth.kind in get_args(KindLabel) and truth.bottleneck in get_args(BottleneckLabel)
        assert set(truth.waste) <= set(load_waste_rules())
        assert truth.kind != "training" or "idle-fabric" not in truth.waste


def test_no_two_jobs_have_one_number():
    # Of this seed two jobs of one cluster drew the number 298985.
    fleet = first.plan_fleet("varied", seed=4033536277, **WINDOW)
    numbers = {p.workload.workload_id: (p.workload.name, p.workload.user) for p in fleet.placed}
    assert len({p.truth for p in fleet.placed}) == len(numbers)
    assert all(p.truth.workload_id == p.workload.workload_id for p in fleet.placed)


@pytest.mark.parametrize(("scenario", "seed"), [("small", 0), ("small", 1), ("fleet", 0)])
def test_nobody_shares_a_gpu_and_nothing_runs_beyond_the_window(scenario, seed, seed_of):
    fleet = demo.plan_fleet(scenario, seed=seed_of(seed), **WINDOW)
    spans: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for p in fleet.placed:
        for node, gpus in p.nodes.items():
            for gpu in gpus:
                spans.setdefault((node, gpu), []).extend(p.runs)
        hours = sum(stop - begin for begin, stop in p.runs) / 3600
        assert p.truth.kind != "fine-tuning" or (len(p.nodes) == 1 and hours < 24)
        assert p.truth.kind != "training" or len(p.nodes) > 1 or hours > 24
    for runs in spans.values():
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(sorted(runs)))
        assert all(begin < stop <= END and stop > END - 14 * DAY for begin, stop in runs)


def test_two_simulated_fleets_have_no_gpu_and_so_no_ledger_in_common():
    week = {"start": END - 7 * DAY, "end": END + 7 * DAY}
    fleets = [demo.plan_fleet(scenario, seed=seed, **window) for scenario, seed, window in (
        ("small", 0, WINDOW), ("small", 1, WINDOW), ("small", 0, week), ("founding", 0, WINDOW), ("fleet", 0, WINDOW),
    )]  # fmt: skip
    gpus = [(g.uuid, n.sim.node.node, g.index) for fleet in fleets for n in fleet.nodes for g in n.sim.gpus]
    assert len({uuid for uuid, _, _ in gpus}) == len(gpus) > 300 and all(is_simulated(*gpu) for gpu in gpus)
    assert not is_simulated("GPU-5e1e1c2a-7d3b-4c0f-9a55-0123456789ab", "n1", 0)
    again = demo.plan_fleet("small", seed=0, **WINDOW)
    assert [g.uuid for n in again.nodes for g in n.sim.gpus] == [uuid for uuid, _, _ in gpus[:104]]


def test_the_small_fleet_holds_the_commonest_kinds_and_a_partner_for_a_swap():
    fleet = demo.plan_fleet("small", seed=0, **WINDOW)
    kinds = {(p.truth.kind, p.truth.bottleneck) for p in fleet.placed}
    assert kinds - {("fine-tuning", "host-input")} == {
        *(("training", limit) for limit in ("compute", "network", "pcie")),
        ("fine-tuning", "compute"),
        *(("online-inference", limit) for limit in ("hbm-bandwidth", "latency")),
        ("idle", "idle"),
    }
    assert (len(fleet.nodes), len(fleet.bare)) == (13, 1)
    places = {node.sim.node.node: (node.sim.node.provider, node.sim.node.region) for node in fleet.nodes}
    silent = {places[n] for p in fleet.placed if "idle-fabric" in p.truth.waste for n in p.nodes}
    starved = {places[n] for p in fleet.placed if p.truth.bottleneck == "network" and p.truth.waste for n in p.nodes}
    assert starved & silent == {("azure", "eastus")}


def test_the_fleet_has_sixty_nodes_of_all_sorts_from_the_catalog():
    catalog, fleet = load_catalog(), demo.plan_fleet("fleet", seed=0, **WINDOW)
    assert len({n.sim.node.node for n in fleet.nodes}) == len(fleet.nodes) == 60
    assert len({n.sim.sku.name for n in fleet.nodes}) == 16
    for node in fleet.nodes:
        sku, gpu = node.sim.sku, node.sim.gpus[0]
        assert len(node.sim.gpus) == sku.gpu_count and gpu.mem_total_bytes == catalog.gpus[sku.gpu].mem_bytes
        assert catalog.gpu(gpu.name) == catalog.gpus[sku.gpu]  # the driver's name leads to the same SKU
    assert {p.truth.kind for p in fleet.placed} == {"training", "fine-tuning", "online-inference", "idle"}


def test_a_seed_gives_one_fleet_and_another_seed_another():
    one, same, other = (demo.plan_fleet("small", seed=seed, **WINDOW).placed for seed in (5, 5, 6))
    assert one == same != other
    with pytest.raises(UsageError, match="founding"):
        demo.plan_fleet("nonsense", seed=0, **WINDOW)


def test_ranges_are_drawn_in_their_order():
    ranges = {
        "a": 2.5, "b": [1.0, 2.0], "c": {"log": [1.0, 100.0]}, "d": {"chance": 1.0}, "e": {"nvlink": 1, "pcie": 2},
        "f": {"chance": 0.0, "then": 1, "else": [5.0, 5.0]},
    }  # fmt: skip
    values = drawn(np.random.default_rng(1), ranges, "pcie")
    rng = np.random.default_rng(1)
    assert (values["a"], values["b"], values["d"], values["e"]) == (2.5, rng.uniform(1, 2), True, 2)
    assert values["f"] == 5.0 and 1 <= values["c"] <= 100


def grid(end: float, *gaps: tuple[float, float], whole_from: float | None = None) -> list[Stretch]:
    sim = demo.plan_fleet("founding", seed=0, **WINDOW).nodes[0].sim
    node = PlannedNode(sim, gaps, ())
    return list(stretches(node, (), seed=0, start=0.0, end=end, whole_from=end if whole_from is None else whole_from))


def test_hours_are_windows_and_whole_where_it_matters():
    made = grid(10.0 * HOUR, (5 * HOUR + 600, 5 * HOUR + 1200), whole_from=8 * HOUR)
    assert np.concatenate([s.hours for s in made]).tolist() == [HOUR * n for n in range(1, 11)]
    assert {hour / HOUR for s in made if s.whole for hour in s.hours} == {6, 9, 10}
    for stretch in made:
        inside = stretch.seconds
        assert np.all((inside > stretch.hours[:, None] - HOUR) & (inside <= stretch.hours[:, None]))
        assert inside.shape[1] == (stretch.observed[0] if stretch.whole else WINDOW_SECONDS)
    torn = next(s for s in made if s.hours[0] == 6 * HOUR)
    assert torn.observed.tolist() == [3000]
    assert not np.any((torn.seconds > 5 * HOUR + 600) & (torn.seconds <= 5 * HOUR + 1200))


def test_an_hour_without_an_agent_has_no_row():
    made = grid(4.0 * HOUR, (HOUR - 60, 2 * HOUR + 60))
    observed = {hour: seen for s in made for hour, seen in zip(s.hours, s.observed, strict=True)}
    assert observed == {HOUR: 3540, 3 * HOUR: 3540, 4 * HOUR: 3600}


START = END - 6 * DAY
SECONDS = 600
RATIOS = ("gpu_util", "sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp32_active")


@functools.cache
def planned(scenario: str, seed: int = 1) -> FleetPlan:
    return plan_fleet(scenario, seed=seed, start=START, end=END)


def seen(scenario: str, seed: int = 1) -> Iterator[tuple[SimNode, Placed, list[int], Counters]]:
    """The last workloads of every node, with their GPUs and the node's counters in ten minutes amid their longest."""
    fleet = planned(scenario, seed)
    for node in fleet.nodes:
        sim = node.sim
        last = fleet.on(sim.node.node)[-2:]
        for placed in last:
            begin, stop = max(placed.runs, key=lambda run: run[1] - max(run[0], START))
            middle = np.floor((max(begin, START) + stop) / 2) + np.arange(1, SECONDS + 1)
            counters = observe(demand(sim, last, middle), sim, stream(seed, "x"), SECONDS)
            yield sim, placed, list(placed.nodes[sim.node.node]), counters


def mean(counters: Counters, name: str, gpus: list[int]) -> float:
    return float(np.nanmean(counters.gpus[name][gpus]))


@pytest.mark.parametrize("scenario", sorted(set(SCENARIOS) - {"fleet"}))
def test_no_counter_beats_its_sku_and_silent_fabrics_are_silent(scenario: str) -> None:
    for sim, placed, _, counters in seen(scenario):
        gpu, sku, seconds = sim.gpu, sim.gpu.sku, counters.gpus
        for name in set(RATIOS) & seconds.keys():
            assert 0 <= np.nanmin(seconds[name], initial=0) <= np.nanmax(seconds[name], initial=0) <= 1, name
        if "tensor_active" in seconds:
            reached = seconds["tensor_active"] * seconds["sm_clock_hertz"] / sku.tensor_reference_hertz
            assert np.nanmax(reached, initial=0) <= gpu.eta_compute * 1.001
        assert np.all(seconds["mem_used_bytes"] <= np.array([[float(g.mem_total_bytes or 0)] for g in sim.gpus]))
        assert np.nanmax(seconds["power_watts"]) <= sku.tdp_watts * 1.0001
        assert np.nanmin(seconds["power_watts"]) > 0.8 * gpu.idle_watts
        assert np.nanmax(seconds["sm_clock_hertz"]) <= sku.boost_hertz + 15e6
        assert np.nanmax(seconds["temperature_celsius"]) < 100
        assert np.array_equal(seconds["energy_joules"], seconds["power_watts"], equal_nan=True)  # one second each
        for way in ("tx", "rx"):
            assert np.nanmax(seconds[f"pcie_{way}_bytes_per_second"]) <= sku.pcie_bytes_per_second
            if gpu.nvlink:
                assert np.nanmax(seconds[f"nvlink_{way}_bytes_per_second"]) <= gpu.nvlink
            for traffic, port in zip(counters.fabric.get(f"{way}_bytes_per_second", ()), sim.ports, strict=False):
                rate = port.line_rate_bytes_per_second or 0
                assert 0 <= traffic.min() <= traffic.max() <= rate
                if port.role == "compute" and "idle-fabric" in placed.truth.waste:
                    assert traffic.max() < 0.001 * rate
        for name in ("cpu_util", "io_wait"):
            assert 0 <= counters.host[name].min() <= counters.host[name].max() <= 1


def test_any_second_can_be_made_alone() -> None:
    t = np.arange(1.7e9, 1.7e9 + 100)
    assert np.array_equal(smooth(9, t, 30.0)[40:60], smooth(9, t[40:60], 30.0))
    noise = uniform_at(7, np.arange(20_000))
    assert 0 <= noise.min() < noise.max() < 1 and noise.mean() == pytest.approx(0.5, abs=0.01)
    fleet = planned("founding")
    sim = fleet.nodes[0].sim
    t = END - 600 + np.arange(1.0, 601.0)
    whole, part = (demand(sim, fleet.on(sim.node.node), at) for at in (t, t[100:200]))
    assert np.array_equal(whole.memory[:, 100:200], part.memory)


@pytest.mark.parametrize("seed", range(3))
def test_founding_serves_from_flat_memory(seed: int) -> None:
    for sim, placed, gpus, counters in seen("founding", seed):
        memory = counters.gpus["mem_used_bytes"][gpus] / sim.gpu.sku.mem_bytes
        assert np.all((memory > 0.849) & (memory < 0.951)) and memory.std(axis=1).max() < 1e-3
        # Bound by memory: its use leads that of the tensor cores, both against what the SKU sustains.
        used = mean(counters, "dram_active", gpus) / sim.gpu.eta_memory
        assert used > 1.25 * mean(counters, "tensor_active", gpus) / sim.gpu.eta_compute
        assert mean(counters, "nvlink_tx_bytes_per_second", gpus) > 0  # tensor parallelism inside the node
        assert (placed.truth.kind, sim.node.region) == ("online-inference", "eastus")
