"""Clocks that jump by an hour to a year, both ways, at every stage of sending, ledger and schedule."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from skuwise.advisor.cli.serve import ClockWatch, CommandSchedule, ServeSettings, scheduled_commands
from skuwise.advisor.core.advice_types import Fleet
from skuwise.advisor.ledger.entries import EXPIRES_AFTER_SECONDS, LedgerEvent, Proposal
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.mail.delivery import Tally, send_waiting
from skuwise.advisor.mail.outbox import Outbox
from skuwise.advisor.mail.parcel import Parcel
from skuwise.advisor.mail.patience import FIRST_PAUSE_SECONDS, GIVE_UP_SECONDS, MAX_PAUSE_SECONDS
from skuwise.advisor.mail.settings import ReportSettings
from skuwise.advisor.report.weeks import NotOverError, check_over, reported_week, week_of
from skuwise.tests.support.fake_clocks import DAY, HOUR, NOW, KilledError, Machine, Server

JUMPS = [sign * span for span in (HOUR, DAY, 3 * DAY, 30 * DAY, 365 * DAY) for sign in (1, -1)]
# The two that were the attack, and all of them in the slow suite.
QUICK = (3 * DAY, 30 * DAY)
jumps = pytest.mark.parametrize(
    "jump",
    [pytest.param(jump, marks=[] if jump in QUICK else [pytest.mark.slow], id=f"{jump / HOUR:+g}h") for jump in JUMPS],
)
MOVE = Proposal(
    "r-0123456789ab", "move-sku", "chat", "8 x H100-SXM5 on a", "8 x H100-SXM5 on b", 1234.5, 0.0, "cash-now", "low",
    False, "Move it.", "fleet.db",
)  # fmt: skip
OTHER = Proposal("r-other0000000", "release", "x", "a", "-", 1.0, 0.0, "cash-now", "low", False, "t", "fleet.db")


class Desk:
    """An outbox on a machine, and a server."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine()
        self.server = Server(self.machine)
        self.outbox = Outbox(folder / "outbox.db")

    def queue(self, *to: str) -> None:
        parcel = Parcel("2026-11-16", "search", "mail", "<id>", "report", b"all of it", to)
        self.outbox.queue(parcel, self.machine.now().wall_seconds)

    def send(self) -> Tally:
        with self.outbox.sending():
            return send_waiting(
                self.outbox, {"mail": self.server}, clock=self.machine.now, sleep=lambda _: None, mails_per_minute=60,
                say=lambda _: None,
            )  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    found = Desk(tmp_path)
    found.queue("ann@example.org")
    return found


@jumps
def test_what_was_queued_by_a_wrong_clock_is_sent_at_once_and_once(desk: Desk, jump: float) -> None:
    desk.machine.wrong_by = jump
    desk.queue("bob@example.org")
    desk.machine.wrong_by = 0.0
    assert desk.send().sent == 2
    desk.machine.wrong_by = -jump
    desk.send()
    desk.queue("ann@example.org", "bob@example.org")
    assert desk.send().sent == 0
    assert sorted(desk.server.accepted) == ["ann@example.org", "bob@example.org"]


@jumps
def test_what_is_put_off_by_a_wrong_clock_is_held_no_longer_than_its_pause(desk: Desk, jump: float) -> None:
    desk.server.answer = "later"
    desk.machine.wrong_by = jump
    told = desk.send()
    assert told.waiting == 1 and told.soonest_seconds == FIRST_PAUSE_SECONDS
    desk.machine.wrong_by = 0.0
    desk.machine.live(FIRST_PAUSE_SECONDS)
    desk.server.answer = "accepted"
    assert desk.send().sent == 1


@jumps
def test_what_is_put_off_is_held_no_longer_when_the_clock_is_set_meanwhile(desk: Desk, jump: float) -> None:
    desk.server.answer = "later"
    desk.send()
    desk.machine.wrong_by = jump
    desk.machine.live(FIRST_PAUSE_SECONDS)
    desk.server.answer = "accepted"
    assert desk.send().sent == 1


@jumps
def test_a_few_tries_by_a_wrong_clock_give_nobody_up(desk: Desk, jump: float) -> None:
    desk.server.answer = "later"
    for number in range(8):
        desk.machine.wrong_by = jump if number % 2 else 0.0
        assert desk.send().refused == ()
        desk.machine.live(15 * 60.0)
    desk.machine.wrong_by = 0.0
    desk.machine.live(MAX_PAUSE_SECONDS)
    desk.server.answer = "accepted"
    assert desk.send().sent == 1


@pytest.mark.slow
@jumps
@pytest.mark.parametrize("boots", [False, True])
def test_five_days_that_were_lived_give_up_whatever_the_clock_says(desk: Desk, jump: float, boots: bool) -> None:
    desk.server.answer = "later"
    begin, tally = desk.machine.true, desk.send()
    while not tally.refused:
        assert desk.machine.true - begin < 3 * GIVE_UP_SECONDS
        desk.machine.live(MAX_PAUSE_SECONDS)
        if boots:
            desk.machine.boot()
        # Set once, amid it all.
        desk.machine.wrong_by = jump if desk.machine.true - begin > GIVE_UP_SECONDS / 2 else 0.0
        tally = desk.send()
    assert desk.machine.true - begin > GIVE_UP_SECONDS - MAX_PAUSE_SECONDS
    assert len(desk.server.tried) >= 5 and "given up after five days" in tally.refused[0]


