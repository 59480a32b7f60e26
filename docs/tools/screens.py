"""Draws the screens of docs/tui.md: what `skuwise tui --demo` shows, by keys. Run by `make picture`."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from skuwise.tui.app import MENU, SkuwiseApp
from skuwise.tui.data.loaders import DEMO_NOW, DemoLoader
from textual.pilot import Pilot

FOLDER = Path("docs/screens")
KEY = {page.NAME: str(number) for number, page in enumerate(MENU, 1)}
# name -> size, keys that lead from the overview there
SCREENS: dict[str, tuple[tuple[int, int], tuple[str, ...]]] = {
    "overview": ((120, 40), ()),
    "workload": ((120, 72), ("down", "enter")),
    "fleet": ((120, 24), (KEY["fleet"],)),
    "node": ((120, 36), (KEY["fleet"], "enter")),
    "workloads": ((120, 24), (KEY["workloads"],)),
    "recommendations": ((120, 30), (KEY["recommendations"],)),
    "whatif": ((120, 36), (KEY["recommendations"], "down", "i")),
    "skus": ((120, 24), (KEY["skus"],)),
    "compare": ((120, 36), (KEY["skus"], "slash", *"h100", "enter", "down", "v", "up", "v")),
    "doctor": ((120, 24), (KEY["doctor"],)),
    "incidents": ((120, 24), (KEY["incidents"],)),
    "plan": ((120, 36), (KEY["plan"], "tab", "tab")),
}
_PATIENCE_STEPS = 3000


async def draw(loader: DemoLoader, name: str, size: tuple[int, int], keys: tuple[str, ...]) -> None:
    app = SkuwiseApp(loader, clock=lambda: DEMO_NOW)
    async with app.run_test(size=size) as pilot:
        await _read(app, pilot)
        svg = await _settled(app, pilot, name)
        for key in keys:
            await pilot.press(key)
            svg = await _settled(app, pilot, name)
    (FOLDER / f"{name}.svg").write_text(svg)


async def _settled(app: SkuwiseApp, pilot: Pilot[None], name: str) -> str:
    """The screen when nothing moves any more: what comes on a thread (the history, the catalog) is there then."""
    before, svg = "", plain_svg(app.export_screenshot(title="skuwise tui --demo"), name)
    while svg != before:
        await asyncio.sleep(1.0)
        await pilot.pause()
        before, svg = svg, plain_svg(app.export_screenshot(title="skuwise tui --demo"), name)
    return svg


def plain_svg(svg: str, name: str) -> str:
    """Without fonts from a foreign server and numbers that change from run to run."""
    without = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return re.sub(r"terminal-\d+", f"terminal-{name}", without)


async def _read(app: SkuwiseApp, pilot: Pilot[None]) -> None:
    for _ in range(_PATIENCE_STEPS):
        await asyncio.sleep(0.1)
        if app.state.loaded is not None:
            await pilot.pause()
            return
        if app.state.error is not None:
            break
    raise SystemExit(f"nothing to draw: {app.state.error}")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with DemoLoader() as loader:
        for name, (size, keys) in SCREENS.items():
            asyncio.run(draw(loader, name, size, keys))


if __name__ == "__main__":
    main()
