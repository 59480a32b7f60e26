"""The ground truth on which plans are carried out: demand is kept whatever the layout, jobs find room or wait."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.demo import serving
from skuwise.advisor.demo.seeded_rng import stream
from skuwise.advisor.demo.skus import H100_IB, L40S_4
from skuwise.benchmarks.evaluation.planning.fleets import fleet
from skuwise.benchmarks.evaluation.planning.scheduler import Host, Job, mean_waits, schedule
from skuwise.benchmarks.evaluation.planning.traffic import Cost, Layout, Requests, Traffic, shared
from skuwise.benchmarks.evaluation.planning.world import JobSeries, Machine, World, gpu_of, reopened, run_jobs

NOW = 1_790_000_000.0 - 1_790_000_000.0 % 3600
T = NOW + np.arange(0.0, 86400.0, 60.0)
TRAFFIC = Traffic(5, 20.0, 0.3, 1.0, 14.0, 0.05, 0.1)


def _requests(replicas: int, seconds: float = 0.02) -> Requests:
    gpu = gpu_of(L40S_4)
    cost = Cost(seconds * gpu.sustained_flops, 0.2 * seconds * gpu.sustained_bandwidth, 0.0, 0.0, 1e10)
    return Requests(TRAFFIC, cost, replicas, 1, 0.4, 0.05)


def test_half_the_replicas_have_twice_the_load() -> None:
    gpu, age = gpu_of(L40S_4), np.full_like(T, 1e6)
    four, two = (_requests(n).load(T, age, 1, gpu).compute.mean() for n in (4, 2))
    assert two == pytest.approx(2 * four, rel=0.01)


def test_where_more_comes_than_can_be_served_a_replica_is_busy_all_the_time() -> None:
    load = _requests(1, seconds=2.0).load(T, np.full_like(T, 1e6), 1, gpu_of(L40S_4))
    assert load.engine.max() == 1.0
    assert load.compute.max() <= 1.0


def test_an_engine_on_as_many_replicas_has_as_many_in_flight() -> None:
    gpu = gpu_of(H100_IB)
    model = serving.decode(stream(1, "test"), 2, gpu)
    as_it_was = Layout(4, 2, gpu)
    n = shared(model, as_it_was, as_it_was).in_flight(T)
    assert n == pytest.approx(np.minimum(model.in_flight(T), 256.0), rel=0.02)


def test_tokens_of_an_engine_are_kept_with_fewer_replicas() -> None:
    gpu = gpu_of(H100_IB)
    model = replace(serving.decode(stream(1, "test"), 2, gpu), peak_in_flight=20.0)
    four, three = Layout(4, 2, gpu), Layout(3, 2, gpu)

    def tokens(layout: Layout) -> np.ndarray:
        n = shared(model, four, layout).in_flight(T)
        step = model.step(np.maximum(n, 1.0), 2, gpu)[2]
        return layout.replicas * (1 - np.exp(-n)) * np.maximum(n, 1.0) / step

    assert tokens(three) == pytest.approx(tokens(four), rel=0.03)


def _hosts(count: int) -> tuple[Host, ...]:
    return tuple(Host(f"n{k}", "x", (0, 1, 2, 3), True) for k in range(count))


def _job(number: int, arrives: int, *, gpus: int = 4, hours: int = 10, nodes: int = 1) -> Job:
    return Job(number, 0, "x", nodes, gpus, arrives, hours)


def test_a_job_without_room_waits_and_a_small_one_passes() -> None:
    jobs = (_job(0, 0), _job(1, 1), _job(2, 0, gpus=2), _job(3, 2, gpus=2, hours=3))
    ran = {r.job.id: r.start for r in schedule(_hosts(2), jobs, 50).ran}
    assert ran == {0: 0, 2: 0, 3: 2, 1: 10}


def test_no_gpu_is_held_twice() -> None:
    rng = np.random.default_rng(0)
    jobs = [
        _job(k, int(rng.integers(0, 40)), gpus=int(rng.integers(1, 5)), hours=int(rng.integers(1, 9)))
        for k in range(80)
    ]
    held: dict[tuple[str, int, int], int] = {}
    for r in schedule(_hosts(3), jobs, 200).ran:
        for node, gpus in r.places.items():
            for hour in range(r.start, r.start + r.job.hours):
                for gpu in gpus:
                    key = (node, gpu, hour)
                    assert key not in held
                    held[key] = r.job.id
    assert len({*held.values()}) == 80


def test_nodes_are_opened_again_as_far_as_jobs_need_them() -> None:
    series = JobSeries("j", "nlp", "amara", "sft", L40S_4, "tuning", 1, 4, 1.0, (3, 18))
    machines = tuple(Machine(f"l40s-0{k}", L40S_4) for k in (1, 2, 3))
    world = World(0, machines, (), (), (series,), closed=frozenset({"l40s-02", "l40s-03"}))
    jobs = tuple(Job(k, 0, L40S_4, 1, 4, 0, 10) for k in range(2))
    as_before, _ = reopened(world, jobs, 2, {L40S_4: 5.0})
    one_more, ran = reopened(world, jobs, 2, {L40S_4: 0.0})
    assert as_before.closed == world.closed
    assert one_more.closed == {"l40s-03"}
    assert mean_waits(jobs, ran) == {L40S_4: 0.0}


def test_jobs_on_several_nodes_take_them_whole() -> None:
    jobs = (_job(0, 0, gpus=1, hours=5), _job(1, 0, nodes=2))
    ran = {r.job.id: r for r in schedule(_hosts(2), jobs, 50).ran}
    assert ran[1].start == 5
    assert set(ran[1].places) == {"n0", "n1"}


@pytest.mark.parametrize("seed", range(4))
def test_no_node_of_a_fleet_holds_more_than_it_has(seed: int) -> None:
    world = fleet(seed, now=NOW)
    assert all(count <= world.gpus_of(name) for name, count in world.held().items())
    assert world == fleet(seed, now=NOW)
    free = {h.name: set(h.free) for h in world.hosts()}
    assert all(
        set(gpus) <= free[n]
        for r in run_jobs(world, world.drawn_jobs("past", 3), 3).ran
        for n, gpus in r.places.items()
    )
