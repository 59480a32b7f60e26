# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""The map of the fleet and the window of one's own, by keys and by the mouse; terminals that cannot do much."""

from __future__ import annotations

import contextlib
import os
import pty
import sys

import pytest
from rich.cells import cell_len
from skuwise.tests.support.fleet_on_screen import HandLoader
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.commands import has_colours
from skuwise.tui.screens.node import NodePage
from skuwise.tui.widgets.heatmap import HeatMap


def at(s: Session) -> tuple[str, int]:
    """Node and index of the GPU that the cursor is on."""
    spot = s.app.screen.query_one(HeatMap).item
    return spot.node.node, spot.gpu.index


@pytest.mark.slow
def test_the_map_is_walked_by_gpu_and_by_node_changes_its_measure_and_its_groups_and_opens_a_node() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.press(KEY["fleet"])
        await s.shows("azure/Standard_ND96isr_H100_v5 · 2 nodes, 16 GPUs · mean 85 %")
        await s.shows("n1 · GPU 0 H100-SXM5 · SM active 85 %")
        await s.shows("online-inference, bottleneck hbm-bandwidth · ann · chat")
        for key, where in (("right", ("n1", 1)), ("down", ("n2", 1)), ("left", ("n2", 0)), ("left", ("n1", 7)),
                           ("n", ("n2", 0)), ("end", ("n2", 7)), ("N", ("n1", 0)), ("home", ("n1", 0)),
                           ("up", ("n1", 0)), ("pagedown", ("n2", 0)), ("pageup", ("n1", 0))):  # fmt: skip
            await s.press(key)
            assert at(s) == where, key
        for told in ("tensor active 8 %", "DRAM active 62 %", "NVLink sent 0 GB/s", "fabric of the node 0.02 % of line",
                     "memory used 92 %", "power 280 W", "F  fine-tuning"):  # fmt: skip
            await s.press("m")
            await s.shows(told)
        await s.press("M")
        await s.shows("power 280 W")
        await s.press("v")
        await s.shows("1 x 400 Gb/s InfiniBand · 2 nodes, 16 GPUs")
        await s.press("v")
        await s.shows("by team")
        await s.shows("ann · 1 node, 8 GPUs")
        where = s.app.screen.query_one(HeatMap)
        await s.pilot.click(HeatMap, offset=(where._named + 2, 1))
        held = at(s)
        await s.pilot.click(HeatMap, offset=(where._named + 2, 1))
        await s.until(lambda: isinstance(s.app.screen, NodePage))
        await s.shows(f"{held[0]} · azure/Standard_ND96isr_H100_v5")
        await s.press("escape")
        await s.press("o")
        await s.shows("confidence")

    drive(steps)


@pytest.mark.slow
def test_a_window_of_ones_own_is_asked_for_read_and_named() -> None:
    loader = HandLoader()

    async def steps(s: Session) -> None:
        await s.ready()
        await s.press("c", *"soon", "enter")
        await s.shows("is not a span of time")
        await s.press("escape", "c", *"3d", "enter")
        await s.until(lambda: loader.windows[-1] == "3d" and s.app.state.progress is None)
        await s.shows("window 3d")
        await s.press("w")
        await s.until(lambda: loader.windows[-1] == "7d")

    drive(steps, loader)


@pytest.mark.slow
def test_every_page_and_a_node_survive_a_tiny_terminal_and_come_back_as_they_were() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        for page, key in KEY.items():
            await s.press(key)
            await s.until(lambda: "..." not in s.screen.splitlines()[1])
            if page == "fleet":
                await s.shows("mean over")
                await s.press("enter")
                await s.shows("SM active")
            if page == "plan":
                await s.shows("No better plan")
            before = await s.still()
            await s.pilot.resize_terminal(40, 10)
            await s.until(lambda: [cell_len(line) for line in s.lines] == [40] * 10)
            await s.pilot.resize_terminal(100, 30)
            await s.until(lambda before=before: s.screen == before)
            if page == "fleet":
                await s.press("escape")

    drive(steps, size=(100, 30))


def test_a_terminal_that_cannot_place_text_is_told() -> None:
    child, terminal = pty.fork()
    if child == 0:
        command = [sys.executable, "-m", "skuwise", "tui", "--db", "x.db"]
        os.execve(sys.executable, command, {**os.environ, "TERM": "dumb"})
    told = b""
    with contextlib.suppress(OSError):  # the other side is closed: the program has ended
        while part := os.read(terminal, 1 << 16):
            told += part
    status = os.waitpid(child, 0)[1]
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 2
    assert b"does not support full-screen programs (TERM=dumb)" in told


def test_a_terminal_that_nobody_knows_may_have_colours() -> None:
    assert has_colours("xterm-256color")
    assert has_colours("no-such-terminal")
