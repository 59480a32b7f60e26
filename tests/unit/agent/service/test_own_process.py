"""What the agent says of its own process, against what psutil says of it."""

from __future__ import annotations

import psutil
import pytest
from skuwise.agent.service.exporter.process_stats import resident_bytes, started_ts


def test_memory_and_start_are_those_of_this_process() -> None:
    own = psutil.Process()
    assert resident_bytes() == pytest.approx(own.memory_info().rss, rel=0.1)
    assert started_ts() == pytest.approx(own.create_time(), abs=2.0)  # psutil takes the boot's time in whole seconds
