"""What a simulated node shows obeys the physics of its SKU."""

import numpy as np
import pytest
from skuwise.advisor.demo.counters import SW_POWER_CAP, observe
from skuwise.advisor.demo.seeded_rng import smooth, stream, uniform_at
from skuwise.advisor.demo.writer import demand
from skuwise.benchmarks.generators.first import plan_fleet

END = 1_763_683_200.0
START = END - 5 * 86400
SECONDS = 1800


def nodes(scenario, seed=1):
    """Every node of a scenario with half an hour of its counters, in the middle of its workloads' last runs."""
    fleet = plan_fleet(scenario, seed=seed, start=START, end=END)
    for planned in fleet.nodes:
        sim = planned.sim
        placed = fleet.on(sim.node.node)
        middle = np.mean([max(placed[-1].runs[-1][0], START), placed[-1].runs[-1][1]]) if placed else END - 86400
        t = np.floor(middle) + np.arange(1, SECONDS + 1)
        yield sim, placed, observe(demand(sim, placed, t), sim, stream(seed, sim.node.node), SECONDS)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_counter_beats_its_sku(seed, seed_of):
    for sim, _, seen in nodes("small", seed_of(seed)):
        gpu, sku = sim.gpu, sim.gpu.sku
        for name in ("gpu_util", "sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp32_active"):
            assert seen.gpus[name].min() >= 0, name
            assert seen.gpus[name].max() <= 1, name
        clock_share = seen.gpus["sm_clock_hertz"] / sku.tensor_reference_hertz
        assert (seen.gpus["tensor_active"] * clock_share).max() <= gpu.eta_compute * 1.001
        assert seen.gpus["dram_active"].max() <= 0.971
        assert seen.gpus["power_watts"].max() <= sku.tdp_watts * 1.0001
        assert seen.gpus["sm_clock_hertz"].max() <= sku.boost_hertz + 15e6
        assert seen.gpus["mem_used_bytes"].max() <= sku.mem_bytes
        for way in ("tx", "rx"):
            assert seen.gpus[f"pcie_{way}_bytes_per_second"].max() <= sku.pcie_bytes_per_second
            if gpu.nvlink:
                assert seen.gpus[f"nvlink_{way}_bytes_per_second"].max() <= gpu.nvlink
            for traffic, port in zip(seen.fabric.get(f"{way}_bytes_per_second", ()), sim.ports, strict=True):
                assert traffic.max() <= port.line_rate_bytes_per_second
        for name in ("cpu_util", "io_wait"):
            assert 0 <= seen.host[name].min() <= seen.host[name].max() <= 1


def test_energy_is_power_times_time_and_power_follows_use():
    for sim, _, seen in nodes("training"):
        power, energy = seen.gpus["power_watts"], seen.gpus["energy_joules"]
        assert energy.sum() == pytest.approx(power.sum() * 1.0, rel=0.01)
        assert np.corrcoef(power[0], seen.gpus["tensor_active"][0])[0, 1] > 0.8
        assert power.min() > sim.gpu.idle_watts * 0.9
        capped = (seen.gpus["throttle_reasons"].astype(int) & SW_POWER_CAP) != 0
        assert np.all(power[capped] >= sim.gpu.sku.tdp_watts * 0.999)
        # Temperature lags: it moves less from second to second than power does.
        heat = seen.gpus["temperature_celsius"][0]
        assert np.abs(np.diff(heat)).max() <= 6
        assert heat.max() < 90


def test_collectives_are_symmetric_in_step_on_all_nodes_and_dip_the_tensor_cores():
    seen = [counters for _, _, counters in nodes("training")]
    traffic = [np.maximum(c.fabric["tx_bytes_per_second"], c.fabric["rx_bytes_per_second"])[0] for c in seen]
    for counters in seen:
        sent = counters.fabric["tx_bytes_per_second"][:8].sum()
        assert counters.fabric["rx_bytes_per_second"][:8].sum() == pytest.approx(sent, rel=0.02)
        assert sent / SECONDS / 8 > 0.01 * 50e9
        nvlink = counters.gpus["nvlink_tx_bytes_per_second"].sum()
        assert counters.gpus["nvlink_rx_bytes_per_second"].sum() == pytest.approx(nvlink, rel=0.02)
    assert np.corrcoef(traffic[0], traffic[1])[0, 1] > 0.95
    tensor = [c.gpus["tensor_active"][0] for c in seen]
    assert np.corrcoef(tensor[0], tensor[1])[0, 1] > 0.95
    busiest = traffic[0] > 0.9 * traffic[0].max()
    assert tensor[0][busiest].mean() < tensor[0].mean()


