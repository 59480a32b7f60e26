"""The file of incidents: what comes back of what was written, decisions beside a pass, and what is kept how long."""

import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.incident_types import Advance, Incident, IncidentEvent, Resolution, WatchPass
from skuwise.advisor.state.incidents import IncidentStore
from skuwise.advisor.watch.settings import WatchSettings
from skuwise.advisor.watch.transitions import advance
from skuwise.rules.base.errors import SkuwiseError, StoreError, UsageError
from skuwise.tests.support.golden_files import golden
from skuwise.tests.support.incident_builders import (
    GPUS,
    HOSTILE,
    HOUR,
    NOW,
    RATE,
    Watch,
    opened,
    renamed,
    sighting,
)


@pytest.fixture
def store(tmp_path: Path) -> IncidentStore:
    return IncidentStore(tmp_path / "state" / "incidents.db")


def over(one: Incident, at: float, how: Resolution) -> Advance:
    after = replace(one, state="resolved", resolved_at=at, updated_at=at, resolution=how, resolution_told=True)
    return Advance((after,), (IncidentEvent(one.id, "resolved", -1, at),))


def test_what_was_written_comes_back_as_it_was(store: IncidentStore) -> None:
    first = opened(sighting("a"), renamed(sighting("b", priced=False), HOSTILE + "\udcff"))
    store.commit(first)
    assert set(store.current()) == set(store.listed()) == set(first.incidents)
    assert [event for event, _ in store.untold()] == list(first.events)
    changed = replace(
        first.incidents[0], silent_since=NOW + 1, snoozed_until=None, reminders=3, told_at=NOW + 2, reopenings=2,
        updated_at=NOW + 3, gpu_hours=99.0, cost_usd=None, data_until=NOW,
    )  # fmt: skip
    store.commit(Advance((changed,)))
    assert next(one for one in store.current() if one.id == changed.id) == changed


def test_a_file_that_is_not_there_is_empty_and_reading_does_not_make_it(store: IncidentStore) -> None:
    event = IncidentEvent("i-1", "opened", 0, NOW)
    assert (store.current(), store.listed(), store.untold(), store.told(event)) == ((), (), (), frozenset())
    with pytest.raises(UsageError, match="there are none yet"):
        store.acknowledge("i-1", "ann", NOW)
    store.commit(Advance())
    assert not store.path.exists()


def test_two_watchers_of_one_file_are_one_too_many(store: IncidentStore) -> None:
    with store.watching():
        with pytest.raises(SkuwiseError, match="Another skuwise watch uses"), IncidentStore(store.path).watching():
            pass
        store.commit(opened(sighting()))  # the lock is no lock of the file
        assert len(IncidentStore(store.path).current()) == 1
    with store.watching():
        pass


def test_who_was_told_is_known_until_it_is_settled(store: IncidentStore) -> None:
    done = opened(sighting("a"), sighting("b"))
    store.commit(done)
    first, second = done.events
    store.note_queued("2026-11-16T00", [first, second], "mail:ann@example.org", NOW)
    store.note_queued("2026-11-16T00", [first], "mail:ann@example.org", NOW + 5)
    store.note_queued("2026-11-16T00", [first], "webhook:search", NOW)
    assert store.told(first) == {"mail:ann@example.org", "webhook:search"}
    assert store.told(second) == {"mail:ann@example.org"}
    store.settle([first])
    assert [event for event, _ in store.untold()] == [second]
    store.commit(Advance(done.incidents, (first,)))  # the same event again
    assert [event for event, _ in store.untold()] == [second]


