"""Fleets before they are written: layouts, truth, and the seconds that are made."""

import functools
import itertools
from collections.abc import Iterator
from typing import get_args

import numpy as np
import pytest
from skuwise.advisor import demo
from skuwise.advisor.core.fleet_identity import is_simulated
from skuwise.advisor.demo.builder import FleetPlan, Placed
from skuwise.advisor.demo.hardware import SimNode
from skuwise.advisor.demo.seeded_rng import stream
from skuwise.advisor.demo.writer import Counters, demand
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
