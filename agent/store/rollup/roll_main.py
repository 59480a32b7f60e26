"""``python -m skuwise.agent.store.rollup.roll_main DB [--and-open]``: one run of the rollups, in a process of its own.

An hour of eight GPUs takes most of a second and some megabytes: beside the agent's loop they would cost ticks their
punctuality, so the agent starts this at low priority instead (agent/service/runtime/jobs.py).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ....rules.base.errors import EXIT_DONE, EXIT_FAILED, StoreError
from .rollups import RollupJob

_NICENESS = 10


def main(arguments: Sequence[str]) -> int:
    """Roll up what is due now. The exit status is 0, or 1 with a sentence on stderr."""
    with contextlib.suppress(OSError):  # the unit's filter of system calls leaves everything at the service's priority
        os.nice(_NICENESS)
    try:
        RollupJob(Path(arguments[0])).run(time.time(), and_open="--and-open" in arguments[1:])
    except StoreError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
