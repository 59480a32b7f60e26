"""The first seconds of a run show what the one before saw, marked as such; what is read replaces it."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from skuwise.advisor.telemetry.source import Databases, PrometheusServer
from skuwise.agent.model import Node
from skuwise.agent.store.writing.writer import Writer
from skuwise.benchmarks.generators.first import simulate
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.fleet_on_screen import NOW, HandLoader, fleet
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.data.kept_look import SUFFIX
from skuwise.tui.data.loaders import SourceLoader
from skuwise.tui.screens.base_page import AdvicePage
from skuwise.tui.screens.menu import MENU
from skuwise.tui.state import FINDINGS_WINDOW, Look

UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
EARLIER_SECONDS = 7200.0
WITH_ADVICE_ALONE = ("overview", "workloads", "recommendations", "doctor")


def earlier() -> Look:
    """What a run two hours ago saw: one workload less."""
    loaded = fleet()
    advice = replace(loaded.advice, workloads=loaded.advice.workloads[:1])
    return Look(FINDINGS_WINDOW, advice, advice, loaded.health, NOW - EARLIER_SECONDS)


def test_what_an_earlier_run_saw_is_there_while_the_source_is_read() -> None:
    gate = Event()

    async def steps(s: Session) -> None:
        await s.shows("reading 14d of telemetry ... · read 2.0 h ago")
        for told in ("$7,177 a month recoverable", "idle-fabric", "Drawn when the telemetry has been read."):
            await s.shows(told)
        assert s.app.state.loaded is None
        await s.press(KEY["workloads"])
        await s.shows("1 of 1 workloads")
        gate.set()
        await s.ready()
        await s.shows("2 of 2 workloads")
        await s.shows("window 14d · read 1 min ago")
        await s.press(KEY["overview"])
        await s.shows("Waste over time, 14d, by rule")
        assert s.app.state.earlier is None

    drive(steps, HandLoader(gate=gate, earlier=earlier()), size=(160, 50))


def test_pages_that_need_telemetry_wait_for_it() -> None:
    gate = Event()

    async def steps(s: Session) -> None:
        await s.shows("idle-fabric")
        for page in MENU:
            if page.NAME in WITH_ADVICE_ALONE or not page.NEEDS_DATA:
                continue
            await s.press(KEY[page.NAME])
            await s.shows("escape stops it")
        await s.press(KEY["workloads"])
        await s.shows("1 of 1 workloads")
        await s.press("enter")
        await s.shows("escape stops it")
        await s.press("escape")
        await s.shows("Reading stopped.")
        gate.set()
        await s.press("r")
        await s.ready()
        await s.shows("Framework vllm, a serving engine.")

    drive(steps, HandLoader(gate=gate, earlier=earlier()), size=(120, 40))


def test_pages_of_advice_look_as_they_do_once_it_is_read() -> None:
    """Everything below the bar at the top: the same from what was kept as from what was read."""
    loaded = fleet()
    look = Look(loaded.window, loaded.advice, loaded.shown, loaded.health, loaded.at)

    def pages(loader: HandLoader, gate: Event | None) -> dict[str, str]:
        seen: dict[str, str] = {}

        async def steps(s: Session) -> None:
            await s.until(lambda: s.app.state.look is not None)
            for name in WITH_ADVICE_ALONE[1:]:  # the overview draws waste over time from the telemetry
                await s.press(KEY[name])
                seen[name] = "\n".join((await s.still()).split("\n")[2:])
            if gate is not None:
                assert s.app.state.loaded is None
                gate.set()

        drive(steps, loader, size=(160, 50))
        return seen

    gate = Event()
    assert pages(HandLoader(gate=gate, earlier=look), gate) == pages(HandLoader(), None)


def test_nothing_is_decided_on_what_an_earlier_run_saw() -> None:
    gate = Event()
    loader = HandLoader(gate=gate, earlier=earlier())

    async def steps(s: Session) -> None:
        await s.shows("idle-fabric")
        await s.press(KEY["recommendations"])
        await s.shows("Before and after")
        await s.press("a")
        await s.until(lambda: any("decide when the source" in one.message for one in s.app._notifications))
        assert len(s.app.screen_stack) == 1
        gate.set()
        await s.ready()
        await s.press("a")
        await s.until(lambda: len(s.app.screen_stack) == 2)

    drive(steps, loader, size=(120, 40))
    assert loader.decided == []


def test_where_the_source_cannot_be_read_what_an_earlier_run_saw_stays_marked_as_old() -> None:
    loader = HandLoader(held=StoreError("It is gone."), earlier=earlier())

    async def steps(s: Session) -> None:
        await s.shows("reading failed: ! shows why · read 2.0 h ago")
        await s.shows("idle-fabric")
        await s.press(KEY["fleet"])
        await s.shows("It is gone.")
        loader.held = None
        await s.press("r")
        await s.ready()
        await s.shows("window 14d · read 1 min ago")

    drive(steps, loader, size=(120, 40))


def test_reading_that_is_stopped_leaves_what_an_earlier_run_saw() -> None:
    gate = Event()

    async def steps(s: Session) -> None:
        await s.shows("reading 14d of telemetry ...")
        await s.shows("idle-fabric")
        await s.press("escape")
        await s.shows("old: r reads again · read 2.0 h ago")
        gate.set()
        await s.press("r")
        await s.ready()

    drive(steps, HandLoader(gate=gate, earlier=earlier()), size=(120, 40))


def test_a_workload_named_on_the_command_line_opens_when_it_is_read() -> None:
    gate = Event()

    async def steps(s: Session) -> None:
        await s.shows("idle-fabric")
        assert s.app.state.look is not None and len(s.app.screen_stack) == 1
        gate.set()
        await s.shows("Framework vllm, a serving engine.")

    drive(steps, HandLoader(gate=gate, earlier=earlier()), size=(120, 40), workload="chat")


def test_the_next_run_over_a_database_begins_with_what_this_one_read(tmp_path: Path) -> None:
    database, looks = tmp_path / "fleet.db", tmp_path / "looks"
    simulate("founding", database, days=2, seed=3, until=UNTIL)

    def loader(prices: Path | None = None) -> SourceLoader:
        return SourceLoader(
            Databases((database,)), ledger=None, looks=looks, prices=prices, clock=lambda: UNTIL + 60
        )  # fmt: skip

    read = loader().load(FINDINGS_WINDOW, None, lambda _: None)
    assert loader().recall(FINDINGS_WINDOW) is None
    loader().keep(read)
    kept = loader().recall(FINDINGS_WINDOW)
    assert kept == Look(read.window, read.advice, read.shown, read.health, read.at)
    assert read.advice.findings and read.advice.fleet is not None
    assert loader(tmp_path / "prices.yaml").recall(FINDINGS_WINDOW) is None

    # Another fleet, or nothing, at the same place: its own numbers come first, and nobody else's.
    whole = database.read_bytes()
    for name in (database.name, f"{database.name}-wal", f"{database.name}-shm"):
        database.with_name(name).unlink(missing_ok=True)
    assert loader().recall(FINDINGS_WINDOW) is None
    simulate("training", database, days=2, seed=3, until=UNTIL)
    assert loader().recall(FINDINGS_WINDOW) is None
    database.write_bytes(whole[:5000])
    assert loader().recall(FINDINGS_WINDOW) is None
    database.write_bytes(whole)
    assert loader().recall(FINDINGS_WINDOW) == kept
    for file in looks.iterdir():
        file.unlink()

    async def steps(s: Session) -> None:
        await s.ready()
        await s.until(lambda: any(looks.glob(f"*{SUFFIX}")))

    drive(steps, loader(), clock=lambda: UNTIL + 120)


def test_a_node_without_gpus_before_the_others_hides_no_look(tmp_path: Path) -> None:
    folder, looks = tmp_path / "nodes", tmp_path / "looks"
    simulate("founding", folder, days=2, seed=3, until=UNTIL, nodes=("serve-01",))

    def loader() -> SourceLoader:
        return SourceLoader(Databases((folder,)), ledger=None, looks=looks, clock=lambda: UNTIL + 60)

    loader().keep(loader().load(FINDINGS_WINDOW, None, lambda _: None))
    with Writer.open(folder / "a-head.db") as writer:
        writer.for_node(Node("head", "c", gpu_count=0), UNTIL)
    (folder / "b-broken.db").write_bytes(b"no database")
    assert loader().recall(FINDINGS_WINDOW) is not None
    (folder / "serve-01.db").unlink()
    assert loader().recall(FINDINGS_WINDOW) is None


def test_who_asks_a_server_is_part_of_what_a_look_depends_on(tmp_path: Path) -> None:
    def asked(**settings: str) -> tuple[object, ...]:
        return PrometheusServer("http://127.0.0.1:1", environ={"XDG_CONFIG_HOME": str(tmp_path), **settings}).asked_as()

    assert asked() == asked()
    tenants = [asked(), *(asked(SKUWISE_PROMETHEUS_TENANT=name) for name in "ab")]
    assert len({repr(one) for one in tenants}) == 3


@pytest.mark.slow
def test_on_a_real_terminal_the_second_run_shows_what_the_first_read_and_no_cache_keeps_nothing(
    tmp_path: Path,
) -> None:
    database = tmp_path / "fleet.db"
    simulate("founding", database, days=2, seed=3, until=UNTIL)
    looks = tmp_path / "cache" / "skuwise" / "looks"

    def run(*more: str, until: bytes, holds) -> bytes:
        child, terminal = pty.fork()
        if child == 0:
            os.execve(
                sys.executable,
                [sys.executable, "-m", "skuwise", "tui", "--db", str(database), "--no-ledger", *more],
                {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "50",
                 "XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_STATE_HOME": str(tmp_path / "state")},
            )  # fmt: skip
        told, ends = b"", time.monotonic() + 120
        try:
            while not (until in told and holds()):
                assert time.monotonic() < ends, told[-2000:]
                if select.select([terminal], [], [], 0.2)[0]:
                    told += os.read(terminal, 1 << 16)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(terminal)
        return told

    run("--no-cache", until=b"by rule", holds=lambda: True)
    assert not (tmp_path / "cache").exists()
    first = run(until=b"by rule", holds=lambda: any(looks.glob(f"*{SUFFIX}")))
    assert b"Drawn when" not in first
    second = run(until=b"by rule", holds=lambda: True)
    assert b"Drawn when" in second


def test_the_pages_named_here_are_those_of_the_menu() -> None:
    assert [page.NAME for page in MENU if issubclass(page, AdvicePage)] == list(WITH_ADVICE_ALONE)
