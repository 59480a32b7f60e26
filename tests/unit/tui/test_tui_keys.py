# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportAttributeAccessIssue=false
"""Every key of every screen does something that can be seen; a binding that is pressed nowhere fails the first test."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable

import pytest
import skuwise.tui
from skuwise.tests.support.fleet_on_screen import HandLoader, many
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.data.preferences import Preferences
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
    return item and (item.node, item.index)


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
# A line: what must change with each key; then owners, each with its keys, in the order in which they are pressed.
LINES = {
    "overview": (
        "mode: SkuwiseApp 2 3 4 5 6 7 8 9 1",
        "window: SkuwiseApp w",
        "reads: SkuwiseApp r",
        "theme: SkuwiseApp t",
        "kind: SkuwiseApp question_mark",
        "scrolled: Scroll j k ctrl+d ctrl+u G g down up end home",
        "kind: TextViewer escape, SkuwiseApp b, TextViewer q, SkuwiseApp c, InputDialog escape, SkuwiseApp e",
        "kind: InputDialog escape, ItemTable enter, Page escape",
    ),
    "workloads": (
        "cursor: ItemTable down up end home j k ctrl+d ctrl+u G g",
        "shift: ItemTable right left",
        "order: ItemTable s",
        "searching: SearchTable slash, Page escape",
        "kind: Workloads i, Page escape, ItemTable enter, WorkloadPage i, Page escape",
    ),
    "recommendations": (
        "kind: Recommendations a, InputDialog escape, Recommendations z, InputDialog escape, Recommendations d",
        "kind: InputDialog escape, Recommendations i, Page escape, Page o escape",
        "tells: Recommendations u",
    ),
    "whatif": (
        "chosen: WhatIf minus plus m less_than_sign greater_than_sign",
        "kind: WhatIf p, InputDialog escape",
        "chosen: WhatIf x",
        "messages: WhatIf a",
        "kind: Page o escape",
    ),
    "plan": (
        "kind: PlanPage a, InputDialog escape, PlanPage z, InputDialog escape, PlanPage d, InputDialog escape",
        "kind: Page o escape, PlanPage i, Page escape",
        "kind: PlanPage w, InputDialog escape, PlanPage m, InputDialog escape",
        "tells: PlanPage r x g",
        "reads: PlanPage R",
    ),
    "skus": (
        "switched: Skus n n",
        "messages: Skus v",
        "cursor: ItemTable down",
        "kind: Skus v, TextViewer escape",
    ),
    "fleet": (
        "spot: HeatMap right left down up end home n N j k ctrl+d ctrl+u G g pagedown pageup",
        "tells: FleetPage m v",
        "kind: Page o escape, HeatMap enter, ItemTable enter, Page escape escape",
    ),
}
SCENES: dict[str, list[Press]] = {
    page: [
        (owner, key, what)
        for line in lines
        for what, _, presses in [line.partition(": ")]
        for owner, *keys in map(str.split, presses.split(", "))
        for key in keys
    ]
    for page, lines in LINES.items()
}
VI = frozenset("jkgG")
FILES = {"a.csv": "chat", "b.json": '"skuwise.screen/1"', "c.md": "| chat |"}
# Pressed in test_tui_screens.py, test_tui_terminals.py and test_tui_pages.py.
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


def test_the_rows_of_a_search_alone_are_exported(tmp_path) -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.press(KEY["workloads"], "slash", *"vllm", "enter")
        for name, holds in (*FILES.items(), ("a.csv", "")):
            await s.press("e")
            await s.until(lambda: kind(s) == "InputDialog")
            await s.enter(str(tmp_path / name), *(() if holds else ("exists already.",)))
            await s.until(lambda name=name: (tmp_path / name).exists())
            text = (tmp_path / name).read_text()
            assert holds in text and "\x1b" not in text and "[red]" not in text
            await s.until(lambda holds=holds: kind(s) == "Workloads" or not holds)

    drive(steps, size=(120, 30))


def test_what_an_earlier_run_chose_is_there_again_and_what_was_damaged_is_told() -> None:
    first = {}

    async def choose(s: Session) -> None:
        await s.ready()
        await s.press("t", "w", KEY["workloads"])
        first["memory"] = s.app.memory

    async def again(s: Session) -> None:
        await s.until(lambda: any("damaged" in n.message for n in s.app._notifications))
        await s.ready()
        assert (s.app.theme, s.app.state.window.name, s.app.current_page) == ("skuwise-mono", "1h", "workloads")

    drive(choose)
    drive(again, memory=first["memory"], warning="tui.json is damaged.")
    forgotten = Preferences("no-such", 1e-9, "nowhere")
    drive(lambda s: s.until(lambda: s.app.theme == "skuwise" and s.app.current_page == "overview"), memory=forgotten)
