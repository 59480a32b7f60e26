# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""GPUs that were not observed, and weeks that could not be judged, on the screens."""

from __future__ import annotations

import re

from skuwise.tests.support.fleet_on_screen import HandLoader
from skuwise.tests.support.partly_observed import dark, loaded
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.color_scale import UNOBSERVED

WIDE = (120, 30)


def test_the_map_shows_each_unobserved_gpu_with_its_reason_and_a_legend() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.press(KEY["fleet"])
        await s.shows("4 nodes, 32 GPUs, 10 not observed")
        await s.shows(f"{UNOBSERVED} not observed")
        rows = [line for line in s.lines if re.match(r"\W*n[1-4]\b", line)]
        assert sum(line.count(UNOBSERVED) for line in rows[:4]) == 10
        await s.press("n")
        await s.shows("n2 · GPU 0 H100-SXM5 · not observed")
        await s.shows("The NVIDIA driver is not loaded. Load it.")
        await s.press("left")
        await s.shows("n1 · unnamed-1 · not observed")
        await s.press("M")
        await s.shows(f"{UNOBSERVED} not observed")
        await s.press("enter")
        await s.shows("1 GPU not observed (unnamed-1): The node's SKU has 8 GPUs")

    drive(steps, HandLoader(loaded(dark())), WIDE)


def test_the_overview_says_what_was_observed_and_judged() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.shows("wasted $0 (judged on 14 of 32 GPUs)")
        await s.shows("8 GPUs of n2 not observed: The NVIDIA driver")
        await s.shows("not observed")

    drive(steps, HandLoader(loaded(dark())), (160, 50))
