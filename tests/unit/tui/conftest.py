"""Screens read databases in process."""

from __future__ import annotations

import pytest
from skuwise.tests.support.reading_in_thread import reading_in_thread  # noqa: F401


@pytest.fixture(autouse=True)
def _in_process(reading_in_thread: None) -> None:  # noqa: F811
    """No process reads a database."""
