# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false, reportOptionalIterable=false
"""What is copied, exported and remembered: escaped, strict in what it reads, and never a reason to end."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.fleet_on_screen import HOSTILE, HandLoader, fleet
from skuwise.tui.app_base import markdown, path_of, render_export, tabbed
from skuwise.tui.content.sku_comparison import compared
from skuwise.tui.content.whatif_text import answer_words, cost_change, knob_words, whatif_pairs
from skuwise.tui.data.preferences import SCHEMA, Preferences, View, keep, preferences_path, recall, source_key
from skuwise.tui.screens.whatif import price_of
from skuwise.tui.widgets.columns import Column
from skuwise.tui.widgets.exportable import Sheet
from skuwise.tui.widgets.table import Arrangement

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


@pytest.mark.parametrize(("text", "value"), [("98.32", 98.32), (" $1,000 ", 1000.0), ("", None), ("0", 0.0)])
def test_a_price_is_read_as_people_write_it(text: str, value: float | None) -> None:
    assert price_of(text) == (value,)


@pytest.mark.parametrize("text", ["x", "-1", "1e9", "nan", "inf", "1 2"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Invalid price"):
        price_of(text)


def test_an_answer_names_the_source_and_the_date_of_every_dollar_and_what_is_missing() -> None:
    bench = HandLoader().bench(fleet(), "w-serve", lambda _: None)
    first = bench.targets[0]
    told = answer_words(first, None).plain
    assert "Saves $7,177/month in cash, at list price, 2026-09-19" in told
    for price in first.prices:
        assert price.source in told and price.as_of in told
    pairs = {pair.name: (pair.first, pair.second) for pair in whatif_pairs(bench, first)}
    assert pairs["price/node-hour"] == ("$98.32 eastus", "$88.49 eastus")
    assert pairs["GPUs"] == ("8 x H100-SXM5", "8 x H100-SXM5") and cost_change(first) == "-$7,177"
    assert "8, by demand" in knob_words(bench, first).plain
    unknown = next(o for o in bench.targets if o.missing and o.then is None)
    assert f"Unknown: {unknown.missing[0]}." in answer_words(unknown, None).plain and whatif_pairs(bench, unknown) == ()
    dearer = replace(first, saving_usd_per_month=replace(first.saving_usd_per_month, p10=-3e3, p50=-2e3, p90=-1e3))
    assert "Costs $2,000/month more" in answer_words(dearer, None).plain


def test_two_skus_are_told_with_the_times_of_the_command_and_the_sources_of_their_prices() -> None:
    catalog = HandLoader().rulebook().catalog
    told = compared(catalog.gpus["H100-SXM5"], catalog.gpus["H200-SXM"], catalog)
    assert {p.name: (p.first, p.second) for p in told.pairs}["memory"] == ("80 GiB", "141 GiB")
    assert [time.partition(":")[0] for time in told.times] == ["training", "prefill", "decode", "mixed"]
    assert any("list price" in note and "20" in note for note in told.notes)
    ib, plain = (catalog.nodes[f"azure/Standard_ND96{kind}_H100_v5"] for kind in ("isr", "is"))
    nodes = compared(ib, plain, catalog)
    assert nodes.heads == (ib.name, plain.name) and all("same time" in time for time in nodes.times)
    assert {p.name for p in nodes.pairs if p.first != p.second} >= {"price/node-hour", "fabric"}
