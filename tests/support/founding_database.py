"""The founding case as a node database of three days: made once in a run, and only read."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.simulate.simulator import simulate
from skuwise.tests.support.shared_artifacts import once

END = parse_moment("2026-11-16T00:00:00Z")


@pytest.fixture(scope="session")
def founding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        simulate("founding", folder / "founding.db", days=3, seed=4, until=END)

    return once(tmp_path_factory, "founding", make) / "founding.db"
