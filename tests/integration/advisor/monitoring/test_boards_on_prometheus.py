"""Every query of every board and alert, asked of a real Prometheus that holds a simulated day."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from skuwise.advisor.monitoring.boards import BOARDS
from skuwise.advisor.monitoring.panels import Board, Panel
from skuwise.tests.support.monitored_fleet import NODES, ask, day_of_series, plain_query
from skuwise.tests.support.prometheus_engines import prometheus

pytestmark = pytest.mark.slow
PANELS = [(board, panel) for board in BOARDS for panel in board.panels]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    series = day_of_series(tmp_path_factory.mktemp("fleet"))
    with prometheus(tmp_path_factory.mktemp("prometheus"), series) as address:
        yield address


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=[f"{b.uid}: {p.title}" for b, p in PANELS])
def test_a_panel_shows_something(url: str, board: Board, panel: Panel) -> None:
    for query in panel.queries:
        found = ask(url, panel, plain_query(query.expr))
        assert found, (board.uid, panel.title, query.expr)
        values = [float(value) for one in found for _, value in one.get("values", [one.get("value")])]
        assert any(value == value for value in values)
        if panel.unit == "percentunit":
            assert max(values) <= 1.01, panel.title


@pytest.mark.parametrize(("board", "panel"), [one for one in PANELS if one[1].needs == "either"])
def test_a_panel_that_dcgm_exporter_suffices_for_shows_its_node(url: str, board: Board, panel: Panel) -> None:
    (query,) = panel.queries
    found = ask(url, panel, plain_query(query.expr, node=NODES[-1]))
    assert [one["metric"] for one in found] == [{"node": NODES[-1]}], (board.uid, panel.title)
