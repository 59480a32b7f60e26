"""``skuwise explain``: one workload, finding or recommendation with its evidence."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from ...rules.base.errors import EXIT_DONE
from ...rules.base.output import say, write_stdout
from ...rules.base.typed_again import typed_with
from ..advise import read_and_reason
from ..core.advice_types import Advice, Finding, Recommendation
from ..core.verdict_types import Owner, WorkloadVerdict
from ..show.subjects import Subject, find, runs_of, workload_of
from .options import add_source, again_of
from .output import EVALUATING, cores, reading_telemetry, terminal_width
from .price_options import rulebook_of
from .source_options import source_of
from .state_options import add_state, beside

_TEXT_WIDTH_MAX = 100
_RUNS_LISTED = 5

EXAMPLES = ("skuwise explain --db node.db r-5603c79e", "skuwise explain --db node.db app-32@serve-02 --query")


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of explain."""
    add_source(parser)
    parser.add_argument(
        "id", metavar="ID",
        help="ID of a workload, finding or recommendation (4 characters or more), a workload name, a job ID "
        "(12345, 22_7), a node, or NAME@NODE",
    )  # fmt: skip
    parser.add_argument(
        "--query",
        action="store_true",
        help="print every number with the SELECT or PromQL that reads its series instead",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print all evidence, thresholds, rejected nodes and measurements as well"
    )
    add_state(parser, optional=True)


def run(options: argparse.Namespace) -> int:
    """Advise on the source, and print all evidence of one part of it."""
    from ..show.pages.explain import explain_page  # noqa: PLC0415
    from ..show.writers.text import document_text  # noqa: PLC0415

    now, source = time.time(), source_of(options, say, cores())
    book = rulebook_of(options, now)
    ledger = beside(options)
    ledger.check()
    with reading_telemetry(options) as reading:
        _, found = read_and_reason(
            replace(source, steps=reading.step), book, since=options.since, until=options.until, now=now,
            ledger=ledger, read=lambda: reading.stage(EVALUATING),
        )  # fmt: skip
    advice = found.advice
    subject = find(advice, options.id, typed_with(options, options.id))
    runs = runs_of(advice, options.id)
    if subject in runs and len(runs) > 1:
        others = ", ".join(run.id for run in runs[1 : 1 + _RUNS_LISTED])
        say(f"Slurm job {options.id} ran {len(runs)} times in this window; showing the newest run (others: {others})")
    columns = terminal_width(_TEXT_WIDTH_MAX)
    if options.query:
        write_stdout(queries_of(advice, subject, width=columns))
        return EXIT_DONE
    workload = subject if isinstance(subject, WorkloadVerdict) else workload_of(advice, subject.workload)
    owner = workload.owner if workload is not None else Owner()
    rules = {name: rule.of(owner) for name, rule in book.rules.items()}
    rules |= {own.rule.id: own.rule for own in book.custom.of(owner)}
    again = again_of(options)
    page = explain_page(advice, subject, book.catalog, rules, verbose=options.verbose, again=again)
    write_stdout(document_text(page, width=columns))
    return EXIT_DONE


def queries_of(advice: Advice, subject: Subject, *, width: int) -> str:
    """The queries behind the numbers of a finding, of a recommendation and its findings, or of those on a workload.

    Raises UsageError for a source that there are no queries for.
    """
    from ..provenance import numbers_of_finding, numbers_of_recommendation, render_queries  # noqa: PLC0415

    if isinstance(subject, Finding):
        found = [subject]
    elif isinstance(subject, Recommendation):
        found = [f for f in advice.findings if f.id in subject.findings]
    else:
        found = [f for f in advice.findings if f.workload == subject.id]
    own = [numbers_of_recommendation(subject, advice)] if isinstance(subject, Recommendation) else []
    return render_queries(advice, [*own, *map(numbers_of_finding, found)], width=width)
