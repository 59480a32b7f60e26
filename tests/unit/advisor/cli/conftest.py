"""Commands read databases in process; one founding case for all of them."""

from pathlib import Path

import pytest
from skuwise.advisor.demo import simulate

END = 1_790_000_000.0 // 3600 * 3600
DAYS = 3.25


@pytest.fixture(scope="session")
def founding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nodes of the founding case."""
    path = tmp_path_factory.mktemp("founding") / "founding.db"
    simulate("founding", path, days=DAYS, seed=4, until=END, nodes=("serve-01", "serve-02"))
    return path
