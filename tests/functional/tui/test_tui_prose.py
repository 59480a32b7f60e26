"""A place that is as high as its text, beside a scroll bar that comes and goes."""

from __future__ import annotations

import asyncio

from skuwise.tui.widgets.prose import put
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

COLUMNS, BAR = 80, 2


class _Place(App[None]):
    CSS = "Static { height: auto; }"

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="told")
            yield Static(id="below")


def test_a_place_is_as_high_as_its_newest_text_at_each_width() -> None:
    async def heights() -> list[tuple[int, int]]:
        app, seen = _Place(), list[tuple[int, int]]()
        async with app.run_test(size=(COLUMNS, 24)) as pilot:
            place, below = app.query_one("#told", Static), app.query_one("#below", Static)

            async def then(text: str = "", *, bar: bool) -> None:
                if text:
                    put(place, Content(text))
                below.styles.height = 40 if bar else 2
                await pilot.pause()
                seen.append((place.size.width, place.size.height))

            await then("a" * 38 + " " + "b" * 38, bar=False)
            await then(bar=True)
            await then("a" * 39 + " " + "b" * 39, bar=True)
            await then("a" * 38 + " " + "b" * 38, bar=True)
            await then(bar=False)
            await then("a" * 39 + " " + "b" * 39, bar=False)  # one line here, but not beside the bar
            await then(bar=True)
        return seen

    full, beside = COLUMNS, COLUMNS - BAR
    assert asyncio.run(heights()) == [
        (full, 1),
        (beside, 1),
        (beside, 2),
        (beside, 1),
        (full, 1),
        (full, 1),
        (beside, 2),
    ]
