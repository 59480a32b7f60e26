"""`skuwise idle`: idle is said only where all of it was observed at rest for so long."""

import pytest
from skuwise.advisor.core.naming import matching
from skuwise.advisor.watch.idle_answer import idle_answer, targets
from skuwise.tests.support.watch_readings import (
    CRITERIA,
    END,
    MINUTES,
    MISSING,
    QUIET_HOST,
    REST,
    TRAINING,
    Work,
    eight,
    reading,
)

TWO_HOURS = 7200.0


def ask(recent, name: str | None, longer_than: float = TWO_HOURS):
    every = targets(recent)
    (found,) = matching(name, [one for one in every if one is not None]) if name is not None else [None]
    return idle_answer(recent, every[found], longer_than, CRITERIA)


def state(recent, name: str | None, longer_than: float = TWO_HOURS) -> tuple[str, str]:
    answer = ask(recent, name, longer_than)
    return answer.state, answer.reason.code


def idle_for(minutes: int, *gpus) -> Work:
    return Work("4711", gpus or eight(), ((MINUTES - minutes, TRAINING), (minutes, REST)))


@pytest.mark.parametrize("name", ["4711", "w-4711", "node:n1", None])
def test_a_workload_its_node_and_the_source_are_idle_together(name):
    answer = ask(reading([idle_for(150)]), name)
    assert (answer.state, answer.gpu_count) == ("idle", 8)
    assert answer.idle_since == pytest.approx(END - 150 * 60, abs=300)
    assert answer.last_work == pytest.approx(END - 150 * 60, abs=300)


def test_work_within_the_time_is_busy_and_one_gpu_may_be_idle_while_its_node_is_not():
    assert state(reading([idle_for(60)]), "4711") == ("busy", "gpu-activity")
    assert state(reading([idle_for(60)]), "4711", 1800.0) == ("idle", "idle")
    recent = reading([idle_for(180, ("n1", 0)), Work("2", [("n1", 1)], ((MINUTES, TRAINING),))])
    assert state(recent, "GPU-n1-0") == ("idle", "idle") and state(recent, "node:n1") == ("busy", "gpu-activity")


def test_requests_and_preparation_are_work():
    waiting = {"requests_running": 0.0, "requests_waiting": 1.0, "tokens_per_second": 0.0}
    service = Work("s", eight(), ((MINUTES, REST),), "service", engine=((MINUTES, waiting),))
    assert state(reading([service]), "w-s") == ("busy", "requests")
    assert state(reading([service]), "node:n1") == ("busy", "requests")
    busy = ((MINUTES - 30, QUIET_HOST), (30, {**QUIET_HOST, "network_bytes_per_second": 2e8}))
    assert state(reading([idle_for(180)], hosts={"n1": busy}), "4711") == ("busy", "host-activity")


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


@pytest.mark.parametrize(
    ("known", "code"), [({"engine_max": 0.0, "util": 0.0}, "held-not-confirmed"), ({}, "held-without-activity")]
)
def test_held_memory_that_nothing_else_explains_is_not_judged(known, code):
    blind = {"observed": 1.0, "mem_used_ratio": 0.8, **known}
    answer = ask(reading([Work("4711", eight(), ((MINUTES, blind),))]), "4711")
    assert (answer.state, answer.reason.code) == ("unknown", code)
    assert answer.reason.text.endswith("not judged.")


def test_an_empty_node_is_idle_for_at_least_the_view_and_no_gpus_are_not_known():
    answer = ask(reading([], free=eight("n3")), "n3")
    assert answer.state == "idle" and "at least 13.5 h" in answer.reason.text
    assert "at least" not in ask(reading([idle_for(150)]), "4711").reason.text
    assert state(reading([]), None) == ("unknown", "no-gpus")
