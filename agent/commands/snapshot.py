"""`skuwise agent snapshot`: a consistent copy of the database."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.output import say
from ..store.snapshot import take_snapshot
from .options import add_config, settings_of

EXAMPLES = ("skuwise agent snapshot copy.db --db node.db",)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE",
        help="target file, or folder for NODE.db (default: snapshot_folder of the settings)",
    )  # fmt: skip
    parser.add_argument("--rollups-only", action="store_true", help="copy minutes and hours only, without samples")
    parser.add_argument("--db", metavar="PATH", help="database to copy (default: the one of the agent)")
    add_config(parser)


def run(options: argparse.Namespace) -> int:
    config = settings_of(options)
    target = options.file or config.snapshot_folder
    if target is None:
        raise UsageError("No target file is given.", "Add FILE, or set snapshot_folder in skuwise.toml.")
    written = take_snapshot(config.db, target, rollups_only=options.rollups_only)
    say(f"skuwise: wrote {written}, {written.stat().st_size / 1e6:.1f} MB")
    return EXIT_DONE
