"""Gangs of series that are made by hand, so that the truth is known: GPUs that start, stop and breathe together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from skuwise.advisor.core.frame import Window
from skuwise.advisor.telemetry.activity import DeviceSeries, Gang, find_gangs
from skuwise.advisor.telemetry.activity.apply import with_activity
from skuwise.advisor.telemetry.activity.gangs import unchained
from skuwise.tests.support.frame_builder import TRAINING, FrameBuilder

T0 = 1_790_000_000.0 // 3600 * 3600
HOUR, DAY, GIB = 3600.0, 86400.0, 2.0**30
Floats = np.ndarray


@dataclass
class Fleet:
    """GPUs at rest, on which work is put. `hours`: of the record; `step`: of its samples, seconds."""

    hours: float = 24.0
    step: float = 60.0
    seed: int = 1
    reserve: float = 0.5 * GIB
    skew: Mapping[str, float] = field(default_factory=dict)
    gpus: dict[tuple[str, str], dict[str, Floats]] = field(default_factory=dict)

    @property
    def ts(self) -> Floats:
        return T0 + self.step * np.arange(1, round(self.hours * HOUR / self.step) + 1)

    def node(self, name: str, count: int = 8) -> list[tuple[str, str]]:
        rng = np.random.default_rng([self.seed, len(self.gpus)])
        n = len(self.ts)
        for k in range(count):
            self.gpus[name, f"GPU-{name}-{k}"] = {
                "use": np.zeros(n), "mem": np.full(n, self.reserve), "power": 70 + rng.normal(0, 1, n),
            }  # fmt: skip
        return [(name, f"GPU-{name}-{k}") for k in range(count)]

    def work(
        self, gpus: Sequence[tuple[str, str]], start: float, end: float, *, level: float = 50.0, use: float = 0.9,
        breath: int | None = 0, deep: float = 0.5, noise: float = 0.01, wave: float = 0.0, rest_from: float = np.inf,
    ) -> None:  # fmt: skip
        """Work from hour `start` to `end`: `level` GiB each; pauses of `deep` that the seed `breath` places (None: each
        GPU's own), and from hour `rest_from` on nothing but the memory."""
        ts = self.ts
        for n, key in enumerate(gpus):
            own = np.random.default_rng([self.seed, 7, breath if breath is not None else 1000 + n + 31 * hash_of(key)])
            at = (ts > T0 + start * HOUR) & (ts <= T0 + end * HOUR)
            shape = use * (1 + wave * np.sin(2 * np.pi * ts / DAY)) * (1 - deep * (own.random(len(ts)) < 0.15))
            shape = np.where(ts > T0 + rest_from * HOUR, 0.0, shape)
            shaken = np.random.default_rng([self.seed, 11, hash_of(key)]).normal(0, noise, len(ts))
            row = self.gpus[key]
            row["use"][at] = np.clip(shape + shaken * (shape > 0), 0, 1)[at]
            row["mem"][at] = self.reserve + level * GIB
            row["power"][at] = (110 + 500 * shape * (1 + shaken))[at]

    def series(self, without: Sequence[str] = (), drop: float = 0.0) -> list[DeviceSeries]:
        rng = np.random.default_rng([self.seed, 3])
        out = []
        for (node, uuid), row in self.gpus.items():
            keep = rng.random(len(self.ts)) >= drop
            use, mem, power = (
                None if name in without else row[key][keep]
                for name, key in (("gpu_util", "use"), ("mem_used_bytes", "mem"), ("power_watts", "power"))
            )
            ts = self.ts[keep] + self.skew.get(node, 0.0)
            out.append(DeviceSeries(node, uuid, ts, self.step, use, mem, power))
        return out


def hash_of(key: tuple[str, str]) -> int:
    return sum(ord(letter) * (n + 1) for n, letter in enumerate("/".join(key)))


def hours_of(gang: Gang) -> tuple[float, float]:
    return (gang.start - T0) / HOUR, (gang.end - T0) / HOUR


def sets_of(gangs: Sequence[Gang]) -> set[tuple[tuple[str, str], ...]]:
    return {gang.gpus for gang in gangs}


@pytest.mark.parametrize("step", [10.0, 60.0])
def test_a_job_is_the_gpus_that_hold_memory_from_its_start_to_its_end(step: float) -> None:
    fleet = Fleet(hours=6.0, step=step)
    gpus = fleet.node("a")
    fleet.work(gpus[:4], 1.25, 4.5)
    (gang,) = find_gangs(fleet.series())
    assert gang.gpus == tuple(gpus[:4])
    assert hours_of(gang) == pytest.approx((1.25, 4.5), abs=2 * step / HOUR)
    assert not gang.open_start
    assert not gang.open_end


def test_nothing_is_found_on_gpus_at_rest_with_the_drivers_reserve() -> None:
    fleet = Fleet()
    fleet.node("a")
    assert find_gangs(fleet.series()) == ()
    assert find_gangs([]) == ()
    assert find_gangs([DeviceSeries("a", "g", np.empty(0), 60.0)]) == ()
    nothing = np.full(50, np.nan)
    assert find_gangs([DeviceSeries("a", "g", T0 + 60 * np.arange(50.0), 60.0, nothing, nothing, nothing)]) == ()


@pytest.mark.parametrize("end", [20.0, 24.0], ids=["ended together", "still there"])
def test_two_jobs_that_start_in_the_same_minute_are_told_apart_by_their_breath(end: float) -> None:
    fleet = Fleet()
    gpus = fleet.node("a")
    fleet.work(gpus[:4], 2.0, end, breath=1)
    fleet.work(gpus[4:], 2.0, 24.0, breath=2)
    assert sets_of(find_gangs(fleet.series())) == {tuple(gpus[:4]), tuple(gpus[4:])}


def test_jobs_that_follow_without_a_pause_are_two() -> None:
    fleet = Fleet()
    gpus = fleet.node("a")
    fleet.work(gpus, 2.0, 9.0, level=60, breath=1)
    fleet.work(gpus[:4], 9.0, 20.0, level=25, breath=2)
    gangs = find_gangs(fleet.series())
    assert sets_of(gangs) == {tuple(gpus), tuple(gpus[:4])}
    assert hours_of(gangs[1]) == pytest.approx((9.0, 20.0), abs=0.05)


def test_replicas_that_are_busy_day_and_night_are_each_by_itself() -> None:
    fleet = Fleet(hours=72.0)
    gpus = fleet.node("a", 4)
    for n, gpu in enumerate(gpus):
        fleet.work([gpu], 0.0, 72.0, level=70, use=0.3 + 0.1 * n, wave=0.5, breath=None)
    gangs = find_gangs(fleet.series())
    assert sets_of(gangs) == {(gpu,) for gpu in gpus}
    assert all(gang.open_start and gang.open_end for gang in gangs)


def test_a_gang_spans_nodes_whose_clocks_differ_and_whose_scrapes_are_missed() -> None:
    fleet = Fleet(skew={"a": -2.0, "b": 3.0, "c": 1.0})
    a, b, c = (fleet.node(name) for name in "abc")
    fleet.work([*a, *b], 3.0, 17.0, breath=1)
    fleet.work(c, 1.0, 17.0, breath=2)
    assert sets_of(find_gangs(fleet.series(drop=0.05))) == {tuple(sorted([*a, *b])), tuple(c)}


def test_traffic_joins_nodes_and_a_silent_fabric_parts_them() -> None:
    fleet = Fleet()
    a, b = fleet.node("a"), fleet.node("b")
    fleet.work([*a, *b], 3.0, 17.0, deep=0.0)

    def with_fabric(rate: float) -> list[DeviceSeries]:
        return [replace(one, fabric_bytes_per_second=np.full(len(one.ts), rate)) for one in fleet.series()]

    assert sets_of(find_gangs(with_fabric(30e9))) == {tuple(sorted([*a, *b]))}
    assert sets_of(find_gangs(with_fabric(0.0))) == {tuple(a), tuple(b)}


def test_memory_that_is_held_after_work_stays_with_it() -> None:
    fleet = Fleet(hours=48.0)
    gpus = fleet.node("a")
    fleet.work(gpus[:2], 2.0, 40.0, rest_from=10.0)
    (gang,) = find_gangs(fleet.series())
    assert hours_of(gang) == pytest.approx((2.0, 40.0), abs=0.05)


@pytest.mark.parametrize("held", [True, False], ids=["memory held", "memory given back"])
def test_a_notebook_is_one_workload_as_long_as_its_memory_is_held(held: bool) -> None:
    fleet = Fleet(hours=96.0)
    (gpu,) = fleet.node("a", 1)
    rng = np.random.default_rng(5)
    for day in range(4):
        until = 24 * day + (33.0 if held and day < 3 else 18.0)
        fleet.work([gpu], 24 * day + 9.0, until, level=4 + day, use=0.0, deep=0.0)
        for start in np.sort(rng.uniform(9, 17.8, 25)):
            fleet.work([gpu], 24 * day + start, 24 * day + start + 0.04, level=6 + day)
    gangs = find_gangs(fleet.series())
    days = [(9.0, 90.0)] if held else [(24 * day + 9.0, 24 * day + 18.0) for day in range(4)]
    assert [hours_of(gang) for gang in gangs] == [pytest.approx(one, abs=0.1) for one in days]


def test_work_after_its_memory_was_free_for_longer_than_a_restart_is_another() -> None:
    fleet = Fleet()
    gpus = fleet.node("a")
    fleet.work(gpus, 2.0, 8.0, breath=1)
    fleet.work(gpus, 8.4, 20.0, breath=1)
    assert [hours_of(gang) for gang in find_gangs(fleet.series())] == [
        pytest.approx((2.0, 8.0), abs=0.05), pytest.approx((8.4, 20.0), abs=0.05),
    ]  # fmt: skip


@pytest.mark.parametrize("step", [1.0, 60.0], ids=["seconds", "minutes of seconds"])
def test_single_gpus_that_start_and_end_within_a_minute_stay_single(step: float) -> None:
    fleet = Fleet(hours=2.0, step=1.0)
    gpus = fleet.node("a")
    # An array: one start, loads of their own length, and ends half a minute apart.
    for n, gpu in enumerate(gpus[:4]):
        fleet.work([gpu], 0.5 + 20 * (n + 1) / HOUR, 1.25 + 30 * (n + 1) / HOUR, breath=None, deep=0.0)
    fleet.work(gpus[4:], 0.5, 1.25, deep=0.0)
    series = fleet.series() if step == 1.0 else [minutes_of(one) for one in fleet.series()]
    found = sets_of(find_gangs(series))
    assert found == {*((gpu,) for gpu in gpus[:4]), tuple(gpus[4:])}


def minutes_of(one: DeviceSeries) -> DeviceSeries:
    """Means over minutes that begin 20 s after the record does."""

    def mean(values: Floats | None) -> Floats:
        assert values is not None
        return values[20 : 20 + (len(values) - 20) // 60 * 60].reshape(-1, 60).mean(axis=1)

    ends = one.ts[20:][59::60]
    return DeviceSeries(
        one.node, one.gpu_uuid, ends, 60.0, mean(one.gpu_util), mean(one.mem_used_bytes), mean(one.power_watts),
        means=True,
    )  # fmt: skip


@pytest.mark.parametrize("pause", [3.0, 12.0], ids=["minutes", "a quarter of an hour"])
def test_a_restart_is_the_same_work(pause: float) -> None:
    fleet = Fleet()
    gpus = fleet.node("a")
    fleet.work(gpus, 2.0, 8.0, breath=1)
    fleet.work(gpus, 8.0 + pause / 60, 20.0, breath=1)
    (gang,) = find_gangs(fleet.series())
    assert hours_of(gang) == pytest.approx((2.0, 20.0), abs=0.05)


def test_a_pause_within_a_job_does_not_end_it() -> None:
    fleet = Fleet()
    gpus = fleet.node("a", 4)
    fleet.work(gpus, 1.0, 20.0)
    for gpu in gpus:  # a checkpoint of half an hour
        at = (fleet.ts > T0 + 9 * HOUR) & (fleet.ts <= T0 + 9.5 * HOUR)
        fleet.gpus[gpu]["use"][at] = 0.0
    (gang,) = find_gangs(fleet.series())
    assert gang.gpus == tuple(gpus)


def test_a_rank_that_all_wait_for_is_one_of_them() -> None:
    fleet = Fleet()
    gpus = fleet.node("a")
    fleet.work(gpus[:7], 1.0, 20.0, breath=1)
    fleet.work(gpus[7:], 1.0, 20.0, breath=2)
    assert sets_of(find_gangs(fleet.series())) == {tuple(gpus)}


@pytest.mark.parametrize(
    "without", [("mem_used_bytes",), ("gpu_util",), ("power_watts",), ("mem_used_bytes", "power_watts"),
                ("gpu_util", "mem_used_bytes")],
)  # fmt: skip
def test_what_is_missing_is_done_without(without: tuple[str, ...]) -> None:
    fleet = Fleet()
    gpus = fleet.node("a")
    fleet.work(gpus[:4], 2.0, 9.0, breath=1)
    fleet.work(gpus[4:6], 5.0, 21.0, breath=2)
    gangs = find_gangs(fleet.series(without))
    assert sets_of(gangs) == {tuple(gpus[:4]), tuple(gpus[4:6])}
    assert hours_of(gangs[0]) == pytest.approx((2.0, 9.0), abs=0.1)


def test_instances_are_each_by_themselves() -> None:
    fleet = Fleet()
    fleet.gpus = {("a", f"GPU-a-0/gi{n}"): row for n, row in enumerate(Fleet().gpus.values())}
    fleet.node("a", 3)
    fleet.gpus = {("a", f"GPU-a-0/gi{n}"): row for n, row in enumerate(fleet.gpus.values())}
    fleet.work(list(fleet.gpus), 2.0, 9.0, breath=1)
    assert sets_of(find_gangs(fleet.series())) == {(key,) for key in fleet.gpus}


def test_the_order_of_the_series_changes_nothing(seed_of: Callable[[int], int]) -> None:
    fleet = Fleet(hours=12.0)
    a, b = fleet.node("a"), fleet.node("b", 4)
    fleet.work(a[:3], 1.0, 9.0, breath=1)
    fleet.work(a[3:], 1.0, 7.0, breath=2)
    fleet.work(b, 2.0, 12.0, breath=3)
    series = fleet.series()
    shuffled = [series[n] for n in np.random.default_rng(seed_of(4)).permutation(len(series))]
    assert find_gangs(shuffled) == find_gangs(series)


def test_what_is_no_reading_is_no_work() -> None:
    ts = T0 + 60 * np.arange(1.0, 200.0)
    wild = np.resize([-5.0, 9e18, np.inf, -np.inf, np.nan], len(ts))
    assert find_gangs([DeviceSeries("a", "g", ts, 60.0, wild, wild, wild)]) == ()


def test_where_something_starts_every_minute_what_began_hours_apart_is_not_compared() -> None:
    """Each start is near the next: uncut, all of them would be one, at the cost of the square of the record."""
    pieces = unchained([60.0 * n for n in range(5000)], float, 600.0, 100)
    assert [one for own in pieces for one in own] == [60.0 * n for n in range(5000)]
    assert all(own[-1] - own[0] <= 600.0 for own in pieces) and len(pieces) < 1200
    # What was there before the data began together; too many of them are divided all the same.
    old = unchained([-math.inf] * 250 + [0.0, 5.0], float, 600.0, 100)
    assert max(map(len, old)) <= 100 and [0.0, 5.0] in old
    # A pause is where a chain is cut, not at a number.
    assert unchained([0.0, 100.0, 200.0, 600.0, 700.0], float, 600.0, 100) == [[0.0, 100.0, 200.0], [600.0, 700.0]]


def test_flickering_gpus_are_in_one_gang_at_a_time_and_cost_little() -> None:
    """No hour of a GPU is counted twice, whatever it does."""
    make = FrameBuilder(hours=8)
    make.node("n1")
    devices = [("n1", f"GPU-n1-{n}") for n in range(8)]
    for device in devices:
        make.use(TRAINING, *device)
    rng = np.random.default_rng(5)

    def finer(wanted: Sequence[tuple[str, str]], window: Window) -> list[DeviceSeries]:
        ts = np.arange(window.start + 60.0, window.end + 1.0, 60.0)
        n = len(ts)
        return [
            DeviceSeries(*one, ts, 60.0, rng.random(n), rng.random(n) * 80 * GIB, rng.random(n) * 700, means=True)
            for one in wanted
        ]

    uses = with_activity(make.frame(), finer).uses
    assert len(uses)
    for _, own in uses.groupby(["node", "gpu_uuid"]):
        ordered = own.sort_values("ts_start")
        assert (ordered["ts_start"].to_numpy()[1:] >= ordered["ts_end"].to_numpy()[:-1]).all()
