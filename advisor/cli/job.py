"""``skuwise job``: the card of one job, running or finished, or a list of jobs, the most idle first."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...rules.base.errors import EXIT_DONE, NothingToDo, SkuwiseError, UsageError
from ...rules.base.output import say, write_output
from ...rules.base.progress import plain
from ...rules.base.sanitize import clean, quoted
from ...rules.base.typed_again import typed_with
from .options import add_source
from .state_options import add_state, fleet_state, known_states, state_for

if TYPE_CHECKING:
    from sqlite_utils import Database

    from ..cards.reading import CardReading
    from ..core.advice_types import Fleet
    from ..core.card_types import Card

_FORMATS = ("table", "json", "markdown", "html", "csv", "admin-comment")
_SINCE = 7 * 86400.0
_OWNERS = ("user", "account", "namespace")

EXAMPLES = (
    "skuwise job 4711 --db /var/lib/skuwise",
    "skuwise job --user ann --since 7d --db /var/lib/skuwise",
    "skuwise job 4711_3 --prometheus http://localhost:9090 --format markdown",
    "skuwise job --keep-finished --since 1d --db /var/lib/skuwise",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of job."""
    parser.add_argument(
        "id", metavar="ID", nargs="?",
        help="Slurm job ID (4711, 4711_3, CLUSTER/4711), workload ID or its first 4 characters, pod, NAMESPACE/POD, or "
        "workload name; without a source the kept card",
    )  # fmt: skip
    add_source(parser, required=False, since=_SINCE, since_words="7d")
    parser.add_argument("--user", metavar="NAME", help="list the jobs of this user, most idle first")
    parser.add_argument("--account", metavar="NAME", help="list the jobs of this account")
    parser.add_argument("--namespace", metavar="NAME", help="list the jobs of this namespace")
    parser.add_argument("--format", choices=_FORMATS, default="table", help="output format (default: table)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write to FILE instead of stdout, all or nothing")
    parser.add_argument(
        "--keep-finished", action="store_true", help="keep the cards of all jobs that ended in the window; print none"
    )
    parser.add_argument("--no-keep", action="store_true", help="keep no card of a finished job")
    add_state(parser)
    parser.add_argument(
        "--existing", default="", metavar="TEXT",
        help="with --format admin-comment: the job's current AdminComment, which is preserved",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Find, read, print, keep."""
    _check(options)
    now = time.time()
    reading = _reading(options, now) if options.db or options.prometheus is not None else None
    if options.keep_finished:
        assert reading is not None
        read = reading.cards(lambda _: True)
        say(_keep(options, read.fleet, read.cards, now))
        return EXIT_DONE
    cards, fleet = _listed(options, reading, now) if options.id is None else _named(options, reading)
    write_output(_content(options, cards), options.output)
    finished = [card for card in cards if card.state == "ended" and card.kept_at is None]
    if fleet is not None and finished and not options.no_keep:
        try:
            _keep(options, fleet, finished, now)
        except SkuwiseError as error:  # what was printed stands
            say(f"Card not kept: {error}")
    return EXIT_DONE


def _check(options: argparse.Namespace) -> None:
    owners = [f"--{name}" for name in _OWNERS if getattr(options, name) is not None]
    has_source = bool(options.db) or options.prometheus is not None
    of_one = options.id is not None
    other = owners[0] if owners else "--keep-finished"
    wrong = [
        (of_one and (owners or options.keep_finished), f"ID and {other} exclude each other.", f"Remove ID or {other}."),
        (not of_one and not owners and not options.keep_finished, "No job given.",
         "Use a job ID, or list jobs with --user, --account or --namespace."),
        (options.keep_finished and (owners or options.no_keep or not has_source),
         "--keep-finished keeps the cards of all jobs of a source.", "Use it with --db or --prometheus, alone."),
        (not of_one and options.format == "admin-comment", "--format admin-comment is of one job.", "Use a job ID."),
        (of_one and options.format == "csv", "--format csv is of a list of jobs.", "Use --format json, or --user."),
        (options.existing and options.format != "admin-comment", "--existing requires --format admin-comment.",
         "Add it, or remove --existing."),
    ]  # fmt: skip
    for applies, what, remedy in wrong:
        if applies:
            raise UsageError(what, remedy)


def _reading(options: argparse.Namespace, now: float) -> CardReading:
    from ..cards.reading import CardReading
    from .output import cores
    from .price_options import rulebook_of
    from .source_options import source_of

    return CardReading(
        source_of(options, say, cores()), rulebook_of(options, now), now, options.since, options.until, say,
        typed_with(options, options.id or ""),
    )  # fmt: skip


def _named(options: argparse.Namespace, reading: CardReading | None) -> tuple[list[Card], Fleet | None]:
    """The card of the one job, and whose telemetry it is; None: it is a kept one."""
    from ..state.cards import named, of_series

    try:
        if reading is None:
            raise NothingToDo(f"No kept card of {quoted(options.id)}.", "Use --db or --prometheus.")
        read = reading.card(options.id)
    except NothingToDo:
        from ..cards.runs import named_card

        kept = _kept(options, None, lambda db: named(db, options.id))
        if not kept:
            raise
        return [named_card(options.id, kept, typed_with(options, options.id))], None
    from ..cards.build import with_kept

    if read.others:
        listed = ", ".join(run.id for run in read.others[:5])
        say(clean(f"{options.id} ran {len(read.others) + 1} times; showing the newest run (others: {listed})"))
    (card,) = read.cards
    kept = _kept(options, read.fleet, lambda db: (*named(db, card.id), *of_series(db, card.series_id)))
    return [with_kept(card, kept)], read.fleet


def _listed(
    options: argparse.Namespace, reading: CardReading | None, now: float
) -> tuple[Sequence[Card], Fleet | None]:
    """The cards of the jobs of an owner, worst first, with kept ones that telemetry no longer has."""
    from ..show.pages.job import worst_first
    from ..state.cards import listed

    owners: dict[str, str | None] = {name: getattr(options, name) for name in _OWNERS}

    def is_wanted(card: Card) -> bool:
        known = {"user": card.owner.user, "account": card.owner.account, "namespace": card.namespace}
        return all(value is None or value == known[name] for name, value in owners.items())

    cards, fleet = (), None
    if reading is not None:
        with suppress(NothingToDo):
            read = reading.cards(is_wanted)
            cards, fleet = read.cards, read.fleet
    since = (now if options.until is None else options.until) - options.since
    known = {card.id for card in cards}
    kept = _kept(options, fleet, lambda db: listed(db, since, options.until, owners))
    cards = worst_first([*cards, *(card for card in kept if card.id not in known)])
    if not cards:
        owner = next((value for value in owners.values() if value), "")
        raise NothingToDo(f"No jobs of {quoted(owner)} in this window.", "Check the name, or use a longer --since.")
    return cards, fleet


def _kept(options: argparse.Namespace, fleet: Fleet | None, find: Callable[[Database], Iterable[Card]]) -> list[Card]:
    """The kept cards that `find` gives: of the fleet that was read, else of all state files that may be meant."""
    found: list[Card] = []
    try:
        for state in [state_for(options, fleet)] if fleet else [known.state for known in known_states(options)]:
            with state.reading() as db:
                found += find(db)
    except NothingToDo:  # there is no state file yet
        pass
    except SkuwiseError as error:
        if fleet is None:
            raise
        say(f"Kept cards not used: {error}")
    return found


def _keep(options: argparse.Namespace, fleet: Fleet, cards: Sequence[Card], now: float) -> str:
    """Keep the cards of finished jobs; gives what was done in a sentence."""
    from ..state.cards import keep
    from ..state.file import load_state_settings

    state = fleet_state(options, fleet)
    with state.writing() as db:
        written = keep(db, cards, now, load_state_settings(os.environ).keep_cards_seconds)
    return f"kept {written} of {len(cards)} cards in {state.path}"


def _content(options: argparse.Namespace, cards: Sequence[Card]) -> str:
    """The cards in the format that was asked for."""
    # ruff: noqa: PLC0415 - each format loads what it needs
    from ..show.pages import job as page
    from .output import terminal_width

    card = cards[0] if options.id is not None else None
    match options.format:
        case "json":
            return page.cards_json(cards) if card is None else page.card_json(card)
        case "csv":
            return page.cards_csv(cards)
        case "admin-comment":
            from ..show.writers.admin_comment import admin_comment

            return f"{admin_comment(cards[0], options.existing)}\n"
        case "table":
            from ..show.writers.text import document_text

            encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
            no_blocks = not encoding.startswith("utf") or os.environ.get("TERM") in ("dumb", "linux")
            ascii_only = options.output is None and (no_blocks or plain(os.environ))
            width = terminal_width()
            if card is None:
                return document_text(page.cards_document(cards), width=width)
            return document_text(page.card_document(card, ascii_only=ascii_only), width=min(width, 100))
        case form:
            from ..show.writers.html import page_html
            from ..show.writers.markdown import document_markdown

            document = page.cards_document(cards) if card is None else page.card_document(card)
            return (page_html if form == "html" else document_markdown)(document)
