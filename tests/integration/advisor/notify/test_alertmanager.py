"""Alerts against a real Alertmanager, and against servers that refuse."""

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from skuwise.advisor.notify.incidents import post_alerts
from skuwise.advisor.notify.routes import Routes
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.delivery_builders import Bench
from skuwise.tests.support.incident_builders import HOSTILE, ended, incident
from skuwise.tests.support.webhook_receiver import webhook_receiver

from ....support.prometheus_engines import free_port, needed, running


@contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """The address of an Alertmanager without receivers."""
    needed("prometheus-alertmanager")
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "alertmanager.yml"
    settings.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus-alertmanager", f"--config.file={settings}", f"--storage.path={folder / 'data'}",
        f"--web.listen-address={address}", "--cluster.listen-address=", "--log.level=error",
    ]  # fmt: skip
    with running(command, f"http://{address}/-/ready", folder):
        yield f"http://{address}"


def alerts(url: str) -> list[dict[str, Any]]:
    """The alerts that it has and that have not ended."""
    with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=10) as answer:
        return json.load(answer)


def test_a_real_alertmanager_has_each_incident_once_until_it_ends(tmp_path: Path) -> None:
    with alertmanager(tmp_path / "am") as url:
        bench = Bench(tmp_path, alertmanager_url=url)
        bench.routes = Routes()  # no recipients
        bench.at = time.time()  # Alertmanager has its own clock
        first = bench.add(incident(1, severity="high", opened_at=bench.at), "opened")
        bench.add(incident(2, user=HOSTILE, name=HOSTILE, node=HOSTILE, opened_at=bench.at), "opened")
        assert not bench.notify().failed
        by_id = {each["labels"]["incident"]: each for each in alerts(url)}
        assert len(by_id) == len(alerts(url)) == 2
        assert by_id[first.id]["labels"]["alertname"] == "SkuwiseHeldIdle"
        assert by_id[first.id]["status"]["state"] in ("active", "unprocessed")
        # The next pass, later, with other figures: the same alerts.
        bench.at += 2.0
        bench.add(replace(first, cost_usd=60.0, gpu_hours=20.0, acknowledged_by="bob", acknowledged_at=bench.at))
        assert not bench.notify().failed
        again = {each["labels"]["incident"]: each for each in alerts(url)}
        assert {each["fingerprint"] for each in again.values()} == {each["fingerprint"] for each in by_id.values()}
        # What ended is gone there too.
        bench.add(ended(first, time.time() - 60.0))
        assert not bench.notify().failed
        assert {each["labels"]["incident"] for each in alerts(url)} == set(by_id) - {first.id}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "refused the alerts (400: words)"), (503, "refused the alerts (503"),
        (302, "redirected the request (302); redirects are not followed"),
    ],
)  # fmt: skip
def test_one_that_refuses_is_named_and_the_token_is_not(tmp_path: Path, status: int, words: str) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("s3cret\n")
    with webhook_receiver() as receiver:
        url = f"{receiver.url}/am"
        post_alerts(url, str(token), {}, [{}] * 501)
        receiver.status = status
        with pytest.raises(SkuwiseError) as raised:
            post_alerts(url, str(token), {}, [{}])
    assert words in str(raised.value) and "s3cret" not in str(raised.value)
    path, _, head = receiver.posted[0]
    assert [len(body) for _, body, _ in receiver.posted] == [501, 1]
    assert path == "/am/api/v2/alerts" and head["Authorization"] == "Bearer s3cret"
