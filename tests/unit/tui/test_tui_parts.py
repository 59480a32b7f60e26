# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""What the screens are made of, without a screen, and what is copied, exported and remembered."""

import csv
import hashlib
import io
import json
import threading
from dataclasses import replace
from pathlib import Path
from queue import Queue

import pytest
from rich.cells import cell_len
from skuwise.__main__ import main
from skuwise.advisor.show.document import Table
from skuwise.rules.base.errors import StoreError, UsageError
from skuwise.tests.support.fleet_on_screen import HOSTILE, NOW, fleet
from skuwise.tui.cell_text import CUT, fit, fit_apart, fit_middle, line
from skuwise.tui.data.background_jobs import Cancelled, JobMessage, Jobs
from skuwise.tui.data.kept_look import KeptLooks
from skuwise.tui.data.preferences import Preferences, keep, preferences_path, recall
from skuwise.tui.exports import path_of, render_export
from skuwise.tui.state import FINDINGS_WINDOW, STALE_SECONDS, WINDOWS, Look, State, next_window, parse_window
from skuwise.tui.widgets.frame import status_words
from skuwise.tui.widgets.table import Column

LONG = "ip-10-0-1-23.ec2.internal"


@pytest.mark.parametrize("text", ["n1", LONG, HOSTILE, "数据处理数据处理一二三四", "a\tb\nc", ""])
@pytest.mark.parametrize("width", [0, 1, 4, 7, 12, 20])
def test_a_cell_has_its_width_and_marks_where_it_was_cut(text: str, width: int) -> None:
    for cell in (fit(text, width), fit_middle(text, width), fit_apart([text, LONG], width)[0]):
        assert cell_len(cell) == width
        assert cell.isprintable()
    if width and cell_len(text) > width:
        assert fit(text, width).endswith(CUT)


@pytest.mark.parametrize(
    ("texts", "width", "cells"),
    [
        ([LONG], 9, ["ip-1…rnal"]),
        (["azure/Standard_ND96isr_H100_v5", "azure/Standard_ND96is_H100_v5"], 18,
         ["…ND96isr_H100_v5  ", "…ND96is_H100_v5   "]),
        (["team-a/train-x-000000000001", "team-a/train-x-000000000002"], 12, ["team-…000001", "team-…000002"]),
        (["aaaaaaaaaa1bbbbbbbbbb", "aaaaaaaaaa2bbbbbbbbbb"], 8, ["…1bbbbb…", "…2bbbbb…"]),
    ],
)  # fmt: skip
def test_a_cut_keeps_what_tells_names_apart(texts: list[str], width: int, cells: list[str]) -> None:
    assert fit_apart(texts, width) == cells


def test_outside_text_is_no_markup() -> None:
    content = line(HOSTILE)
    assert "[red]x[/red] [@click=app.quit]y[/]" in content.plain
    assert not {"\x1b", "\u202e"} & set(content.plain)
    assert content.spans == []


def test_data_grow_old_and_a_failed_reading_makes_them_old_at_once() -> None:
    state = State(window=WINDOWS[0], now=NOW + 60, loaded=fleet())
    old = replace(state, now=NOW + STALE_SECONDS + 1)
    assert (state.stale, old.stale, State(window=WINDOWS[0], now=NOW).stale) == (False, True, False)
    assert "read 1 min ago" in status_words(state)
    assert "r reads again" in status_words(old)
    assert "reading failed" in status_words(replace(state, error="gone"))


def test_the_newest_job_of_a_slot_counts_and_a_cancelled_one_stops_at_its_next_step() -> None:
    posted, gate, ended = Queue[JobMessage](), threading.Event(), threading.Event()
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
    progress = posted.get(timeout=30)
    jobs.start("reading", lambda tell: "quick")
    done = posted.get(timeout=30)
    gate.set()
    assert ended.wait(30)
    assert posted.empty()
    assert (progress.state, jobs.current(progress)) == ("running", False)
    assert (done.state, jobs.current(done)) == ("done", True)
    # Pending together, the newer job's message stands, whichever was posted last.
    assert (progress.can_replace(done), done.can_replace(progress)) == (True, False)

    def fail(tell):
        raise StoreError("It is \x1b[2J gone.", "Look again.")

    jobs.start("reading", fail)
    failed = posted.get(timeout=30)
    assert (failed.state, failed.text) == ("failed", "It is \\x1b[2J gone. Look again.")


