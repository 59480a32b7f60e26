"""Every scenario: no counter beats its SKU, what must be silent is silent, and each limit shows where it should."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from skuwise.advisor.demo.counters import Counters, observe
from skuwise.advisor.demo.fleet_plan import FleetPlan, Placed
from skuwise.advisor.demo.hardware import SimNode
from skuwise.advisor.demo.seeded_rng import stream
from skuwise.advisor.demo.writer import demand
from skuwise.agent.metrics import THROTTLE_MASK
from skuwise.benchmarks.generators.first import SCENARIOS, plan_fleet

DAY = 86400.0
END = 1_763_683_200.0  # a Friday
START = END - 6 * DAY
SECONDS = 600
SINGLE = [name for name in SCENARIOS if name not in ("fleet", "small", "moved")]
RATIOS = ("gpu_util", "sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp32_active")


def planned(scenario: str, seed: int = 1) -> FleetPlan:
    return plan_fleet(scenario, seed=seed, start=START, end=END)


def seconds(placed: Placed, hour: float | None = None) -> np.ndarray:
    """Ten minutes amid a workload's longest run, or from an hour of its second day on."""
    begin, stop = max(placed.runs, key=lambda run: run[1] - max(run[0], START))
    first = np.floor((max(begin, START) + stop) / 2) if hour is None else np.floor(END / DAY) * DAY - DAY + hour * 3600
    return first + np.arange(1, SECONDS + 1)


def seen(scenario: str, seed: int = 1) -> Iterator[tuple[SimNode, Placed, list[int], Counters]]:
    """The last workloads of every node, with their GPUs and the node's counters while they ran."""
    fleet = planned(scenario, seed)
    for node in fleet.nodes:
        sim = node.sim
        last = fleet.on(sim.node.node)[-3:]
        for placed in last:
            t = seconds(placed)
            counters = observe(demand(sim, last, t), sim, stream(seed, "x"), SECONDS)
            yield sim, placed, list(placed.nodes[sim.node.node]), counters


def mean(counters: Counters, name: str, gpus: list[int]) -> float:
    return float(np.nanmean(counters.gpus[name][gpus]))


@pytest.mark.parametrize("scenario", SINGLE)
def test_no_counter_beats_its_sku_and_silent_fabrics_are_silent(scenario: str) -> None:
    for sim, placed, _, counters in seen(scenario):
        sku = sim.gpu.sku
        total = np.array([[float(gpu.mem_total_bytes or 0)] for gpu in sim.gpus])
        for name in set(RATIOS) & counters.gpus.keys():
            values = counters.gpus[name]
            assert np.nanmin(values, initial=0) >= 0, name
            assert np.nanmax(values, initial=0) <= 1, name
        assert np.all(counters.gpus["mem_used_bytes"] <= total)
        assert np.nanmax(counters.gpus["power_watts"]) <= sku.tdp_watts * 1.0001
        assert np.nanmin(counters.gpus["power_watts"]) > 0.8 * sim.gpu.idle_watts
        assert np.nanmax(counters.gpus["sm_clock_hertz"]) <= sku.boost_hertz + 15e6
        assert np.nanmax(counters.gpus["temperature_celsius"]) < 100
        energy, power = counters.gpus["energy_joules"], counters.gpus["power_watts"]
        assert np.array_equal(energy, power, equal_nan=True)  # one second each
        for way in ("tx", "rx"):
            assert np.nanmax(counters.gpus[f"pcie_{way}_bytes_per_second"]) <= sku.pcie_bytes_per_second
            if sim.gpu.nvlink:
                assert np.nanmax(counters.gpus[f"nvlink_{way}_bytes_per_second"]) <= sim.gpu.nvlink
            for traffic, port in zip(counters.fabric.get(f"{way}_bytes_per_second", ()), sim.ports, strict=False):
                rate = port.line_rate_bytes_per_second or 0
                assert 0 <= traffic.min() <= traffic.max() <= rate
                if port.role == "compute" and "idle-fabric" in placed.truth.waste:
                    assert traffic.max() < 0.001 * rate
        for name in ("cpu_util", "io_wait"):
            assert 0 <= counters.host[name].min() <= counters.host[name].max() <= 1


@pytest.mark.parametrize("scenario", SINGLE)
def test_the_same_seed_gives_the_same_signals_and_another_seed_others(scenario: str) -> None:
    def power(seed: int) -> float:
        return float(np.nansum(next(seen(scenario, seed))[3].gpus["power_watts"]))

    first = power(3)
    assert first == power(3)
    assert first != power(4)