@jumps
@pytest.mark.parametrize("answer", ["accepted", "later"])
def test_a_kill_and_a_jump_cost_one_mail_twice_at_most(desk: Desk, jump: float, answer: str) -> None:
    desk.server.killed, desk.server.answer = True, answer
    with suppress(KilledError):
        desk.send()
    desk.server.killed, desk.server.answer = False, "accepted"
    desk.machine.wrong_by = jump
    assert desk.send().sent == 1
    desk.machine.wrong_by = 0.0
    assert desk.send().sent == 0
    assert len(desk.server.accepted) == (2 if answer == "accepted" else 1)


# ---- the ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    found = Ledger(tmp_path / "ledger.db")
    found.propose([MOVE, OTHER], NOW - DAY)
    return found


def state(ledger: Ledger, id_: str, now: float) -> str:
    return next(e.decision(now).state for e in ledger.entries() if e.proposal.id == id_)


def fleet(end: float) -> Fleet:
    return Fleet("f", False, (), frozenset({"c"}), {"GPU-1": "n"}, frozenset({"n"}), frozenset({"fleet.db"}), "", {},
                 end - 14 * DAY, end)  # fmt: skip


@jumps
def test_what_was_decided_by_a_wrong_clock_holds(ledger: Ledger, jump: float) -> None:
    for n, act in enumerate(("dismissed", "accepted")):
        ledger.add(MOVE.id, LedgerEvent(act, NOW + jump * (1 - n), "ann", why="so"))  # type: ignore[arg-type]
    for seen_at in (NOW, NOW + jump):
        assert state(ledger, MOVE.id, seen_at) == "accepted"


@jumps
def test_what_is_proposed_by_a_wrong_clock_expires_in_its_time(ledger: Ledger, jump: float) -> None:
    ledger.propose([MOVE, OTHER], NOW + jump, fleet=fleet(NOW))
    # The clock is right again, and OTHER is not advised any more: the next run pulls in what was dated ahead.
    ledger.propose([MOVE], NOW + HOUR, fleet=fleet(NOW + HOUR))
    assert state(ledger, MOVE.id, NOW + HOUR) == "proposed"
    late = NOW + HOUR + EXPIRES_AFTER_SECONDS + DAY  # a day is the doubt that a clock has for nothing
    ledger.propose([MOVE], late, fleet=fleet(late))
    assert (state(ledger, MOVE.id, late), state(ledger, OTHER.id, late)) == ("proposed", "expired")
    (entry,) = [e for e in ledger.entries() if e.proposal.id == OTHER.id]
    assert [e.act for e in entry.events].count("expired") <= 1
    assert all(e.first_proposed <= e.last_proposed <= late for e in ledger.entries())


@jumps
def test_a_clock_that_is_behind_the_telemetry_dates_nothing_back(ledger: Ledger, jump: float) -> None:
    ledger.propose([MOVE, OTHER], NOW, fleet=fleet(NOW))
    ledger.propose([MOVE], NOW - abs(jump), fleet=fleet(NOW))
    assert [e.last_proposed for e in ledger.entries()] == [NOW, NOW]


@jumps
def test_a_snooze_ends_on_its_day_by_a_clock_that_is_right(ledger: Ledger, jump: float) -> None:
    ledger.add(MOVE.id, LedgerEvent("snoozed", NOW + jump, "ann", NOW + 7 * DAY))
    ledger.propose([MOVE, OTHER], NOW + jump, fleet=fleet(NOW))
    for days, expected in ((0, "snoozed"), (6.9, "snoozed"), (7, "proposed")):
        at = NOW + days * DAY
        ledger.propose([MOVE, OTHER], at, fleet=fleet(at))
        assert state(ledger, MOVE.id, at) == expected


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


# ---- the week, and the schedule


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


@jumps
def test_what_is_on_the_schedule_is_run_when_the_clock_was_set(jump: float) -> None:
    right = datetime(2026, 11, 18, 12, tzinfo=UTC)
    told = [right + timedelta(seconds=jump)]
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.start(paused=True)
    serving = CommandSchedule(scheduler, lambda _: 1, lambda: told[0])
    planned = scheduled_commands(ServeSettings(), ReportSettings(prometheus="http://127.0.0.1:9"))
    try:
        for job in planned:
            serving.add(job)
        serving.work(planned[0])
        watch = ClockWatch(Machine(wrong_by=jump).now())
        assert not watch.was_set(Machine(NOW + HOUR, wrong_by=jump).now())
        assert watch.was_set(Machine(NOW + HOUR).now()) and not watch.was_set(Machine(NOW + DAY).now())
        told[0] = right
        serving.clock_set()
        assert {job.next_run_time for job in scheduler.get_jobs()} == {right} and len(scheduler.get_jobs()) == 3
    finally:
        scheduler.shutdown(wait=False)


def test_nothing_that_cannot_be_is_taken_for_a_week() -> None:
    week = week_of(NOW)
    for newest in (None, week.end, week.end - HOUR, week.end - 40 * 7 * DAY):
        check_over(week, newest)
    with pytest.raises(NotOverError, match="is incomplete: the newest data is of"):
        check_over(week, week.end - DAY)
    assert math.isclose(week.end - week.start, 7 * DAY)
