"""Jobs that stopped, dead telemetry, clocks of faults, silent fabrics; and what only looks like them."""

import pytest
from skuwise.tests.support.watch_readings import (
    END,
    MINUTES,
    MISSING,
    QUIET_HOST,
    REST,
    SPIN,
    TRAINING,
    Work,
    eight,
    found,
    reading,
    watch,
)

BOTH = [*eight("n1"), *eight("n2")]


def of(kind: str, recent) -> list[str]:
    return [code for one, code, _ in found(recent) if one == kind]


def trained(*then, gpus=None, **more) -> Work:
    return Work("1", gpus or eight(), ((MINUTES - sum(n for n, _ in then), TRAINING), *then), **more)


CHECKPOINTS = [*[(50, TRAINING), (10, REST)] * 12, (38, TRAINING)]


@pytest.mark.parametrize(
    ("course", "one", "codes"),
    [
        ([(9, REST)], (), ["pattern-ended"]), ([(6, REST)], (), []),
        ([(9, SPIN)], (), ["collectives-spin"]), ([(6, SPIN)], (), []),
        # One rank that works on is progress; missing data are no stop; a pause like those before is a pause.
        ([(10, SPIN)], [(MINUTES, TRAINING)], []),
        ([(12, MISSING)], (), []), ([(30, REST)], [(MINUTES - 30, TRAINING), (30, MISSING)], []),
        ([*CHECKPOINTS, (12, REST)], (), []), ([*CHECKPOINTS, (22, REST)], (), ["pattern-ended"]),
    ],
)  # fmt: skip
def test_a_job_that_makes_no_progress_stopped(course, one, codes):
    assert of("stopped", reading([trained(*course, courses={0: one} if one else {})])) == codes


@pytest.mark.parametrize(
    ("before", "minutes", "codes"),
    [
        (((MINUTES - 13, TRAINING),), 13, ["pattern-ended"]), (((MINUTES - 10, TRAINING),), 10, []),
        ([(30, TRAINING), (5, REST)] * 20, 17, []), ([(30, TRAINING), (5, REST)] * 20, 26, ["pattern-ended"]),
    ],
)  # fmt: skip
def test_a_job_of_one_gpu_is_told_early_if_it_never_paused(before, minutes, codes):
    course = [*before, (5, TRAINING), (minutes, REST)]
    assert of("stopped", reading([Work("1", [("n1", 0)], course)])) == codes


BLIND = {"sm": 0.0, "tensor": 0.0, "dram": 0.0}


@pytest.mark.parametrize(
    ("work", "spin", "codes"),
    [
        ({"links_bytes_per_second": float("nan")}, {"links_bytes_per_second": float("nan")}, ["collectives-spin"]),
        ({"links_bytes_per_second": float("nan")}, {"links_bytes_per_second": float("nan"), "power_watts": 600.0}, []),
        (BLIND, BLIND, ["collectives-spin"]),
        (BLIND, {**BLIND, "power_watts": 450.0}, []),
        (BLIND, {**BLIND, "links_bytes_per_second": 3e10}, []),
    ],
    ids=["links not measured", "and power as before", "counters at 0", "and power as before", "and links as before"],
)
def test_a_spin_shows_in_links_and_power_where_the_rest_is_missing(work, spin, codes):
    course = [(MINUTES - 12, {**TRAINING, **work}), (12, {**SPIN, **spin})]
    assert of("stopped", reading([Work("1", eight(), course)])) == codes


def test_a_job_that_stopped_is_held_idle_only_once_its_work_has_left_the_view():
    recent = reading([trained((150, REST))])
    assert of("stopped", recent) == ["pattern-ended"] and of("held-idle", recent) == []
    assert of("held-idle", reading([trained((MINUTES, REST))])) == ["no-work-in-view"]


@pytest.mark.parametrize(
    "host", [{"disk_bytes_per_second": 2e9}, {"cpu_util": 0.5}, {"fabric_bytes_per_second": 4e10}],
    ids=["checkpoint", "evaluation", "storage over the fabric"],
)  # fmt: skip
def test_hosts_that_work_make_it_a_pause(host):
    busy = ((MINUTES - 14, QUIET_HOST), (14, {**QUIET_HOST, **host}))
    assert of("stopped", reading([trained((14, REST))], hosts={"n1": busy})) == []
    assert of("stopped", reading([trained((14, SPIN))], hosts={"n1": busy})) == []


def test_what_fell_silent_is_named_with_its_workload_and_nothing_else_is_said_of_it():
    silent = Work("9", eight("n2"), ((MINUTES - 30, TRAINING), (30, MISSING)))
    told = watch(reading([trained(), silent]))
    (one,) = told.sightings
    assert (one.code, one.subject.key, one.since) == ("node-silent", "node:n2", END - 30 * 60)
    assert "job 9 (ann)" in one.text.text
    assert "workload:w-9" in told.unknown and told.live_nodes == {"n1"}
    gone = trained(courses={5: ((MINUTES - 40, TRAINING), (40, MISSING))})
    assert found(reading([gone])) == [("telemetry-dead", "gpu-missing", "GPU 5 of n1")]
    told = watch(reading([trained((200, REST))], now=END + 3 * 3600))
    assert [s.code for s in told.sightings] == ["source-stale"]
    assert told.unknown == {"workload:w-1"} and not told.live_nodes


def test_a_busy_gpu_at_a_fraction_of_its_peers_clock_unless_it_was_set_for_all():
    slow = {**TRAINING, "sm_clock_hertz": 345e6, "power_watts": 200.0}
    (one,) = watch(reading([trained(courses={2: ((MINUTES - 60, TRAINING), (60, slow))})])).sightings
    assert (one.kind, one.code, one.subject.name) == ("fault-clock", "clock-stuck-low", "GPU 2 of n1")
    assert one.subject.workload_id == "w-1" and "345 MHz" in one.text.text and "1755 MHz" in one.text.text
    assert of("fault-clock", reading([trained((60, {**slow, "throttled": 1.0}))])) == ["slowdown-throttle"] * 8
    assert found(reading([trained((60, {**TRAINING, "sm_clock_hertz": 900e6}))])) == []


USED = {**QUIET_HOST, "fabric_bytes_per_second": 8e10}
SILENT = {"n1": QUIET_HOST, "n2": QUIET_HOST}


@pytest.mark.parametrize(
    ("before", "hosts", "then", "codes"),
    [
        (USED, SILENT, TRAINING, ["fabric-silent"]),
        (USED, {**SILENT, "n2": {**QUIET_HOST, "fabric_up": 0.875}}, TRAINING, ["port-down"]),
        (QUIET_HOST, SILENT, TRAINING, []),
        (USED, {**SILENT, "n2": {**QUIET_HOST, "fabric_bytes_per_second": float("nan")}}, TRAINING, []),
        # Where the GPUs do not work either it is a job that stopped, and the fabric only shows it.
        (USED, SILENT, SPIN, []),
    ],
)
def test_a_fabric_that_fell_silent_under_a_job_on_two_nodes(before, hosts, then, codes):
    courses = {node: ((MINUTES - 12, before), (12, host)) for node, host in hosts.items()}
    recent = reading([trained((12, then), gpus=BOTH)], hosts=courses)
    assert of("fabric-silent", recent) == codes and bool(of("stopped", recent)) == (then is SPIN)