def test_a_decision_is_not_undone_by_a_pass_that_began_before_it(store: IncidentStore) -> None:
    settings = WatchSettings(remind_every_seconds=HOUR)
    store.commit(opened(sighting("a"), sighting("b"), sighting("c")))
    ids = {one.sighting.subject.name: one.id for one in store.current()}
    later = NOW + 2 * HOUR
    found = WatchPass(later, later, tuple(sighting(n, until=later) for n in "abc"), live_nodes=frozenset({"n1"}))
    begun = advance(store.current(), found, settings)
    assert [one.kind for one in begun.events] == ["reminded"] * 3
    taken = store.acknowledge(ids["a"][:8], "ann", later + 1)
    assert (taken.state, taken.acknowledged_by, taken.acknowledged_at) == ("acknowledged", "ann", later + 1)
    assert store.snooze("b", later + 24 * HOUR, later + 1).snoozed_until == later + 24 * HOUR
    store.commit(begun)
    after = {one.sighting.subject.name: one for one in store.current()}
    assert after["a"].state == "acknowledged" and after["a"].acknowledged_by == "ann"
    assert after["a"].last_seen_at == later and after["b"].snoozed_until == later + 24 * HOUR
    # A reminder of what is taken care of is none any more.
    assert [(e.kind, one.sighting.subject.name) for e, one in store.untold()][3:] == [("reminded", "c")]
    # It is over all the same, and told.
    store.commit(over(after["a"], later + 5, "works-again"))
    with pytest.raises(UsageError, match="was resolved on"):
        store.acknowledge(ids["a"], "ann", later + 6)


@pytest.fixture
def filled(tmp_path: Path) -> IncidentStore:
    made = IncidentStore(tmp_path / "incidents.db")
    done = opened(sighting("a"), sighting("b"))
    made.commit(done)
    made.note_queued("x", done.events, "mail:ann", NOW)
    return made


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("CREATE TRIGGER mine AFTER INSERT ON events BEGIN DELETE FROM events; END", "trigger mine"),
        ("CREATE INDEX mine ON events(abs(number))", "mine is not a plain index"),
        ("ALTER TABLE incidents ADD COLUMN mine AS (zeroblob(1000000000))", "incidents is not a plain table"),
        ("DROP TABLE events", "no table events"),
        ("PRAGMA user_version = 2000", "written by a newer skuwise"),
        ("PRAGMA application_id = 7", "not an incidents file; it was not changed"),
    ],
)
def test_a_form_that_is_none_of_ours_is_refused(filled: IncidentStore, sql: str, said: str) -> None:
    with closing(sqlite3.connect(filled.path)) as db:
        db.executescript(sql)
    before = filled.path.read_bytes()
    calls = filled.current, filled.untold, lambda: filled.acknowledge("a", "ann", NOW), filled.watching().__enter__
    for call in calls:
        with pytest.raises(StoreError, match=said) as error:
            call()
        assert error.value.remedy and str(error.value).isprintable()
    assert filled.path.read_bytes() == before


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("incidents.state", "'gone'"), ("incidents.opened_at", "9e999"), ("incidents.gpu_hours", "-1.0"),
        ("incidents.acknowledged_by", "CAST(x'ff' AS TEXT)"), ("incidents.sighting", "'{}'"),
        ("incidents.sighting", f"'{'[' * 100_000}'"), ("incidents.sighting", "json_set(sighting, '$.since', 1e300)"),
        ("incidents.sighting", "replace(hex(zeroblob(4000000)), '00', 'x')"), ("events.kind", "'shouted'"),
        ("clock.lived_seconds", "-1.0"),
    ],
)  # fmt: skip
def test_a_cell_that_we_never_wrote_is_a_sentence(
    filled: IncidentStore, capsys: pytest.CaptureFixture[str], column: str, value: str
) -> None:
    table, name = column.split(".")
    with closing(sqlite3.connect(filled.path)) as db, db:
        db.execute(f"UPDATE {table} SET {name} = {value} WHERE rowid = 1")
    reading = {"incidents": filled.listed, "events": filled.untold, "clock": filled.current}[table]
    with pytest.raises(StoreError) as error:
        reading()
    assert error.value.remedy and str(error.value).isprintable() and len(str(error.value)) < 400
    for arguments in (["list"], ["list", "--format", "json"], ["show", "a"], ["acknowledge", "a"]):
        status = main(["incidents", *arguments, "--state", str(filled.path)])
        told = capsys.readouterr()
        assert status == (1 if table == "incidents" else 0) and "unexpected" not in told.err


