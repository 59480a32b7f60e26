"""Clocks that jump by an hour to a year, both ways, at every stage of sending, ledger and schedule."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from skuwise.advisor.notify.weeks import NotOverError, check_over, reported_week, week_of
from skuwise.advisor.state.entries import EXPIRES_AFTER_SECONDS, LedgerEvent
from skuwise.advisor.state.ledger_file import Ledger
from skuwise.advisor.state.parcel import Parcel, Reply
from skuwise.tests.support.ledger_builders import one_node_fleet, proposal
from skuwise.tests.support.notify_desk import FakeCarrier
from skuwise.tests.support.outbox_builders import DAY, HOUR, NOW, Machine, Post

jumps = pytest.mark.parametrize("jump", [3 * DAY, -30 * DAY])
MOVE, OTHER = proposal(), proposal("r-other0000000", action="release", about="x")


class KilledError(BaseException):
    """The sender ends here, as by SIGKILL: nothing of it runs any more that would write."""


class Killing(FakeCarrier):
    """`killed`: whether the sender is killed before it hears the answer."""

    killed = False

    def carry(self, parcel: Parcel) -> Mapping[str, Reply]:
        replies = super().carry(parcel)
        if self.killed:
            raise KilledError
        return replies


@jumps
@pytest.mark.parametrize("answer", ["accepted", "later"])
def test_a_kill_and_a_jump_cost_one_mail_twice_at_most(tmp_path: Path, jump: float, answer: str) -> None:
    machine, carrier = Machine(), Killing()
    post = Post(tmp_path, carrier, machine.now)
    post.queue("search", "ann@example.org")
    carrier.killed, carrier.answer = True, lambda _: Reply(answer, f"451 {answer}")  # type: ignore[arg-type]
    with suppress(KilledError):
        post.send()
    carrier.killed, carrier.answer = False, lambda _: None
    machine.wrong_by = jump
    assert post.send().sent == 1
    machine.wrong_by = 0.0
    assert post.send().sent == 0 and len(carrier.taken) == (2 if answer == "accepted" else 1)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    found = Ledger(tmp_path / "ledger.db")
    found.propose([MOVE, OTHER], NOW - DAY)
    return found


def state(ledger: Ledger, id_: str, now: float) -> str:
    return next(e.decision(now).state for e in ledger.entries() if e.proposal.id == id_)


@jumps
def test_what_was_decided_by_a_wrong_clock_holds(ledger: Ledger, jump: float) -> None:
    for n, act in enumerate(("dismissed", "accepted")):
        ledger.add(MOVE.id, LedgerEvent(act, NOW + jump * (1 - n), "ann", why="so"))  # type: ignore[arg-type]
    for seen_at in (NOW, NOW + jump):
        assert state(ledger, MOVE.id, seen_at) == "accepted"


@jumps
def test_what_is_proposed_by_a_wrong_clock_expires_in_its_time(ledger: Ledger, jump: float) -> None:
    ledger.propose([MOVE, OTHER], NOW + jump, fleet=one_node_fleet(NOW, 14))
    # The clock is right again, and OTHER is not advised any more: the next run pulls in what was dated ahead.
    ledger.propose([MOVE], NOW + HOUR, fleet=one_node_fleet(NOW + HOUR, 14))
    assert state(ledger, MOVE.id, NOW + HOUR) == "proposed"
    late = NOW + HOUR + EXPIRES_AFTER_SECONDS + DAY  # a day is the doubt that a clock has for nothing
    ledger.propose([MOVE], late, fleet=one_node_fleet(late, 14))
    assert (state(ledger, MOVE.id, late), state(ledger, OTHER.id, late)) == ("proposed", "expired")
    (entry,) = [e for e in ledger.entries() if e.proposal.id == OTHER.id]
    assert [e.act for e in entry.events].count("expired") <= 1
    assert all(e.first_proposed <= e.last_proposed <= late for e in ledger.entries())


@jumps
def test_nobody_is_told_twice_within_the_cooldown_because_a_clock_was_wrong(ledger: Ledger, jump: float) -> None:
    week = week_of(NOW).end
    ledger.note_mailed("team a", [MOVE.id], NOW + jump, week_end=week)
    for weeks, told in ((0, False), (1, True), (3, True), (5, False)):
        end = week + weeks * 7 * DAY
        assert (MOVE.id in ledger.mailed_since("team a", end - 28 * DAY, end)) == told
    # What regressed since is told again, in whatever order the clock puts the two.
    ledger.add(MOVE.id, LedgerEvent("regressed", NOW, "skuwise"))
    assert not ledger.mailed_since("team a", 0.0)


@jumps
def test_the_week_is_the_last_that_is_over_by_the_telemetry_too(jump: float) -> None:
    """By a clock that runs ahead half a week would be told as a whole, and the rest of it never."""
    monday = week_of(NOW).start + 6 * HOUR
    for true in [monday + n * DAY for n in range(7)]:
        week = reported_week(None, true + jump)
        try:
            check_over(week, true)
        except NotOverError as early:
            week = reported_week(None, early.newest)
        # Whichever it is, it is over; but for a clock that is beyond all doubt, by which there is no telemetry at all.
        assert week.end <= true + 2 * HOUR or week.start > true + 4 * 7 * DAY
        if 0 < jump <= 30 * DAY:
            assert week == reported_week(None, true)
