"""``skuwise job``: the card of one job, running or finished, or a list of jobs, the most idle first."""

from __future__ import annotations

import argparse
import os
import sys
import time
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
    owners = [f"--{name}" for name in ("user", "account", "namespace") if getattr(options, name) is not None]
    has_source = bool(options.db) or options.prometheus is not None
    if options.id is not None and (owners or options.keep_finished):
        other = owners[0] if owners else "--keep-finished"
        raise UsageError(f"ID and {other} exclude each other.", f"Remove ID or {other}.")
    if options.id is None and not owners and not options.keep_finished:
        raise UsageError("No job given.", "Use a job ID, or list jobs with --user, --account or --namespace.")
    if options.keep_finished and (owners or options.no_keep or not has_source):
        raise UsageError(
            "--keep-finished keeps the cards of all jobs of a source.", "Use it with --db or --prometheus, alone."
        )
    if options.id is None and options.format == "admin-comment":
        raise UsageError("--format admin-comment is of one job.", "Use a job ID.")
    if options.id is not None and options.format == "csv":
        raise UsageError("--format csv is of a list of jobs.", "Use --format json, or --user.")
    if options.existing and options.format != "admin-comment":
        raise UsageError("--existing requires --format admin-comment.", "Add it, or remove --existing.")


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
        if others:
            listed = ", ".join(run.id for run in others[:5])
            say(clean(f"{options.id} ran {len(others) + 1} times; showing the newest run (others: {listed})"))
    except NothingToDo:
        card = _kept(options, store)
        if card is None:
            raise
    else:
        card = _longer(card, store)
    write_output(_card_text(card, options), options.output)
    if not options.no_keep and store is not None and card.kept_at is None and card.state == "ended":
        _keep(store, [card], now)
    return EXIT_DONE


def _kept(options: argparse.Namespace, store: CardStore | None) -> Card | None:
    """The kept card of the job that is named. Raises AmbiguousError for several jobs."""
    from ..cards.kept import kept_card  # noqa: PLC0415

    return None if store is None else kept_card(store, options.id, typed_with(options, options.id))


def _longer(card: Card, store: CardStore | None) -> Card:
    """The card, or the kept one where telemetry has lost a part of the job's life since; compared with its series as
    far as that is kept. A store that cannot be read is said, and does without."""
    if store is None or not store.path.exists():
        return card
    from ..cards.kept import compared_with_kept  # noqa: PLC0415

    try:
        return compared_with_kept(store, card)
    except SkuwiseError as error:
        say(f"Kept cards not used: {error}")
        return card


def _many(options: argparse.Namespace, reading: CardReading | None, store: CardStore | None, now: float) -> int:
    from ..cards.kept import is_of, with_kept_ones  # noqa: PLC0415
    from ..cards.runs import no_jobs  # noqa: PLC0415
    from ..views.card_list import worst_first  # noqa: PLC0415

    found: tuple[Card, ...] = ()
    if reading is not None:
        try:
            found = reading.cards(lambda card: is_of(card, options.user, options.account, options.namespace))
        except NothingToDo:
            if store is None or options.keep_finished:
                raise
    if options.keep_finished:
        assert store is not None
        kept = store.keep(found, now)
        say(f"kept {kept} of {len(found)} cards in {store.path}")
        return EXIT_DONE
    since = (now if options.until is None else options.until) - options.since
    if store is not None:
        found = with_kept_ones(
            store, found, since, options.until, user=options.user, account=options.account,
            namespace=options.namespace,
        )  # fmt: skip
    cards = worst_first(found)
    if not cards:
        raise no_jobs("in this window", options.user or options.account or options.namespace)
    write_output(_list_text(cards, options), options.output)
    if not options.no_keep and store is not None:
        _keep(store, [card for card in cards if card.kept_at is None], now)
    return EXIT_DONE


def _keep(store: CardStore, cards: list[Card], now: float) -> None:
    """Keep what ended. What was printed stands, whatever becomes of this."""
    try:
        store.keep(cards, now)
    except SkuwiseError as error:
        say(f"Card not kept: {error}")


def _card_text(card: Card, options: argparse.Namespace) -> str:
    match options.format:
        case "json":
            from ..cards.card_json import card_text as json_text  # noqa: PLC0415

            return json_text(card)
        case "markdown":
            from ..render.cards.listing import card_markdown  # noqa: PLC0415

            return card_markdown(card)
        case "html":
            from ..render.cards.html import card_html  # noqa: PLC0415

            return card_html(card)
        case "admin-comment":
            from ..render.cards.admin_comment import admin_comment  # noqa: PLC0415

            return f"{admin_comment(card, options.existing)}\n"
        case _:
            from ..render.cards.text import card_text  # noqa: PLC0415
            from .output import terminal_width  # noqa: PLC0415

            return card_text(card, width=terminal_width(), ascii_only=_ascii_only(options))


def _list_text(cards: tuple[Card, ...], options: argparse.Namespace) -> str:
    from ..render.cards import listing  # noqa: PLC0415
    from ..views.card_list import card_list  # noqa: PLC0415

    match options.format:
        case "json":
            return listing.list_json(cards)
        case "csv":
            return listing.list_csv(cards)
        case "markdown":
            return listing.list_markdown(card_list(cards))
        case "html":
            from ..render.cards.html import list_html  # noqa: PLC0415

            return list_html(card_list(cards))
        case _:
            from .output import terminal_width  # noqa: PLC0415

            return listing.list_text(card_list(cards), terminal_width())


def _ascii_only(options: argparse.Namespace) -> bool:
    """Whether what is printed to shows no block elements."""
    if options.output is not None:
        return False
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    return not encoding.startswith("utf") or os.environ.get("TERM") in ("dumb", "linux") or plain(os.environ)
