# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""A screen is one class in a file and one line of the menu: one is added, looked at, and taken away again."""

from __future__ import annotations

from collections.abc import Callable

from skuwise.tests.support.fleet_on_screen import HandLoader
from skuwise.tests.support.tui_session import Session, drive
from skuwise.tui.data.background_jobs import Tell
from skuwise.tui.data.loaders import Loader
from skuwise.tui.screens.base_page import Page, WorkWanted
from skuwise.tui.screens.menu import MENU
from skuwise.tui.state import Loaded
from textual.app import ComposeResult
from textual.widgets import Static

KEY_ADDED = str((len(MENU) + 1) % 10)


class Toy(Page):
    NAME, LABEL = "toy", "Toy"
    ABOUT = "Counts the workloads, and the GPUs of the catalog."

    def compose_data(self) -> ComposeResult:
        yield Static(id="count")
        yield Static(id="catalog")

    def set_data(self, loaded: Loaded) -> None:
        self.query_one("#count", Static).update(f"{len(loaded.advice.workloads)} workloads here")

        def work(loader: Loader, tell: Tell) -> Callable[[], None]:
            tell("reading the catalog")
            known = len(loader.rulebook().catalog.gpus)
            return lambda: self.query_one("#catalog", Static).update(f"{known} kinds of GPU")

        self.post_message(WorkWanted("toy", work))


def test_a_screen_comes_with_its_key_its_tab_its_help_and_its_data() -> None:
    loader = HandLoader()

    async def steps(s: Session) -> None:
        await s.ready()
        await s.press(KEY_ADDED)
        await s.until(lambda: s.app.current_mode == "toy")
        await s.shows(f"{len(s.app.state.loaded.advice.workloads)} workloads here")
        await s.shows(f"{len(loader.rulebook().catalog.gpus)} kinds of GPU")
        assert f" {KEY_ADDED} Toy " in s.lines[0]
        await s.press("question_mark")
        await s.shows(Toy.ABOUT)
        assert any(KEY_ADDED in one and "Toy" in one for one in s.lines)

    drive(steps, loader, size=(160, 50), menu=(*MENU, Toy))


def test_without_it_its_key_goes_nowhere() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        here = s.app.current_mode
        await s.press(KEY_ADDED)
        assert s.app.current_mode == here
        assert "Toy" not in s.screen

    drive(steps, size=(160, 50))
