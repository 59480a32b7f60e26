"""The fleets for tests themselves: what they hold, that they are the same again, and that Prometheus takes them."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skuwise.tests.fleets import FLEETS, Fleet, Hold, Workload, only, removals, series, truth
from skuwise.tests.fleets import hardware as hw
from skuwise.tests.fleets.behaviors import BEHAVIORS, Clock, Span
from skuwise.tests.fleets.device import readings
from skuwise.tests.fleets.removal import (
    WAYS,
    blanks,
    everything,
    of_node,
    repeated,
    stuck_at_zero,
    without_exporter_of_node,
    without_hours,
    without_label,
    without_metric_of_gpu,
)  # fmt: skip
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.prometheus_engines import prometheus
from skuwise.tests.support.seeds import examples

GR_ENGINE, GPU_UTIL, POWER = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"
REQUESTS = "kube_pod_container_resource_requests"
Chosen = dict[str, str]


@cache
def made(name: str, seed: int = 1, days: float = 4.0, interval_s: float = 900.0) -> tuple[Fleet, list[Series]]:
    fleet = FLEETS[name](days=days, interval_s=interval_s)
    return fleet, series(fleet, np.random.default_rng(seed))


def of(found: list[Series], name: str, **labels: str) -> list[Series]:
    return [one for one in found if one.name == name and all(one.labels.get(k) == v for k, v in labels.items())]


def values(found: list[Series], name: str, **labels: str) -> np.ndarray:
    return np.concatenate([one.values for one in of(found, name, **labels)] or [np.empty(0)])


def identity(one: Series) -> tuple[str, frozenset[tuple[str, object]]]:
    return one.name, frozenset(one.labels.items())


@pytest.mark.parametrize("name", FLEETS)
def test_series_are_what_a_server_can_hold(name: str) -> None:
    fleet, found = made(name)
    assert [one.name for one in found] == sorted(one.name for one in found)
    assert max(Counter(map(identity, found)).values()) == 1
    for one in found:
        assert len(one.ts) == len(one.values) > 0
        assert np.isfinite(one.values).all(), one.name
        assert (np.diff(one.ts) > 0).all(), one.name
        assert fleet.start <= one.ts[0] <= one.ts[-1] < fleet.end + 120
        assert all(isinstance(value, str) for value in one.labels.values())
        if one.name.endswith("_total") or one.name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":
            assert (np.diff(one.values) >= 0).all(), one.name
        if one.name.startswith("DCGM_FI_PROF_") and "BYTES" not in one.name and "SM_ACTIVE" not in one.name:
            assert 0 <= one.values.min() <= one.values.max() <= 1


@pytest.mark.parametrize("name", FLEETS)
def test_truth_agrees_with_series(name: str) -> None:
    fleet, found = made(name)
    known = truth(fleet)
    told = {str(one.labels["UUID"]) for one in found if "UUID" in one.labels}
    assert told == {uuid for node in known.nodes for uuid in node.observed_gpus}
    pods = {(one.labels["namespace"], one.labels["pod"]) for one in of(found, REQUESTS)}
    assert pods == {(one.key.namespace, pod) for one in known.workloads for pod in one.key.pods}
    jobs = {str(one.labels.get("hpc_job", "0")) for one in found} - {"0"}
    assert jobs == {one.key.hpc_job for one in known.workloads if one.key.hpc_job}
    with_instances = {
        (str(one.labels["UUID"]), str(one.labels["GPU_I_ID"])) for one in found if "GPU_I_ID" in one.labels
    }
    assert with_instances == {(one.uuid, str(one.instance)) for node in known.nodes for one in node.instances}


def test_fleets_hold_every_kind_and_bottleneck() -> None:
    works = [work for name in FLEETS for work in truth(FLEETS[name]()).workloads]
    assert {one.kind for one in works} == {one.kind for one in BEHAVIORS.values()}
    assert {one.bottleneck for one in works} == {one.bottleneck for one in BEHAVIORS.values()}
    assert {one.network for one in works} == {"", "infiniband", "ethernet"}
    assert {len(one.held) > 1 for one in works if one.launch_bound} == {True, False}
    assert any(not one.healthy for one in works) and any(not one.labeled for one in works)


def test_forty_nodes_of_which_six_have_no_workload_label() -> None:
    fleet, _ = made("forty")
    assert len(fleet.nodes) == 40
    unlabeled = {hold.node for one in truth(fleet).workloads if not one.labeled for hold in one.held}
    bare = [node for node in fleet.nodes if node.observed.pods == "none" and not node.observed.hpc_job]
    assert len(bare) == 6 and unlabeled < {node.name for node in bare}


def test_the_same_seed_gives_the_same_series_and_another_does_not() -> None:
    _, first = made("everything")
    _, again = made("everything")
    _, other = made("everything", seed=2)
    assert [identity(one) for one in first] == [identity(one) for one in again]
    assert all(
        np.array_equal(a.ts, b.ts) and np.array_equal(a.values, b.values) for a, b in zip(first, again, strict=True)
    )
    assert not np.array_equal(values(first, POWER), values(other, POWER)[: len(values(first, POWER))])


def test_nineteen_pods_work_on_instances_whose_utilization_is_absent() -> None:
    fleet, found = made("mig")
    node = truth(fleet).node("mig-a100-01")
    assert node.mig_uuids == node.gpu_uuids and len(node.instances) == 33
    assert not of(found, GPU_UTIL, Hostname=node.name)
    engines = of(found, GR_ENGINE, Hostname=node.name)
    assert len(engines) == 33
    assert sum("pod" in one.labels and one.values.mean() > 0.005 for one in engines) == 19
    assert sum("pod" in one.labels and one.values.max() == 0 for one in engines) == 5
    assert sum("pod" not in one.labels for one in engines) == 9 == len(node.free_instances)
    assert values(found, "DCGM_FI_PROF_SM_ACTIVE", Hostname=node.name).max() > 1
    assert len(of(found, REQUESTS, node=node.name, resource="nvidia_com_mig_1g_10gb")) > 0


def test_variants_of_mig() -> None:
    fleet, found = made("mig")
    known = truth(fleet)
    zero = known.node("mig-h100-01")
    of_instances = [one for one in of(found, GPU_UTIL, Hostname=zero.name) if "GPU_I_ID" in one.labels]
    assert of_instances and all(one.values.max() == 0 for one in of_instances)
    parents = [one for one in of(found, POWER, Hostname=zero.name) if "GPU_I_ID" not in one.labels]
    assert {one.labels["UUID"] for one in parents} == set(zero.gpu_uuids)
    # Power of an instance is the parent's, repeated.
    uuid = zero.mig_uuids[0]
    several = {tuple(one.values) for one in of(found, POWER, UUID=uuid) if len(one.ts) == len(parents[0].ts)}
    assert len(several) == 1
    changed = known.node("mig-a100-02")
    uuid = changed.gpu_uuids[6]
    before = {one.profile for one in changed.instances if one.uuid == uuid and one.begin == known.begin}
    after = {one.profile for one in changed.instances if one.uuid == uuid and one.begin > known.begin}
    assert before == {"2g.10gb", "1g.5gb"} and after == {"1g.5gb"}
    times = [(one.ts[0], one.ts[-1]) for one in of(found, POWER, UUID=uuid, GPU_I_PROFILE="2g.10gb")]
    assert times and max(last for _, last in times) < fleet.at(3.1)


def test_a_context_at_rest_draws_more_than_an_empty_gpu_and_as_much_as_was_measured() -> None:
    fleet, found = made("everything")
    node = fleet.node("office-01")
    full, bare = (values(found, POWER, UUID=node.uuid(gpu)) for gpu in (3, 4))
    assert full.min() > 71 and full.max() < 123
    assert bare.max() < 72
    assert values(found, GR_ENGINE, UUID=node.uuid(3)).max() == 0


@pytest.mark.parametrize("gpu", [hw.H100, hw.A100_80, hw.A100_40, hw.L40S, hw.A10G, hw.L4, hw.T4, hw.V100])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(25), deadline=None)
def test_power_stays_between_rest_and_limit(gpu: hw.GpuModel, seed: int) -> None:
    rng = np.random.default_rng(seed)
    clock = Clock(np.arange(0.0, 86400.0, 900.0), 900.0)
    for behavior in BEHAVIORS.values():
        activity = behavior.make(clock, Span(1, 1), rng).row(0)
        told = readings(gpu, activity, clock.interval_s, rng)
        at_rest = (activity.engine == 0) & (activity.context > 0)
        assert told.watts.min() > 0.9 * gpu.rest_watts[0] and told.watts.max() <= 1.02 * gpu.limit_watts
        assert np.all(told.watts[at_rest] > 0.95 * gpu.context_watts[0])
        assert np.all(told.watts[at_rest] < 1.05 * gpu.context_watts[1])
        assert np.all((told.sm_mhz > 0) & (told.sm_mhz <= gpu.sm_mhz[1]))


def wired(found: list[Series], fleet: Fleet, node: str, name: str) -> float:
    """Mean bytes per second of a node over its devices, without the loopback."""
    chosen = of_node(fleet, fleet.node(node))
    devices = [one for one in found if one.name == name and chosen(one) and one.labels["device"] != "lo"]
    return sum((one.values[-1] - one.values[0]) / (one.ts[-1] - one.ts[0]) for one in devices)


def test_who_waits_for_the_network_or_for_launches_differs_on_the_wire_alone() -> None:
    fleet, found = made("everything")
    known = truth(fleet)
    for name in ("ib-job", "eth-job", "workshop-01-launch-four"):
        uuid = known.workload(name).held[0].uuid
        assert np.median(values(found, GR_ENGINE, UUID=uuid)) > 0.9
        assert np.median(values(found, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", UUID=uuid)) < 0.1
        assert np.median(values(found, "DCGM_FI_PROF_DRAM_ACTIVE", UUID=uuid)) < 0.15
    assert known.workload("ib-job").network == "infiniband" and known.workload("eth-job").network == "ethernet"
    fabric = "node_infiniband_port_data_transmitted_bytes_total"
    assert wired(found, fleet, "ib-01", fabric) > 1.5e11
    assert wired(found, fleet, "eth-01", "node_network_transmit_bytes_total") > 1.2e10
    assert wired(found, fleet, "workshop-01", fabric) < 1e6
    assert wired(found, fleet, "founding-01", fabric) < 1e6


def test_faults_and_darkness() -> None:
    fleet, found = made("everything")
    known = truth(fleet)
    assert [one.name for one in known.workloads if not one.healthy] == ["stuck-job"]
    uuid = known.workload("stuck-job").held[0].uuid
    (engine,) = of(found, GR_ENGINE, UUID=uuid)
    (power,) = of(found, POWER, UUID=uuid)
    later = engine.ts > fleet.at(2.02)
    assert engine.values[later].max() == 0 < engine.values[~later].mean()
    assert power.values[later].mean() > 400 and values(found, GPU_UTIL, UUID=uuid).mean() > 80
    dark = known.node("dark-01")
    assert not of(found, GR_ENGINE, Hostname=dark.name) and len(of(found, REQUESTS, node=dark.name)) == 4
    assert not dark.observed_gpus and dark.gpu_count == 8
    _, dev = made("dev_only")
    stuck = set(truth(FLEETS["dev_only"]()).node("stuck-01").gpu_uuids)
    assert {one.labels["UUID"] for one in dev if one.name.startswith("DCGM_FI_PROF_")} == stuck


def test_one_value_is_repeated_for_each_pod_that_shares_a_gpu() -> None:
    fleet, found = made("everything")
    uuid = fleet.node("shared-01").uuid(0)
    copies = of(found, GPU_UTIL, UUID=uuid)
    assert len(copies) == 3 == len({one.labels["pod"] for one in copies})
    assert all(np.array_equal(one.values, copies[0].values) for one in copies)
    assert values(found, "kube_node_status_capacity", node="shared-01", resource="nvidia_com_gpu").max() == 12
    assert truth(fleet).workload("shared-01-share-a").shares


@pytest.mark.parametrize("days", [0.5, 1.0, 2.0])
def test_a_shorter_window_holds_what_exists_in_it(days: float) -> None:
    fleet, found = made("mig", days=days)
    known = truth(fleet)
    told = {(one.labels["UUID"], one.labels["GPU_I_ID"]) for one in found if "GPU_I_ID" in one.labels}
    assert told == {(one.uuid, str(one.instance)) for node in known.nodes for one in node.instances}
    assert {one.labels["pod"] for one in of(found, REQUESTS)} == {
        pod for one in known.workloads for pod in one.key.pods
    }


def test_some_nodes_of_a_fleet_are_a_fleet() -> None:
    part = only(FLEETS["everything"](days=1.0, interval_s=3600.0), "founding-01", "eth-01")
    assert [node.name for node in part.nodes] == ["eth-01", "founding-01"]
    assert {one.name for one in part.workloads} == {"founding-01-api-0", "founding-01-api-1"}
    assert {one.labels["nodename"] for one in of(series(part, np.random.default_rng(1)), "node_uname_info")} == {
        "eth-01", "founding-01"
    }  # fmt: skip


def test_a_hold_that_cannot_be_is_refused() -> None:
    fleet = FLEETS["mig"]()
    wrong = Workload("wrong", "light", (Hold("mig-a100-01", 0),), "shared")
    with pytest.raises(ValueError, match="has instances"):
        replace(fleet, workloads=(*fleet.workloads, wrong))


@pytest.mark.parametrize("name", ["everything", "mig", "bare_metal"])
def test_every_removal_leaves_what_a_server_can_hold(name: str, seed_of: Callable[[int], int]) -> None:
    fleet, found = made(name, days=1.0, interval_s=3600.0)
    chosen = removals(fleet, np.random.default_rng(seed_of(3)), len(WAYS))
    assert len({one.way for one in chosen}) == len(WAYS) == 12
    before = {identity(one): one.values.copy() for one in found}
    for removal in chosen:
        left = removal(found)
        assert [one.name for one in left] == sorted(one.name for one in left), removal.name
        assert max(Counter(map(identity, left)).values()) == 1, removal.name
        assert all(len(one.ts) == len(one.values) > 0 and (np.diff(one.ts) > 0).all() for one in left), removal.name
        assert all(np.isfinite(one.values).all() for one in left), removal.name
    assert all(np.array_equal(before[identity(one)], one.values) for one in found)
    again = removals(fleet, np.random.default_rng(seed_of(3)), len(WAYS))
    assert [one.name for one in chosen] == [one.name for one in again]


def test_removals_do_what_their_names_say() -> None:
    fleet, found = made("everything", days=1.0, interval_s=3600.0)
    node, rng = fleet.node("ib-01"), np.random.default_rng(4)
    left = without_metric_of_gpu(POWER, node, 2)(found)
    assert {one.labels["UUID"] for one in of(found, POWER)} - {one.labels["UUID"] for one in of(left, POWER)} == {
        node.uuid(2)
    }
    left = without_exporter_of_node("node_", fleet, node)(found)
    assert len(of(found, "node_uname_info")) - len(of(left, "node_uname_info")) == 1
    assert "ib-01" not in {one.labels["nodename"] for one in of(left, "node_uname_info")}
    left = without_label("pod")(found)
    assert not any("pod" in one.labels for one in left if one.name.startswith("DCGM_"))
    since = fleet.at(0.5)
    (held,) = of(repeated(POWER, everything, "", since)(found), POWER, UUID=node.uuid(0))
    assert np.ptp(held.values[held.ts >= since]) == 0 < np.ptp(held.values[held.ts < since])
    (zero,) = of(stuck_at_zero("DCGM_FI_PROF_", everything, "", since)(found), GR_ENGINE, UUID=node.uuid(0))
    assert zero.values[zero.ts >= since].max() == 0 < zero.values[zero.ts < since].min()
    blank = blanks(POWER, everything, "", 9223372036854775794.0, 1.0, rng)(found)
    assert values(blank, POWER).min() > 9e18
    fewer = without_hours(fleet, 0.5, rng)(found)
    assert len(values(fewer, POWER)) == pytest.approx(0.5 * len(values(found, POWER)), rel=0.1)


def asked(url: str, query: str, at: float) -> list[tuple[Chosen, float]]:
    text = urllib.parse.urlencode({"query": query, "time": at})
    with urllib.request.urlopen(f"{url}/api/v1/query?{text}", timeout=60) as answer:
        result = json.load(answer)["data"]["result"]
    return [(one["metric"], float(one["value"][1])) for one in result]


@pytest.mark.slow
def test_a_real_prometheus_takes_the_mig_fleet(tmp_path: Path) -> None:
    fleet, found = made("mig", days=1.0, interval_s=300.0)
    known = truth(fleet)
    at = fleet.end - 30
    with prometheus(tmp_path, found) as url:
        by_node = asked(url, "count by (Hostname) (count by (Hostname, UUID) (DCGM_FI_DEV_FB_USED))", at)
        assert {labels["Hostname"]: count for labels, count in by_node} == {n.name: n.gpu_count for n in known.nodes}
        ((_, instances),) = asked(url, f'count({GR_ENGINE}{{Hostname="mig-a100-01",GPU_I_ID!=""}})', at)
        assert instances == len(known.node("mig-a100-01").instances)
        busy = asked(url, f'avg_over_time({GR_ENGINE}{{Hostname="mig-a100-01",pod!=""}}[1d]) > 0.005', at)
        assert len(busy) == 19
        pods = {labels["pod"] for labels, _ in busy}
        assert all(known.of_pod("shared", pod) is not None for pod in pods)
        owners = asked(url, 'count by (owner_name) (kube_replicaset_owner{owner_kind="Deployment"})', at)
        assert {labels["owner_name"] for labels, _ in owners} == {
            one.name for one in known.workloads if one.owner == "Deployment" and one.begin < at
        }
        assert not asked(url, f'{GPU_UTIL}{{Hostname="mig-a100-01"}}', at)
        sent = "rate(node_infiniband_port_data_transmitted_bytes_total[1h])"
        assert max(rate for _, rate in asked(url, sent, at)) < 1e6
