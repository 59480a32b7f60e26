# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportAttributeAccessIssue=false
"""Every key of every screen does something that can be seen; a binding that is pressed nowhere fails the first test."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable

import pytest
import skuwise.tui
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.fleet_on_screen import HandLoader, many
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.app import MENU
from skuwise.tui.data.preferences import Preferences, View
from skuwise.tui.widgets.frame import Scroll
from skuwise.tui.widgets.heatmap import HeatMap
from skuwise.tui.widgets.table import ItemTable
from textual.widgets import ContentSwitcher, Input

# Owner of the binding, its first key, and what must change when it is pressed.
Press = tuple[str, str, str]


def kind(s: Session) -> object:
    return type(s.app.screen).__name__


def table(s: Session) -> ItemTable:
    focused = s.app.screen.focused
    return focused if isinstance(focused, ItemTable) else s.app.screen.query_one(ItemTable)


def spot(s: Session) -> object:
    item = s.app.screen.query_one(HeatMap).item
    return item and (item.node.node, item.gpu and item.gpu.index)


SEEN: dict[str, Callable[[Session], object]] = {
    "kind": kind,
    "spot": spot,
    "mode": lambda s: s.app.current_page,
    "window": lambda s: s.app.state.window,
    "reads": lambda s: len(s.app._loader.windows),
    "theme": lambda s: s.app.theme,
    "messages": lambda s: len(s.app._notifications),
    "tells": lambda s: s.screen,
    "cursor": lambda s: table(s).cursor_row,
    "order": lambda s: table(s).order,
    "shift": lambda s: table(s).scroll_offset.x,
    "searching": lambda s: isinstance(s.app.screen.focused, Input),
    "chosen": lambda s: s.app.screen._choice,
    "scrolled": lambda s: s.app.screen.query_one(Scroll).scroll_offset,
    "switched": lambda s: s.app.screen.query_one(ContentSwitcher).current,
}
SCENES: dict[str, list[Press]] = {
    "overview": [
        *(("SkuwiseApp", KEY[page.NAME], "mode") for page in (*MENU[1:], MENU[0])),
        ("SkuwiseApp", "w", "window"),
        ("SkuwiseApp", "r", "reads"),
        ("SkuwiseApp", "t", "theme"),
        ("SkuwiseApp", "question_mark", "kind"),
        *(("Scroll", key, "scrolled") for key in ("j", "k", "ctrl+d", "ctrl+u", "G", "g", "down", "up", "end", "home")),
        ("TextViewer", "escape", "kind"),
        ("SkuwiseApp", "b", "kind"),
        ("TextViewer", "q", "kind"),
        ("SkuwiseApp", "c", "kind"),
        ("InputDialog", "escape", "kind"),
        ("SkuwiseApp", "e", "kind"),
        ("InputDialog", "escape", "kind"),
        ("ItemTable", "enter", "kind"),
        ("Page", "escape", "kind"),
    ],
    "workloads": [
        *(
            ("ItemTable", key, "cursor")
            for key in ("down", "up", "end", "home", "j", "k", "ctrl+d", "ctrl+u", "G", "g")
        ),
        ("ItemTable", "right", "shift"),
        ("ItemTable", "left", "shift"),
        ("ItemTable", "s", "order"),
        ("SearchTable", "slash", "searching"),
        ("Page", "escape", "searching"),
        ("Workloads", "i", "kind"),
        ("Page", "escape", "kind"),
        ("ItemTable", "enter", "kind"),
        ("WorkloadPage", "i", "kind"),
        ("Page", "escape", "kind"),
    ],
    "recommendations": [
        *(
            (owner, key, "kind")
            for verb in "azd"
            for owner, key in (("Recommendations", verb), ("InputDialog", "escape"))
        ),
        ("Recommendations", "u", "tells"),
        ("Recommendations", "i", "kind"),
        ("Page", "escape", "kind"),
        ("Recommendations", "o", "kind"),
        ("Page", "escape", "kind"),
    ],
    "whatif": [
        ("WhatIf", "minus", "chosen"),
        ("WhatIf", "plus", "chosen"),
        ("WhatIf", "m", "chosen"),
        ("WhatIf", "less_than_sign", "chosen"),
        ("WhatIf", "greater_than_sign", "chosen"),
        ("WhatIf", "p", "kind"),
        ("InputDialog", "escape", "kind"),
        ("WhatIf", "x", "chosen"),
        ("WhatIf", "a", "messages"),
        ("WhatIf", "o", "kind"),
        ("Page", "escape", "kind"),
    ],
    "plan": [
        *((owner, key, "kind") for letter in "azd" for owner, key in (("PlanPage", letter), ("InputDialog", "escape"))),
        *((owner, key, "kind") for letter in "oi" for owner, key in (("PlanPage", letter), ("Page", "escape"))),
        *((owner, key, "kind") for letter in "wm" for owner, key in (("PlanPage", letter), ("InputDialog", "escape"))),
        ("PlanPage", "r", "tells"),
        ("PlanPage", "x", "tells"),
        ("PlanPage", "g", "tells"),
        ("PlanPage", "R", "reads"),
    ],
    "skus": [
        ("Skus", "n", "switched"),
        ("Skus", "n", "switched"),
        ("Skus", "v", "messages"),
        ("ItemTable", "down", "cursor"),
        ("Skus", "v", "kind"),
        ("TextViewer", "escape", "kind"),
    ],
    "fleet": [
        *(("HeatMap", key, "spot") for key in ("right", "left", "down", "up", "end", "home", "n", "N")),
        *(("HeatMap", key, "spot") for key in ("j", "k", "ctrl+d", "ctrl+u", "G", "g")),
        ("HeatMap", "pagedown", "spot"),
        ("HeatMap", "pageup", "spot"),
        ("FleetPage", "m", "tells"),
        ("FleetPage", "v", "tells"),
        ("FleetPage", "o", "kind"),
        ("Page", "escape", "kind"),
        ("HeatMap", "enter", "kind"),
        ("ItemTable", "enter", "kind"),
        ("Page", "escape", "kind"),
        ("Page", "escape", "kind"),
    ],
}
VI = frozenset("jkgG")
FILES = {"a.csv": "chat", "b.json": '"skuwise.screen/1"', "c.md": "| chat |"}
# Pressed by another test, below, and in test_tui_incidents.py.
ELSEWHERE = {
    ("SkuwiseApp", "exclamation_mark"), ("SkuwiseApp", "q"), *(("Incidents", key) for key in ("a", "z", "r")),
}  # fmt: skip


def bindings() -> set[tuple[str, str]]:
    """Owner and first key of every binding of the program, the pages' numbers among them."""
    keys = {("SkuwiseApp", key) for key in KEY.values()}
    for module in pkgutil.walk_packages(skuwise.tui.__path__, "skuwise.tui."):
        for name, owner in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            declared = owner.__dict__.get("BINDINGS", ()) if owner.__module__ == module.name else ()
            for binding in declared:
                first, *others = binding.key.split(",")
                keys |= {(name, first), *((name, key) for key in others if key in VI)}  # vi's keys beside the arrows
    return keys


