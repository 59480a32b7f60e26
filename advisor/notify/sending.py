"""Takes the messages that wait to their carriers, one after the other, and writes down every answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Protocol

from ...agent.model import Instant
from ...rules.base.errors import SkuwiseError, StoreError, UsageError
from ...rules.base.sanitize import clean
from ..core.credentials import secret
from ..core.http_session import UnansweredError, post
from ..state import deliveries
from ..state.deliveries import Channel, Message, Reply
from ..state.file import State
from .routes import ReportSettings, TeamRoute, check_webhook
from .smtp import CarrierDownError, SmtpCarrier

_BUSY = (408, 425, 429)


@dataclass(frozen=True, slots=True)
class WebhookCarrier:
    """Posts to the webhook of each team. `urls`: by team, "" being the fleet; None: it cannot be read now.
    `timeout_seconds`: from connecting to the end of the answer; `proxy` empty: none is used."""

    urls: Mapping[str, str | None]
    timeout_seconds: float
    proxy: str = ""

    def ready(self) -> None:
        """Nothing is kept open."""

    def close(self) -> None:
        """Nothing is kept open."""

    def carry(self, message: Message, begin: Callable[[], None]) -> Reply:
        """Post it once. Redirects are not followed: they would carry the message elsewhere."""
        if message.team not in self.urls:
            return Reply("refused", "no webhook is set any more")
        url = self.urls[message.team]
        if url is None:
            return Reply("later", "the file with its webhook cannot be read")
        begin()
        try:
            status, words = post(url, message.content, {}, self.timeout_seconds, proxy=self.proxy)
        except UnansweredError as error:
            return Reply("unsure", str(error)) if error.sent else Reply("later", f"not reached: {error}")
        if 200 <= status < 300:
            return Reply("accepted", str(status))
        return Reply("later" if status >= 500 or status in _BUSY else "refused", f"{status} {words}".strip())


@dataclass(frozen=True)
class Clocks:
    """The clocks, and how to wait."""

    now: Callable[[], Instant]
    sleep: Callable[[float], None]


class Carrier(Protocol):
    """A channel by which messages travel."""

    def ready(self) -> None:
        """Make sure that a message can be handed over now. Raises CarrierDownError."""
        ...

    def carry(self, message: Message, begin: Callable[[], None]) -> Reply:
        """Hand over one message. Calls `begin` right before the moment from which on it may arrive."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Tally:
    """What a run did. `sent`: messages; `waiting`: recipients whom one has yet to reach; `refused`: who will receive
    none, and why, in words; `down`: why a channel was left, or what else failed, each with a remedy; `soonest_seconds`:
    until something is due, 0: now."""

    sent: int
    waiting: int
    refused: tuple[str, ...]
    down: tuple[SkuwiseError, ...]
    soonest_seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return bool(self.down or self.refused)


def send_due(
    state: State,
    carriers: Mapping[Channel, Carrier],
    clocks: Clocks,
    *,
    mails_per_minute: int,
    say: Callable[[str], None],
    only_team: str | None = None,
    batch_prefix: str = "",
    most_seconds: float | None = None,
) -> Tally:
    """Try everything that is due once: of one team, of batches whose names begin so. At most `mails_per_minute` in any
    minute; after `most_seconds` no further message is begun. The caller holds `State.alone`."""
    sent, refused, down = 0, list[str](), dict[Channel, SkuwiseError]()
    recent: deque[float] = deque(maxlen=mails_per_minute)
    began = clocks.now()
    with ExitStack() as open_:
        for carrier in carriers.values():
            open_.callback(carrier.close)
        with state.writing() as db:
            failed = deliveries.recover(db, began.wall_seconds)
            waiting = deliveries.waiting(db, began.wall_seconds, batch_prefix, only_team)
        refused += [f"{_recipient(message)}: {deliveries.KILLED}" for message in failed]
        for id_ in (message.id for message in waiting if not message.left_seconds):
            at = clocks.now().monotonic_seconds
            pause = max(60.0 - (at - recent[0]), 0.0) if len(recent) == mails_per_minute else 0.0
            if most_seconds is not None and at - began.monotonic_seconds + pause >= most_seconds:
                break
            with state.reading() as db:
                message = deliveries.load(db, id_)
            carrier = carriers.get(message.channel)
            if carrier is None or message.channel in down:
                continue
            if pause:
                clocks.sleep(pause)
            try:
                carrier.ready()
            except CarrierDownError as error:
                down[message.channel] = error
                continue
            recent.append(clocks.now().monotonic_seconds)

            def begin(id_: int = id_) -> None:
                with state.writing() as db:
                    deliveries.begin(db, id_)

            said = carrier.carry(message, begin)
            with state.writing() as db:
                reply = deliveries.end(db, id_, said, clocks.now().wall_seconds)
            if reply.result == "accepted":
                sent += 1
                say(f"sent: {_recipient(message)}")
            elif reply.result == "refused":
                refused.append(f"{_recipient(message)}: {reply.text}")
            else:
                say(f"later: {_recipient(message)}: {reply.text}")
        with suppress(StoreError), state.writing() as db:  # on a full disk: the next run does
            deliveries.let_go(db)
    with state.reading() as db:
        waiting = deliveries.waiting(db, clocks.now().wall_seconds, batch_prefix, only_team)
    soonest = min((message.left_seconds for message in waiting), default=0.0)
    return Tally(sent, len({message.to for message in waiting}), tuple(refused), tuple(down.values()), soonest)


def carriers_of(
    settings: ReportSettings, teams: Sequence[TeamRoute], environ: Mapping[str, str]
) -> tuple[dict[Channel, Carrier], tuple[SkuwiseError, ...]]:
    """A carrier for each channel that settings and routes configure, and what is wrong with the others: no message is
    given up for a secret that cannot be read."""
    carriers: dict[Channel, Carrier] = {}
    faults: list[SkuwiseError] = []
    if settings.smtp_host or any(team.to for team in teams):
        file = settings.smtp_password_file
        try:
            carriers["mail"] = SmtpCarrier(settings, secret(file, environ, private=True) if file else "")
        except UsageError as error:
            faults.append(error)
    files = {team.name: team.webhook_url_file for team in teams if team.webhook_url_file}
    urls: dict[str, str | None] = dict.fromkeys(files)
    for team, file in files.items():
        try:
            urls[team] = check_webhook(secret(file, environ, private=True), file)
        except UsageError as error:
            faults.append(error)
    # Also where there is none any more: it gives up what still waits for one.
    carriers["webhook"] = WebhookCarrier(urls, settings.smtp_timeout_seconds, settings.webhook_proxy)
    return carriers, tuple(faults)


def _recipient(message: Message | deliveries.Told) -> str:
    return clean(f"{message.team or 'the fleet'} ({message.channel}, {message.recipient})")
