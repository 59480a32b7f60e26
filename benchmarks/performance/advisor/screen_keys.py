"""Every key of every page at 10,000 workloads and 8,000 GPUs: from the key until the terminal has been written to.

A key goes in where the terminal's driver puts it. The clock stops when the first picture that answers it is made and
encoded for the terminal, as the driver would write it. Keys are pressed only while the program is at rest, except for
those that are pressed while pages are being prepared.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from skuwise.tests.support.fleet_on_screen import NOW, HandLoader, many, wide
from skuwise.tui import app as program
from skuwise.tui.app import SkuwiseApp
from skuwise.tui.screens.base_page import Page
from skuwise.tui.screens.menu import MENU
from textual import events
from textual._compositor import CompositorUpdate
from textual.screen import Screen

SIZE = (160, 50)
LIMIT_MS = 50.0
# They end the program, or stop it.
NEVER = frozenset({"q", "ctrl+q", "ctrl+c", "ctrl+z", "tab", "shift+tab"})
OWN_TIMES, COMMON_TIMES = 3, 1
_QUIET_SECONDS, _NOTHING_SECONDS, _PATIENCE_SECONDS = 0.1, 0.2, 5.0


@dataclass(frozen=True, slots=True)
class Taken:
    """One key. `wall`, `cpu`: seconds until its first picture; None: it painted nothing."""

    page: str
    key: str
    what: str
    wall: float | None
    cpu: float | None


class WatchedApp(SkuwiseApp):
    """Notes when a picture is ready for the terminal; the terminal itself is nobody's."""

    CSS_PATH = str(Path(program.__file__).with_name("skuwise.tcss"))

    def __init__(self, loader: HandLoader) -> None:
        super().__init__(loader, clock=lambda: NOW)
        self.painted: tuple[float, float] | None = None
        self.last = 0.0

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        super()._display(screen, renderable)
        if not self._batch_count and isinstance(renderable, CompositorUpdate):
            renderable.render_segments(self.console)
            self.last = time.perf_counter()
            self.painted = self.painted or (self.last, time.process_time())


class Fingers:
    """Presses keys, and measures."""

    def __init__(self, app: WatchedApp) -> None:
        self.app = app

    async def rest(self) -> None:
        """Until nothing was painted for a while, and no job runs."""
        ends = time.perf_counter() + _PATIENCE_SECONDS
        while time.perf_counter() < ends:
            await asyncio.sleep(0.01)
            jobs = any(thread.name.startswith("skuwise ") for thread in threading.enumerate())
            if not jobs and self.app.prepared and time.perf_counter() - self.app.last > _QUIET_SECONDS:
                return

    async def press(self, key: str, page: str, what: str, *, rest: bool = True) -> Taken:
        app = self.app
        if rest:
            await self.rest()
        character = key if len(key) == 1 else None
        app.painted = None
        begun, used = time.perf_counter(), time.process_time()
        app.post_message(events.Key(key, character))
        while app.painted is None and time.perf_counter() - begun < _NOTHING_SECONDS:
            await asyncio.sleep(0.001)
        if app.painted is None:
            return Taken(page, key, what, None, None)
        return Taken(page, key, what, app.painted[0] - begun, app.painted[1] - used)

    async def back_to(self, page: str) -> None:
        """The page in front, with nothing over it."""
        await self.rest()
        while len(self.app.screen_stack) > 1:
            self.app.pop_screen()
            await asyncio.sleep(0.05)
        if self.app.current_mode != page:
            self.app.action_page(page)
        await self.rest()


def keys_of(screen: Screen[object]) -> Iterator[tuple[str, str, bool]]:
    """(key, what it does, whether it is the page's own)."""
    for key, active in screen.active_bindings.items():
        if active.enabled and key not in NEVER:
            yield key, active.binding.description or active.binding.action, active.node is not screen.app


async def pressed() -> None:
    """Press them all, and print."""
    app = WatchedApp(HandLoader(held=wide(many(10_000), 1_000)))
    async with app.run_test(size=SIZE):
        fingers = Fingers(app)
        while app.state.loaded is None:
            await asyncio.sleep(0.02)
        await fingers.rest()
        begun, used = time.perf_counter(), time.process_time()
        while not app.prepared:
            await asyncio.sleep(0.02)
        wall, cpu = time.perf_counter() - begun, time.process_time() - used
        print(f"pages prepared in {wall:.1f} s, {cpu:.2f} s of CPU")
        numbers = {page.NAME: str(n) for n, page in enumerate(MENU, 1)}
        told([await fingers.press(numbers[page.NAME], page.NAME, "the first time") for page in MENU[1:]])
        told(
            [
                await fingers.press(numbers[page.NAME], page.NAME, "again")
                for page in MENU * 3
                if app.current_mode != page.NAME
            ]
        )
        for page in MENU:
            await fingers.back_to(page.NAME)
            for focused in focusable(app.screen):
                told(await all_keys(fingers, page, focused))
    print(f"RSS at most: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def focusable(screen: Screen[object]) -> Sequence[int]:
    return range(max(len(screen.focus_chain), 1))


async def all_keys(fingers: Fingers, page: type[Page], focused: int) -> list[Taken]:
    """Every key of a page with one of its widgets in focus."""
    taken: list[Taken] = []
    app = fingers.app
    for key, what, own in list(keys_of(app.screen)):
        if focused and not own:
            continue
        for _ in range(OWN_TIMES if own else COMMON_TIMES):
            await fingers.back_to(page.NAME)
            chain = app.screen.focus_chain
            if focused < len(chain) and app.focused is not chain[focused]:
                chain[focused].focus()
            taken.append(await fingers.press(key, page.NAME, what))
    return taken


def told(taken: Sequence[Taken]) -> None:
    """Print the median and the most of each key."""
    groups: dict[tuple[str, str, str], list[Taken]] = {}
    for one in taken:
        groups.setdefault((one.page, one.key, one.what), []).append(one)
    for (page, key, what), ones in groups.items():
        wall = [1e3 * one.wall for one in ones if one.wall is not None]
        cpu = [1e3 * one.cpu for one in ones if one.cpu is not None]
        if wall:
            over = "  over" if max(wall) > LIMIT_MS else ""
            print(
                f"{page:16} {key:20} {what:28} {statistics.median(wall):5.0f} ({max(wall):.0f}) ms, "
                f"{statistics.median(cpu):.0f} ({max(cpu):.0f}) ms of CPU{over}",
                flush=True,
            )


def main() -> None:
    asyncio.run(pressed())


if __name__ == "__main__":
    main()
