"""``skuwise explain``: one workload, finding or recommendation with its evidence."""

import time
from functools import partial

from click import argument, option

from ...rules.base.click_commands import command, typed_with
from ...rules.base.errors import EXIT_DONE
from ...rules.base.output import say, write_stdout
from ..core.advice_types import Advice
from ..show.subjects import Subject
from .options import StateOptions, Telemetry, state_options, telemetry_options, terminal_width

_TEXT_WIDTH_MAX = 100
_RUNS_LISTED = 5


@command("skuwise explain --db node.db r-5603c79e", "skuwise explain --db node.db app-32@serve-02 --query")
@argument("subject_id", metavar="ID")
@telemetry_options()
@option("--query", is_flag=True, help="print every number with the SELECT or PromQL that reads its series instead")
@option("--verbose", is_flag=True, help="print all evidence, thresholds, rejected nodes and measurements as well")
@state_options(optional=True)
def explain(subject_id: str, telemetry: Telemetry, query: bool, verbose: bool, state: StateOptions) -> int:
    """Show the evidence of one workload, finding or recommendation.

    ID: ID of a workload, finding or recommendation (4 characters or more), a workload name, a job ID (12345, 22_7), a
    node, or NAME@NODE.
    """
    from ..core.verdict_types import Owner, WorkloadVerdict
    from ..show.pages.explain import explain_page
    from ..show.subjects import find, runs_of, workload_of
    from ..show.writers.text import document_text

    now, ledger = time.time(), state.beside()
    book = telemetry.rulebook.load(now)
    advice = telemetry.evaluate(book, now, ledger)[1].advice
    subject = find(advice, subject_id, partial(typed_with, subject_id))
    runs = runs_of(advice, subject_id)
    if subject in runs and len(runs) > 1:
        others = ", ".join(run.id for run in runs[1 : 1 + _RUNS_LISTED])
        say(f"Slurm job {subject_id} ran {len(runs)} times in this window; showing the newest run (others: {others})")
    columns = terminal_width(_TEXT_WIDTH_MAX)
    if query:
        write_stdout(queries_of(advice, subject, width=columns))
        return EXIT_DONE
    workload = subject if isinstance(subject, WorkloadVerdict) else workload_of(advice, subject.workload)
    owner = workload.owner if workload is not None else Owner()
    rules = {name: rule.of(owner) for name, rule in book.rules.items()}
    rules |= {custom.id: custom for custom in book.custom.of(owner)}
    page = explain_page(advice, subject, book.catalog, rules, verbose=verbose, again=state.again(telemetry))
    write_stdout(document_text(page, width=columns))
    return EXIT_DONE


def queries_of(advice: Advice, subject: Subject, *, width: int) -> str:
    """The queries behind the numbers of a finding, of a recommendation and its findings, or of those on a workload.
    Raises UsageError for a source that there are no queries for."""
    from ..core.advice_types import Finding, Recommendation
    from ..provenance import render_queries

    subjects = [subject] if isinstance(subject, Finding) else [f for f in advice.findings if f.workload == subject.id]
    if isinstance(subject, Recommendation):
        subjects = [subject, *(f for f in advice.findings if f.id in subject.findings)]
    return render_queries(advice, subjects, width=width)
