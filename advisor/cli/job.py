"""``skuwise job``: the card of one job, running or finished, or a list of jobs, the most idle first."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...rules.base.errors import EXIT_DONE, NothingToDo, SkuwiseError, UsageError
from ...rules.base.output import say, write_output
from ...rules.base.progress import plain
from ...rules.base.sanitize import clean, quoted
from ...rules.base.typed_again import typed_with
from .options import add_source

if TYPE_CHECKING:
    from ..cards.reading import CardReading
    from ..cards.store import CardStore
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
    parser.add_argument(
        "--cards", type=Path, metavar="FILE",
        help="file of kept cards (default: store in [cards] of skuwise.toml, else "
        "$XDG_STATE_HOME/skuwise/cards.db)",
    )  # fmt: skip
    parser.add_argument(
        "--existing", default="", metavar="TEXT",
        help="with --format admin-comment: the job's current AdminComment, which is preserved",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Find, read, print, keep."""
    _check(options)
    now = time.time()
    reading, store = _reading(options, now), _store(options)
    if options.id is None:
        return _many(options, reading, store, now)
    return _one(options, reading, store, now)


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


def _reading(options: argparse.Namespace, now: float) -> CardReading | None:
    """What reads the source; None: there is none, and kept cards are all that is asked for."""
    if not options.db and options.prometheus is None:
        return None
    from ..cards.reading import CardReading  # noqa: PLC0415
    from .output import cores  # noqa: PLC0415
    from .price_options import rulebook_of  # noqa: PLC0415
    from .source_options import source_of  # noqa: PLC0415

    return CardReading(
        source_of(options, say, cores()), rulebook_of(options, now), now, options.since, options.until, say,
        typed_with(options, options.id or ""),
    )  # fmt: skip


def _store(options: argparse.Namespace) -> CardStore | None:
    """The store of kept cards; None where none is used. A home that is missing is told only where it is needed."""
    from ..cards.store import card_store  # noqa: PLC0415

    try:
        return card_store(options.cards, os.environ)
    except UsageError:
        if options.keep_finished or options.cards is not None or not (options.db or options.prometheus):
            raise
        return None


def _one(options: argparse.Namespace, reading: CardReading | None, store: CardStore | None, now: float) -> int:
    try:
        if reading is None:
            raise NothingToDo(f"No kept card of {quoted(options.id)}.", "Use --db or --prometheus.")
        card, others = reading.card(options.id)
    except NothingToDo:
        card = None if store is None else store.card(options.id, typed_with(options, options.id))
        if card is None:
            raise
    else:
        if others:
            listed = ", ".join(run.id for run in others[:5])
            say(clean(f"{options.id} ran {len(others) + 1} times; showing the newest run (others: {listed})"))
        try:
            card = card if store is None else store.compared(card)
        except SkuwiseError as error:  # a store that cannot be read is done without
            say(f"Kept cards not used: {error}")
    write_output(_card_text(card, options), options.output)
    _keep(options, store, [card], now)
    return EXIT_DONE


def _many(options: argparse.Namespace, reading: CardReading | None, store: CardStore | None, now: float) -> int:
    from ..render.cards import text as listing  # noqa: PLC0415
    from ..render.cards.html import list_html  # noqa: PLC0415
    from ..views.card_rows import card_list, worst_first  # noqa: PLC0415
    from .output import terminal_width  # noqa: PLC0415

    owners: dict[str, str | None] = {name: getattr(options, name) for name in _OWNERS}

    def wanted(card: Card) -> bool:
        known = {"user": card.owner.user, "account": card.owner.account, "namespace": card.namespace}
        return all(value is None or value == known[name] for name, value in owners.items())

    cards: tuple[Card, ...] = ()
    if reading is not None:
        try:
            cards = reading.cards(wanted)
        except NothingToDo:
            if store is None or options.keep_finished:
                raise
    if options.keep_finished:
        assert store is not None
        say(f"kept {store.keep(cards, now)} of {len(cards)} cards in {store.path}")
        return EXIT_DONE
    if store is not None:
        # Kept ones that telemetry no longer has.
        known = {card.id for card in cards}
        since = (now if options.until is None else options.until) - options.since
        cards += tuple(card for card in store.listed(since, options.until, owners) if card.id not in known)
    cards = worst_first(cards)
    if not cards:
        owner = next((value for value in owners.values() if value), "")
        raise NothingToDo(f"No jobs of {quoted(owner)} in this window.", "Check the name, or use a longer --since.")
    match options.format:
        case "json":
            content = listing.list_json(cards)
        case "csv":
            content = listing.list_csv(cards)
        case "markdown":
            content = listing.list_markdown(card_list(cards))
        case "html":
            content = list_html(card_list(cards))
        case _:
            content = listing.list_text(card_list(cards), terminal_width())
    write_output(content, options.output)
    _keep(options, store, cards, now)
    return EXIT_DONE


def _keep(options: argparse.Namespace, store: CardStore | None, cards: Sequence[Card], now: float) -> None:
    """Keep what ended and was not kept. What was printed stands, whatever becomes of this."""
    if options.no_keep or store is None:
        return
    try:
        store.keep([card for card in cards if card.kept_at is None], now)
    except SkuwiseError as error:
        say(f"Card not kept: {error}")


def _card_text(card: Card, options: argparse.Namespace) -> str:
    from ..cards.card_json import card_values  # noqa: PLC0415
    from ..render.cards.admin_comment import admin_comment  # noqa: PLC0415
    from ..render.cards.html import card_html  # noqa: PLC0415
    from ..render.cards.text import card_markdown, card_text  # noqa: PLC0415
    from .output import terminal_width  # noqa: PLC0415

    match options.format:
        case "json":
            return json.dumps(card_values(card), ensure_ascii=False, indent=2) + "\n"
        case "markdown":
            return card_markdown(card)
        case "html":
            return card_html(card)
        case "admin-comment":
            return f"{admin_comment(card, options.existing)}\n"
        case _:
            encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
            no_blocks = not encoding.startswith("utf") or os.environ.get("TERM") in ("dumb", "linux")
            ascii_only = options.output is None and (no_blocks or plain(os.environ))
            return card_text(card, width=terminal_width(), ascii_only=ascii_only)
