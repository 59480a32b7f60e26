# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""The screens, driven by keys. Each test runs the real program on the real advice of a small fleet."""

from __future__ import annotations

from pathlib import Path
from threading import Event

from skuwise.advisor.telemetry.source import Databases
from skuwise.agent.store.writing.writer import Writer
from skuwise.tests.support.fleet_on_screen import NOW, HandLoader, fleet
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.data.loaders import SourceLoader
from skuwise.tui.screens.workload import WorkloadPage
from textual.widgets import Input


def test_the_page_is_there_before_the_data_and_tells_how_reading_goes() -> None:
    gate = Event()

    async def steps(s: Session) -> None:
        await s.shows("reading 14d of telemetry ...")
        assert "1 Overview" in s.screen
        assert s.app.state.loaded is None
        gate.set()
        await s.ready()
        for told in ("$7,177 a month recoverable", "idle-fabric", "online-inference", "at list price"):
            await s.shows(told)

    drive(steps, HandLoader(gate=gate), size=(120, 40))


def test_reading_can_be_stopped_and_begun_again() -> None:
    gate = Event()
    loader = HandLoader(gate=gate)

    async def steps(s: Session) -> None:
        await s.shows("escape stops it")
        await s.press("escape")
        await s.shows("Reading stopped.")
        gate.set()
        await s.press("r")
        await s.ready()
        assert loader.windows == ["14d", "14d"]

    drive(steps, loader)


def test_a_story_shows_evidence_a_plot_findings_and_what_would_overturn_them() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.until(lambda: isinstance(s.app.screen, WorkloadPage))
        for told in ("online-inference, confidence", "Use of the GPUs, %", "DRAM active, %", "DRAM sustained: 88",
                     "idle fabric up to 1%: 0.5", "◆ this workload", "71 % of the memory roof that",
                     "idle-fabric: ",
                     "Changes if: ", "$7,177/month), risk very-low", "of its GPU time was observed"):  # fmt: skip
            await s.shows(told)

    drive(steps, size=(120, 300), workload="chat")


def test_a_deep_link_to_nothing_says_so() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.until(lambda: bool(s.app._notifications))
        assert "No match for '[b]' in this window" in next(iter(s.app._notifications)).message
        assert s.app.current_mode == "overview"

    drive(steps, workload="[b]")


def test_decisions_ask_for_what_they_need_and_reach_the_ledger() -> None:
    loader = HandLoader()

    async def steps(s: Session) -> None:
        await s.ready()
        await s.press(KEY["recommendations"])
        await s.shows("$7,177")
        await s.press("d", "enter")
        await s.shows("The reason is empty.")
        await s.press("escape")
        assert loader.decided == []
        await s.press("d", *"no", "enter")
        await s.until(lambda: len(loader.decided) == 1)
        await s.shows("dismissed")
        await s.press("u")  # what is decided is folded away
        await s.press("z")
        until = s.app.screen.query_one("#until", Input)
        until.value = "2020-01-01"
        await s.press("enter", "enter")
        await s.shows("2020-01-01 is in the past.")
        until.value = "2026-10-01"
        await s.press("enter")
        await s.until(lambda: len(loader.decided) == 2)

    drive(steps, loader)
    (first, second) = loader.decided
    assert first[1:] == ("dismissed", None, "no")
    assert second[1:] == ("snoozed", 1_790_812_800.0, None)
    assert first[0] == next(r.id for r in fleet().advice.recommendations if r.counts)
    assert second[0] in {r.id for r in fleet().advice.recommendations}


def test_an_empty_database_and_one_that_is_not_there_are_told(tmp_path: Path) -> None:
    empty = tmp_path / "[b]empty.db"
    Writer.open(empty, now=lambda: NOW).close()

    async def steps(s: Session) -> None:
        await s.until(lambda: s.app.state.error is not None)
        await s.shows("No samples yet")
        assert "[b]empty.db" in s.screen.replace("\n", "")
        empty.unlink()
        await s.press("r")
        await s.until(lambda: "No samples" not in (s.app.state.error or "No samples"))
        await s.shows("No data")

    drive(steps, SourceLoader(Databases((empty,)), ledger=None, clock=lambda: NOW), size=(200, 24))
