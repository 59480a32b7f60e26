"""The Prometheus of the tutorial: a small cluster behind exporters alone, with two whole weeks of series up to now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skuwise.advisor.core.frame import Window
from skuwise.advisor.demo.simulator import simulate
from skuwise.tests.server_metrics.exporter_metrics import exporter_series
from skuwise.tests.support.prometheus_engines import prometheus

DAYS, INTERVAL_S = 15.0, 300.0


@contextmanager
def tutorial_server(folder: Path, seed: int = 11) -> Iterator[str]:
    """The address of a Prometheus whose newest sample is a few minutes old, as in a cluster that runs."""
    end = time.time() // INTERVAL_S * INTERVAL_S
    simulate("small", folder / "nodes", days=DAYS, seed=seed, until=end, minutes_seconds=DAYS * 86400)
    series = exporter_series(sorted((folder / "nodes").glob("*.db")), Window(end - DAYS * 86400, end), INTERVAL_S)
    with prometheus(folder / "server", series) as url:
        yield url
