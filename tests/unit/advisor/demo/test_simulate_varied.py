"""The scenario that kinds are learnt from: all kinds, wide in every direction, and the same for the same seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from skuwise.advisor.demo.counters import observe
from skuwise.advisor.demo.fleet_plan import FleetPlan, Placed
from skuwise.advisor.demo.seeded_rng import stream
from skuwise.advisor.demo.writer import demand
from skuwise.benchmarks.generators.first import plan_fleet
from skuwise.benchmarks.generators.first.varied.courses import (
    AtDesk,
    Course,
    Demand,
    Flat,
    Grown,
    Requests,
    Restless,
    Sawtooth,
    Stepped,
)
from skuwise.benchmarks.generators.first.varied.services import service

HOUR, DAY = 3600.0, 86400.0
END = 1_789_999_200.0
START = END - 5 * DAY
KINDS = {"training", "fine-tuning", "online-inference", "batch-inference", "interactive", "idle"}


@pytest.fixture(scope="module")
def fleets() -> tuple[FleetPlan, ...]:
    return tuple(plan_fleet("varied", seed=seed, start=START, end=END) for seed in range(900, 912))


def of_kind(fleets: Iterable[FleetPlan], kind: str) -> list[Placed]:
    return [placed for fleet in fleets for placed in fleet.placed if placed.truth.kind == kind]


def hours(placed: Placed) -> float:
    return (placed.runs[-1][1] - placed.runs[0][0]) / HOUR


def levels(fleet: FleetPlan, placed: Placed) -> tuple[float, float]:
    """Mean of engine and memory over the week's moments at which it ran, one in some minutes."""
    node = next(one.sim for one in fleet.nodes if one.sim.node.node in placed.nodes)
    begin, stop = max(placed.runs, key=lambda run: run[1] - run[0])
    t = np.linspace(max(begin, START) + 300, stop, 600)
    seen = observe(demand(node, [placed], t), node, stream(0, "x"), len(t), scraped=True)
    gpus = list(placed.nodes[node.node.node])
    total = np.array([[float(node.gpus[g].mem_total_bytes or 0)] for g in gpus])
    return float(np.nanmean(seen.gpus["gpu_util"][gpus])), float((seen.gpus["mem_used_bytes"][gpus] / total).mean())


def test_a_dozen_fleets_hold_every_kind_in_many_sorts(fleets: tuple[FleetPlan, ...]) -> None:
    sorts = {kind: {placed.truth.sort for placed in of_kind(fleets, kind)} for kind in KINDS}
    least = {"online-inference": 8, "training": 8, "batch-inference": 5, "fine-tuning": 4, "interactive": 2, "idle": 1}
    assert {kind: len(found) >= least[kind] for kind, found in sorts.items()} == dict.fromkeys(KINDS, True)
    assert all(placed.truth.sort for fleet in fleets for placed in fleet.placed)


def test_every_kind_is_found_on_large_and_small_gpus_and_on_instances(fleets: tuple[FleetPlan, ...]) -> None:
    for kind in KINDS - {"idle"}:
        where: Counter[str] = Counter()
        for fleet in fleets:
            skus = {node.sim.node.node: node.sim for node in fleet.nodes}
            for placed in of_kind([fleet], kind):
                for name, gpus in placed.nodes.items():
                    where[skus[name].gpu.sku.name] += 1
                    where[skus[name].gpus[gpus[0]].kind] += 1
        assert where["mig"] > 0, kind
        assert len(where) >= 7, kind


def test_lives_are_those_of_their_kinds(fleets: tuple[FleetPlan, ...]) -> None:
    assert all(hours(placed) <= 20.01 for placed in of_kind(fleets, "fine-tuning"))
    one_node = [placed for placed in of_kind(fleets, "training") if len(placed.nodes) == 1]
    assert all(hours(placed) > 11.9 for placed in one_node)
    served = [hours(placed) for placed in of_kind(fleets, "online-inference")]
    assert min(served) < 24 and max(served) > 14 * 24
    queued = [hours(placed) for placed in of_kind(fleets, "batch-inference")]
    assert min(queued) < 6 and max(queued) > 5 * 24


def test_fine_tuning_and_nightly_queues_come_again_as_one_series(fleets: tuple[FleetPlan, ...]) -> None:
    for kind in ("fine-tuning", "batch-inference"):
        runs = Counter(placed.workload.series_id for placed in of_kind(fleets, kind))
        assert max(runs.values()) >= 4, kind


