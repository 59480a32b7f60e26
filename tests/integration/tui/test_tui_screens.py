# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""Every screen as it was: text and styles against `tests/golden/screens`.

`RENEW_GOLDEN=1 pytest tests/integration/tui/test_tui_screens.py` writes them again; look at the difference before it is
kept. The fleet, its advice and the clock are fixed. A comparison waits for the screen to become what it was, so that a
slow machine fails nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from threading import Event

from rich.cells import cell_len
from skuwise.advisor.telemetry.source import PrometheusServer
from skuwise.tests.support import golden_files
from skuwise.tests.support.fake_prometheus import DcgmServer, FakePrometheus, Reply, Request, error
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.data.loaders import Loader
from textual.containers import ScrollableContainer
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

SCREENS = golden_files.FOLDER / "screens"
# Screens beside the pages: (name, page to begin with, keys, text that is shown when all is read).
BESIDE = (
    ("node", "fleet", ("enter",), "no live data here"),
    ("workload", "workloads", ("enter",), "Evidence"),
    ("help", "overview", ("question_mark",), "Help"),
    ("window", "overview", ("c",), "a length until now"),
    ("asking", "recommendations", ("a",), "enter confirms"),
    ("finding", "recommendations", ("enter",), "Details"),
    ("sku", "skus", ("enter",), "Catalog entry"),
    ("comparing", "skus", ("v", "down", "v"), "Comparison"),
    ("changing", "plan", ("w",), "commas between them"),
)
# What each page shows when all is read.
THERE = {"overview": "Recoverable", "fleet": "SM active 85 %", "workloads": "2 of 2", "recommendations": "$7,177",
         "whatif": "", "skus": "FP16", "doctor": "tensor_active",
         "incidents": "skuwise watch SOURCE", "plan": "Best plan within: risk low"}  # fmt: skip


def drawn(s: Session) -> list[str]:
    """The lines of the screen, then for each line its runs of styles by letter, then what the letters mean."""
    letters: dict[str, str] = {}
    runs = []
    for strip in s.app.screen._compositor.render_strips():
        line_runs: list[tuple[str, int]] = []
        for segment in strip:
            style = segment.style
            said = str(style.without_color if style else "").replace("none", "").strip()
            named = f"{said} {_colour(style.color)} on {_colour(style.bgcolor)}".strip() if style else ""
            letter = letters.setdefault(named, _letter(len(letters)))
            width = cell_len(segment.text)
            if line_runs and line_runs[-1][0] == letter:
                line_runs[-1] = (letter, line_runs[-1][1] + width)
            else:
                line_runs.append((letter, width))
        runs.append(" ".join(f"{letter}{width}" for letter, width in line_runs))
    return [*(line.rstrip() for line in s.lines), "--", *runs, "--", *(f"{v}: {k}" for k, v in letters.items())]


def _colour(colour) -> str:
    return colour.get_truecolor().hex if colour is not None else "-"


def _letter(number: int) -> str:
    return chr(ord("a") + number % 26) + (str(number // 26) if number >= 26 else "")


def faults(screen: Screen) -> Iterator[str]:
    """Siblings that lie over one another, and what reaches beyond a place that cannot be scrolled."""
    for widget in screen.walk_children(Widget, with_self=True):
        shown = [
            child for child in widget.children if child.display and child.region.area and child.styles.dock == "none"
        ]
        for n, first in enumerate(shown):
            yield from (f"{first} lies over {other}" for other in shown[n + 1 :] if first.region.overlaps(other.region))
        if not isinstance(widget, ScrollableContainer) and "auto" not in (
            widget.styles.overflow_x, widget.styles.overflow_y,
        ):  # fmt: skip
            yield from (f"{child} is cut by {widget}" for child in shown if child.region not in widget.region)


async def compare(s: Session, golden: Path, there: str) -> None:
    if golden_files.RENEW:
        await s.shows(there)
        await s.still()
        golden_files.renewed(golden, "\n".join(drawn(s)) + "\n")
    wanted = golden.read_text(encoding="utf-8").splitlines()
    try:
        await s.until(lambda: drawn(s) == wanted)
    except AssertionError:
        changes = "\n".join(difflib.unified_diff(wanted, drawn(s), "was", "is", lineterm=""))
        raise AssertionError(f"{golden.name} is another; RENEW_GOLDEN=1 writes it again.\n{changes}") from None
    assert list(faults(s.app.screen)) == []


def test_every_screen_is_as_it_was_and_nothing_overlaps_or_is_cut() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        for page in KEY:
            await s.press(KEY[page])
            await compare(s, SCREENS / f"{page}.txt", THERE[page])
        for name, page, keys, there in BESIDE:
            await s.press(KEY[page])
            await s.shows(THERE[page])
            await s.press(*keys)
            await s.shows(there)
            for entry in s.app.screen.query(Input):
                entry.cursor_blink = False
            await compare(s, SCREENS / f"{name}.txt", there)
            while len(s.app.screen_stack) > 2:
                await s.press("escape")

    drive(steps)


NOW = 1_790_000_000.0 // 86400 * 86400


def test_a_server_is_shown_and_what_was_read_stays_with_its_age_when_it_goes(tmp_path: Path) -> None:
    clock, server, gone = [NOW], DcgmServer(), Event()

    def answer(request: Request) -> Reply:
        """As a proxy whose server is gone; where no server listens the client tries for seconds before it gives up."""
        return error(403, "nobody is here any more") if gone.is_set() else server(request)

    with FakePrometheus(answer).running() as fake:

        async def steps(s: Session) -> None:
            await s.ready()
            await s.shows("1 GPU")
            assert fake.url in s.screen
            await s.press(KEY["fleet"], "enter")
            await s.shows("no live data here: rows of 1.0 h")
            await s.shows("power")
            gone.set()
            clock[0] = NOW + 3600
            await s.press("r")
            await s.shows("reading failed: ! shows why")
            await s.shows("read 1.0 h ago")
            assert "50 W" in s.screen
            await s.press("exclamation_mark")
            await s.shows("403")

        environ = {"XDG_CACHE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
        loader = Loader(PrometheusServer(fake.url, ('cluster="eu"',), environ), clock=lambda: NOW)
        drive(steps, loader, size=(160, 40), clock=lambda: clock[0])
    assert any('cluster="eu"' in request.query for request in fake.requests)
