# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""Pages are built before anybody comes: what they show then, what is not asked ahead, and keys that come in between."""

from __future__ import annotations

from skuwise.tests.support.fleet_on_screen import HandLoader
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.screens.doctor import Doctor
from skuwise.tui.screens.plan import PlanPage
from skuwise.tui.screens.recommendations import Recommendations
from skuwise.tui.screens.whatif import WhatIf
from skuwise.tui.screens.workloads import Workloads


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
