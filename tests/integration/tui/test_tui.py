# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""The screens, driven by keys. Each test runs the real program on the real advice of a small fleet."""

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
from rich.cells import cell_len
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.telemetry.source import Databases
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.fleet_on_screen import NOW, HandLoader, fleet, many
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.data.loaders import DemoLoader, SourceLoader
from skuwise.tui.screens.base_page import Page
from skuwise.tui.screens.dialogs.text_viewer import TextViewer
from skuwise.tui.screens.whatif import WhatIf
from skuwise.tui.screens.workload import WorkloadPage
from skuwise.tui.widgets.table import ItemTable
from skuwise.tui.widgets.topbar import TopBar
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


def test_a_window_that_was_not_read_is_not_claimed() -> None:
    loader = HandLoader()

    async def steps(s: Session) -> None:
        await s.ready()
        loader.gate = Event()
        await s.press("W")
        await s.shows("window 7d · reading")
        await s.press("escape")
        await s.shows("window 14d · read 1 min ago")
        loader.gate.set()

    drive(steps, loader)


def test_an_error_stands_where_the_data_would_be_and_later_data_stay_marked_as_old() -> None:
    loader = HandLoader(held=StoreError("The file [b]node.db[/b] is gone.", "Bring it back."))

    async def steps(s: Session) -> None:
        await s.shows("The file [b]node.db[/b] is gone. Bring it back.")
        loader.held = None
        await s.press("r")
        await s.ready()
        await s.shows("idle-fabric")
        loader.held = StoreError("It is gone again.")
        await s.press("r")
        await s.shows("reading failed: ! shows why")
        assert "idle-fabric" in s.screen
        await s.press("exclamation_mark")
        await s.shows("It is gone again.")

    drive(steps, loader)


@pytest.mark.slow
def test_a_workload_is_found_opened_and_left() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.press(KEY["workloads"])
        await s.shows("2 of 2 workloads, by GPU-hours, descending")
        await s.press("slash", *"vllm")
        await s.shows("1 of 2 workloads")
        assert "[red]x" not in s.screen
        await s.press("enter", "enter")
        await s.shows("Framework vllm, a serving engine.")
        await s.press("escape")
        await s.press("escape")
        await s.shows("2 of 2 workloads")
        assert "[red]x[/re…" in s.screen
        await s.press("escape")
        await s.shows("Savings and cost")

    drive(steps)


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


def test_of_one_interval_no_course_is_drawn() -> None:
    loaded = fleet()
    gpu, fabric = (rows[rows["ts"] == NOW] for rows in (loaded.frame.gpu, loaded.frame.fabric))
    short = replace(loaded, frame=replace(loaded.frame, gpu=gpu, fabric=fabric))

    async def steps(s: Session) -> None:
        await s.ready()
        await s.shows("this window holds only one interval")
        assert "Use of the GPUs" not in s.screen

    drive(steps, HandLoader(held=short), size=(120, 180), workload="chat")


def test_a_deep_link_to_nothing_says_so() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.until(lambda: bool(s.app._notifications))
        assert "No match for '[b]' in this window" in next(iter(s.app._notifications)).message
        assert s.app.current_mode == "overview"

    drive(steps, workload="[b]")


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_window_moves_what_is_shown_and_help_tells_the_keys() -> None:
    loader = HandLoader()

    async def steps(s: Session) -> None:
        await s.ready()
        await s.press("w")
        await s.until(lambda: loader.windows == ["14d", "1h"])
        await s.shows("window 1h")
        await s.press("question_mark")
        assert isinstance(s.app.screen, TextViewer)
        await s.shows("judged over 14d")
        await s.press("end")
        await s.shows("Read again")
        await s.press("escape", KEY["skus"], "slash", *"h200")
        await s.shows("H200-SXM")
        assert "V100" not in s.screen

    drive(steps, loader)


