# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportOperatorIssue=false, reportArgumentType=false
"""What the screens are made of, without a screen: cells, sums, states, jobs, and what the telemetry tells over time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from queue import Queue
from typing import TypeVar

import pytest
from rich.cells import cell_len
from skuwise.__main__ import main
from skuwise.advisor.core.advice_types import Decision
from skuwise.advisor.views.workload_timeline import history_of
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.fleet_on_screen import HOSTILE, NOW, fleet
from skuwise.tests.support.frame_builder import HOUR, START, TRAINING, FrameBuilder
from skuwise.tui.app_pages import KeptStylesheet
from skuwise.tui.cell_text import CUT, bar, cost_cell, fit, fit_middle, line
from skuwise.tui.data.background_jobs import Cancelled, JobDone, JobFailed, Jobs, JobTold
from skuwise.tui.state import STALE_SECONDS, WINDOWS, State, with_decision
from skuwise.tui.widgets.topbar import standing_words
from textual.css.stylesheet import Stylesheet


@pytest.mark.parametrize("cut", [fit, fit_middle])
@pytest.mark.parametrize(
    "text", ["n1", "ip-10-0-1-23.ec2.internal", HOSTILE, "数据处理数据处理一二三四", "a\tb\nc", ""]
)
@pytest.mark.parametrize("width", [0, 1, 4, 7, 12, 20])
def test_a_cell_is_as_wide_as_it_should_be_and_says_where_it_was_cut(
    cut: Callable[[str, int], str], text: str, width: int
) -> None:
    told = cut(text, width)
    assert cell_len(told) == width
    assert told.isprintable()
    if cut is fit and width and cell_len(text) > width:
        assert told.endswith(CUT)
    assert fit_middle("ip-10-0-1-23.ec2.internal", 9) == "ip-1…rnal"


def test_outside_text_is_no_markup() -> None:
    told = line(HOSTILE)
    assert "[red]x[/red] [@click=app.quit]y[/]" in told.plain
    assert "\x1b" not in told.plain
    assert "\u202e" not in told.plain
    assert told.spans == []


def test_a_bar_fills_by_its_share_and_shows_what_is_tiny() -> None:
    assert bar(0.5, 8) == "████    "
    assert bar(0.0, 4) == "    "
    assert bar(1e-6, 4) == "▏   "
    assert bar(7.0, 4) == "████"


def test_data_grow_old_and_a_failed_reading_makes_them_old_at_once() -> None:
    state = State(window=WINDOWS[0], now=NOW + 60, loaded=fleet())
    assert not state.stale
    assert "read 1 min ago" in standing_words(state)
    assert replace(state, now=NOW + STALE_SECONDS + 1).stale
    assert "r reads again" in standing_words(replace(state, now=NOW + STALE_SECONDS + 1))
    assert "reading failed" in standing_words(replace(state, error="gone"))
    assert not State(window=WINDOWS[0], now=NOW).stale


def test_a_decision_marks_one_recommendation_only() -> None:
    loaded, decision = fleet(), Decision("accepted", NOW, "ann")
    first, second, *_ = loaded.advice.recommendations
    marked = with_decision(loaded, first.id, decision).advice.recommendations
    assert marked[0].decision == decision
    assert marked[1] == second


def test_history_is_a_mean_weighted_by_what_was_observed_and_keeps_its_gaps() -> None:
    b = FrameBuilder(hours=3)
    b.node("n1", 2)
    b.use(TRAINING | {"sm_active": 0.2}, "n1", "GPU-n1-0", observed=1.0)
    b.use(TRAINING | {"sm_active": 0.8}, "n1", "GPU-n1-1", observed=0.5)
    b.use(TRAINING, "n1", "GPU-n1-0", start=0, end=0)
    for row in b.gpu_rows:
        if row["ts"] == START + 2 * HOUR:
            row["sm_active_mean"] = float("nan")
    b.work("w", [("n1", "GPU-n1-0"), ("n1", "GPU-n1-1")])
    history = history_of(b.frame(), "w")
    assert history.ends == tuple(START + n * HOUR for n in (1, 2, 3))
    (sm,) = [one for one in history.lines if one.name == "SM active"]
    assert sm.unit == "%"
    assert sm.values == (pytest.approx(40.0), None, pytest.approx(40.0))
    assert "fabric sent" not in {one.name for one in history.lines}
    assert history_of(b.frame(), "nobody").lines == ()


def test_of_jobs_in_one_slot_the_newest_counts_and_one_called_off_stops_at_its_next_step() -> None:
    posted, gate, ended = Queue[object](), threading.Event(), threading.Event()
    jobs = Jobs(posted.put)

    def slow(tell) -> str:
        tell("begun")
        assert gate.wait(30)
        try:
            tell("more")
        except Cancelled:
            ended.set()
            raise
        return "slow"

    jobs.start("reading", slow)
    told = posted.get(timeout=30)
    jobs.start("reading", lambda tell: "quick")
    done = posted.get(timeout=30)
    gate.set()
    assert ended.wait(30) and posted.empty()
    assert isinstance(told, JobTold) and isinstance(done, JobDone)
    assert (jobs.current(told), jobs.current(done)) == (False, True)


def test_what_a_job_raises_arrives_as_a_sentence_without_effect_on_the_terminal() -> None:
    posted = Queue[object]()

    def fail(tell):
        raise StoreError("It is \x1b[2J gone.", "Look again.")

    Jobs(posted.put).start("reading", fail)
    failed = posted.get(timeout=30)
    assert isinstance(failed, JobFailed) and failed.error == "It is \\x1b[2J gone. Look again."


@pytest.mark.parametrize("arguments", [["--demo"], ["--db", "x.db"]])
def test_without_a_terminal_it_says_so_and_ends(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tui", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "needs a terminal" in told.err
    assert len(told.err.splitlines()) == 1


def test_a_cost_fits_its_column_with_its_unit() -> None:
    assert cost_cell(1234.0, 10.0) == "$1,234"
    cells = [cost_cell(None, hours) for hours in (0.4, 999.0, 1000.0, 9940.0, 9960.0, 268_800.0)]
    assert cells == ["0 GPU-h", "999 GPU-h", "1.0k GPU-h", "9.9k GPU-h", "10k GPU-h", "269k GPU-h"]
    assert max(map(len, cells)) <= 10


CSS = (("Static { color: $primary; }", "one"), ("Static.-wide { width: $wide; }", "two"))

Sheet = TypeVar("Sheet", bound=Stylesheet)


def filled(sheet: Sheet) -> Sheet:
    for css, name in CSS:
        sheet.add_source(css, (name, ""))
    sheet.reparse()
    return sheet


def look(primary: str) -> dict[str, str]:
    return {"primary": primary, "wide": "3"}


def test_another_theme_and_the_first_again_are_what_textual_reads() -> None:
    kept, own = filled(KeptStylesheet(variables=look("red"))), filled(Stylesheet(variables=look("red")))
    first = kept.rules
    for primary in ("red", "blue", "red"):
        kept.set_variables(look(primary))
        own.set_variables(look(primary))
        kept.reparse()
        own.reparse()
        assert kept.css == own.css
    assert kept.rules is first


def test_a_source_that_is_added_is_read_in_every_theme() -> None:
    kept = filled(KeptStylesheet(variables=look("red")))
    assert len(list(kept.read_ahead(look("blue")))) == len(CSS)
    assert list(kept.read_ahead(look("blue"))) == []
    kept.add_source("Input { color: $primary; }", ("three", ""))
    kept.reparse()
    assert "Input" in kept.css
    kept.set_variables(look("blue"))
    kept.reparse()
    own = filled(Stylesheet(variables=look("blue")))
    own.add_source("Input { color: $primary; }", ("three", ""))
    own.reparse()
    assert kept.css == own.css
