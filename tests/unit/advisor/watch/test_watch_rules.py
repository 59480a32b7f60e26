"""The watch and `skuwise idle` on readings made by hand: idle and stopped work, dead telemetry, clocks, fabrics."""

from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.core.ids import matching
from skuwise.advisor.core.incident_types import Spans
from skuwise.advisor.watch.fleet import WatchedFleet
from skuwise.advisor.watch.idle_answer import idle_answers, targets
from skuwise.advisor.watch.rules import find_held_idle
from skuwise.tests.support.watch_readings import (
    CRITERIA,
    END,
    FREE,
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

QUEUE = {"requests_running": 0.0, "requests_waiting": 3.0, "tokens_per_second": 0.0}
EMPTY = {"requests_running": 0.0, "requests_waiting": 0.0, "tokens_per_second": 0.0}


def idle_for(minutes: int, holder: str = "job", **more) -> Work:
    return Work("1", eight(), ((MINUTES - minutes, TRAINING), (minutes, REST)), holder, **more)


def held(recent) -> list[str]:
    """By this rule alone: a job that stopped is reported as that."""
    return [s.code for s in find_held_idle(WatchedFleet(recent, CRITERIA))]


@pytest.mark.parametrize(("holder", "limit"), {"job": 120, "notebook": 240, "service": 720, "process": 240}.items())
def test_each_kind_of_holder_has_its_own_limit(holder, limit):
    assert held(reading([idle_for(limit - 10, holder)])) == []
    assert held(reading([idle_for(limit + 6, holder)])) == ["worked-before"]


def test_hours_dollars_and_evidence_are_those_of_the_rest():
    (s,) = find_held_idle(WatchedFleet(reading([idle_for(180)]), CRITERIA))
    assert (s.gpu_hours, s.cost_usd) == (pytest.approx(24, rel=0.02), pytest.approx(24 * 6.88, rel=0.02))
    assert s.price_source == "list price, 2026-11-01" and s.last_work == pytest.approx(END - 180 * 60, abs=300)
    result = {e.metric: (e.value, e.unit) for e in s.evidence}
    assert result["idle"] == (pytest.approx(180, abs=3), "minutes")
    assert "8 H100-SXM5 on n1 held idle for" in s.text.text and "job 1 (ann)" in s.text.text


BLIND = {"observed": 1.0, "engine": 0.0, "engine_max": 0.0, "util": 0.0, "mem_used_ratio": 0.8}
ALLOCATED = {"basis": "allocation"}


@pytest.mark.parametrize(
    ("course", "more", "codes"),
    [
        (((150, REST),), {"started": 150}, ["never-worked"]),
        (((MINUTES, REST),), {}, ["no-work-in-view"]),
        # Allocated without a process: the shortest limit, unless held memory says that somebody is there.
        (((40, FREE),), {"started": 40, **ALLOCATED}, ["no-process"]),
        (((20, FREE),), {"started": 20, **ALLOCATED}, []),
        (((40, REST),), {"started": 40, **ALLOCATED}, []),
        (((MINUTES, REST),), {"holder": "service", "engine": ((MINUTES, QUEUE),)}, []),
        (((MINUTES, REST),), {"holder": "service", "engine": ((MINUTES, EMPTY),)}, ["no-work-in-view"]),
        # Missing telemetry is no idleness, and one source alone never says idle.
        (((MINUTES - 240, TRAINING), (50, REST), (180, MISSING), (10, REST)), {}, []),
        (((MINUTES, BLIND),), {}, []),
        (((MINUTES, {**BLIND, "power_watts": 110.0}),), {}, ["no-work-in-view"]),
    ],
)  # fmt: skip
def test_what_is_held_idle_and_what_is_not(course, more, codes):
    assert held(reading([Work("1", eight(), course, **more)])) == codes


@pytest.mark.parametrize(
    "host", [("network_bytes_per_second", 1.2e8), ("disk_bytes_per_second", 4e8), ("cpu_util", 0.6)]
)
def test_what_its_hosts_prepare_is_given_time(host):
    never = Work("5", eight(), ((180, REST),), started=180)
    assert held(reading([never], hosts=working(180, dict([host])))) == [] and held(reading([never])) == ["never-worked"]


def working(minutes: int, host: dict[str, float]) -> dict:
    """A host that was quiet until so many minutes ago."""
    return {"n1": ((MINUTES - minutes, QUIET_HOST), (minutes, {**QUIET_HOST, **host}))}


def test_counters_that_stand_still_are_a_fault_and_no_idleness_and_sharers_pay_their_parts():
    recent = reading([trained((180, {**REST, "power_watts": 600.0}))])
    assert held(recent) == [] and {code for _, code, _ in found(recent)} == {"counters-stuck"}
    works = [Work(name, [("n1", 0)], ((MINUTES, REST),), "notebook") for name in ("a", "b")]
    sightings = [s for s in watch(reading(works)).sightings if s.kind == "held-idle"]
    assert sum(s.gpu_hours for s in sightings) == pytest.approx(13.5, rel=0.02)


def test_a_rest_that_began_before_the_view_is_followed_by_the_hours():
    """The view is hours long; by the hour the GPUs have rested for 140 h, after 100 h of training."""
    recent = reading([Work("1", eight(), ((MINUTES, REST),), "process", started=30 * 24 * 60)])
    start = (recent.spans.start // 3600 + 1 - 240) * 3600
    names = (*REST, "engine_p95")
    hours = {name: np.full((8, 240), REST.get(name, np.nan), dtype=np.float32) for name in names}

    def found_with(start: float):
        spans = Spans(np.array([start + 3600.0 * (n + 1) for n in range(240)]), np.full(240, 3600.0))
        (s,) = find_held_idle(WatchedFleet(replace(recent, past=(spans, hours)), CRITERIA))
        return s

    s = found_with(start)
    assert s.since == start and "held idle for at least 10" in s.text.text
    hours["util"][:, :100] = TRAINING["util"]
    s = found_with(start)
    assert s.since == start + 100 * 3600 and s.gpu_hours == pytest.approx(8 * (END - s.since) / 3600)
    assert "at least" not in s.text.text
    # A gap between the hours and the view may hide work.
    s = found_with(start - 7200)
    assert s.since == recent.spans.start and "at least" in s.text.text


@pytest.mark.parametrize(("watts", "codes"), [(22.0, ["no-work-in-view"]), (200.0, [])])
def test_without_the_profiler_utilization_and_steady_power_agree_on_rest(watts, codes):
    """A workstation card, of which nothing is known but that it holds memory and its utilization is 0."""
    silent = {**REST, "power_watts": watts, **dict.fromkeys(("sm", "tensor", "dram"), float("nan"))}
    recent = reading([Work("1", [("n1", 0)], ((MINUTES, silent),), "process")])
    gpus = tuple(replace(gpu, sku="NVIDIA GeForce RTX 4090", power_limit_watts=None) for gpu in recent.gpus)
    assert held(replace(recent, gpus=gpus)) == codes


BOTH = [*eight("n1"), *eight("n2")]


def of(kind: str, recent) -> list[str]:
    return [code for kind_, code, _ in found(recent) if kind_ == kind]


def trained(*then, gpus=None, **more) -> Work:
    return Work("1", gpus or eight(), ((MINUTES - sum(n for n, _ in then), TRAINING), *then), **more)


CHECKPOINTS = [*[(50, TRAINING), (10, REST)] * 12, (38, TRAINING)]


@pytest.mark.parametrize(
    ("course", "rank", "codes"),
    [
        ([(9, REST)], (), ["pattern-ended"]), ([(6, REST)], (), []),
        ([(9, SPIN)], (), ["collectives-spin"]), ([(6, SPIN)], (), []),
        # One rank that works on is progress; missing data are no stop; a pause like those before is a pause.
        ([(10, SPIN)], [(MINUTES, TRAINING)], []),
        ([(12, MISSING)], (), []), ([(30, REST)], [(MINUTES - 30, TRAINING), (30, MISSING)], []),
        ([*CHECKPOINTS, (12, REST)], (), []), ([*CHECKPOINTS, (22, REST)], (), ["pattern-ended"]),
    ],
)  # fmt: skip
def test_a_job_that_makes_no_progress_stopped(course, rank, codes):
    assert of("stopped", reading([trained(*course, courses={0: rank} if rank else {})])) == codes


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


STILL, NO_LINKS = {"sm": 0.0, "tensor": 0.0, "dram": 0.0}, {"links_bytes_per_second": float("nan")}


@pytest.mark.parametrize(
    ("work", "spin", "codes"),
    [
        (NO_LINKS, NO_LINKS, ["collectives-spin"]), (NO_LINKS, {**NO_LINKS, "power_watts": 600.0}, []),
        (STILL, STILL, ["collectives-spin"]), (STILL, {**STILL, "power_watts": 450.0}, []),
        (STILL, {**STILL, "links_bytes_per_second": 3e10}, []),
    ],
    ids=["links not measured", "and power as before", "counters at 0", "and power as before", "and links as before"],
)  # fmt: skip
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
    for pause in (REST, SPIN):
        assert of("stopped", reading([trained((14, pause))], hosts=working(14, host))) == []


def test_what_fell_silent_is_named_with_its_workload_and_nothing_else_is_said_of_it():
    silent = Work("9", eight("n2"), ((MINUTES - 30, TRAINING), (30, MISSING)))
    result = watch(reading([trained(), silent]))
    (s,) = result.sightings
    assert (s.code, s.subject.key, s.since) == ("node-silent", "node:n2", END - 30 * 60)
    assert "job 9 (ann)" in s.text.text and "workload:w-9" in result.unknown and result.live_nodes == {"n1"}
    gone = trained(courses={5: ((MINUTES - 40, TRAINING), (40, MISSING))})
    assert found(reading([gone])) == [("telemetry-dead", "gpu-missing", "GPU 5 of n1")]
    result = watch(reading([trained((200, REST))], now=END + 3 * 3600))
    assert [s.code for s in result.sightings] == ["source-stale"]
    assert result.unknown == {"workload:w-1"} and not result.live_nodes


def test_a_busy_gpu_at_a_fraction_of_its_peers_clock_unless_it_was_set_for_all():
    slow = {**TRAINING, "sm_clock_hertz": 345e6, "power_watts": 200.0}
    (s,) = watch(reading([trained(courses={2: ((MINUTES - 60, TRAINING), (60, slow))})])).sightings
    assert (s.kind, s.code, s.subject.name) == ("fault-clock", "clock-stuck-low", "GPU 2 of n1")
    assert s.subject.workload_id == "w-1" and "345 MHz" in s.text.text and "1755 MHz" in s.text.text
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


TWO_HOURS = 7200.0


def ask(recent, name: str | None, longer_than: float = TWO_HOURS):
    every = targets(recent)
    (target,) = matching(name, [s for s in every if s is not None]) if name is not None else [None]
    (answer,) = idle_answers(recent, [every[target]], longer_than, CRITERIA)
    return answer


def state(recent, name: str | None, longer_than: float = TWO_HOURS) -> tuple[str, str]:
    answer = ask(recent, name, longer_than)
    return answer.state, answer.reason.code


def rested(minutes: int, *gpus) -> Work:
    return Work("4711", gpus or eight(), ((MINUTES - minutes, TRAINING), (minutes, REST)))


@pytest.mark.parametrize("name", ["4711", "w-4711", "node:n1", None])
def test_a_workload_its_node_and_the_source_are_idle_together(name):
    answer = ask(reading([rested(150)]), name)
    assert (answer.state, answer.gpu_count) == ("idle", 8) and "at least" not in answer.reason.text
    assert answer.idle_since == answer.last_work == pytest.approx(END - 150 * 60, abs=300)


def test_work_within_the_time_is_busy_and_one_gpu_may_be_idle_while_its_node_is_not():
    assert state(reading([rested(60)]), "4711") == ("busy", "gpu-activity")
    assert state(reading([rested(60)]), "4711", 1800.0) == ("idle", "idle")
    recent = reading([rested(180, ("n1", 0)), Work("2", [("n1", 1)], ((MINUTES, TRAINING),))])
    assert state(recent, "GPU-n1-0") == ("idle", "idle") and state(recent, "node:n1") == ("busy", "gpu-activity")


def test_requests_and_preparation_are_work():
    service = Work("s", eight(), ((MINUTES, REST),), "service", engine=((MINUTES, QUEUE),))
    assert state(reading([service]), "w-s") == ("busy", "requests")
    assert state(reading([service]), "node:n1") == ("busy", "requests")
    busy = working(30, {"network_bytes_per_second": 2e8})
    assert state(reading([rested(180)], hosts=busy), "4711") == ("busy", "host-activity")


@pytest.mark.parametrize(
    ("course", "more", "code"),
    [
        (((MINUTES - 200, TRAINING), (100, REST), (60, MISSING), (40, REST)), {}, "too-little-observed"),
        (((MINUTES - 200, TRAINING), (170, REST), (30, MISSING)), {}, "idle-node-silent"),
        (((30, REST),), {"started": 30}, "too-young"),
    ],
)
def test_what_was_not_observed_is_not_known(course, more, code):
    works = [Work("4711", eight(), course, **more), Work("2", eight("n2"), ((MINUTES, TRAINING),))]
    assert state(reading(works), "4711") == ("unknown", code)
    assert state(reading(works, now=END + 7200), "4711") == ("unknown", "data-stale")


@pytest.mark.parametrize("more", [{"engine_max": 0.0, "util": 0.0}, {}])
def test_held_memory_that_nothing_else_explains_is_not_judged(more):
    blind = {"observed": 1.0, "mem_used_ratio": 0.8, **more}
    recent = reading([Work("4711", eight(), ((MINUTES, blind),))])
    assert state(recent, "4711") == ("unknown", "held-not-confirmed")


def test_an_empty_node_is_idle_for_at_least_the_view_and_no_gpus_are_not_known():
    answer = ask(reading([], free=eight("n3")), "n3")
    assert answer.state == "idle" and "at least 13.5 h" in answer.reason.text
    assert state(reading([]), None) == ("unknown", "no-gpus")
