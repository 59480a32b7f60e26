"""Work that forks, in a process of its own: a fork of a test runner inherits the locks of all its threads."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

LIMIT_SECONDS = 400.0


def alone(work: Callable[..., Any], *arguments: object) -> Any:
    """What `work` gives, run in a fresh process without threads. Raises what it raises, and TimeoutError where it does
    not end; then it is killed."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply_async(work, arguments).get(LIMIT_SECONDS)
