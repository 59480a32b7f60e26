"""Incidents in the state file: what comes back of what was written, how they move on, and what people decide."""

import time
from dataclasses import replace
from email.headerregistry import Address
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.incident_types import Advance, Incident, IncidentEvent, Sighting, WatchPass
from skuwise.advisor.notify.routes import ReportSettings, TeamRoute
from skuwise.advisor.notify.sending import carriers_of
from skuwise.advisor.state import deliveries
from skuwise.advisor.state import incidents as store
from skuwise.advisor.state.deliveries import Message, Reply, pause_seconds
from skuwise.advisor.state.file import State
from skuwise.advisor.watch.settings import WatchSettings
from skuwise.advisor.watch.transitions import advance
from skuwise.rules.base.errors import StoreError, UsageError
from skuwise.tests.support.delivery_builders import NOW as THEN
from skuwise.tests.support.delivery_builders import WEEK, Post
from skuwise.tests.support.golden_files import golden
from skuwise.tests.support.incident_builders import DAY, GPUS, HOSTILE, HOUR, NOW, Watch, opened, renamed, sighting


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state" / "fleet.db", busy_seconds=0.1)


def commit(state: State, done: Advance) -> None:
    with state.writing() as db:
        store.commit(db, done)


def current(state: State) -> tuple[Incident, ...]:
    with state.reading() as db:
        return store.current(db)


def told(state: State) -> list[IncidentEvent]:
    with state.reading() as db:
        return [event for event, _ in store.untold(db)]


def over(case: Incident, at: float) -> Advance:
    after = replace(case, state="resolved", resolved_at=at, updated_at=at, resolution="released", resolution_told=True)
    return Advance((after,), (IncidentEvent(case.id, "resolved", -1, at),))


def test_what_was_written_comes_back_as_it_was(state: State) -> None:
    assert (current(state), told(state), state.path.exists()) == ((), [], False)
    first = opened(sighting("a"), renamed(sighting("b", priced=False), HOSTILE + "\udcff"))
    for _ in range(2):  # the same events again
        commit(state, first)
    assert set(current(state)) == set(first.incidents) and told(state) == list(first.events)
    changed = replace(
        first.incidents[0], silent_since=NOW + 1, snoozed_until=None, reminders=3, told_at=NOW + 2, reopenings=2,
        updated_at=NOW + 3, gpu_hours=99.0, cost_usd=None, data_until=NOW,
    )  # fmt: skip
    commit(state, Advance((changed,)))
    assert next(case for case in current(state) if case.id == changed.id) == changed


def test_what_was_resolved_90_days_ago_is_forgotten_with_its_events(state: State) -> None:
    commit(state, over(opened(sighting("a")).incidents[0], NOW))
    for days, kept in ((1, 1), (91, 0)):
        commit(state, opened(sighting(f"at {days}"), now=NOW + days * DAY))
        with state.reading() as db:
            assert [case.resolved_at for case in store.listed(db, resolved_since=0.0)].count(NOW) == kept
            assert ("resolved" in {case.kind for case in told(state)}) == bool(kept)


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_clock_that_steps_by_a_day_and_back_loses_nothing_and_tells_nothing_twice(state: State, jump: float) -> None:
    def look(now: float, *selected: Sighting) -> None:
        with state.writing() as db:
            looked = WatchPass(now, min(now, NOW + 2 * HOUR), selected, live_nodes=frozenset({"n1"}))
            store.commit(db, advance(store.current(db), looked, WatchSettings()))

    look(NOW, sighting("goes on"), sighting("back soon"))
    for minutes in (5, 10, 15):
        look(NOW + minutes * 60, sighting("goes on"))
    assert [case.kind for case in told(state)] == ["opened", "opened", "resolved"]
    # The clock is wrong for half an hour; one incident goes on, another begins.
    for minutes in (20, 50):
        look(NOW + minutes * 60 + jump, sighting("goes on"), sighting("new"))
    look(NOW + 55 * 60, sighting("goes on"), sighting("new"), sighting("back soon"))
    counts = {case.sighting.subject.name: case for case in current(state) if case.resolved_at is None}
    assert set(counts) == {"goes on", "new", "back soon"}
    events = told(state)
    assert len({(event.incident_id, event.number) for event in events}) == len(events)
    by_kind = {kind: sum(case.kind == kind for case in events) for kind in ("opened", "resolved")}
    # A reminder is due after a day of the clock. What came back is reported as such, or as new.
    assert by_kind["resolved"] == 1 and by_kind["opened"] in (3, 4) and len(events) <= 7


