"""What a pass of the watch makes of incidents: opened, reminded, resolved, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from skuwise.advisor.incidents.settings import WatchSettings
from skuwise.tests.support.incident_builders import GPUS, HOUR, MINUTE, NOW, RATE, Watch, sighting

BEGAN = NOW - 2 * HOUR


def begun(**about) -> Watch:
    watch = Watch(**about)
    watch.take([watch.idle(BEGAN)])
    return watch


def test_a_sighting_opens_one_incident_with_what_it_cost_so_far() -> None:
    watch = begun()
    one = watch.only
    assert watch.told() == [("opened", 0)]
    assert (one.state, one.since, one.opened_at, one.last_seen_at) == ("open", BEGAN, NOW, NOW)
    assert one.gpu_hours == 2 * GPUS and one.cost_usd == 2 * GPUS * RATE and one.id.startswith("i-")


def test_a_price_that_becomes_known_counts_for_all_hours() -> None:
    watch = Watch()
    watch.take([watch.idle(BEGAN, priced=False)])
    assert watch.only.cost_usd is None
    watch.on(BEGAN)
    assert watch.only.cost_usd == pytest.approx(watch.only.gpu_hours * RATE)


@pytest.mark.parametrize("how", ["unknown", "dead"])
def test_an_outage_of_three_hours_neither_resolves_nor_counts_nor_tells(how: str) -> None:
    watch = begun()
    before = watch.only
    for _ in range(36):
        watch.now += 5 * MINUTE  # the data end where the outage began
        watch.take(unknown=["workload:train"] if how == "unknown" else [], live=["n1"] if how == "unknown" else [])
    assert watch.told() == [("opened", 0)] and watch.only.gpu_hours == before.gpu_hours
    assert watch.only.silent_since == NOW + 5 * MINUTE and watch.only.resolved_at is None
    # Data are back: the idle time is counted anew, from after the outage, and is unknown until it is long enough.
    back = watch.data = watch.now
    for _ in range(24):
        watch.step(unknown=["workload:train"])
    watch.take([watch.idle(back)])
    assert watch.told() == [("opened", 0)] and watch.only.silent_since is None
    assert watch.only.since == BEGAN and watch.only.gpu_hours == pytest.approx(4 * GPUS)


@pytest.mark.parametrize(
    ("kind", "key", "held", "live", "resolution"),
    [
        ("held-idle", "workload:train", ["workload:train"], ["n1"], "works-again"),
        ("held-idle", "workload:train", [], ["n1"], "released"),
        ("held-idle", "workload:train", None, ["n1"], "cleared"),
        ("stopped", "workload:train", ["workload:train"], ["n1"], "works-again"),
        ("stopped", "workload:train", [], ["n1"], "released"),
        ("fabric-silent", "workload:train", ["workload:train"], ["n1"], "cleared"),
        ("fabric-silent", "workload:train", [], ["n1"], "released"),
        ("fault-clock", "gpu:n1/GPU-1", [], ["n1"], "cleared"),
        ("telemetry-dead", "node:n1", [], ["n1"], "data-back"),
        ("telemetry-dead", "node:n1", [], [], "cleared"),  # it is expected no more
        ("telemetry-dead", "gpu:n1/GPU-1", [], ["n1"], "data-back"),
    ],
)
def test_it_is_over_when_not_found_for_its_time_and_how_is_told(kind, key, held, live, resolution) -> None:
    watch = Watch()
    watch.take([watch.idle(BEGAN, kind=kind, key=key)])
    watch.step(held=held, live=live)
    assert watch.only.resolved_at is None
    watch.step(held=held, live=live)
    one = watch.only
    assert (one.state, one.resolution, one.resolved_at) == ("resolved", resolution, watch.now)
    assert watch.told() == [("opened", 0), ("resolved", -1)]
    watch.step(held=held, live=live)
    assert len(watch.events) == 2


def test_what_comes_back_within_the_hour_goes_on_and_is_told_once() -> None:
    watch = begun()
    watch.step()
    watch.step()
    assert watch.only.state == "resolved"
    for _ in range(3):
        watch.on(watch.data - 2 * HOUR)
    assert watch.told() == [("opened", 0), ("resolved", -1), ("reminded", 1)]
    assert watch.only.state == "open" and watch.only.resolution is None and watch.only.reopenings == 1
    # The second end is told when it stayed so for an hour.
    for _ in range(13):
        watch.step()
    assert watch.only.state == "resolved" and len(watch.events) == 3
    watch.step()
    assert watch.told()[-1] == ("resolved", -2) and len(watch.incidents) == 1
    watch.on(watch.data - 2 * HOUR)
    assert len(watch.incidents) == 2 and watch.told()[-1] == ("opened", 0)


def test_reminders_come_by_their_schedule_while_it_is_open_alone() -> None:
    watch = begun(settings=WatchSettings(remind_every_seconds=6 * HOUR))
    for _ in range(12 * 24):
        watch.on(BEGAN)
    assert watch.told() == [("opened", 0), *(("reminded", n) for n in (1, 2, 3, 4))] and watch.only.reminders == 4
    watch.incidents[watch.only.id] = replace(watch.only, state="acknowledged", acknowledged_at=watch.now)
    for _ in range(12 * 24):
        watch.on(BEGAN)
    assert len(watch.events) == 5 and watch.only.state == "acknowledged"
    watch.step()
    watch.step()
    assert watch.told()[5:] == [("resolved", -1)]


@pytest.mark.parametrize(("first", "then"), [("stopped", "held-idle"), ("held-idle", "stopped")])
def test_unused_gpus_of_a_workload_are_one_incident_however_they_are_found(first, then) -> None:
    watch = Watch()
    watch.take([watch.idle(BEGAN, kind=first)])
    id_ = watch.only.id
    for _ in range(12):
        watch.live(5 * MINUTE)
        watch.take([watch.idle(BEGAN, kind=then)], held=["workload:train"])
    assert watch.told() == [("opened", 0)]
    assert (watch.only.id, watch.only.sighting.kind, watch.only.since) == (id_, then, BEGAN)
    assert watch.only.gpu_hours == pytest.approx(3 * GPUS)
    watch.step([watch.idle(BEGAN, "other", kind=then), sighting(kind="fabric-silent")])
    assert sorted(one.sighting.kind for one in watch.incidents.values()) == sorted([then, then, "fabric-silent"])
