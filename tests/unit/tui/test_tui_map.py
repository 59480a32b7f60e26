# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""The map of the fleet and the window of one's own, by keys and by the mouse; terminals that cannot do much."""

from __future__ import annotations

from skuwise.tests.support.fleet_on_screen import HandLoader
from skuwise.tests.support.tui_session import Session, drive
from skuwise.tui.commands import has_colours


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


def test_a_terminal_that_nobody_knows_may_have_colours() -> None:
    assert has_colours("xterm-256color")
    assert has_colours("no-such-terminal")
