# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""The screens over a server of Prometheus' API, also one that goes while somebody looks."""

from __future__ import annotations

from pathlib import Path
from threading import Event

from skuwise.advisor.telemetry.source import PrometheusServer
from skuwise.tests.support.fake_prometheus import DcgmServer, FakePrometheus, Reply, Request, error
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.data.loaders import SourceLoader

NOW = 1_790_000_000.0 // 86400 * 86400


def loader(fake: FakePrometheus, folder: Path) -> SourceLoader:
    environ = {"XDG_CACHE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    return SourceLoader(PrometheusServer(fake.url, ('cluster="eu"',), environ), ledger=None, clock=lambda: NOW)


def test_a_server_is_shown_and_what_was_read_stays_with_its_age_when_it_goes(tmp_path: Path) -> None:
    clock, server, gone = [NOW], DcgmServer(), Event()

    def answer(request: Request) -> Reply:
        """As a proxy whose server is gone; where nobody listens the client tries for seconds before it gives up."""
        return error(403, "nobody is here any more") if gone.is_set() else server(request)

    with FakePrometheus(answer).running() as fake:

        async def steps(s: Session) -> None:
            await s.ready()
            await s.shows("1 GPU")
            assert fake.url in s.screen
            await s.press(KEY["fleet"], "enter")
            await s.shows("no live data here: rows of 1.0 h")
            await s.shows("power")
            gone.set()
            clock[0] = NOW + 3600
            await s.press("r")
            await s.shows("reading failed: ! shows why")
            await s.shows("read 1.0 h ago")
            assert "50 W" in s.screen
            await s.press("exclamation_mark")
            await s.shows("403")

        drive(steps, loader(fake, tmp_path), size=(160, 40), clock=lambda: clock[0])
    assert any('cluster="eu"' in request.query for request in fake.requests)
