"""Columns share the width of the screen: no number is cut, and names are cut in the middle."""

from __future__ import annotations

import pytest
from skuwise.tui.cell_text import fit_middle
from skuwise.tui.widgets.columns import GAP, MARK_ROOM, Column, lay_out

NAMES = ("training/llm-pretrain-a100-eu-01", "training/llm-pretrain-a100-eu-02")
COLUMNS = (
    Column("workload", 12, lambda row: row[0], grows=True, middle=True),
    Column("saves/month", 11, lambda row: row[1], right=True),
    Column("status", 10, lambda row: row[2]),
    Column("node", 20, lambda row: row[3], middle=True),
    Column("wasted", 7, lambda row: row[4], right=True),
)
ROWS = [(name, "$1,071,774", "capacity", "azure/Standard_ND96isr_H100_v5", "$12") for name in NAMES]
NEEDS = [column.need(ROWS) for column in COLUMNS]


@pytest.mark.parametrize("room", [20, 36, 60, 76, 96, 156, 196])
def test_columns_fill_the_line_and_what_is_hidden_would_not_fit(room: int) -> None:
    layout = lay_out(COLUMNS, range(len(COLUMNS)), 0, room, NEEDS)
    used = sum(p.width for p in layout.places) + GAP * (len(layout.places) - 1)
    if room > NEEDS[0]:
        assert used == room - (MARK_ROOM if layout.hidden else 0)
    for place in layout.places:
        if COLUMNS[place.number].right:
            assert place.width >= NEEDS[place.number]
    if layout.hidden:
        least = sum(min(NEEDS[p.number], max(COLUMNS[p.number].width, 12)) + GAP for p in layout.places)
        following = COLUMNS[len(layout.places)]
        assert least + min(NEEDS[len(layout.places)], following.width) > room - MARK_ROOM - GAP


def test_a_column_needs_its_title_and_its_widest_cell() -> None:
    assert COLUMNS[0].need([]) == len("workload") + 1
    assert COLUMNS[0].need(ROWS) == len(NAMES[0])
    assert COLUMNS[4].need(ROWS) == 7
    assert COLUMNS[0].need([("数据",) * 5] * 10_000) == len("workload") + 1


def test_names_that_differ_in_their_ends_keep_them_apart() -> None:
    cut = [fit_middle(name, 16) for name in NAMES]
    assert cut[0] != cut[1]
    assert all(len(one) == 16 and "…" in one and one.startswith("trainin") for one in cut)
