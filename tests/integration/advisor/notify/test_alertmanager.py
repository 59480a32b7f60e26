"""Alerts against a real Alertmanager, and against servers that refuse."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from skuwise.advisor.core.http_session import DeadlineAdapter, QuietSession, is_late
from skuwise.advisor.incidents.settings import WatchSettings
from skuwise.advisor.mail.alertmanager import CHUNK, Alertmanager, AlertmanagerError
from skuwise.advisor.notify.alerts import alerts_of
from skuwise.advisor.notify.dispatch import dispatch
from skuwise.advisor.notify.letters import Writing
from skuwise.tests.support.alertmanager_engine import alertmanager, alerts
from skuwise.tests.support.incident_fixtures import HOSTILE, NOW, MemoryStore, ended, incident
from skuwise.tests.support.mail_server import MailServer, mail_server
from skuwise.tests.support.notify_desk import Bench
from skuwise.tests.support.webhook_receiver import webhook_receiver

WRITING = Writing(WatchSettings())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailServer]:
    with mail_server(tmp_path_factory.mktemp("mail")) as running:
        yield running


def test_a_real_alertmanager_has_each_incident_once_until_it_ends(tmp_path: Path, server: MailServer) -> None:
    with alertmanager(tmp_path / "am") as url:
        bench, store = Bench(tmp_path, server, alertmanager_url=url), MemoryStore()
        bench.at = time.time()  # Alertmanager has its own clock
        one = store.add(incident(1, severity="high", opened_at=bench.at), "opened")
        store.add(incident(2, user=HOSTILE, name=HOSTILE, node=HOSTILE, opened_at=bench.at), "opened")
        store.add(incident(3, kind="telemetry-dead", code="node-silent", workload=False, opened_at=bench.at), "opened")
        told = dispatch(store, bench.desk())
        assert (told.alerts, told.failed) == (3, False)
        found = {each["labels"]["incident"]: each for each in alerts(url)}
        assert len(found) == len(alerts(url)) == 3
        assert found[one.id]["labels"] == {
            "alertname": "SkuwiseHeldIdle", "severity": "critical", "incident": one.id, "kind": "held-idle",
            "subject": "workload:w-000001", "workload": "train-llm", "job_id": "4711", "holder": "job",
            "team": "search", "user": "alice", "node": "gpu-009", "gpu_sku": "H100-SXM5",
        }  # fmt: skip
        assert found[one.id]["status"]["state"] in ("active", "unprocessed")
        assert found[one.id]["annotations"]["next"].startswith("Ask the owner")
        # The next pass, later, with other figures: the same alerts.
        bench.at += 2.0
        store.add(replace(one, cost_usd=60.0, gpu_hours=20.0, acknowledged_by="bob"))
        assert dispatch(store, bench.desk()).alerts == 3
        again = {each["labels"]["incident"]: each for each in alerts(url)}
        assert {each["fingerprint"] for each in again.values()} == {each["fingerprint"] for each in found.values()}
        assert again[one.id]["annotations"]["acknowledged_by"] == "bob" and len(alerts(url)) == 3
        # What ended is gone there too.
        store.add(ended(one, time.time() - 60.0))
        assert dispatch(store, bench.desk()).alerts == 3
        assert {each["labels"]["incident"] for each in alerts(url)} == set(found) - {one.id}


@pytest.mark.slow
def test_a_real_alertmanager_takes_thousands_in_chunks(tmp_path: Path) -> None:
    with alertmanager(tmp_path / "am") as url:
        now = time.time()
        every = alerts_of([incident(n, opened_at=now) for n in range(4 * CHUNK + 1)], now, WRITING, lambda _: None)
        assert Alertmanager(url, "", {}).post(every) == 4 * CHUNK + 1
        assert len(alerts(url)) == 4 * CHUNK + 1


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "refused the alerts (400: words)"), (401, "refused the alerts (401"), (503, "refused the alerts (503"),
        (302, "redirected the request (302); redirects are not followed"),
    ],
)  # fmt: skip
def test_one_that_refuses_costs_a_sentence_and_no_mail(
    tmp_path: Path, server: MailServer, status: int, words: str
) -> None:
    server.received.clear()
    with webhook_receiver() as receiver:
        receiver.status = status
        bench, store = Bench(tmp_path, server, alertmanager_url=receiver.url), MemoryStore()
        store.add(incident(1), "opened")
        told = dispatch(store, bench.desk())
    assert (told.sent, told.alerts, told.failed) == (1, 0, True) and len(server.received) == 1
    assert words in str(told.faults[0]) and len(told.faults) == 1 and store.untold() == ()


def test_one_that_hangs_is_left_in_time() -> None:
    every = alerts_of([incident(1)], NOW, WRITING, lambda _: None)
    with webhook_receiver() as receiver:
        receiver.hang = True
        manager = Alertmanager(receiver.url, "", {}, timeout_seconds=0.2)
        with pytest.raises(AlertmanagerError, match="did not answer in time"):
            manager.post(every)


def test_a_wait_that_ends_just_before_the_deadline_is_no_answer_in_time_either() -> None:
    adapter, session = DeadlineAdapter(), QuietSession()
    adapter.serve(session)
    with webhook_receiver() as receiver, session, adapter.within(60.0) as deadline:
        receiver.hang = True
        with pytest.raises(requests.RequestException) as waited:
            session.post(receiver.url, data=b"[]", timeout=(10.0, 0.05))
        with pytest.raises(requests.RequestException) as refused:
            session.post("http://127.0.0.1:1", data=b"[]", timeout=(10.0, 0.05))
        assert not deadline.over
    assert is_late(waited.value, deadline) and not is_late(refused.value, deadline)


def test_one_that_is_slow_does_not_take_a_pass() -> None:
    every = alerts_of([incident(n) for n in range(3 * CHUNK)], NOW, WRITING, lambda _: None)
    moments = iter([0.0, 0.0, 31.0])
    with webhook_receiver() as receiver:
        manager = Alertmanager(receiver.url, "", {}, since_boot=lambda: next(moments))
        with pytest.raises(AlertmanagerError, match=f"is too slow: {CHUNK} of {3 * CHUNK} alerts sent"):
            manager.post(every)
    assert [len(body) for _, body, _ in receiver.posted] == [CHUNK]


def test_one_that_is_not_there_or_speaks_no_tls_is_named() -> None:
    every = alerts_of([incident(1)], NOW, WRITING, lambda _: None)
    with pytest.raises(AlertmanagerError, match=r"127\.0\.0\.1:1 cannot be reached"):
        Alertmanager("http://127.0.0.1:1", "", {}).post(every)
    with webhook_receiver() as receiver:
        port = receiver.url.rpartition(":")[2]
        with pytest.raises(AlertmanagerError, match=r"certificate that is not accepted|cannot be reached"):
            Alertmanager(f"https://localhost:{port}", "", {}).post(every)


def test_the_token_goes_in_the_head_alone(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("s3cret\n")
    every = alerts_of([incident(1)], NOW, WRITING, lambda _: None)
    with webhook_receiver() as receiver:
        manager = Alertmanager(f"{receiver.url}/am", str(token), {})
        assert manager.post(every) == 1
        receiver.status = 500
        with pytest.raises(AlertmanagerError) as raised:
            manager.post(every)
    path, _, head = receiver.posted[0]
    assert path == "/am/api/v2/alerts" and head["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in str(raised.value)
