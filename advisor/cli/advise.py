"""``skuwise advise``: what each workload is, what is wasted, and what to change."""

import time
from dataclasses import replace

from click import option

from ...rules.base.click_commands import Choice, command
from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.output import program, say
from ...rules.base.sanitize import clean
from ..show.page_options import SECTIONS, PageOptions
from ..show.writers.formats import FORMATS, render
from . import options

_USD = options.number("USD", "a number of US dollars, as in 250", 0, 1e12)
_SECTION_HELP = f"print this section in full; repeatable: {', '.join(SECTIONS)} (default: a summary of two screens)"


@command(
    "skuwise advise --db node.db",
    "skuwise advise --prometheus http://localhost:9090 --match 'cluster=\"eu\"' --since 7d",
    "skuwise advise --db node.db --format json --output advice.json",
)
@options.telemetry_options()
@options.output_options("table", *(name for name in FORMATS if name != "table"))
@option("--section", type=Choice(SECTIONS), multiple=True, metavar="NAME", help=_SECTION_HELP)
@option("--all", "whole", is_flag=True, help="print every section with all rows")
@option("--verbose", is_flag=True, help="print every note, every reason and blocked recommendations as well")
@option("--min-saving", type=_USD, help="hide recommendations that save less a month (default: see reporting.yaml)")
@option("--market", is_flag=True, help="also compare prices of other providers; not included in any sum")
@options.state_options(optional=True)
def advise(
    telemetry: options.Telemetry,
    output: options.OutputOptions,
    section: tuple[str, ...],
    whole: bool,
    verbose: bool,
    min_saving: float | None,
    market: bool,
    state: options.StateOptions,
) -> int:
    """Report what each workload is, what is wasted and what to change."""
    from ..doctor.coverage import coverage_line

    page = PageOptions(section, whole, verbose, state.again(telemetry))
    flags = [flag for flag, is_set in {"--section": section, "--all": whole, "--verbose": verbose}.items() if is_set]
    if flags and output.form != "table":
        what = f"{flags[0]} applies to --format table; --format {output.form} contains everything."
        raise UsageError(what, f"Remove {flags[0]}.")
    now, ledger = time.time(), state.beside()
    book = telemetry.rulebook.load(now)
    if min_saving is not None:
        book = replace(book, min_saving_usd=min_saving)
    frame, reasoned = telemetry.evaluate(book, now, ledger, with_market=market)
    output.write(render(reasoned.advice, output.form, width=options.terminal_width(), color=output.color, page=page))
    # Figures over half a fleet look like those over a whole one.
    line = coverage_line(frame, reasoned, book.catalog, f"{program()} doctor {options.words(telemetry.source)}")
    if line is not None:
        say(clean(line))
    ledger.note(reasoned.advice, now)
    return EXIT_DONE
