"""Held and unused GPUs: by kind of holder, what is given time, and what is never called idle."""

from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.core.recent import Spans
from skuwise.advisor.watch.fleet import WatchedFleet
from skuwise.advisor.watch.rules import find_held_idle
from skuwise.tests.support.watch_readings import (
    CRITERIA,
    END,
    FREE,
    MINUTES,
    MISSING,
    QUIET_HOST,
    REST,
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
    """By this judge alone: a job that stopped is told as that."""
    return [one.code for one in find_held_idle(WatchedFleet(recent, CRITERIA))]


@pytest.mark.parametrize(("holder", "limit"), {"job": 120, "notebook": 240, "service": 720, "process": 240}.items())
def test_each_kind_of_holder_has_its_own_limit(holder, limit):
    assert held(reading([idle_for(limit - 10, holder)])) == []
    assert held(reading([idle_for(limit + 6, holder)])) == ["worked-before"]


def test_hours_dollars_and_evidence_are_those_of_the_rest():
    (one,) = find_held_idle(WatchedFleet(reading([idle_for(180)]), CRITERIA))
    assert (one.gpu_hours, one.cost_usd) == (pytest.approx(24, rel=0.02), pytest.approx(24 * 6.88, rel=0.02))
    assert one.price_source == "list price, 2026-11-01" and one.last_work == pytest.approx(END - 180 * 60, abs=300)
    told = {e.metric: (e.value, e.unit) for e in one.evidence}
    assert told["power"] == (pytest.approx(115.0), "watts per GPU") and told["idle"][0] == pytest.approx(180, abs=3)
    assert "8 H100-SXM5 on n1 held idle for" in one.text.text and "job 1 (ann)" in one.text.text


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
    "host", [{"network_bytes_per_second": 1.2e8}, {"disk_bytes_per_second": 4e8}, {"cpu_util": 0.6}]
)
def test_what_its_hosts_prepare_is_given_time(host):
    busy = ((MINUTES - 180, QUIET_HOST), (180, {**QUIET_HOST, **host}))
    never = Work("5", eight(), ((180, REST),), started=180)
    assert held(reading([never], hosts={"n1": busy})) == [] and held(reading([never])) == ["never-worked"]


def test_counters_that_stand_still_while_power_is_drawn_are_a_fault_and_no_idleness():
    stuck = {**REST, "power_watts": 600.0}
    recent = reading([Work("c", eight(), ((MINUTES - 180, TRAINING), (180, stuck)))])
    assert held(recent) == [] and {code for _, code, _ in found(recent)} == {"counters-stuck"}


def test_each_sharer_of_an_idle_gpu_is_charged_its_part():
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
        (one,) = find_held_idle(WatchedFleet(replace(recent, past=(spans, hours)), CRITERIA))
        return one

    one = found_with(start)
    assert one.since == start and "held idle for at least 10" in one.text.text
    hours["util"][:, :100] = TRAINING["util"]
    one = found_with(start)
    assert one.since == start + 100 * 3600 and one.gpu_hours == pytest.approx(8 * (END - one.since) / 3600)
    assert "at least" not in one.text.text
    # A gap between the hours and the view may hide work.
    one = found_with(start - 7200)
    assert one.since == recent.spans.start and "at least" in one.text.text


@pytest.mark.parametrize(("watts", "codes"), [(22.0, ["no-work-in-view"]), (200.0, [])])
def test_without_the_profiler_utilization_and_steady_power_agree_on_rest(watts, codes):
    """A workstation card, of which nothing is known but that it holds memory and its utilization is 0."""
    silent = {**REST, "power_watts": watts, **dict.fromkeys(("sm", "tensor", "dram"), float("nan"))}
    recent = reading([Work("1", [("n1", 0)], ((MINUTES, silent),), "process")])
    gpus = tuple(replace(gpu, sku="NVIDIA GeForce RTX 4090", power_limit_watts=None) for gpu in recent.gpus)
    assert held(replace(recent, gpus=gpus)) == codes
