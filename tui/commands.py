"""``skuwise tui``. Textual is imported when it is clear that there is a terminal to draw on."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from ..rules.base.errors import EXIT_DONE, UsageError
from ..rules.base.heap import no_garbage_collection
from ..rules.base.sanitize import clean

if TYPE_CHECKING:
    from ..advisor.telemetry.source import Source
    from .app import SkuwiseApp
    from .data.preferences import Preferences

EXAMPLES = ("skuwise tui --demo", "skuwise tui --db node.db")


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of ``skuwise tui``."""
    from ..advisor.cli.price_options import add_prices, add_rules  # noqa: PLC0415
    from ..advisor.cli.source_options import add_source_choice  # noqa: PLC0415
    from ..advisor.cli.state_options import add_state  # noqa: PLC0415

    choice = add_source_choice(parser)
    choice.add_argument("--demo", action="store_true", help="show a small simulated fleet")
    parser.add_argument("--workload", metavar="ID", help="open this workload: ID, name, job ID, node or NAME@NODE")
    add_rules(parser)
    add_prices(parser)
    add_state(parser, optional=True)


def run(options: argparse.Namespace) -> int:
    """Draw on the terminal until somebody quits. Raises UsageError where there is none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("skuwise tui needs a terminal.", "Use 'skuwise advise', which prints text or JSON.")
    if os.environ.get("TERM") == "dumb":
        raise UsageError(
            "This terminal does not support full-screen programs (TERM=dumb).",
            "Use another terminal, or 'skuwise advise', which prints plain text.",
        )
    mono = bool(os.environ.get("NO_COLOR")) or not has_colours(os.environ.get("TERM", ""))
    return _demo(options, mono) if options.demo else _browse(options, mono)


def _demo(options: argparse.Namespace, mono: bool) -> int:
    from .app import SkuwiseApp  # noqa: PLC0415
    from .data.loaders import DEMO_NOW, DemoLoader  # noqa: PLC0415

    if options.match:
        raise UsageError("--match is for --prometheus.", "Remove it with --demo.")
    with DemoLoader() as loader:
        SkuwiseApp(loader, clock=lambda: DEMO_NOW, monochrome=mono, workload=options.workload).run()
    return EXIT_DONE


def _browse(options: argparse.Namespace, mono: bool) -> int:
    from ..advisor.cli.output import cores  # noqa: PLC0415
    from ..advisor.cli.source_options import source_of  # noqa: PLC0415
    from .data.preferences import keep, preferences_path, recall  # noqa: PLC0415

    place = preferences_path(os.environ)
    memory, warning = recall(place)
    # Without narration, which would be written over the screen.
    source = source_of(options, lambda _: None, cores())
    with no_garbage_collection():  # among what is imported
        app = _app(options, source, mono, memory, warning)
    app.run()
    failed = keep(place, app.memory)
    if failed is not None:
        sys.stderr.write(f"{clean(failed)}\n")
    return EXIT_DONE


def _app(
    options: argparse.Namespace, source: Source, mono: bool, memory: Preferences, warning: str | None
) -> SkuwiseApp:
    from ..advisor.cli.price_options import said_prices  # noqa: PLC0415
    from ..advisor.cli.state_options import named_state  # noqa: PLC0415
    from ..advisor.core.cache_folder import cache_folder  # noqa: PLC0415
    from ..advisor.state.file import state_folder  # noqa: PLC0415
    from .app import SkuwiseApp  # noqa: PLC0415
    from .data.loaders import Loader  # noqa: PLC0415

    named = None if options.no_ledger else named_state(options)
    loader = Loader(
        source, state=named, states=None if named or options.no_ledger else state_folder(os.environ),
        rules_dir=options.rules, prices=options.prices, hourly=said_prices(options, os.environ),
        looks=None if options.no_cache else cache_folder(None, os.environ, "looks"),
    )  # fmt: skip
    return SkuwiseApp(
        loader, clock=time.time, monochrome=mono, workload=options.workload, memory=memory, warning=warning
    )  # fmt: skip


def has_colours(term: str) -> bool:
    """Whether a terminal of this name has colours, by the system's terminfo; one that it does not know may have."""
    try:
        import curses  # noqa: PLC0415 - not every Python has it
    except ImportError:
        return True
    try:
        curses.setupterm(term, 1)
    except (curses.error, OSError, TypeError):
        return True
    return curses.tigetnum("colors") > 0
