# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""The program of the screens under a pilot, for tests that press keys and look."""

import asyncio
from collections.abc import Awaitable, Callable

from skuwise.tests.support.fleet_on_screen import NOW, HandLoader
from skuwise.tui.app import MENU, SkuwiseApp
from skuwise.tui.data.loaders import Loader
from textual.pilot import Pilot
from textual.widgets import Input, Static

PATIENCE_STEPS = 3000  # two minutes: a busy machine may take its time
STILL_FRAMES = 8
KEY = {page.NAME: str(number) for number, page in enumerate(MENU, 1)}


class Session:
    """One run of the program under a pilot."""

    def __init__(self, app: SkuwiseApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the program run until `holds` returns True; fail if it never does."""
        for _ in range(PATIENCE_STEPS):
            if holds():
                await self.pilot.pause()
                return
            await asyncio.sleep(0.04)
        raise AssertionError(f"It never held. The screen:\n{self.screen}")

    async def ready(self) -> None:
        await self.until(lambda: self.app.state.loaded is not None)

    async def shows(self, text: str) -> None:
        await self.until(lambda: text in self.screen)

    async def still(self) -> str:
        """The screen once it stands: a page that says its last word lays its panels out in the frames after it."""
        seen, frames = "", 0
        for _ in range(PATIENCE_STEPS):
            await self.pilot.pause(0.04)
            frames = frames + 1 if self.screen == seen else 0
            seen = self.screen
            if frames == STILL_FRAMES:
                return seen
        raise AssertionError(f"The screen never stood still:\n{self.screen}")

    def told(self, selector: str) -> str:
        """What a text says, however its lines break: a path of this machine may take any length."""
        return str(self.app.screen.query_one(selector, Static).content)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def enter(self, text: str, *shown: str) -> None:
        """Confirm a text in the dialog; each of `shown` must come up."""
        self.app.screen.query_one(Input).value = text
        await self.press("enter")
        for part in shown:
            await self.shows(part)

    @property
    def lines(self) -> list[str]:
        return ["".join(segment.text for segment in strip) for strip in self.app.screen._compositor.render_strips()]

    @property
    def screen(self) -> str:
        return "\n".join(self.lines)


def drive(
    steps: Callable[[Session], Awaitable[None]], loader: Loader | None = None, size: tuple[int, int] = (80, 24), **about
) -> SkuwiseApp:
    async def run() -> SkuwiseApp:
        app = SkuwiseApp(loader or HandLoader(), clock=about.pop("clock", lambda: NOW + 60), **about)
        async with app.run_test(size=size) as pilot:
            await steps(Session(app, pilot))
        return app

    return asyncio.run(run())