@pytest.mark.slow
def test_ten_thousand_workloads_are_drawn_line_by_line() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.press(KEY["workloads"])
        await s.shows("10,000 of 10,000 workloads")
        table = s.app.screen.query_one(ItemTable)
        assert table.item.gpu_hours == 9999.0
        await s.press("end")
        assert table.item.gpu_hours == 0.0
        assert len(list(table.children)) == 0
        await s.press("home", "slash", *"09123")
        await s.shows("1 of 10,000 workloads")
        assert table.item.name == "job-09123"

    drive(steps, HandLoader(held=many(10_000)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "mono"),
    [((80, 24), False), ((160, 50), True), ((40, 10), False)],
)
def test_every_page_fits_its_terminal_and_shows_outside_text_as_it_is(size: tuple[int, int], mono: bool) -> None:
    seen: dict[str, str] = {}

    async def steps(s: Session) -> None:
        await s.ready()
        for page, key in KEY.items():
            await s.press(key)
            assert isinstance(s.app.screen, Page)
            if page == "skus":
                await s.shows("V100-SXM2-16GB")
            if page == "incidents":
                await s.shows("No open incidents.")
            lines = s.lines
            assert len(lines) == size[1]
            assert [cell_len(line) for line in lines] == [size[0]] * size[1]
            assert all(line.isprintable() for line in lines)
            seen[page] = "\n".join(lines)
        await s.press(KEY["doctor"])
        await s.pilot.resize_terminal(40, 10)
        await s.pilot.resize_terminal(*size)
        await s.until(lambda: "\n".join(s.lines) == seen["doctor"])

    drive(steps, size=size, monochrome=mono)
    if size[1] > 10:
        assert "[red]x" in seen["workloads"]
        assert "\\x1b[2J \\u202egnp.exe" in seen["doctor"]


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


@pytest.mark.slow
def test_the_mouse_turns_pages_sorts_chooses_and_opens() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.pilot.click(TopBar, offset=(17, 0))
        await s.shows("by GPU-hours, descending")
        table = s.app.screen.query_one(ItemTable)
        await s.pilot.click(ItemTable, offset=(2, 0))
        assert table.order == ("workload", False)
        assert [w.name[:4] for w in table.shown] == ["[red", "chat"]
        await s.pilot.click(ItemTable, offset=(2, 0))
        assert table.order == ("workload", True)
        assert "+7 ›" in s.screen
        await s.press(*["right"] * 20)
        assert "‹ " in s.screen
        assert "observed" in s.screen
        assert "›" not in s.screen
        await s.press(*["left"] * 20)
        assert "+7 ›" in s.screen
        await s.pilot.click(ItemTable, offset=(2, 2))
        assert table.item.id == "w-train"
        assert s.app.screen.query(ItemTable)
        await s.pilot.click(ItemTable, offset=(2, 2))
        await s.shows("training, confidence")

    drive(steps)


@pytest.mark.slow
def test_lines_of_a_plot_are_told_apart_without_colours() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.until(lambda: isinstance(s.app.screen, WorkloadPage))
        await s.shows("DRAM active, %")
        assert "⠤" in s.screen
        await s.press("t")
        await s.until(lambda: "⠤" not in s.screen)
        assert "• SM active" in s.screen
        assert "x tensor active" in s.screen

    drive(steps, size=(120, 180), workload="chat")


def weighed(s: Session) -> str | None:
    """The node that What if tells of, empty for today's; None: it does not tell yet."""
    page = s.app.screen
    return page._outcome.choice.node or "" if isinstance(page, WhatIf) and page._outcome is not None else None


@pytest.mark.slow
def test_the_demo_shows_the_founding_case_and_keeps_a_decision() -> None:
    """Open the founding finding, ask what if it ran on a node without a fabric, and accept: what a first user does."""
    with DemoLoader("founding", days=3) as loader:

        async def steps(s: Session) -> None:
            await s.ready()
            await s.shows("idle-fabric")
            await s.press("enter")
            await s.shows("online-inference, confidence")
            await s.press("i")
            await s.until(lambda: weighed(s) is not None)
            await s.press("down")  # from today's node to the one that saves most at this provider
            await s.until(lambda: weighed(s) == "azure/Standard_ND96is_H100_v5")
            await s.shows("in cash, at list price")
            await s.shows("a accepts it")
            await s.press("a", "enter")
            await s.until(lambda: any(r.decision for r in s.app.state.loaded.advice.recommendations))
            await s.press("w")
            await s.until(lambda: s.app.state.progress is None and s.app.state.window.name == "1h")
            await s.until(lambda: s.app.state.loaded.shown is not s.app.state.loaded.advice)
            shown = s.app.state.loaded.shown
            assert shown.end - shown.start <= 2 * 3600
            assert s.app.state.loaded.advice.findings

        drive(steps, loader, size=(120, 40), clock=lambda: 1_794_787_200.0)
        assert loader._inner is not None
        # The ledger is the demo's own, gone with it, whatever the person at the keys keeps.
        assert loader._inner._ledger.is_relative_to(loader._folder.name)
        entries = Ledger(loader._inner._ledger).entries()
        assert [e.decision(1_794_787_201.0).state for e in entries].count("accepted") == 1


