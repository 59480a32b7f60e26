# pyright: reportArgumentType=false, reportOperatorIssue=false, reportOptionalMemberAccess=false, reportOptionalOperand=false
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false, reportOptionalIterable=false
"""What the screens are made of, without a screen, and what is copied, exported and remembered."""

import csv
import io
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import Queue

import pytest
from rich.cells import cell_len
from skuwise.__main__ import main
from skuwise.advisor.core.advice_types import Decision
from skuwise.rules.base.errors import StoreError, UsageError
from skuwise.tests.support.fleet_on_screen import HOSTILE, NOW, fleet
from skuwise.tui.app_base import markdown, path_of, render_export, tabbed
from skuwise.tui.cell_text import CUT, cost_cell, fit, fit_middle, line
from skuwise.tui.data.background_jobs import Cancelled, JobDone, JobFailed, Jobs, JobTold
from skuwise.tui.data.preferences import SCHEMA, Preferences, View, keep, preferences_path, recall, source_key
from skuwise.tui.data.time_window import next_window, parse_window
from skuwise.tui.state import FINDINGS_WINDOW, STALE_SECONDS, WINDOWS, State, with_decision
from skuwise.tui.widgets.columns import Column
from skuwise.tui.widgets.exportable import Sheet
from skuwise.tui.widgets.table import Arrangement
from skuwise.tui.widgets.topbar import standing_words


@pytest.mark.parametrize("cut", [fit, fit_middle])
@pytest.mark.parametrize(
    "text", ["n1", "ip-10-0-1-23.ec2.internal", HOSTILE, "数据处理数据处理一二三四", "a\tb\nc", ""]
)
@pytest.mark.parametrize("width", [0, 1, 4, 7, 12, 20])
def test_a_cell_is_as_wide_as_it_should_be_and_says_where_it_was_cut(
    cut: Callable[[str, int], str], text: str, width: int
) -> None:
    told = cut(text, width)
    assert cell_len(told) == width and told.isprintable()
    if cut is fit and width and cell_len(text) > width:
        assert told.endswith(CUT)
    assert fit_middle("ip-10-0-1-23.ec2.internal", 9) == "ip-1…rnal"


def test_outside_text_is_no_markup() -> None:
    told = line(HOSTILE)
    assert "[red]x[/red] [@click=app.quit]y[/]" in told.plain and "\x1b" not in told.plain
    assert "\u202e" not in told.plain and told.spans == []


def test_data_grow_old_and_a_failed_reading_makes_them_old_at_once() -> None:
    state = State(window=WINDOWS[0], now=NOW + 60, loaded=fleet())
    assert not state.stale and "read 1 min ago" in standing_words(state)
    assert replace(state, now=NOW + STALE_SECONDS + 1).stale
    assert "r reads again" in standing_words(replace(state, now=NOW + STALE_SECONDS + 1))
    assert "reading failed" in standing_words(replace(state, error="gone"))
    assert not State(window=WINDOWS[0], now=NOW).stale


def test_a_decision_marks_one_recommendation_only() -> None:
    loaded, decision = fleet(), Decision("accepted", NOW, "ann")
    first, second, *_ = loaded.advice.recommendations
    marked = with_decision(loaded, first.id, decision).advice.recommendations
    assert marked[0].decision == decision and marked[1] == second


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
    assert ended.wait(30) and posted.empty() and isinstance(told, JobTold) and isinstance(done, JobDone)
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
    assert told.out == "" and "needs a terminal" in told.err and len(told.err.splitlines()) == 1


def test_a_cost_fits_its_column_with_its_unit() -> None:
    assert cost_cell(1234.0, 10.0) == "$1,234"
    cells = [cost_cell(None, hours) for hours in (0.4, 999.0, 1000.0, 9940.0, 9960.0, 268_800.0)]
    assert cells == ["0 GPU-h", "999 GPU-h", "1.0k GPU-h", "9.9k GPU-h", "10k GPU-h", "269k GPU-h"]
    assert max(map(len, cells)) <= 10


