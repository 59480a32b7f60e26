"""The founding case as a node database of three days: made once in a run, and only read."""

from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.tests.support.shared_artifacts import once


@pytest.fixture(scope="session")
def founding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        where = ("--db", str(folder / "founding.db"), "--until", "2026-11-16T00:00:00Z")
        assert main(["simulate", "founding", *where, "--days", "3", "--seed", "4"]) == 0

    return once(tmp_path_factory, "founding", make) / "founding.db"
