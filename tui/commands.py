"""``skuwise tui``. Textual is imported when it is clear that there is a terminal to draw on."""

import os
import sys
import time
from contextlib import suppress

from click import option

from ..advisor.cli.options import (
    RulebookOptions,
    SourceOptions,
    StateOptions,
    rulebook_options,
    source_options,
    state_options,
)
from ..rules.base.click_commands import command, exclusive
from ..rules.base.errors import EXIT_DONE, UsageError
from ..rules.base.output import say
from ..rules.base.sanitize import clean

# ruff: noqa: PLC0415 - Textual and the advisor are imported where they are used, so that --help starts at once


@command("skuwise tui --demo", "skuwise tui --db node.db")
@source_options(required=False)
@option("--demo", is_flag=True, help="show a small simulated fleet")
@option("--workload", metavar="ID", help="open this workload: ID, name, job ID, node or NAME@NODE")
@rulebook_options
@state_options(optional=True)
def tui(source: SourceOptions, demo: bool, workload: str | None, rulebook: RulebookOptions, state: StateOptions) -> int:
    """Browse the fleet and its recommendations in the terminal."""
    exclusive(True, db=source.db, prometheus=source.prometheus, demo=demo)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("skuwise tui needs a terminal.", "Use 'skuwise advise', which prints text or JSON.")
    if os.environ.get("TERM") == "dumb":
        remedy = "Use another terminal, or 'skuwise advise', which prints plain text."
        raise UsageError("This terminal does not support full-screen programs (TERM=dumb).", remedy)
    mono = bool(os.environ.get("NO_COLOR")) or not has_colours(os.environ.get("TERM", ""))
    if demo:
        from .app import SkuwiseApp
        from .data.loaders import DEMO_NOW, DemoLoader

        if source.match:
            raise UsageError("--match is for --prometheus.", "Remove it with --demo.")
        with DemoLoader() as simulated:
            SkuwiseApp(simulated, clock=lambda: DEMO_NOW, monochrome=mono, workload=workload).run()
        return EXIT_DONE
    from ..advisor.core.cache_folder import cache_folder
    from ..advisor.state.file import state_folder
    from ..rules.base.heap import no_garbage_collection
    from .data.preferences import keep, preferences_path, recall

    place = preferences_path(os.environ)
    memory, warning = recall(place)
    named = None if state.no_ledger else state.named()
    with no_garbage_collection():  # among what is imported
        from .app import SkuwiseApp
        from .data.loaders import Loader

        loader = Loader(
            source.open(quiet=True),  # its notes would fall onto the screen
            state=named,
            states=None if named or state.no_ledger else state_folder(os.environ),
            book=(rulebook.rules, rulebook.prices, rulebook.stated_prices()),
            looks=None if source.no_cache else cache_folder(None, os.environ, "looks"),
        )
        app = SkuwiseApp(loader, clock=time.time, monochrome=mono, workload=workload, memory=memory, warning=warning)
    app.run()
    failed = keep(place, app.memory)
    if failed is not None:
        say(clean(failed))
    return EXIT_DONE


def has_colours(term: str) -> bool:
    """Whether a terminal of this name has colours, by the system's terminfo; one that it does not know may have."""
    with suppress(ImportError):  # not every Python has it
        import curses

        with suppress(curses.error, OSError, TypeError):
            curses.setupterm(term, 1)
            return curses.tigetnum("colors") > 0
    return True