def test_nobody_decides_in_the_middle_of_a_pass_and_a_pass_undoes_no_decision(state: State) -> None:
    settings = WatchSettings(remind_every_seconds=HOUR)
    commit(state, opened(sighting("a"), sighting("b"), sighting("c")))
    ids = {case.sighting.subject.name: case.id for case in current(state)}
    later = NOW + 2 * HOUR
    with state.writing() as db:
        taken = store.acknowledge(db, ids["a"], "ann", later - 1)
        store.snooze(db, ids["b"], later + 24 * HOUR)
    assert (taken.state, taken.acknowledged_by, taken.acknowledged_at) == ("acknowledged", "ann", later - 1)
    watch_pass = WatchPass(later, later, tuple(sighting(n, until=later) for n in "abc"), live_nodes=frozenset({"n1"}))
    with state.writing() as db:
        earlier = store.current(db)
        with pytest.raises(StoreError, match="locked"), state.writing():
            pass
        store.commit(db, advance(earlier, watch_pass, settings))
    after = {case.sighting.subject.name: case for case in current(state)}
    assert after["a"].state == "acknowledged" and after["a"].acknowledged_by == "ann"
    assert after["a"].last_seen_at == later and after["b"].snoozed_until == later + 24 * HOUR
    assert [case.incident_id for case in told(state)[3:]] == [ids["c"]]
    with pytest.raises(UsageError), state.writing() as db:
        store.acknowledge(db, "i-nobody", "ann", later)


@pytest.fixture
def filled(state: State) -> State:
    done = opened(
        sighting("cheap", hours=1.0), sighting("dear", hours=50.0), sighting("grave", severity="high", priced=False),
        sighting("over"), renamed(sighting("odd", hours=2.0), HOSTILE),
    )  # fmt: skip
    commit(state, done)
    commit(state, over(done.incidents[3], NOW))
    return state


def incidents(state: State, *arguments: str) -> int:
    return main(["incidents", *arguments, "--state", str(state.path)])


@pytest.mark.parametrize(
    "arguments",
    ["list", "list --all", "list --all --format json", "show dear", "show grave", "show dear --format json"],
)
def test_what_is_shown_reads_as_it_did(filled: State, capsys, arguments: str) -> None:
    assert incidents(filled, *arguments.split()) == 0
    shown = capsys.readouterr().out
    assert shown == golden(f"incidents/{arguments.replace(' ', '_')}.txt", shown)
    assert "\x1b" not in shown and "\u202e" not in shown