def test_no_level_of_engine_or_memory_is_one_kind_s_alone(fleets: tuple[FleetPlan, ...]) -> None:
    found: dict[str, list[tuple[float, float]]] = {}
    for fleet in fleets:
        for placed in fleet.placed[::2]:
            found.setdefault(placed.truth.kind, []).append(levels(fleet, placed))
    for kind, few, many in (("online-inference", 0.05, 0.6), ("batch-inference", 0.5, 0.8)):
        engine = [one for one, _ in found[kind]]
        assert min(engine) < few and max(engine) > many, kind
    for kind in ("online-inference", "batch-inference", "training", "fine-tuning"):
        memory = [one for _, one in found[kind]]
        assert min(memory) < 0.3 and max(memory) > 0.8, kind


def test_services_rest_at_night_and_work_in_a_few_minutes_of_the_day() -> None:
    asked = Demand(1, 0.3, 0.0, 1.0, 12.0, 0.8, 1800.0, 0.3, 7200.0, 2.0, 0.02)
    t = np.arange(0, 14 * DAY, 57)
    busy = Requests(asked, 2, 20.0, 0.3).at(t, t)
    by_hour = np.array([busy[(t // HOUR) % 24 == hour].mean() for hour in range(24)])
    assert by_hour[10:14].min() > 5 * by_hour[[23, 0, 1]].max()
    assert (busy == 0).mean() > 0.6


def test_memory_follows_the_work_and_stays_while_nothing_comes() -> None:
    t = np.arange(0, 2 * DAY, 57)
    asked = Demand(1, 0.25, 0.1, 1.0, 12.0, 0.8, 1800.0, 0.3, 7200.0, 2.0, 0.02)
    work = Requests(asked, 2, 57.0, 0.3)
    held = Restless(work, 3, 0.5, 0.2, 57.0, 0.0).at(t, t + 1e4)
    moved = np.diff(held) != 0
    busy = work.at(t, t) > 0
    assert moved[busy[1:]].mean() > 0.9
    assert moved[~busy[1:]].mean() < 0.3
    assert 0.05 < held.std() / held.mean() < 0.4


@pytest.mark.parametrize(
    "held",
    [
        Flat(0.9, 60.0),
        Grown(0.5, 0.2, 600.0, 60.0),
        Stepped(4, 0.1, 0.6, 900.0, 0.5),
        Sawtooth(5, 0.2, 0.4, 1200.0),
    ],
)
def test_memory_stays_within_the_gpu_and_any_second_can_be_made_alone(held: Course) -> None:
    t = np.arange(START, START + 6 * HOUR, 7)
    level = held.at(t, t - START)
    assert 0 <= level.min() <= level.max() <= 0.975
    later = slice(900, 1000)
    assert np.allclose(held.at(t[later], t[later] - START), level[later])


def test_nobody_sits_at_a_desk_all_night_and_weekends_are_mostly_free() -> None:
    desk = AtDesk(7, 8.0, 9.0, 0.95, 0.1, 0.1, 1800.0, 0.6, 60.0, 0.6, 0.1)
    t = np.arange(0, 70 * DAY, 600)
    present = desk.present(t)
    weekend = (np.floor(t / DAY) + 3) % 7 >= 5
    night = ((t % DAY) / HOUR < 5) | ((t % DAY) / HOUR > 23)
    assert present[~weekend & ~night].mean() > 3 * present[weekend].mean()
    assert present[night].mean() < 0.1


def test_replicas_are_asked_alike_but_not_in_the_same_seconds(fleets: tuple[FleetPlan, ...]) -> None:
    series = Counter(p.workload.series_id for p in of_kind(fleets, "online-inference"))
    several = [name for name, count in series.items() if count >= 2]
    assert several
    for name in several:
        models = [p.model for p in of_kind(fleets, "online-inference") if p.workload.series_id == name]
        assert len({repr(model) for model in models}) == len(models)


def test_the_same_draw_gives_the_same_service() -> None:
    gpu = plan_fleet("decode", seed=1, start=START, end=END).nodes[0].sim.gpu
    first, again = (service(stream(3, "a"), 2, gpu) for _ in range(2))
    assert repr(first) == repr(again)
