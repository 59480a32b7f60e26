# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""Pages are built before anybody comes: what they show then, what is not asked ahead, and keys that come in between."""

from __future__ import annotations

from dataclasses import replace

import pytest
from skuwise.tests.support.fleet_on_screen import HandLoader, fleet
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.screens.doctor import Doctor
from skuwise.tui.screens.plan import PlanPage
from skuwise.tui.screens.recommendations import Recommendations
from skuwise.tui.screens.whatif import WhatIf
from skuwise.tui.screens.workloads import Workloads
from skuwise.tui.themes import MONOCHROME
from skuwise.tui.widgets.table import ItemTable


async def prepared(s: Session) -> None:
    await s.ready()
    await s.until(lambda: s.app.prepared)


def test_every_page_stands_before_it_is_visited_and_no_search_was_begun() -> None:
    asked: list[str] = []

    class Loader(HandLoader):
        def bench(self, loaded, workload, tell):
            asked.append("bench")
            return super().bench(loaded, workload, tell)

        def planner(self, loaded, tell):
            asked.append("plan")
            return super().planner(loaded, tell)

    async def steps(s: Session) -> None:
        await prepared(s)
        pages = {name: s.app._page(name) for name in KEY}
        assert all(page.laid_out for page in pages.values())
        assert {page.size for page in pages.values()} == {s.app.size}
        for kind in (Workloads, Recommendations, Doctor):
            assert pages[kind.NAME]._loaded is s.app.state.loaded
        for kind in (WhatIf, PlanPage):
            assert pages[kind.NAME]._loaded is None
        assert asked == []
        assert s.app.current_mode == "overview"
        await s.press(KEY["workloads"])
        assert s.app.screen is pages["workloads"]
        assert "2 of 2 workloads" in s.screen

    drive(steps, Loader(), size=(120, 40))


def test_keys_before_and_while_pages_are_prepared_go_where_they_should() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        for page in ("recommendations", "skus", "doctor", "workloads"):
            await s.press(KEY[page])
            assert s.app.current_mode == page
        assert not s.app.prepared
        await s.shows("2 of 2 workloads")
        await s.press("j")
        await s.until(lambda: s.app.prepared)
        assert s.app.current_mode == "workloads"
        assert s.app.screen.query_one(ItemTable).cursor == 1
        await s.press(KEY["recommendations"])
        await s.shows("$7,177")

    drive(steps, size=(120, 40))


def test_data_read_anew_while_pages_are_prepared_are_what_they_show() -> None:
    loader = HandLoader()

    async def steps(s: Session) -> None:
        await s.ready()
        whole = fleet()
        fewer = replace(whole.advice, workloads=whole.advice.workloads[:1])
        loader.held = replace(whole, advice=fewer, shown=fewer)
        await s.press("r")
        await s.until(lambda: len(s.app.state.loaded.shown.workloads) == 1)
        await s.until(lambda: s.app.prepared)
        assert s.app._page("workloads").query_one(ItemTable).total == 1
        loader.held = whole
        await s.press("r")
        await s.until(lambda: len(s.app.state.loaded.shown.workloads) == 2)
        await s.press(KEY["workloads"])
        await s.shows("2 of 2 workloads")

    drive(steps, loader, size=(120, 40))


def test_another_theme_and_another_size_reach_pages_that_were_prepared() -> None:
    async def steps(s: Session) -> None:
        await prepared(s)
        await s.press("t")
        await s.until(lambda: s.app.prepared)
        page = s.app._page("doctor")
        assert page.styles.background == s.app.screen.styles.background
        assert page.styles.background.hex == MONOCHROME.background
        await s.pilot.resize_terminal(200, 30)
        await s.press(KEY["recommendations"])
        await s.shows("Before and after")
        assert s.app.screen.size == (200, 30)
        assert s.app.screen.has_class("-vast", "-wide")
        assert {len(line) for line in s.lines} == {200}

    drive(steps, size=(80, 24))


@pytest.mark.parametrize("gpus", [0, 1])
def test_pages_of_a_fleet_with_next_to_nothing_are_prepared(gpus: int) -> None:
    whole = fleet()
    advice = replace(whole.advice, workloads=(), findings=(), recommendations=(), notes=())
    frame = replace(
        whole.frame, gpu=whole.frame.gpu[whole.frame.gpu["gpu_uuid"] == "GPU-n1-0"].iloc[: None if gpus else 0],
        gpus=whole.frame.gpus[whole.frame.gpus["gpu_uuid"] == "GPU-n1-0"].iloc[: None if gpus else 0],
    )  # fmt: skip
    loader = HandLoader(held=replace(whole, advice=advice, shown=advice, frame=frame))

    async def steps(s: Session) -> None:
        await prepared(s)
        await s.press(KEY["workloads"])
        await s.shows("0 of 0 workloads")
        await s.press(KEY["recommendations"])
        await s.shows("No recommendations: no change saves")
        await s.press(KEY["fleet"])
        await s.shows("GPU 0" if gpus else "No GPU of this node was observed")

    drive(steps, loader, size=(120, 40))


@pytest.mark.parametrize("seconds", [0.3, 0.45, 0.6])
def test_it_ends_in_the_midst_of_preparing(seconds: float) -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.pilot.pause(seconds)
        assert s.app.current_mode == "overview"

    app = drive(steps, size=(120, 40))
    assert app._exception is None
