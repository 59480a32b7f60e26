# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""The screens, driven by keys. Each test runs the real program on the real advice of a small fleet."""

import re
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from skuwise.advisor.telemetry.source import Databases
from skuwise.agent.store.writer import Writer
from skuwise.benchmarks.generators.first import simulate
from skuwise.tests.support.fleet_on_screen import NOW, HandLoader, fleet
from skuwise.tests.support.partly_observed import dark, loaded
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.commands import has_colours
from skuwise.tui.data.kept_look import SUFFIX
from skuwise.tui.data.loaders import Loader
from skuwise.tui.screens.workloads import WorkloadPage
from skuwise.tui.state import FINDINGS_WINDOW, Look
from skuwise.tui.themes import UNOBSERVED
from skuwise.tui.widgets.table import PADDING, Column, column_widths


def test_the_page_is_there_before_the_data_and_reading_can_be_stopped_and_begun_again() -> None:
    gate = Event()

    async def steps(s: Session) -> None:
        await s.shows("reading 14d of telemetry ...")
        assert "1 Overview" in s.screen and s.app.state.loaded is None
        await s.press("escape")
        await s.shows("Reading stopped.")
        gate.set()
        await s.press("r")
        await s.ready()
        for text in ("Recoverable  $7,177/month", "network fabric unused", "online-inference", "list price"):
            await s.shows(text)

    drive(steps, HandLoader(gate=gate), size=(120, 40))


def test_a_deep_link_opens_its_workload_and_one_to_nothing_is_an_error() -> None:
    drive(lambda s: s.until(lambda: isinstance(s.app.screen, WorkloadPage)), workload="chat")

    async def steps(s: Session) -> None:
        await s.ready()
        await s.until(lambda: bool(s.app._notifications))
        assert "No match for '[b]' in this window" in next(iter(s.app._notifications)).message
        assert s.app.current_page == "overview"

    drive(steps, workload="[b]")


def test_decisions_ask_for_what_they_need_and_reach_the_ledger() -> None:
    loader = HandLoader()

    async def steps(s: Session) -> None:
        await s.ready()
        await s.press(KEY["recommendations"])
        await s.shows("$7,177")
        await s.press("d", "enter")
        await s.shows("The reason is empty.")
        await s.press("escape")
        assert loader.decided == []
        await s.press("d", *"no", "enter")
        await s.until(lambda: len(loader.decided) == 1)
        await s.shows("dismissed")
        await s.press("u")  # what is decided is folded away
        await s.press("z")
        await s.enter("2020-01-01", "2020-01-01 is in the past.")
        await s.enter("2026-10-01 after the launch")
        await s.until(lambda: len(loader.decided) == 2)

    drive(steps, loader)
    (first, second) = loader.decided
    assert first[1:] == ("dismissed", None, "no") and second[1:] == ("snoozed", 1_790_812_800.0, "after the launch")
    assert first[0] == next(r.id for r in fleet().advice.recommendations if r.counts)
    assert second[0] in {r.id for r in fleet().advice.recommendations}


def test_an_empty_database_and_one_that_is_not_there_are_told(tmp_path: Path) -> None:
    empty = tmp_path / "[b]empty.db"
    Writer.open(empty, now=lambda: NOW).close()

    async def steps(s: Session) -> None:
        await s.until(lambda: s.app.state.error is not None)
        await s.shows("No samples yet")
        assert "[b]empty.db" in s.screen.replace("\n", "")
        empty.unlink()
        await s.press("r")
        await s.until(lambda: "No samples" not in (s.app.state.error or "No samples"))
        await s.shows("No data")

    drive(steps, Loader(Databases((empty,)), clock=lambda: NOW), size=(200, 24))


def test_a_terminal_that_nobody_knows_may_have_colours() -> None:
    assert has_colours("xterm-256color") and has_colours("no-such-terminal")


COLUMNS = (
    Column("workload", 12, lambda row: row[0], grows=True, middle=True),
    Column("saves/month", 11, lambda row: row[1], right=True),
    Column("status", 10, lambda row: row[2]),
    Column("node", 20, lambda row: row[3], middle=True),
    Column("wasted", 7, lambda row: row[4], right=True),
)
NEEDS = [32, 12, 9, 29, 7]