def test_network_bound_training_waits_for_its_network():
    found = 0
    for sim, placed, seen in nodes("small"):
        if not placed or placed[-1].truth.bottleneck != "network":
            continue
        found += 1
        port = sim.compute_ports[0]
        util = seen.fabric["tx_bytes_per_second"][port] / sim.ports[port].line_rate_bytes_per_second
        assert np.mean(util >= 0.5) > 0.35
        assert np.corrcoef(util, seen.gpus["tensor_active"][0])[0, 1] < -0.5
    assert found == 4


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_founding_serves_from_flat_memory_over_a_silent_fabric(seed):
    for sim, placed, seen in nodes("founding", seed):
        memory = seen.gpus["mem_used_bytes"] / sim.gpu.sku.mem_bytes
        assert np.all((memory > 0.849) & (memory < 0.951))
        assert memory.std(axis=1).max() < 1e-3
        traffic = np.maximum(seen.fabric["tx_bytes_per_second"], seen.fabric["rx_bytes_per_second"])
        assert traffic[list(sim.compute_ports)].max() < 1e-5 * 50e9
        assert len(sim.compute_ports) == 8
        assert sim.node.node_sku == "azure/Standard_ND96isr_H100_v5"
        assert sim.node.region == "eastus"
        # Bound by memory: its use leads that of the tensor cores, both against what the SKU sustains.
        used = seen.gpus["dram_active"].mean() / sim.gpu.eta_memory
        assert used > 1.25 * seen.gpus["tensor_active"].mean() / sim.gpu.eta_compute
        assert seen.gpus["nvlink_tx_bytes_per_second"].mean() > 0  # tensor parallelism inside the node
        assert {p.truth.kind for p in placed} == {"online-inference"}


def test_idle_draws_idle_power_and_held_more():
    idle, held = nodes("idle")
    assert not idle[1]
    assert idle[2].gpus["power_watts"].mean() == pytest.approx(idle[0].gpu.idle_watts, rel=0.1)
    assert idle[2].gpus["sm_active"].max() == 0
    ratio = held[2].gpus["power_watts"].mean(axis=1) / held[0].gpu.idle_watts
    assert np.all((ratio > 1.25) & (ratio < 1.65))
    assert held[2].gpus["sm_active"].max() < 0.05
    assert held[2].gpus["mem_used_bytes"].min() > 0.1 * held[0].gpu.sku.mem_bytes


def test_checkpoints_write_while_the_tensor_cores_rest():
    fleet = plan_fleet("training", seed=4, start=START, end=END)
    sim = fleet.nodes[0].sim
    placed = fleet.on(sim.node.node)
    begin = max(placed[-1].runs[-1][0], START) + 1800
    t = np.floor(begin) + np.arange(1, 3 * 3600 + 1)
    seen = observe(demand(sim, placed, t), sim, stream(0, "x"), len(t))
    written = seen.host["disk_write_bytes_per_second"] + seen.fabric["tx_bytes_per_second"][-1]
    burst = written > 0.3 * written.max()
    assert 20 <= burst.sum() < 0.1 * len(t)
    assert written.max() > 2e8
    tensor = seen.gpus["tensor_active"].mean(axis=0)
    assert tensor[burst].mean() < 0.2 * tensor[~burst].mean()


def test_any_second_can_be_made_alone():
    t = np.arange(1.7e9, 1.7e9 + 100)
    assert np.array_equal(smooth(9, t, 30.0)[40:60], smooth(9, t[40:60], 30.0))
    fleet = plan_fleet("decode", seed=2, start=START, end=END)
    sim = fleet.nodes[0].sim
    placed = fleet.on(sim.node.node)
    t = END - 600 + np.arange(1.0, 601.0)
    assert np.array_equal(demand(sim, placed, t).memory[:, 100:200], demand(sim, placed, t[100:200]).memory)


def test_noise_is_uniform():
    values = uniform_at(7, np.arange(20_000))
    assert 0 <= values.min() < values.max() < 1
    assert values.mean() == pytest.approx(0.5, abs=0.01)
    assert np.corrcoef(values[1:], values[:-1])[0, 1] == pytest.approx(0, abs=0.03)