@pytest.mark.parametrize("scenario", ["experts", "disaggregated", "rdma-storage", "ethernet"])
def test_traffic_over_the_fabric_that_is_no_waste(scenario: str) -> None:
    for sim, placed, _, counters in seen(scenario):
        ports = list(sim.compute_ports)
        rate = sim.ports[ports[0]].line_rate_bytes_per_second or 1
        both = np.maximum(counters.fabric["tx_bytes_per_second"], counters.fabric["rx_bytes_per_second"])
        assert np.quantile(both[ports], 0.995) > 0.01 * rate
        assert "idle-fabric" not in placed.truth.waste


def test_caches_leave_the_prefill_side_and_arrive_at_the_decode_side() -> None:
    sides = {placed.truth.bottleneck: (sim, counters) for sim, placed, _, counters in seen("disaggregated")}
    for bottleneck, way, other in (("compute", "tx", "rx"), ("hbm-bandwidth", "rx", "tx")):
        sim, counters = sides[bottleneck]
        ports = list(sim.compute_ports)
        there = counters.fabric[f"{way}_bytes_per_second"][ports].mean()
        assert there > 10 * counters.fabric[f"{other}_bytes_per_second"][ports].mean()


@pytest.mark.parametrize("seed", range(6))
def test_the_late_rank_waits_least(seed: int) -> None:
    found = 0
    for sim, placed, gpus, counters in seen("straggler", seed):
        uuids = [sim.gpus[g].uuid for g in gpus]
        if placed.truth.suspect not in uuids:
            continue
        found += 1
        slow = uuids.index(placed.truth.suspect)
        # Waiting: the SMs hold warps or the engine runs while neither tensor cores nor memory work.
        waits = (counters.gpus["dram_active"] < 0.05) & (counters.gpus["gpu_util"] > 0.9)
        shares = waits[gpus].mean(axis=1)
        assert shares[slow] < 0.5 * np.delete(shares, slow).min()
        assert np.delete(shares, slow).min() > 0.15
    assert found == 2


