"""`skuwise agent uninstall`: stop the units and remove them."""

from __future__ import annotations

import argparse

from ...rules.base.errors import EXIT_DONE, EXIT_NOTHING
from ...rules.base.output import write_stdout
from ..service.install import uninstall
from .install import add_target as configure

__all__ = ["configure", "run"]

EXAMPLES = ("skuwise agent uninstall --dry-run",)


def run(options: argparse.Namespace) -> int:
    removed = uninstall(options.root, lambda text: write_stdout(f"{text}\n"), dry_run=options.dry_run)
    return EXIT_DONE if removed else EXIT_NOTHING
