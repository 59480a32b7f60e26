"""Real engines behind one address, in turn: a port-forward to one cluster after the other."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.demo import simulate
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.telemetry.source import PrometheusServer
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.tests.server_metrics.exporter_metrics import exporter_series
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.fake_prometheus import FakePrometheus, Reply, Request
from skuwise.tests.support.prometheus_engines import needed, prometheus, victoria
from skuwise.tui.data.loaders import SourceLoader
from skuwise.tui.state import FINDINGS_WINDOW, Look

pytestmark = pytest.mark.slow
DAY = 86400.0
END = 1_790_000_000.0 // DAY * DAY  # midnight
WINDOW = ("--since", "2d", "--until", "2026-09-21T00:00:00Z", "--format", "json")
ENGINES = {"prometheus": prometheus, "victoria-metrics": victoria}


class Forward:
    """What stands behind the port: `to` is the server's address."""

    to = ""

    def __call__(self, request: Request) -> Reply:
        body = urllib.parse.urlencode(dict(request.params)).encode()
        status = "/status/" in request.path or request.path.endswith("/values")
        url = f"{self.to}{request.path}" + (f"?{body.decode()}" if status else "")
        try:
            with urllib.request.urlopen(urllib.request.Request(url, None if status else body), timeout=60) as answer:
                return Reply(answer.read(), answer.status)
        except urllib.error.HTTPError as error:
            return Reply(error.read(), error.code)


def of_a_driver(series: Series) -> Series:
    """A series whose GPU a driver named."""
    labels = {name: f"GPU-7{str(value)[5:]}" if name == "UUID" else value for name, value in series.labels.items()}
    return replace(series, labels=labels)


@pytest.fixture(scope="module", params=ENGINES)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A simulated fleet, one of the same names that is none, and the simulated one with other work."""
    needed(*{"prometheus": ("prometheus", "promtool")}.get(request.param, (request.param,)))
    folder = tmp_path_factory.mktemp(request.param)
    told = {}
    for seed in (4, 5):
        simulate(
            "founding", folder / f"{seed}", days=2, seed=seed, until=END, minutes_seconds=2 * DAY, nodes=("serve-01",)
        )
        database = folder / f"{seed}" / "serve-01.db"
        told[seed] = list(exporter_series([database], read_frame([database], since_seconds=2 * DAY).window))
    engine = ENGINES[request.param]
    with (
        engine(folder / "a", told[4]) as simulated,
        engine(folder / "b", [of_a_driver(one) for one in told[4]]) as real,
        engine(folder / "c", told[5]) as other,
    ):
        yield {"simulated": simulated, "real": real, "other": other}


def test_each_is_told_from_its_own_answers_and_has_a_ledger_of_its_own(
    servers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    forward = Forward()

    def advise(which: str, *arguments: str) -> tuple[dict, str]:
        forward.to = servers[which]
        capsys.readouterr()
        assert main(["advise", "--prometheus", fake.url, *WINDOW, *arguments]) == 0, capsys.readouterr().err
        told = capsys.readouterr()
        return json.loads(told.out), told.err

    def bare(advice: dict) -> dict:
        return {name: value for name, value in advice.items() if name not in ("source", "generated_at")}

    with FakePrometheus(forward).running() as fake:
        truth = {which: bare(advise(which, "--no-cache", "--no-ledger")[0]) for which in servers}
        first, said = advise("simulated")
        assert "another server" not in said and bare(first) == truth["simulated"]
        (own,) = (tmp_path / "STATE/skuwise/ledgers").glob("*.db")
        move = next(r["id"] for r in first["recommendations"] if not r["blocked_by"])
        assert main(["ledger", "dismiss", move, "--why", "a rehearsal"]) == 0
        for which in ("real", "other"):  # `other` has the same GPUs as `simulated`, at other work
            told, said = advise(which, "--no-ledger")
            assert "another server answers" in said and told["source"]["cached_answers"] == 0
            assert bare(told) == truth[which]
        told, said = advise("real")
        assert "another server answers" in said and told["source"]["cached_answers"] > 0
        assert bare(told) == truth["real"]  # nothing was dismissed there
        again, _ = advise("simulated")
        assert again["source"]["cached_answers"] > 0
        assert {r["id"] for r in again["recommendations"] if r["decision"]} == {move}
    fleets = {path: Ledger(path).fleets()[0] for path in (tmp_path / "STATE/skuwise/ledgers").glob("*.db")}
    assert len(fleets) == 2 and {known.simulated for known in fleets.values()} == {True, False}
    assert fleets[own].simulated


def test_what_the_screens_keep_of_one_is_not_shown_for_another(servers: dict[str, str], tmp_path: Path) -> None:
    forward, environ = Forward(), {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("STATE", "CACHE", "CONFIG")}
    with FakePrometheus(forward).running() as fake:
        loader = SourceLoader(
            PrometheusServer(fake.url, (), environ), ledger=None, looks=tmp_path / "looks", clock=lambda: END
        )
        shown: dict[str, Look | None] = {}
        forward.to = servers["simulated"]
        read = loader.load(FINDINGS_WINDOW, None, lambda _: None)
        loader.keep(read)
        for which in ("simulated", "real", "simulated"):
            forward.to = servers[which]
            shown[which] = loader.recall(FINDINGS_WINDOW)
    kept = Look(read.window, read.advice, read.shown, read.health, read.at)
    assert read.advice.workloads and shown == {"simulated": kept, "real": None}
