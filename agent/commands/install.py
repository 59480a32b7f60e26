"""`skuwise agent install`: systemd units and Slurm scripts for this installation."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...rules.base.errors import EXIT_DONE
from ...rules.base.output import write_stdout
from ..service import install

EXAMPLES = ("skuwise agent install --dry-run",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    for name in install.OPTIONS:
        parser.add_argument(f"--with-{name}", dest="options", action="append_const", const=name, help="see the docs")


def add_target(parser: argparse.ArgumentParser) -> None:
    """Where files are written or removed, and whether they are."""
    parser.add_argument("--dry-run", action="store_true", help="print the changes without making them")
    parser.add_argument(
        "--root", metavar="DIR", type=Path, default=Path("/"), help="root of the file system to write to (default: /)"
    )


def run(options: argparse.Namespace) -> int:
    install.install_here(
        options.root, options.options or (), lambda text: write_stdout(f"{text}\n"), dry_run=options.dry_run
    )
    return EXIT_DONE