def test_who_takes_it_and_how_long_it_waits_is_kept(filled: State, capsys) -> None:
    assert incidents(filled, "acknowledge", "dear", "--by", "Ann\x1b[2J") == 0
    assert "is acknowledged by Ann\\x1b[2J." in capsys.readouterr().err
    assert incidents(filled, "snooze", "7cheap", "--until", "8h") == 0
    assert "is snoozed until" in capsys.readouterr().err
    now = {case.sighting.subject.name: case for case in current(filled)}
    assert now["dear"].state == "acknowledged" and (now["dear"].acknowledged_by or "").startswith("Ann")
    assert now["cheap"].snoozed_until == pytest.approx(time.time() + 8 * 3600, abs=60)
    assert incidents(filled, "list") == 0
    assert "snoozed until" in (shown := capsys.readouterr().out) and "acknowledged by Ann\\x1b[2J" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("show nothing", "No match for 'nothing'"), ("show n1", "matches 4 items"),
        ("acknowledge over", "was resolved on 2026-11-16 00:00 UTC"),
        ("snooze dear --until 2001-01-01", "2001-01-01 00:00 UTC is in the past"),
        ("snooze dear --until soon", "Invalid end of a snooze 'soon'"),
        ("snooze dear --until 999999999w", "Invalid end of a snooze"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_sentence(filled: State, capsys, arguments: str, said: str) -> None:
    assert incidents(filled, *arguments.split()) == 2
    assert said in capsys.readouterr().err


BEGAN, JOB = NOW - 2 * HOUR, "workload:train"


def begun(**about) -> Watch:
    watch = Watch(**about)
    watch.take([watch.idle(BEGAN)])
    return watch


def test_a_sighting_opens_one_incident_with_what_it_cost_so_far() -> None:
    watch = begun()
    case = watch.only
    assert watch.told() == [("opened", 0)]
    assert (case.state, case.since, case.opened_at, case.last_seen_at) == ("open", BEGAN, NOW, NOW)
    assert case.gpu_hours == 2 * GPUS and case.cost_usd == 48 and case.id.startswith("i-")
    unpriced = Watch()
    unpriced.take([unpriced.idle(BEGAN, priced=False)])
    assert unpriced.only.cost_usd is None
    unpriced.on(BEGAN)  # a price that becomes known counts for all hours
    assert unpriced.only.cost_usd == pytest.approx(3 * unpriced.only.gpu_hours)


@pytest.mark.parametrize("how", ["unknown", "dead"])
def test_an_outage_of_three_hours_neither_resolves_nor_counts_nor_tells(how: str) -> None:
    watch = begun()
    before = watch.only
    for _ in range(36):
        watch.now += 300.0  # the data end where the outage began
        watch.take(unknown=["workload:train"] if how == "unknown" else [], live=["n1"] if how == "unknown" else [])
    assert watch.told() == [("opened", 0)] and watch.only.gpu_hours == before.gpu_hours
    assert watch.only.silent_since == NOW + 300.0 and watch.only.resolved_at is None
    # Data are back: the idle time is counted again, from after the outage, and is unknown until it is long enough.
    back = watch.data = watch.now
    for _ in range(24):
        watch.step(unknown=["workload:train"])
    watch.take([watch.idle(back)])
    assert watch.told() == [("opened", 0)] and watch.only.silent_since is None
    assert watch.only.since == BEGAN and watch.only.gpu_hours == pytest.approx(4 * GPUS)


@pytest.mark.parametrize(
    ("kind", "key", "held", "live", "resolution"),
    [
        ("held-idle", JOB, [JOB], ["n1"], "works-again"), ("held-idle", JOB, [], ["n1"], "released"),
        ("held-idle", JOB, None, ["n1"], "cleared"), ("stopped", JOB, [JOB], ["n1"], "works-again"),
        ("stopped", JOB, [], ["n1"], "released"), ("fabric-silent", JOB, [JOB], ["n1"], "cleared"),
        ("fabric-silent", JOB, [], ["n1"], "released"), ("fault-clock", "gpu:n1/GPU-1", [], ["n1"], "cleared"),
        ("telemetry-dead", "node:n1", [], ["n1"], "data-back"),
        ("telemetry-dead", "node:n1", [], [], "cleared"),  # it is expected no more
        ("telemetry-dead", "gpu:n1/GPU-1", [], ["n1"], "data-back"),
    ],
)  # fmt: skip
def test_it_is_over_when_not_found_for_its_time_and_how_is_told(kind, key, held, live, resolution) -> None:
    watch = Watch()
    watch.take([watch.idle(BEGAN, kind=kind, key=key)])
    watch.step(held=held, live=live)
    assert watch.only.resolved_at is None
    watch.step(held=held, live=live)
    case = watch.only
    assert (case.state, case.resolution, case.resolved_at) == ("resolved", resolution, watch.now)
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
    # The second end is reported when it stayed so for an hour.
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
        watch.live()
        watch.take([watch.idle(BEGAN, kind=then)], held=["workload:train"])
    assert watch.told() == [("opened", 0)]
    assert (watch.only.id, watch.only.sighting.kind, watch.only.since) == (id_, then, BEGAN)
    assert watch.only.gpu_hours == pytest.approx(3 * GPUS)
    watch.step([watch.idle(BEGAN, "other", kind=then), sighting(kind="fabric-silent")])
    kinds = sorted(incident.sighting.kind for incident in watch.incidents.values())
    assert kinds == sorted([then, then, "fabric-silent"])


@pytest.fixture
def post(tmp_path: Path) -> Post:
    return Post(tmp_path)


def test_messages_are_sent_once_each_to_its_own_recipient_and_let_go(post: Post) -> None:
    assert post.queue("search", "a@example.org", "b@example.org") == 2
    assert post.queue("ads", "c@example.org") == 1 and b"all of it" in post.state.path.read_bytes()
    tally = post.send()
    assert (tally.sent, tally.waiting, tally.refused, tally.down) == (3, 0, (), ())
    assert post.rows() == [("a@example.org", "sent"), ("b@example.org", "sent"), ("c@example.org", "sent")]
    assert b"all of it" not in post.state.path.read_bytes() and post.state.path.stat().st_mode & 0o077 == 0
    # The same week again: only new recipients are written to.
    assert post.queue("search", "a@example.org", "new@example.org") == 1
    assert post.send().sent == 1 and [case.recipient for case in post.carrier.taken[3:]] == ["new@example.org"]
    with post.state.reading() as db:
        assert len(deliveries.known(db, WEEK)) == 4 and deliveries.known(db, "2026-11-23") == frozenset()


def test_a_limit_a_minute_holds_back_what_is_beyond_it_alone(post: Post) -> None:
    post.per_minute = 2
    post.queue("search", *(f"{n}@x" for n in range(5)))
    assert post.send(most_seconds=90.0).sent == 4 and post.slept == [60.0]
    assert (post.send().sent, post.slept) == (1, [60.0])


def test_pauses_grow_and_seven_days_and_eight_attempts_are_enough(post: Post) -> None:
    pauses = [300.0, 600.0, 1200.0, 2400.0, 4800.0, 9600.0, 14400.0, 14400.0]
    assert [pause_seconds(attempts) for attempts in range(9)] == [0.0, *pauses]
    post.carrier.answer = lambda _: Reply("later", "452 mailbox full")
    post.queue("search", "full@x")
    for pause in pauses:
        tally = post.send()
        assert (tally.waiting, tally.soonest_seconds) == (1, pause)
        post.live(pause - 1)
        assert (post.send(), post.rows("attempts")) == (tally.__class__(0, 1, (), (), 1.0), post.rows("attempts"))
        post.live(1)
    post.live(7 * DAY)
    (refused,) = post.send().refused
    assert refused == "search (mail, full@x): given up after seven days; last: 452 mailbox full"
    assert post.rows("state, attempts, content") == [("failed", 9, None)]


@pytest.mark.parametrize(("kills", "taken", "state"), [(1, 2, "sent"), (2, 2, "failed")])
def test_a_message_in_hand_at_a_kill_goes_out_twice_at_most(post: Post, kills: int, taken: int, state: str) -> None:
    post.queue("search", "a@x", "b@x")
    post.carrier.killed = kills
    for _ in range(kills):
        post.send_killed()
    tally = post.send()
    assert (tally.waiting, [("may have arrived" in case) for case in tally.refused]) == (0, [True] * (kills - 1))
    assert [case.recipient for case in post.carrier.taken].count("a@x") == taken
    assert post.rows("state, unsure") == [(state, kills), ("sent", 0)]


@pytest.mark.parametrize("jump", [DAY, -DAY, 30 * DAY, -365 * DAY])
@pytest.mark.parametrize("answer", ["accepted", "later"])
def test_a_clock_that_jumps_loses_nothing_and_repeats_nothing(post: Post, jump: float, answer: str) -> None:
    post.queue("search", "a@x")
    post.carrier.killed, post.carrier.answer = 1, lambda _: Reply(answer, "x")  # type: ignore[arg-type]
    post.send_killed()
    post.at += jump
    post.carrier.answer = lambda _: Reply("later", "451 greylisted")
    for step in (-jump, jump):  # each time it is put off, by the clock of the moment
        assert post.send().waiting == 1
        post.at += step
        post.live(HOUR)
    post.carrier.answer = lambda _: None
    assert post.send().sent == 1 and post.rows("state") == [("sent",)]
    assert len(post.carrier.taken) == (2 if answer == "accepted" else 1)


def test_who_is_informed_of_an_item_is_known_for_good(post: Post) -> None:
    with post.state.reading() as db:
        assert deliveries.told(db, ["i-1/0"]) == {}
    post.queue("search", "a@x", batch="watch-1", items=("i-1/0", "i-2/0"))
    post.queue("ads", "webhook", batch="watch-1", channel="webhook", items=("i-2/0",))
    with post.state.reading() as db:
        selected = deliveries.told(db, ["i-1/0", "i-2/0", "i-3/0", *(f"i-{n}/1" for n in range(40_000))])
        assert {item: [case.team for case in each] for item, each in selected.items()} == {
            "i-1/0": ["search"], "i-2/0": ["search", "ads"],
        }  # fmt: skip
        assert selected["i-1/0"][0].message_id == "<search.a@x>"
        waiting = deliveries.waiting(db, THEN, "watch-")
        recipients = [("search", "mail", "a@x"), ("ads", "webhook", "webhook")]
        assert [(message.to, message.left_seconds) for message in waiting] == [(to, 0.0) for to in recipients]
        assert deliveries.waiting(db, THEN, only_team="ads") == waiting[1:] and not deliveries.waiting(db, THEN, "2026")


def test_a_secret_that_cannot_be_read_holds_up_its_own_channel_alone(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.write_text("https://hooks.example.org/services/T0/SECRET")
    hook.chmod(0o644)
    settings = ReportSettings(sender=Address("", addr_spec="gpus@example.org"), smtp_host="127.0.0.1")
    teams = [TeamRoute("search", ("a@example.org",), str(hook))]
    carriers, faults = carriers_of(settings, teams, {})
    assert set(carriers) == {"mail", "webhook"} and "readable by other users" in str(faults[0])
    message = Message(WEEK, "search", "webhook", "webhook", "<id>", "s", b"{}")
    assert carriers["webhook"].carry(message, lambda: None).result == "later"
    hook.chmod(0o600)
    assert carriers_of(settings, teams, {})[1] == ()
