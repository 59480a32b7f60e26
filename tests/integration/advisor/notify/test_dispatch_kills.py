"""A pass that is killed at any call to the outbox, the file of incidents or a clock: nothing is lost, and nothing is
queued twice, whatever else happens before the next pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from skuwise.advisor.core.incident_types import EventKind, Incident
from skuwise.advisor.incidents.store import IncidentStore
from skuwise.advisor.incidents.transitions import Advance
from skuwise.advisor.mail.outbox import Outbox
from skuwise.advisor.notify.dispatch import dispatch
from skuwise.agent.model import Instant
from skuwise.tests.support.incident_fixtures import NOW, ended, event, incident
from skuwise.tests.support.mail_server import MailServer, mail_server
from skuwise.tests.support.notify_desk import OPS, A, B, Bench
from skuwise.tests.support.webhook_receiver import webhook_receiver

_STORE = ("untold", "told", "note_queued", "settle")
_OUTBOX = ("known", "about", "waiting_for", "queue", "due", "load", "begin", "end", "let_go", "waiting", "soonest")


class FileStore(IncidentStore):
    """The real file, with a test's way to write into it."""

    def add(self, one: Incident, *kinds: EventKind, at: float = NOW) -> Incident:
        self.commit(Advance((one,), tuple(event(one, kind, at=at) for kind in kinds)))
        return one


class KilledError(BaseException):
    """Stands for SIGKILL: nothing catches it."""


class Fuse:
    """Counts calls, and burns at one: before it is made, or when it is done."""

    def __init__(self, at: int = -1, *, after: bool = False) -> None:
        self.calls, self.at, self.after = 0, at, after

    def guard(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            number, self.calls = self.calls, self.calls + 1
            if number == self.at and not self.after:
                raise KilledError
            result = call(*args, **kwargs)
            if number == self.at:
                raise KilledError
            return result

        return guarded


class Fused:
    """An object of which some calls may burn."""

    def __init__(self, what: object, names: tuple[str, ...], fuse: Fuse) -> None:
        self._what = what
        for name in names:
            setattr(self, name, fuse.guard(getattr(what, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._what, name)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailServer]:
    with mail_server(tmp_path_factory.mktemp("mail")) as running:
        yield running


def attempt(bench: Bench, store: FileStore, fuse: Fuse) -> bool:
    """One pass; whether it was killed."""
    outbox: Any = Fused(Outbox(bench.outbox.path), _OUTBOX, fuse)
    now: Callable[[], Instant] = fuse.guard(bench.now)
    fused: Any = Fused(store, _STORE, fuse)
    try:
        told = dispatch(fused, bench.desk(outbox, now))
    except KilledError:
        return True
    assert not told.failed
    return False


def story(folder: Path, server: MailServer, hook: str, fuse: Fuse) -> tuple[Bench, bool]:
    """Three incidents, a pass that burns, one more incident and an end, then passes until all is done."""
    folder.mkdir()
    server.received.clear()
    bench, store = Bench(folder, server, hook), FileStore(folder / "incidents.db")
    first = store.add(incident(1), "opened")
    store.add(incident(2, user="bob"), "opened")
    store.add(incident(3, kind="fault-clock", code="clock-stuck-low"), "opened")
    killed = attempt(bench, store, fuse)
    bench.at += 300.0
    store.add(incident(4), "opened")
    store.add(ended(first, bench.at), "resolved")
    attempt(bench, store, Fuse())
    bench.at += 300.0
    attempt(bench, store, Fuse())
    assert store.untold() == ()
    return bench, killed


@pytest.mark.slow
def test_a_kill_at_every_call_queues_each_event_for_each_recipient_once(tmp_path: Path, server: MailServer) -> None:
    with webhook_receiver() as hook:
        whole = Fuse()
        bench, _ = story(tmp_path / "whole", server, hook.url, whole)
        kills = 0
        for at in range(whole.calls):
            for after in (False, True):
                hook.posted.clear()
                bench, killed = story(tmp_path / f"{at}-{after}", server, hook.url, Fuse(at, after=after))
                kills += killed
                queued = bench.queued()
                assert len(queued) == len(set(queued)), (at, after, queued)
                opened = {(item, to) for item, _, to in queued if item.endswith("/0")}
                search = {(f"i-0000000{n}/0", to) for n in (1, 3, 4) for to in (A, "webhook")}
                assert opened == search | {("i-00000002/0", B), ("i-00000003/0", OPS)}, (at, after)
                ends = {to for item, _, to in queued if item == "i-00000001/-1"}
                assert ends == {A, "webhook"}, (at, after)
                # Delivered at least once, and twice only where the kill fell between a server's answer and its note.
                assert bench.rows("SELECT count(*) FROM deliveries WHERE state <> 'sent'") == [(0,)]
                unended = bench.rows("SELECT count(*) FROM attempts WHERE result IS NULL")[0][0]
                (mails,) = bench.rows("SELECT count(*) FROM deliveries")[0]
                assert mails <= len(server.received) + len(hook.posted) <= mails + unended, (at, after)
        assert kills == 2 * whole.calls
        assert whole.calls > 30