def test_every_binding_is_pressed_by_a_test() -> None:
    pressed = {(owner, key) for scene in SCENES.values() for owner, key, _ in scene} | ELSEWHERE
    # A window's further keys close it too; one of them is pressed.
    assert bindings() - pressed == set()
    assert {(owner, key) for owner, key in pressed if owner != "TextViewer"} <= bindings()


@pytest.mark.parametrize("page", SCENES)
def test_each_key_of_a_page_does_something(page: str) -> None:
    loader = HandLoader(held=many(300) if page == "workloads" else None)

    async def steps(s: Session) -> None:
        await s.ready()
        if page != "overview":
            await s.press(KEY[page])
        await s.until(lambda: s.app.current_page == page)
        if page == "whatif":
            await s.until(lambda: s.app.screen._outcome is not None)
        if page == "fleet":
            await s.until(lambda: spot(s) is not None)
        if page == "plan":
            await s.shows("Best plan within")
            # The first step rents a node: there is nothing to decide on.
            s.app.screen.query_one("#steps").focus()
            await s.press("down")
            await s.until(lambda: s.app.screen.workload == "w-serve")
        if page == "skus":
            await s.shows("V100-SXM2-16GB")
            await s.until(lambda: table(s).item is not None)
        for owner, key, what in SCENES[page]:
            see = SEEN[what]
            before = see(s)
            await s.press(key)
            try:
                await s.until(lambda see=see, before=before: see(s) != before)
            except AssertionError as error:
                raise AssertionError(f"{key} of {owner} changed nothing of {before!r}. {error}") from error

    drive(steps, loader, size=(80, 24))


def test_why_a_reading_failed_is_told_by_a_key_and_quitting_ends() -> None:
    loader = HandLoader()

    async def steps(s: Session) -> None:
        await s.ready()
        loader.held = StoreError("It is gone.", "Bring it back.")
        await s.press("r")
        await s.until(lambda: s.app.state.error is not None)
        await s.press("exclamation_mark")
        await s.shows("It is gone. Bring it back.")
        await s.press("escape", "q")
        await s.until(lambda: not s.app.is_running or s.app._exit)

    drive(steps, loader)


def test_the_rows_of_a_search_alone_are_exported(tmp_path) -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.press(KEY["workloads"], "slash", *"vllm", "enter")
        for name, holds in FILES.items():
            await s.press("e")
            await s.until(lambda: kind(s) == "InputDialog")
            s.app.screen.query_one(Input).value = str(tmp_path / name)
            await s.press("enter")
            await s.until(lambda name=name: (tmp_path / name).exists())
            text = (tmp_path / name).read_text()
            assert holds in text and "\x1b" not in text and "[red]" not in text
            await s.until(lambda: kind(s) == "Workloads")
        await s.press("e")
        await s.until(lambda: kind(s) == "InputDialog")
        s.app.screen.query_one(Input).value = str(tmp_path / "a.csv")
        await s.press("enter")
        await s.shows("exists already.")

    drive(steps, size=(120, 30))


def test_what_an_earlier_run_chose_is_there_again_and_what_was_damaged_is_told() -> None:
    first = {}

    async def choose(s: Session) -> None:
        await s.ready()
        await s.press("t", "w", KEY["workloads"])
        first["memory"] = s.app.memory

    async def again(s: Session) -> None:
        await s.ready()
        assert (s.app.theme, s.app.state.window.name, s.app.current_page) == ("skuwise-mono", "1h", "workloads")
        await s.until(lambda: any("damaged" in n.message for n in s.app._notifications))

    drive(choose)
    drive(again, memory=first["memory"], warning="tui.json is damaged.")
    forgotten = Preferences("no-such", {"fleet": View(1e-9, "nowhere")})
    drive(lambda s: s.until(lambda: s.app.theme == "skuwise" and s.app.current_page == "overview"), memory=forgotten)