@pytest.mark.slow
@pytest.mark.parametrize("about", [{}, {"LC_ALL": "C", "NO_COLOR": "1"}], ids=["usual", "C locale, no colors"])
def test_on_a_real_terminal_it_starts_and_ends_at_once_even_while_it_reads(
    about: dict[str, str], tmp_path: Path
) -> None:
    """Quitting does not wait for the simulation, which takes far longer than the first page."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(
            sys.executable, [sys.executable, "-m", "skuwise", "tui", "--demo"],
            {**os.environ, "TERM": "xterm-256color", "TMPDIR": str(tmp_path), **about},
        )  # fmt: skip
    told, asked, ends = b"", False, time.monotonic() + 120
    try:
        while True:
            # What paints its clock for as long as it lives is always ready to be read.
            if time.monotonic() > ends or not select.select([terminal], [], [], 60)[0]:
                os.kill(child, signal.SIGKILL)
                raise AssertionError(told[-2000:])
            try:
                told += os.read(terminal, 1 << 16)
            except OSError:  # the other side is closed: the program has ended
                break
            if not asked and b"simulating" in told:
                asked = os.write(terminal, b"q") == 1
    finally:
        status = os.waitpid(child, 0)[1]
        os.close(terminal)
    assert asked
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"recoverable of" not in told
    assert b"Traceback" not in told


@pytest.mark.slow
def test_what_if_opens_on_the_workload_that_the_cursor_is_on() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.press(KEY["workloads"])
        await s.shows("2 of 2 workloads")
        table = s.app.screen.query_one(ItemTable)
        for _ in range(2):
            wanted = table.item.id
            await s.press(KEY["whatif"])
            await s.until(lambda wanted=wanted: isinstance(s.app.screen, WhatIf) and s.app.screen.workload == wanted)
            page = s.app.screen
            assert isinstance(page, WhatIf)
            await s.until(lambda page=page, wanted=wanted: page._bench is not None and page._bench.workload == wanted)
            await s.press(KEY["workloads"], "j")
        assert table.cursor == 1

    drive(steps)


@pytest.mark.slow
def test_recommendations_below_the_minimum_fold_into_a_line_and_unfold() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.press(KEY["recommendations"])
        await s.shows("more recommendation")
        table = s.app.screen.query_one(ItemTable)
        shown = table.total
        assert "u shows them" in s.screen
        assert "r-" in "".join(table.sheet("").rows[0])
        await s.press("u")
        await s.shows("u hides them")
        assert table.total == len(s.app.state.loaded.advice.recommendations) > shown

    drive(steps, size=(120, 40))


@pytest.mark.slow
def test_window_and_page_belong_to_the_source() -> None:
    first = {}

    async def choose(s: Session) -> None:
        await s.ready()
        await s.press("W", KEY["doctor"])
        first["memory"] = s.app.memory

    async def other(s: Session) -> None:
        await s.ready()
        assert (s.app.state.window.name, s.app.current_mode) == ("14d", "overview")
        first["memory"] = s.app.memory

    async def again(s: Session) -> None:
        await s.ready()
        assert (s.app.state.window.name, s.app.current_mode) == ("7d", "doctor")

    drive(choose)
    drive(other, HandLoader(key="another"), memory=first["memory"])
    drive(again, memory=first["memory"])


def test_a_fleet_of_one_node_and_one_without_any_work_fill_the_overview() -> None:
    whole = fleet()
    idle = replace(whole.advice, workloads=(), findings=(), recommendations=(), notes=())
    none = replace(whole, advice=idle, shown=idle, frame=replace(whole.frame, gpu=whole.frame.gpu.iloc[:0]))

    async def steps(s: Session) -> None:
        await s.ready()
        await s.shows("Waste over time, 14d, by rule")
        assert s.screen.count("No waste found") == 2
        await s.press(KEY["recommendations"])
        await s.shows("No recommendations: no change saves")
        await s.press(KEY["whatif"])
        await s.shows("No workloads in this window.")

    drive(steps, HandLoader(held=none), size=(120, 40))
    one = replace(whole, frame=replace(whole.frame, gpu=whole.frame.gpu[whole.frame.gpu["node"] == "n1"]))
    drive(lambda s: s.shows("over-tier"), HandLoader(held=one), size=(120, 40))
