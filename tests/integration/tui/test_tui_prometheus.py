# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""The screens over a server of Prometheus' API, also one that goes while somebody looks."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from pathlib import Path
from threading import Event

import pytest
from skuwise.advisor.telemetry.source import PrometheusServer
from skuwise.tests.support.fake_prometheus import DcgmServer, FakeServer, Reply, Request, error
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.data.loaders import SourceLoader

NOW = 1_790_000_000.0 // 86400 * 86400


def loader(fake: FakeServer, folder: Path) -> SourceLoader:
    environ = {"XDG_CACHE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    return SourceLoader(PrometheusServer(fake.url, ('cluster="eu"',), environ), ledger=None, clock=lambda: NOW)


@pytest.mark.slow
def test_a_server_is_shown_and_what_was_read_stays_with_its_age_when_it_goes(tmp_path: Path) -> None:
    clock, server, gone = [NOW], DcgmServer(), Event()

    def answer(request: Request) -> Reply:
        """As a proxy whose server is gone; where nobody listens the client tries for seconds before it gives up."""
        return error(403, "nobody is here any more") if gone.is_set() else server(request)

    with FakeServer(answer).running() as fake:

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


def test_a_server_tells_how_far_it_was_read_and_reading_it_can_be_stopped(tmp_path: Path) -> None:
    gate, server = Event(), DcgmServer()

    def slow(request: Request) -> Reply:
        gate.wait(60)
        return error(400, "too late")

    server.by_query["avg_over_time(DCGM_FI_DEV_POWER"] = slow
    with FakeServer(server).running() as fake:

        async def steps(s: Session) -> None:
            await s.shows("measures read")
            await s.press("escape")
            await s.shows("Reading stopped.")
            gate.set()

        drive(steps, loader(fake, tmp_path))


@pytest.mark.slow
def test_the_command_shows_a_server(tmp_path: Path) -> None:
    """`skuwise tui --prometheus URL --match ...`, on a terminal of its own."""
    with FakeServer(DcgmServer()).running() as fake:
        child, terminal = pty.fork()
        if child == 0:
            command = ["tui", "--prometheus", fake.url, "--match", 'cluster="eu"', "--no-ledger"]
            environ = {**os.environ, "TERM": "xterm-256color", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
            os.execve(sys.executable, [sys.executable, "-m", "skuwise", *command], environ)
        told, ends = b"", time.monotonic() + 120
        try:
            # It paints its clock for as long as it lives: only a limit of our own ends the waiting.
            while b"1 GPU" not in told:
                assert time.monotonic() < ends and select.select([terminal], [], [], 60)[0], told[-2000:]
                told += os.read(terminal, 1 << 16)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(terminal)
    assert any('cluster="eu"' in request.query for request in fake.requests)
