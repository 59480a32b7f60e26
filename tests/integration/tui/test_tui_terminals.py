# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""The screens on terminals of all kinds, with the demo's data, and with very much of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from skuwise.tests.support.fleet_on_screen import HandLoader, many
from skuwise.tests.support.ledger_builders import kept
from skuwise.tests.support.pasted_commands import on_a_terminal
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.data.loaders import DemoLoader
from skuwise.tui.screens.base_page import Page
from skuwise.tui.screens.whatif import WhatIf
from skuwise.tui.widgets.frame import TopBar
from skuwise.tui.widgets.table import ItemTable


def test_ten_thousand_workloads_are_drawn_line_by_line() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.press(KEY["workloads"])
        await s.shows("10,000 of 10,000 workloads")
        table = s.app.screen.query_one(ItemTable)
        assert table.item.gpu_hours == 9999.0
        assert table.row_count < 1000
        await s.press("end")
        await s.until(lambda: table.item.gpu_hours == 0.0)
        await s.press("home", "slash", *"09123")
        await s.shows("1 of 10,000 workloads")
        assert table.item.name == "job-09123"

    drive(steps, HandLoader(held=many(10_000)))


@pytest.mark.parametrize(("size", "mono"), [((80, 24), False), ((160, 50), True), ((40, 10), False)])
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


def weighed(s: Session) -> str | None:
    """The node of the answer of What if, empty for today's; None: there is no answer yet."""
    page = s.app.screen
    return page._outcome.choice.node or "" if isinstance(page, WhatIf) and page._outcome is not None else None


def test_the_demo_shows_the_founding_case_and_keeps_a_decision() -> None:
    """Open the founding finding, ask what if it ran on a node without a fabric, and accept: what a first user does."""
    with DemoLoader("founding", days=3) as loader:

        async def steps(s: Session) -> None:
            await s.ready()
            await s.shows("network fabric unused")
            await s.press("enter")
            await s.shows("online-inference (")
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
        # The state file is the demo's own, gone with it, whatever the person at the keys keeps.
        state = loader.state()
        assert state is not None and state.path.is_relative_to(loader._folder.name)
        assert [e.decision(1_794_787_201.0).state for e in kept(state.path).values()].count("accepted") == 1


def test_on_a_real_terminal_it_starts_and_ends_at_once_even_while_it_reads(tmp_path: Path) -> None:
    """Quitting does not wait for the simulation, which takes far longer than the first page."""
    environ = {**os.environ, "TERM": "xterm-256color", "TMPDIR": str(tmp_path), "LC_ALL": "C", "NO_COLOR": "1"}
    demo = f"exec {sys.executable} -m skuwise tui --demo"
    status, output = on_a_terminal(demo, tmp_path, environ, shows="simulating", key="q")
    assert status == 0 and "simulating" in output, output[-2000:]
    assert "Recoverable" not in output and "Traceback" not in output


def test_the_mouse_turns_pages_sorts_chooses_and_opens() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.pilot.click(TopBar, offset=(17, 0))
        await s.shows("by GPU-hours, descending")
        table = s.app.screen.query_one(ItemTable)
        await s.pilot.click(ItemTable, offset=(2, 0))
        assert table.order == "workload, ascending"
        assert [w.name[:4] for w in table.shown] == ["[red", "chat"]
        await s.pilot.click(ItemTable, offset=(2, 0))
        assert table.order == "workload, descending"
        assert "observed" not in s.screen
        await s.press(*["right"] * 20)
        await s.shows("observed")
        assert "chat" in s.screen
        await s.press(*["left"] * 20)
        await s.pilot.click(ItemTable, offset=(2, 2))
        assert table.item.id == "w-train"
        await s.pilot.click(ItemTable, offset=(2, 2))
        await s.shows("training (")

    drive(steps)
