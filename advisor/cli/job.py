"""``skuwise job``: the card of one job, running or finished, or a list of jobs, the most idle first."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from click import argument, option

from ...rules.base.click_commands import command, typed_with
from ...rules.base.errors import EXIT_DONE, NothingToDo, SkuwiseError, UsageError
from ...rules.base.output import plain, say
from ...rules.base.sanitize import clean, quoted
from . import options

if TYPE_CHECKING:
    from sqlite_utils import Database

    from ..cards.reading import CardReading
    from ..core.advice_types import Fleet
    from ..core.card_types import Card
    from ..show.document import Document


@command(
    "skuwise job 4711 --db /var/lib/skuwise",
    "skuwise job --user ann --since 7d --db /var/lib/skuwise",
    "skuwise job --since 1d --db /var/lib/skuwise --format json",
    "skuwise job 4711_3 --prometheus http://localhost:9090 --format markdown",
    "skuwise job --keep-finished --since 1d --db /var/lib/skuwise",
)
@argument("job_id", metavar="ID", required=False)
@options.telemetry_options(required=False, since="7d")
@option("--user", metavar="NAME", help="list the jobs of this user, most idle first")
@option("--account", metavar="NAME", help="list the jobs of this account")
@option("--namespace", metavar="NAME", help="list the jobs of this namespace")
@options.output_options("table", "json", "markdown", "html", "csv", "admin-comment")
@option("--keep-finished", is_flag=True, help="keep the cards of all jobs that ended in the window; print none")
@option("--no-keep", is_flag=True, help="keep no card of a finished job")
@options.state_options()
@option("--existing", default="", metavar="TEXT", help="current AdminComment, preserved by --format admin-comment")
def job(
    job_id: str | None,
    telemetry: options.Telemetry,
    output: options.OutputOptions,
    keep_finished: bool,
    no_keep: bool,
    state: options.StateOptions,
    existing: str,
    **owner: str | None,
) -> int:
    """Show the card of one job, or list the jobs of a user or of the whole source, most idle first.

    ID: Slurm job ID (4711, 4711_3, CLUSTER/4711), workload ID or its first 4 characters, pod, NAMESPACE/POD, or
    workload name; without a source the kept card.
    """
    from ..cards.reading import CardReading

    is_list, form = any(name is not None for name in owner.values()), output.form
    refused = {
        "Use one of ID, --keep-finished and --user, --account or --namespace.": (
            bool(job_id) + is_list + keep_finished not in ((0, 1) if telemetry.source.is_named else (1,))
        ),
        "--keep-finished needs --db or --prometheus, and excludes --no-keep.": (
            keep_finished and (no_keep or not telemetry.source.is_named)
        ),
        "--format admin-comment needs an ID.": form == "admin-comment" and not job_id,
        "--format csv is for a list of jobs. Use --format json, or --user.": form == "csv" and job_id,
        "--existing needs --format admin-comment.": existing and form != "admin-comment",
    }
    for sentence, applies in refused.items():
        if applies:
            raise UsageError(sentence)
    now, reading, again = time.time(), None, partial(typed_with, job_id or "")
    if telemetry.source.is_named:
        source, book = telemetry.source.open(), telemetry.rulebook.load(now)
        reading = CardReading(source, book, now, telemetry.since, telemetry.until, say, again)
    if keep_finished and reading is not None:
        read = reading.cards(lambda _: True)
        say(_keep(state, read.fleet, read.cards, now))
        return EXIT_DONE
    if job_id:
        cards, fleet = _named(job_id, state, reading)
    else:
        cards, fleet = _of_owner(owner, telemetry, state, reading, now)
    width = options.terminal_width(100) if job_id else None
    output.write(_content(cards, bool(job_id), output, existing), width=width)
    finished = [card for card in cards if card.state == "ended" and card.kept_at is None]
    if fleet is not None and finished and not no_keep:
        try:
            _keep(state, fleet, finished, now)
        except SkuwiseError as error:  # what was printed stands
            say(f"Card not kept: {error}")
    return EXIT_DONE


def _named(job_id: str, state: options.StateOptions, reading: CardReading | None) -> tuple[list[Card], Fleet | None]:
    from ..cards.build import with_kept
    from ..cards.reading import named_card
    from ..state.cards import named, of_series

    try:
        if reading is None:
            raise NothingToDo(f"No kept card of {quoted(job_id)}.", "Use --db or --prometheus.")
        read = reading.card(job_id)
    except NothingToDo:
        kept = _kept(state, None, lambda db: named(db, job_id))
        if not kept:
            raise
        return [named_card(job_id, kept, partial(typed_with, job_id))], None
    if read.others:
        others = ", ".join(run.id for run in read.others[:5])
        say(clean(f"{job_id} ran {len(read.others) + 1} times; showing the newest run (others: {others})"))
    (card,) = read.cards
    kept = _kept(state, read.fleet, lambda db: (*named(db, card.id), *of_series(db, card.series_id)))
    return [with_kept(card, kept)], read.fleet


def _of_owner(
    owner: Mapping[str, str | None],
    telemetry: options.Telemetry,
    state: options.StateOptions,
    reading: CardReading | None,
    now: float,
) -> tuple[Sequence[Card], Fleet | None]:
    from ..show.pages.job import worst_first
    from ..state.cards import listed

    def is_theirs(card: Card) -> bool:
        of_card = {"user": card.owner.user, "account": card.owner.account, "namespace": card.namespace}
        return all(name is None or name == of_card[kind] for kind, name in owner.items())

    cards, fleet = (), None
    if reading is not None:
        with suppress(NothingToDo):
            read = reading.cards(is_theirs)
            cards, fleet = read.cards, read.fleet
    since = (now if telemetry.until is None else telemetry.until) - telemetry.since
    read_ids = {card.id for card in cards}
    kept = _kept(state, fleet, lambda db: listed(db, since, telemetry.until, owner))
    cards = worst_first([*cards, *(card for card in kept if card.id not in read_ids)])
    if not cards:
        of = "".join(f" of {quoted(name)}" for name in owner.values() if name)
        raise NothingToDo(f"No jobs{of} in this window.", "Check the name, or use a longer --since.")
    return cards, fleet


def _kept(state: options.StateOptions, fleet: Fleet | None, find: Callable[[Database], Sequence[Card]]) -> list[Card]:
    """The kept cards that `find` gives: of the fleet that was read, else of all state files that may be meant."""
    try:
        if fleet is None:
            return [card for _, _, cards in state.every(find) for card in cards]
        with state.of(fleet).reading() as db:
            return list(find(db))
    except NothingToDo:  # there is no state file yet
        return []
    except SkuwiseError as error:
        if fleet is None:
            raise
        say(f"Kept cards not used: {error}")
        return []


def _keep(state: options.StateOptions, fleet: Fleet, cards: Sequence[Card], now: float) -> str:
    from ..state.cards import keep
    from ..state.file import load_state_settings

    file = state.to_write(fleet)
    with file.writing() as db:
        written = keep(db, cards, now, load_state_settings(os.environ).keep_cards_seconds)
    return f"kept {written} of {len(cards)} cards in {file.path}"


def _content(cards: Sequence[Card], is_one: bool, output: options.OutputOptions, existing: str) -> str | Document:
    from ..show.pages import job as page
    from ..show.writers.admin_comment import admin_comment
    from ..show.writers.csv import csv_text

    match output.form:
        case "json":
            return page.cards_json(cards[0] if is_one else cards)
        case "csv":
            return csv_text(page.CSV_COLUMNS, page.csv_rows(cards))
        case "admin-comment":
            return f"{admin_comment(cards[0], existing)}\n"
        case form:
            encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
            no_blocks = not encoding.startswith("utf") or os.environ.get("TERM") in ("dumb", "linux")
            ascii_only = form == "table" and output.output is None and (no_blocks or plain())
            return page.card_document(cards[0], ascii_only=ascii_only) if is_one else page.cards_document(cards)