@pytest.mark.parametrize(
    ("arguments", "term", "is_terminal", "message"),
    [
        (["--demo"], "xterm", False, "needs a terminal"), (["--db", "x.db"], "xterm", False, "needs a terminal"),
        (["--db", "x.db"], "dumb", True, "does not support full-screen programs (TERM=dumb)"),
    ],
)  # fmt: skip
def test_without_a_terminal_that_places_text_it_is_an_error(
    arguments: list[str], term: str, is_terminal: bool, message: str, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("sys.stdin.isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    assert main(["tui", *arguments]) == 2
    written = capsys.readouterr()
    assert written.out == "" and message in written.err


def test_a_window_is_a_length_and_from_a_custom_one_the_key_goes_to_the_next_longer() -> None:
    windows = [parse_window(text) for text in ("3d", " 36h ", "1d", "90d")]
    assert [(window.name, window.seconds) for window in windows] == [
        ("3d", 3 * 86400.0), ("36h", 36 * 3600.0), ("24h", 86400.0), ("90d", 90 * 86400.0),
    ]  # fmt: skip
    assert [next_window(window).name for window in (*windows, FINDINGS_WINDOW)] == ["7d", "7d", "7d", "1h", "1h"]
    for text in ("", "[red]", "0h", "9999d", "2026-08-01 to 2026-08-03"):
        with pytest.raises(UsageError):
            parse_window(text)


FULL = Preferences("skuwise-mono", 86400.0, "recommendations")
TABLE = ("Found", Table(("name", "value"), ((HOSTILE, "=1+1"), ("chat", "-$7"))))
TEXT = ("Why", "one\n\x1b[2Jtwo")
ABOUT = {"page": "fleet", "source": "[b]fleet.db", "window": "14d"}


def test_a_csv_holds_one_table_and_nothing_that_a_spreadsheet_or_a_terminal_would_run() -> None:
    text = render_export(".csv", [TEXT, TABLE], ABOUT, None)
    rows = list(csv.reader(io.StringIO(text)))
    assert [row[1] for row in rows] == ["value", "'=1+1", "'-$7"] and not {"\x1b", "\u202e"} & set(text)
    rows = list(csv.reader(io.StringIO(render_export(".csv", [TEXT], ABOUT, None))))
    assert rows[1:] == [["Why", "one"], ["Why", "\\x1b[2Jtwo"]]
    assert render_export(".csv", [TABLE], ABOUT, Table(("only",), (("this",),))) == "only\r\nthis\r\n"


def test_json_and_markdown_hold_every_panel_escaped() -> None:
    page = json.loads(render_export(".json", [TABLE, TEXT], ABOUT, None))
    assert [panel["title"] for panel in page["panels"]] == ["Found", "Why"]
    assert (page["panels"][0]["rows"][1], page["source"]) == (["chat", "-$7"], "[b]fleet.db")
    text = render_export(".md", [TABLE, TEXT], ABOUT, None)
    assert "\\[red\\]" in text and "\n| chat | " in text and "\x1b" not in text


@pytest.mark.parametrize("name", ["", "page", "page.pdf", "there.csv"])
def test_a_file_name_that_cannot_be_written_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.csv").write_text("kept")
    with pytest.raises(UsageError):
        path_of(name)
    assert path_of("new.CSV") == Path("new.CSV")


def test_preferences_are_kept_and_recalled_and_where_there_is_no_home_there_is_no_file(tmp_path: Path) -> None:
    path = preferences_path({"XDG_STATE_HOME": str(tmp_path / "state")})
    assert path == tmp_path / "state" / "skuwise" / "tui.json" and recall(path) == (Preferences(), None)
    assert keep(path, FULL) is None and recall(path) == (FULL, None)
    assert preferences_path({}) is None and (recall(None), keep(None, FULL)) == ((Preferences(), None), None)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "[" * 100_000, '{"schema": "skuwise.tui/2"}', "x" * 70_000, "\xff\xfe",
        '{"theme": 7}',
        '{"window_seconds": -1}',
    ],
)  # fmt: skip
def test_damaged_preferences_are_reported_and_replaced(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tui.json"
    path.write_bytes(text.encode("latin-1"))
    memory, warning = recall(path)
    assert memory == Preferences() and "It is ignored and replaced at exit." in warning
    assert keep(path, FULL) is None and recall(path) == (FULL, None)


def test_items_without_a_value_are_sorted_last_either_way() -> None:
    column = Column("x", 3, str, lambda item: item, falling=True)
    assert column.sorted([1, None, 3, 2], turned=False) == [3, 2, 1, None]
    assert column.sorted([1, None, 3, 2], turned=True) == [1, 2, 3, None]
    assert Column("x", 3, str).sorted(["b", "A", "c"], turned=False) == ["A", "b", "c"]


def test_what_was_kept_comes_back_as_it_was(tmp_path: Path) -> None:
    loaded, looks = fleet(), KeptLooks(tmp_path / "looks", ("a",))
    week = replace(loaded, window=WINDOWS[2], shown=replace(loaded.advice, workloads=loaded.advice.workloads[:1]))
    assert looks.get(loaded.window) is None
    for look in (loaded, week):
        looks.put(look)
        assert looks.get(look.window) == Look(look.window, look.advice, look.shown, look.health, look.at)
    back = looks.get(loaded.window)
    assert back.shown is back.advice and looks.get(WINDOWS[0]) is None  # one window: no other was judged
    # What the contract's JSON has not is there, too.
    assert any(w.features for w in back.advice.workloads) and back.advice.standings == loaded.advice.standings != ()


def test_another_source_or_other_options_are_another_look(tmp_path: Path) -> None:
    options = (("source", None, Path("prices.yaml")), ("source", Path("prices.yaml"), None), ("other", None, None))
    KeptLooks(tmp_path, ("a",), most_bytes=1000).put(fleet())
    assert list(tmp_path.iterdir()) == []  # what is too large is not kept
    KeptLooks(tmp_path, options[0]).put(fleet())
    assert [KeptLooks(tmp_path, basis).get(fleet().window) is not None for basis in options] == [True, False, False]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "{}", '{"at": NaN}', "[" * 100_000, '{"at": 1, "advice": {}, "shown": null, "health": 2}'],
)
def test_a_whole_file_that_holds_no_look_is_none(tmp_path: Path, content: str) -> None:
    """As it would be if somebody with the owner's rights wrote it, digest and all."""
    looks = KeptLooks(tmp_path, ("a",))
    looks.put(fleet())
    (file,) = tmp_path.iterdir()
    form = file.read_bytes().partition(b"\n")[0] + b"\n"
    whole = file.read_bytes()
    file.write_bytes(form + hashlib.sha256(content.encode()).digest() + content.encode())
    assert looks.get(fleet().window) is None
    file.write_bytes(form + b"9\n" + whole.removeprefix(form))  # of another version
    assert looks.get(fleet().window) is None