@pytest.mark.parametrize(
    ("text", "name", "seconds", "until"),
    [
        ("3d", "3d", 3 * 86400.0, None),
        (" 36h ", "36h", 36 * 3600.0, None),
        ("24h", "24h", 86400.0, None),
        ("1d", "24h", 86400.0, None),
        ("2026-08-01 to 2026-08-03", "2026-08-01 to 2026-08-03", 2 * 86400.0, 1_785_715_200.0),
        ("2026-08-01T00:00:00Z..2026-08-01T06:00:00Z", "2026-08-01 00:00 to 2026-08-01 06:00", 21600.0,
         1_785_564_000.0),
    ],
)  # fmt: skip
def test_a_window_is_a_length_or_two_times(text: str, name: str, seconds: float, until: float | None) -> None:
    window = parse_window(text, NOW)
    assert (window.name, window.seconds, window.until) == (name, seconds, until)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a span"), ("[red]", "not a span"), ("0h", "not a span"), ("1s", "one minute"),
        ("9999d", "three years"), ("2026-08-03 to 2026-08-01", "not after"), ("2026-08-01 to soon", "Invalid time"),
        ("2999-01-01 to 2999-01-02", "in the future"),
    ],
)  # fmt: skip
def test_what_is_no_window_is_said(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_window(text, NOW)


def test_from_a_window_of_ones_own_the_next_on_the_key_is_the_next_longer_or_shorter() -> None:
    window = parse_window("3d", NOW)
    assert (next_window(window, 1).name, next_window(window, -1).name) == ("7d", "24h")
    assert next_window(parse_window("90d", NOW), 1) == WINDOWS[0]
    assert (next_window(FINDINGS_WINDOW, 1), next_window(WINDOWS[0], -1)) == (WINDOWS[0], FINDINGS_WINDOW)


FULL = Preferences(
    "skuwise-mono", {"recommendations.list": Arrangement(("recommendation", "risk"), "risk", True)},
    {"one": View(86400.0, "recommendations"), "two": View(None, None)},
)  # fmt: skip
TABLE = Sheet("Found", ("name", "value"), lambda: [(HOSTILE, "=1+1"), ("chat", "-$7")])
TEXT = Sheet("Why", text="one\n\x1b[2Jtwo")
ABOUT = {"source": "[b]fleet.db", "window": "14d"}


def test_a_csv_holds_one_table_and_nothing_that_a_spreadsheet_or_a_terminal_would_run() -> None:
    text = render_export(".csv", [TEXT, TABLE], ABOUT, None)
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0] == ["name", "value"] and [row[1] for row in rows[1:]] == ["'=1+1", "'-$7"] and "\x1b" not in text
    assert "\u202e" not in text
    assert list(csv.reader(io.StringIO(render_export(".csv", [TEXT], ABOUT, None))))[1:] == [
        ["Why", "one"],
        ["Why", "\\x1b[2Jtwo"],
    ]
    other = Sheet("", ("only",), lambda: [("this",)])
    assert render_export(".csv", [TABLE], ABOUT, other) == "only\r\nthis\r\n"


def test_json_and_markdown_hold_every_panel_escaped() -> None:
    told = json.loads(render_export(".json", [TABLE, TEXT], ABOUT, None))
    assert [panel["title"] for panel in told["panels"]] == ["Found", "Why"]
    assert told["panels"][0]["rows"][1] == ["chat", "-$7"] and told["source"] == "[b]fleet.db"
    text = markdown([TABLE, TEXT], ABOUT)
    assert "\\[red\\]" in text and text.count("|---|---|") == 1 and "\x1b" not in text
    assert tabbed(["a\tb", "\x1b[2J"]) == "a\\x09b\t\\x1b[2J"


@pytest.mark.parametrize("name", ["", "page", "page.pdf", "no-such-folder/a.csv", "there.csv"])
def test_a_name_that_cannot_be_written_is_refused_with_a_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.csv").write_text("kept")
    with pytest.raises(UsageError, match=r"\."):
        path_of(name)
    assert path_of("new.CSV") == Path("new.CSV") and (tmp_path / "there.csv").read_text() == "kept"


def test_what_is_kept_is_recalled_and_nothing_is_said_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "state" / "skuwise" / "tui.json"
    assert recall(path) == (Preferences(), None) and keep(path, FULL) is None and recall(path) == (FULL, None)
    assert recall(None) == (Preferences(), None) and keep(None, FULL) is None
    assert preferences_path({"XDG_STATE_HOME": "/s"}) == Path("/s/skuwise/tui.json") and preferences_path({}) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "[" * 100_000, '{"schema": "skuwise.tui/3"}', "x" * 70_000, "\xff\xfe",
        json.dumps({"schema": SCHEMA, "more": 1}),
        json.dumps({"schema": SCHEMA, "theme": 7}),
        json.dumps({"schema": SCHEMA, "window_seconds": 60}),
        json.dumps({"schema": SCHEMA, "views": [1]}),
        json.dumps({"schema": SCHEMA, "views": {"a": {"page": "x"}}}),
    ],
)  # fmt: skip
def test_a_damaged_file_is_told_of_and_not_used(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tui.json"
    path.write_bytes(text.encode("latin-1"))
    memory, told = recall(path)
    assert memory == Preferences() and "It is ignored and replaced at exit." in told and keep(path, FULL) is None
    assert recall(path) == (FULL, None)


def test_each_source_has_its_view_and_of_too_many_the_oldest_go() -> None:
    memory = Preferences()
    for n in range(150):
        memory = memory.with_view(f"s{n}", View(float(n + 1), "fleet"))
    memory = memory.with_view("s149", View(7.0, None))
    assert len(memory.views) == 100 and next(iter(memory.views)) == "s50" and memory.views["s149"] == View(7.0, None)
    keys = {source_key(names) for names in ([], ["a"], ["b"], ["a", "b"], ["a\x1f", "b"], ["\udcff"])}
    assert len(keys) == 6


def test_what_has_no_value_is_sorted_last_either_way() -> None:
    column = Column("x", 3, str, lambda item: item, falling=True)
    assert column.sorted([1, None, 3, 2], turned=False) == [3, 2, 1, None]
    assert column.sorted([1, None, 3, 2], turned=True) == [1, 2, 3, None]
    assert Column("x", 3, str).sorted(["b", "A", "c"], turned=False) == ["A", "b", "c"]
