"""Fleets before they are written: layouts, truth, and the seconds that are made."""

import itertools

import pytest
from skuwise.advisor import demo
from skuwise.advisor.core.fleet_identity import is_simulated
from skuwise.rules.base.errors import UsageError
from skuwise.rules.catalog.loader import load_catalog

END = 1_763_683_200.0
DAY = 86400.0
WINDOW = {"start": END - 14 * DAY, "end": END}


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
