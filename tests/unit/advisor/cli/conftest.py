"""Commands read databases in process; one founding case for all of them."""

from __future__ import annotations

from pathlib import Path

import matplotlib.font_manager  # noqa: F401 - it asks a program for fonts when it is loaded, which no test may
import pytest
from skuwise.advisor.simulate.simulator import simulate
from skuwise.tests.support.reading_in_thread import reading_in_thread  # noqa: F401

END = 1_790_000_000.0 // 3600 * 3600
DAYS = 3.25


@pytest.fixture(autouse=True)
def _in_process(reading_in_thread: None) -> None:  # noqa: F811
    """No process reads a database."""


@pytest.fixture(scope="session")
def founding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nodes of the founding case."""
    path = tmp_path_factory.mktemp("founding") / "founding.db"
    simulate("founding", path, days=DAYS, seed=4, until=END, nodes=("serve-01", "serve-02"))
    return path