@pytest.mark.parametrize(("room", "shown"), [(20, 1), (36, 2), (60, 3), (76, 5), (96, 5), (156, 5), (196, 5)])
def test_the_columns_that_fit_fill_the_line_and_numbers_are_never_cut(room: int, shown: int) -> None:
    widths = column_widths(COLUMNS, NEEDS, room)
    assert sum(widths[:shown]) + PADDING * shown == room
    for column, width, need in zip(COLUMNS, widths, NEEDS, strict=True):
        assert width >= (need if column.right else min(need, column.width))


def test_the_overview_and_the_map_show_each_unobserved_gpu_with_its_reason_and_a_legend() -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.shows("judged on 14 of 32 GPUs")
        await s.shows("8 GPUs of n2 not observed: The NVIDIA driver")
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
        await s.press("enter")
        await s.shows("1 GPU not observed (unnamed-1): The node's SKU has 8 GPUs")

    drive(steps, HandLoader(loaded(dark())), (160, 50))


UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z


def test_what_an_earlier_run_saw_is_there_while_the_source_is_read_and_nothing_is_decided_on_it() -> None:
    gate, advice = Event(), replace(fleet().advice, workloads=fleet().advice.workloads[:1])
    loader = HandLoader(gate=gate, earlier=Look(FINDINGS_WINDOW, advice, advice, fleet().health, NOW - 7200.0))

    async def steps(s: Session) -> None:
        await s.shows("reading 14d of telemetry ... · read 2.0 h ago")
        for text in ("Recoverable  $7,177/month", "network fabric unused", "Drawn when the telemetry has been read."):
            await s.shows(text)
        assert s.app.state.loaded is None
        await s.press(KEY["workloads"])
        await s.shows("1 of 1 workloads")
        await s.press(KEY["recommendations"])
        await s.shows("Before and after")
        await s.press("a")
        await s.until(lambda: any("decide when the source" in n.message for n in s.app._notifications))
        assert len(s.app.screen_stack) == 2
        await s.press(KEY["workloads"])
        gate.set()
        await s.ready()
        await s.shows("2 of 2 workloads")
        await s.shows("window 14d · read 1 min ago")
        await s.press(KEY["overview"])
        await s.shows("Waste over time, 14d, by finding")
        assert s.app.state.earlier is None

    drive(steps, loader, size=(160, 50))
    assert loader.decided == []


def test_the_next_run_over_a_database_begins_with_what_this_one_read(tmp_path: Path) -> None:
    database, looks = tmp_path / "fleet.db", tmp_path / "looks"
    simulate("founding", database, days=2, seed=3, until=UNTIL)

    def loader(prices: Path | None = None) -> Loader:
        return Loader(Databases((database,)), looks=looks, book=(None, prices, None), clock=lambda: UNTIL + 60)

    read = loader().load(FINDINGS_WINDOW, None, lambda _: None)
    assert loader().recall(FINDINGS_WINDOW) is None
    loader().keep(read)
    kept = loader().recall(FINDINGS_WINDOW)
    assert kept == Look(read.window, read.advice, read.shown, read.health, read.at)
    assert read.advice.findings and read.advice.fleet is not None
    assert loader(tmp_path / "prices.yaml").recall(FINDINGS_WINDOW) is None

    # Another fleet, or nothing, at the same place: only numbers of the file are shown.
    whole = database.read_bytes()
    for name in (database.name, f"{database.name}-wal", f"{database.name}-shm"):
        database.with_name(name).unlink(missing_ok=True)
    assert loader().recall(FINDINGS_WINDOW) is None
    simulate("training", database, days=2, seed=3, until=UNTIL)
    assert loader().recall(FINDINGS_WINDOW) is None
    database.write_bytes(whole[:5000])
    assert loader().recall(FINDINGS_WINDOW) is None
    database.write_bytes(whole)
    assert loader().recall(FINDINGS_WINDOW) == kept
    for file in looks.iterdir():
        file.unlink()

    async def steps(s: Session) -> None:
        await s.ready()
        await s.until(lambda: any(looks.glob(f"*{SUFFIX}")))

    drive(steps, loader(), clock=lambda: UNTIL + 120)