@pytest.fixture
def store_command(tmp_path: Path) -> IncidentStore:
    made = IncidentStore(tmp_path / "incidents.db")
    done = opened(
        sighting("cheap", hours=1.0), sighting("dear", hours=50.0), sighting("grave", severity="high", priced=False),
        sighting("over"), renamed(sighting("odd", hours=2.0), HOSTILE),
    )  # fmt: skip
    made.commit(done)
    made.commit(over(done.incidents[3], NOW, "released"))
    return made


def incidents(store_command: IncidentStore, *arguments: str) -> int:
    return main(["incidents", *arguments, "--state", str(store_command.path)])


@pytest.mark.parametrize(
    "arguments",
    ["list", "list --all", "list --all --format json", "show dear", "show grave", "show dear --format json"],
)
def test_what_is_shown_reads_as_it_did(store_command: IncidentStore, capsys, arguments: str) -> None:
    assert incidents(store_command, *arguments.split()) == 0
    shown = capsys.readouterr().out
    assert shown == golden(f"incidents/{arguments.replace(' ', '_')}.txt", shown)
    assert "\x1b" not in shown and "\u202e" not in shown


def test_who_takes_it_and_how_long_it_waits_is_kept(store_command: IncidentStore, capsys) -> None:
    assert incidents(store_command, "acknowledge", "dear", "--by", "Ann\x1b[2J") == 0
    assert "is acknowledged by Ann\\x1b[2J." in capsys.readouterr().err
    assert incidents(store_command, "snooze", "7cheap", "--until", "8h") == 0
    assert "is snoozed until" in capsys.readouterr().err
    now = {one.sighting.subject.name: one for one in store_command.listed()}
    assert now["dear"].state == "acknowledged" and (now["dear"].acknowledged_by or "").startswith("Ann")
    assert now["cheap"].snoozed_until == pytest.approx(time.time() + 8 * 3600, abs=60)
    assert incidents(store_command, "list") == 0
    assert "snoozed until" in (shown := capsys.readouterr().out) and "acknowledged by Ann\\x1b[2J" in shown
    assert incidents(store_command, "acknowledge", "grave") == 0


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["show", "nothing"], 2, "No match for 'nothing'"),
        (["show", "n1"], 2, "matches 4 items"),
        (["acknowledge", "over"], 2, "was resolved on 2026-11-16 00:00 UTC"),
        (["snooze", "dear", "--until", "2001-01-01"], 2, "2001-01-01 00:00 UTC is in the past"),
        (["snooze", "dear", "--until", "soon"], 2, "Invalid end of a snooze 'soon'"),
        (["snooze", "dear", "--until", "999999999w"], 2, "Invalid end of a snooze"),
    ],
)
def test_what_cannot_be_is_a_sentence(store_command: IncidentStore, capsys, arguments, status: int, said: str) -> None:
    assert incidents(store_command, *arguments) == status
    assert said in capsys.readouterr().err


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
        watch.now += 300.0  # the data end where the outage began
        watch.take(unknown=["workload:train"] if how == "unknown" else [], live=["n1"] if how == "unknown" else [])
    assert watch.told() == [("opened", 0)] and watch.only.gpu_hours == before.gpu_hours
    assert watch.only.silent_since == NOW + 300.0 and watch.only.resolved_at is None
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
        watch.live(300.0)
        watch.take([watch.idle(BEGAN, kind=then)], held=["workload:train"])
    assert watch.told() == [("opened", 0)]
    assert (watch.only.id, watch.only.sighting.kind, watch.only.since) == (id_, then, BEGAN)
    assert watch.only.gpu_hours == pytest.approx(3 * GPUS)
    watch.step([watch.idle(BEGAN, "other", kind=then), sighting(kind="fabric-silent")])
    assert sorted(one.sighting.kind for one in watch.incidents.values()) == sorted([then, then, "fabric-silent"])
