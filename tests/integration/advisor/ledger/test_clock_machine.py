"""Any sequence of jumps, boots, tries, failures and kills: every mail arrives, and twice only after a kill."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from skuwise.advisor.mail.delivery import CarrierDownError, Tally, send_waiting
from skuwise.advisor.mail.outbox import Outbox
from skuwise.advisor.mail.parcel import Parcel
from skuwise.advisor.mail.patience import GIVE_UP_SECONDS, MAX_PAUSE_SECONDS, pause_seconds
from skuwise.tests.support.fake_clocks import DAY, HOUR, KilledError, Machine, Server

SPANS = st.sampled_from([60.0, 300.0, 900.0, HOUR, 4 * HOUR, DAY, 3 * DAY, 30 * DAY])


class _Down(Server):
    def ready(self, parcel: Parcel) -> None:
        raise CarrierDownError("The server is down.", "Try later.")


class Sending(RuleBasedStateMachine):
    """`doubtful`: by recipient, the kills after which nobody knows whether it had arrived; `set_ahead`: how often the
    clock was moved on, each of which may count for one longest pause."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.machine = Machine()
        self.server = Server(self.machine)
        self.outbox = Outbox(Path(self.folder.name) / "outbox.db")
        self.doubtful: Counter[str] = Counter()
        self.given_up: set[str] = set()
        self.queued: list[str] = []
        self.set_ahead = 0

    def teardown(self) -> None:
        self.folder.cleanup()

    def send(self, server: Server) -> Tally:
        with self.outbox.sending():
            return send_waiting(
                self.outbox, {"mail": server}, clock=self.machine.now, sleep=lambda _: None, mails_per_minute=60,
                say=lambda _: None,
            )  # fmt: skip

    @rule()
    def queue(self) -> None:
        name = f"a{len(self.queued)}@example.org"
        self.queued.append(name)
        parcel = Parcel("2026-11-16", name, "mail", "<id>", "report", b"all of it", (name,))
        self.outbox.queue(parcel, self.machine.now().wall_seconds)

    @rule(span=SPANS)
    def live(self, span: float) -> None:
        self.machine.live(span)

    @rule(wrong_by=st.sampled_from([0.0, HOUR, -HOUR, DAY, -DAY, 30 * DAY, -30 * DAY, 365 * DAY, -365 * DAY]))
    def set_clock(self, wrong_by: float) -> None:
        self.set_ahead += wrong_by > self.machine.wrong_by
        self.machine.wrong_by = wrong_by

    @rule(span=SPANS)
    def boot(self, span: float) -> None:
        self.machine.boot(span)

    @rule(answer=st.sampled_from(["accepted", "later", "later", "later"]))
    def try_all(self, answer: str) -> None:
        self.server.answer = answer
        before = len(self.server.tried)
        late = {one for one in self.queued if self.is_waiting(one) and self.has_waited_long(one)}
        tally = self.send(self.server)
        # Nobody is held for longer than his pause, whatever the clock says.
        assert late <= {one for one, _ in self.server.tried[before:]}
        for refused in tally.refused:
            name = refused.partition(", ")[2].partition(")")[0]
            self.given_up.add(name)
            tries = [at for one, at in self.server.tried if one == name]
            assert len(tries) >= 5
            assert tries[-1] - tries[0] + self.set_ahead * MAX_PAUSE_SECONDS > GIVE_UP_SECONDS

    @rule()
    def server_is_down(self) -> None:
        assert self.send(_Down(self.machine)).refused == ()

    @rule(answer=st.sampled_from(["accepted", "later"]))
    def kill(self, answer: str) -> None:
        self.server.answer, self.server.killed = answer, True
        before = len(self.server.accepted)
        with suppress(KilledError):
            self.send(self.server)
        self.server.killed = False
        self.doubtful.update(self.server.accepted[before:])

    def is_waiting(self, name: str) -> bool:
        return self.server.accepted.count(name) == self.doubtful[name] and name not in self.given_up

    def has_waited_long(self, name: str) -> bool:
        tries = [at for one, at in self.server.tried if one == name]
        return not tries or self.machine.true - tries[-1] >= pause_seconds(len(tries))

    @invariant()
    def nobody_has_it_twice_but_after_a_kill(self) -> None:
        for name, copies in Counter(self.server.accepted).items():
            assert copies <= 1 + self.doubtful[name]

    @rule()
    def all_comes_right(self) -> None:
        """The clock is right, the server accepts, the longest pause is over: everybody has it."""
        self.machine.wrong_by = 0.0
        self.machine.live(MAX_PAUSE_SECONDS)
        self.server.answer = "accepted"
        assert self.send(self.server).waiting == 0
        assert {one for one in self.queued if not self.server.accepted.count(one)} <= self.given_up


Sending.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestSending = pytest.mark.slow(Sending.TestCase)