@pytest.mark.parametrize("seed", range(4))
def test_throttled_gpus_say_so_and_are_slow(seed: int) -> None:
    fleet = planned("throttled", seed)
    for node in fleet.nodes:
        sim = node.sim
        placed = fleet.on(sim.node.node)[-1]
        day = np.concatenate([seconds(placed)[:60] + 600 * n for n in range(-60, 60)])
        begin, stop = max(placed.runs, key=lambda run: run[1] - run[0])
        day = day[(day > max(begin, START) + 600) & (day < stop)]
        day = day[: len(day) // 60 * 60]
        counters = observe(demand(sim, [placed], day), sim, stream(seed, "x"), 60)
        busy = counters.gpus["gpu_util"] > 0.5
        bits = (counters.gpus["throttle_reasons"].astype(int) & THROTTLE_MASK) != 0
        assert bits[busy].mean() > 0.5
        slow = counters.gpus["sm_clock_hertz"][bits & busy] / sim.gpu.sku.tensor_reference_hertz
        assert slow.mean() < 0.95
        assert placed.truth.bottleneck == "throttled"


def test_each_limit_is_where_the_label_says() -> None:
    for _, placed, gpus, counters in seen("nvlink-bound"):
        busy = counters.gpus["nvlink_tx_bytes_per_second"][gpus[0]]
        assert np.corrcoef(busy, counters.gpus["tensor_active"][gpus[0]])[0, 1] < -0.3
        assert placed.truth.bottleneck == "nvlink"
    for sim, _, gpus, counters in seen("pcie-bound"):
        assert mean(counters, "pcie_rx_bytes_per_second", gpus) > 0.55 * sim.gpu.sku.pcie_bytes_per_second
        assert mean(counters, "sm_active", gpus) < 0.5
    for _, _, gpus, counters in seen("launch-bound"):
        assert mean(counters, "gpu_util", gpus) > 0.6
        assert mean(counters, "sm_active", gpus) < 0.5
        assert max(mean(counters, name, gpus) for name in ("tensor_active", "dram_active")) < 0.35
    for _, _, gpus, counters in seen("input-bound"):
        assert mean(counters, "gpu_util", gpus) < 0.7
        assert counters.host["cpu_util"].mean() > 0.6 or counters.host["io_wait"].mean() > 0.08
    for sim, placed, gpus, counters in seen("prefill-heavy"):
        tensor, dram = mean(counters, "tensor_active", gpus), mean(counters, "dram_active", gpus)
        assert tensor / sim.gpu.eta_compute > dram / sim.gpu.eta_memory
        assert placed.truth.bottleneck == "compute"


def test_light_services_rest_and_work_hard_in_between_and_standbys_only_answer_probes() -> None:
    for sim, _, gpus, counters in seen("light"):
        dram = counters.gpus["dram_active"][gpus[0]]
        if sim.sensing == "gpm":
            assert np.median(dram) < 0.02
            assert dram.max() > 0.35 * sim.gpu.eta_memory
        assert 0.003 < np.nanmean(dram) < 0.35
    for _, _, gpus, counters in seen("standby"):
        assert 0 < counters.gpus["gpu_util"][gpus].max() < 0.3
        assert counters.gpus["mem_used_bytes"][gpus].min() > 0
        assert mean(counters, "gpu_util", gpus) < 0.03


def test_people_work_by_day_and_sleep_at_night() -> None:
    fleet = planned("notebooks", 2)
    for node in fleet.nodes:
        for placed in fleet.on(node.sim.node.node):
            active = []
            for hour in range(24):
                t = seconds(placed, hour) - DAY  # Wednesday
                at = demand(node.sim, [placed], t).engine[list(placed.nodes[node.sim.node.node])]
                active.append(float((at > 0.05).mean()))
            assert sum(share == 0 for share in active) >= 10
            assert np.mean(active) < 0.2


def test_counters_that_died_stand_at_zero_while_power_is_high() -> None:
    for sim, placed, gpus, counters in seen("telemetry-fault"):
        assert counters.gpus["sm_active"][gpus].max() == counters.gpus["tensor_active"][gpus].max() == 0
        assert mean(counters, "power_watts", gpus) > 2.5 * sim.gpu.idle_watts
        assert placed.truth.bottleneck == "unknown"
        assert placed.truth.waste == ("telemetry-fault",)


def test_instances_share_their_gpu_and_hide_what_the_driver_hides() -> None:
    for sim, _, gpus, counters in seen("mig"):
        assert all(sim.gpus[g].kind == "mig" for g in gpus)
        parent = 0
        assert np.isnan(counters.gpus["power_watts"][gpus]).all()
        assert np.isnan(counters.gpus["tensor_active"][parent]).all()
        assert mean(counters, "power_watts", [parent]) > sim.gpu.idle_watts
        held = counters.gpus["mem_used_bytes"]
        assert held[parent] == pytest.approx(held[1:].sum(axis=0), rel=1e-4)
        assert sum(gpu.slices or 0 for gpu in sim.gpus) <= 7


def test_a_node_tells_only_what_its_sources_can() -> None:
    told = {sim.sensing: counters for sim, _, _, counters in seen("single-gpu")}
    assert not {"sm_active", "tensor_active"} & told["nvml"].gpus.keys()
    assert "sm_active" not in told["dcgm-default"].gpus
    for name in ("tensor_active", "dram_active"):
        pages = ~np.isnan(told["dcgm-default"].gpus[name][0])
        assert np.flatnonzero(pages).tolist() == list(range(29, SECONDS, 30))
    fleet = planned("single-gpu")
    for node in fleet.nodes:
        reasons = {missing.absence.metric: missing.absence.reason for missing in node.missing}
        assert reasons.get("sm_active") == {"nvml": "not-supported", "dcgm-default": "not-exported"}.get(
            node.sim.sensing
        )


@pytest.mark.parametrize("seed", range(3))
def test_phases_cover_the_time_and_the_rarer_kind_is_rarer(seed: int) -> None:
    phased = [p for p in planned("phases", seed).placed if p.truth.phases]
    assert len(phased) == 2
    for placed in phased:
        spans = placed.truth.phases
        held = sum(min(stop, END) - max(begin, START) for begin, stop in placed.runs)
        assert sum(span.end - span.start for span in spans) == pytest.approx(held)
        own = sum(s.end - s.start for s in spans if s.kind == placed.truth.kind)
        assert own > 0.5 * held
        assert len({s.kind for s in spans}) == 2


def test_the_fleet_holds_every_label_and_every_gpu() -> None:
    fleet = planned("fleet", 0)
    assert {p.truth.kind for p in fleet.placed} == {
        "training", "fine-tuning", "online-inference", "batch-inference", "interactive", "idle",
    }  # fmt: skip
    assert {p.truth.bottleneck for p in fleet.placed} >= {
        "compute", "hbm-bandwidth", "nvlink", "network", "pcie", "host-input", "straggler", "latency", "throttled",
        "idle", "unknown",
    }  # fmt: skip
    assert {node.sim.gpu.sku.name for node in fleet.nodes} >= {
        "H100-SXM5", "H200-SXM", "A100-SXM4-80GB", "L40S", "L4", "A10G", "T4", "B200-SXM",
    }  # fmt: skip
    names = [node.sim.node.node for node in fleet.nodes]
    assert len(set(names)) == len(names)
    silent = [p for p in fleet.placed if p.workload.framework is None and p.workload.command is None]
    assert 0.1 < len(silent) / len(fleet.placed) < 0.5
