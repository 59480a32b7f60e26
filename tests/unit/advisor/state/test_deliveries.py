"""Deliveries: what is queued is sent once, at most twice whatever is killed, tried again, and given up in the end."""

from email.headerregistry import Address
from pathlib import Path

import pytest
from skuwise.advisor.notify.routes import ReportSettings, TeamRoute
from skuwise.advisor.notify.sending import carriers_of
from skuwise.advisor.state import deliveries
from skuwise.advisor.state.deliveries import Message, Reply, pause_seconds
from skuwise.tests.support.delivery_builders import DAY, HOUR, NOW, WEEK, Post


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
    # The same week again: nobody is written to but who is new.
    assert post.queue("search", "a@example.org", "new@example.org") == 1
    assert post.send().sent == 1 and [one.recipient for one in post.carrier.taken[3:]] == ["new@example.org"]
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
def test_a_message_in_hand_when_its_sender_is_killed_goes_out_twice_at_most(
    post: Post, kills: int, taken: int, state: str
) -> None:
    post.queue("search", "a@x", "b@x")
    post.carrier.killed = kills
    for _ in range(kills):
        post.send_killed()
    tally = post.send()
    assert (tally.waiting, [("may have arrived" in one) for one in tally.refused]) == (0, [True] * (kills - 1))
    assert [one.recipient for one in post.carrier.taken].count("a@x") == taken
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
        found = deliveries.told(db, ["i-1/0", "i-2/0", "i-3/0", *(f"i-{n}/1" for n in range(40_000))])
        assert {item: [one.team for one in each] for item, each in found.items()} == {
            "i-1/0": ["search"], "i-2/0": ["search", "ads"],
        }  # fmt: skip
        assert found["i-1/0"][0].message_id == "<search.a@x>"
        assert deliveries.waiting(db, "watch-") == {("search", "mail", "a@x"), ("ads", "webhook", "webhook")}
        assert deliveries.waiting(db, "2026") == frozenset()
        assert deliveries.due(db, NOW, only_team="ads") == [2] and deliveries.due(db, NOW, batch_prefix="2026") == []


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
