"""``python -m ...prune_main DB [--raw S] [--minutes S] [--hours S] [--max-bytes N] [--check]``.

One run of retention in a process of its own, at low priority, as the rollups are; with ``--check`` SQLite looks the
whole file over instead (`integrity`). The exit status is 0, or 1 with a sentence on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ...rules.base.errors import EXIT_DONE, EXIT_FAILED, StoreError
from ..base.retention_limits import Limits
from .disk_errors import check_whole
from .retention import RetentionJob

_NICENESS = 10


def arguments_for(db: Path, limits: Limits) -> list[str]:
    """The command line that `main` reads back."""
    return [
        str(db), "--raw", str(limits.raw_seconds), "--minutes", str(limits.minutes_seconds), "--hours",
        str(limits.hours_seconds), "--max-bytes", str(limits.max_bytes),
    ]  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Prune once, or check once."""
    defaults = Limits()
    parser = argparse.ArgumentParser(prog="skuwise.agent.store.prune_main")
    parser.add_argument("db", type=Path)
    parser.add_argument("--raw", type=float, default=defaults.raw_seconds)
    parser.add_argument("--minutes", type=float, default=defaults.minutes_seconds)
    parser.add_argument("--hours", type=float, default=defaults.hours_seconds)
    parser.add_argument("--max-bytes", type=int, default=defaults.max_bytes)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    with contextlib.suppress(OSError):  # the unit's filter of system calls leaves everything at the service's priority
        os.nice(_NICENESS)
    try:
        if options.check:
            check_whole(options.db)
        else:
            limits = Limits(options.raw, options.minutes, options.hours, options.max_bytes)
            pruned = RetentionJob(options.db, limits).run(time.time())
            print(pruned)  # noqa: T201 - its parent's data
    except StoreError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
