"""The first seconds of a run show what the one before saw, marked as such; what is read replaces it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Event

from skuwise.advisor.telemetry.source import Databases
from skuwise.benchmarks.generators.first import simulate
from skuwise.tests.support.fleet_on_screen import NOW, HandLoader, fleet
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.data.kept_look import SUFFIX
from skuwise.tui.data.loaders import SourceLoader
from skuwise.tui.state import FINDINGS_WINDOW, Look

UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
EARLIER_SECONDS = 7200.0


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
