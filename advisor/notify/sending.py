"""Takes the messages that wait to their carriers, one after the other, and writes down every answer.

The carriers: one SMTP server (STARTTLS or TLS with its certificate checked, AUTH), and the webhooks of teams.
"""

import re
import smtplib
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial

from ...agent.base.clock import SystemClock
from ...agent.base.safe_text import clean_text
from ...agent.model import Instant
from ...rules.base.errors import SkuwiseError, StoreError, UsageError
from ...rules.base.sanitize import clean
from ..core.http_session import UnansweredError, post, secret
from ..state import deliveries
from ..state.deliveries import Channel, Message, Reply
from ..state.file import State
from .routes import ReportSettings, TeamRoute, checked_url

_BUSY = (408, 425, 429)
# RFC 5321, 4.5.3.2.6: so long a server may take to accept a content. Who does not wait for it sends it twice.
_ACCEPT_SECONDS = 600.0
# Connections that broke one after the other before the rest is left for later.
_MOST_BROKEN = 3
# Servers end a connection after so many mails (Postfix: 100), and not all say so politely.
_MAILS_A_CONNECTION = 50
_MAX_WORDS = 300


class CarrierDownError(SkuwiseError):
    """Nothing can be handed over now. No message is given up for it: all are due at the next run."""


class Carrier:
    """A channel by which messages travel."""

    def ready(self) -> None:
        """Make sure that a message can be handed over now. Raises CarrierDownError."""

    def carry(self, message: Message, begin: Callable[[], None]) -> Reply:
        """Hand over one message. Calls `begin` right before the moment from which on it may arrive."""
        raise NotImplementedError

    def close(self) -> None:
        """Close what is open."""


@dataclass(frozen=True, slots=True)
class WebhookCarrier(Carrier):
    """Posts to the webhook of each team. `urls`: by team, "" being the fleet; None: it cannot be read now.
    `timeout_seconds`: from connecting to the end of the answer."""

    urls: Mapping[str, str | None]
    timeout_seconds: float

    def carry(self, message: Message, begin: Callable[[], None]) -> Reply:
        """Post it once. Redirects are not followed: they would carry the message elsewhere."""
        if message.team not in self.urls:
            return Reply("refused", "no webhook is set any more")
        url = self.urls[message.team]
        if url is None:
            return Reply("later", "the file with its webhook cannot be read")
        begin()
        try:
            status, words = post(url, message.content, {}, self.timeout_seconds)
        except UnansweredError as error:
            return Reply("unsure", str(error)) if error.sent else Reply("later", f"not reached: {error}")
        if 200 <= status < 300:
            return Reply("accepted", str(status))
        return Reply("later" if status >= 500 or status in _BUSY else "refused", f"{status} {words}".strip())


class SmtpCarrier(Carrier):
    """One server. It connects when something is to be sent and keeps the connection. `password` empty: no AUTH. Raises
    UsageError for settings by which nothing can be sent."""

    def __init__(self, settings: ReportSettings, password: str) -> None:
        if settings.sender is None or not settings.smtp_host:
            missing = "from" if settings.sender is None else "smtp_host"
            raise UsageError(f"Nothing can be sent: report.{missing} is not set.", "Set it in [report].")
        self._settings = settings
        self._sender = settings.sender.addr_spec
        self._password = password
        try:
            self._context = ssl.create_default_context(cafile=settings.smtp_ca_file or None)
        except OSError as error:
            what = f"The certificates in {settings.smtp_ca_file} cannot be read: {_kind(error)}."
            raise UsageError(what, "Fix report.smtp_ca_file.") from error
        self._smtp: smtplib.SMTP | None = None
        self._down: CarrierDownError | None = None
        self._carried = self._broken = 0

    def ready(self) -> None:
        """Make sure of a connection that takes a mail. Raises CarrierDownError."""
        if self._down is not None:
            raise self._down
        if self._smtp is not None and self._carried % _MAILS_A_CONNECTION:
            with suppress(smtplib.SMTPException, OSError):
                if self._smtp.rset()[0] == 250:
                    return
        self.close()
        self._connect()

    def carry(self, message: Message, begin: Callable[[], None]) -> Reply:
        """Hand over one mail. `begin` is called before its content is."""
        smtp, handed_over = self._smtp, False
        assert smtp is not None, "ready() was not called"
        self._carried += 1
        try:
            code, text = smtp.mail(self._sender)
            if 500 <= code < 600:
                # Not the recipient's fault, so no message is given up: the next run finds the settings fixed.
                self._down = self._fault(f"refuses the sender ({code} {_words(text)})", "Set report.from.")
            if code != 250:
                return Reply("later", f"{code} {_words(text)}")
            code, text = smtp.rcpt(message.recipient)
            if 200 <= code < 300:
                begin()
                code, text = smtp.docmd("DATA")
                if code == 354 and smtp.sock is not None:
                    # Lines of a dot alone would end it (RFC 5321, 4.5.2).
                    smtp.send(re.sub(rb"(?m)^\.", b"..", message.content.rstrip(b"\r\n")) + b"\r\n.\r\n")
                    handed_over = True
                    smtp.sock.settimeout(_ACCEPT_SECONDS)
                    code, text = smtp.getreply()
                    smtp.sock.settimeout(self._settings.smtp_timeout_seconds)
        except (smtplib.SMTPException, OSError) as error:
            self.close()
            self._broken += 1
            if self._broken >= _MOST_BROKEN:
                self._down = self._fault("breaks every connection", "Check its log.")
            return Reply("unsure" if handed_over else "later", f"the connection broke: {_kind(error)}")
        self._broken = 0
        result = "accepted" if 200 <= code < 300 else "refused" if 500 <= code < 600 else "later"
        return Reply(result, f"{code} {_words(text)}")

    def close(self) -> None:
        smtp, self._smtp = self._smtp, None
        if smtp is not None:
            with suppress(smtplib.SMTPException, OSError):
                smtp.quit()
            smtp.close()

    def _connect(self) -> None:
        s = self._settings
        kind = smtplib.SMTP
        if s.smtp_security == "tls":
            kind = partial(smtplib.SMTP_SSL, context=self._context)
        try:
            # Without a name smtplib would look the machine's up, which no limit bounds.
            name = socket.gethostname()
            self._smtp = smtp = kind(s.smtp_host, s.port, local_hostname=name, timeout=s.smtp_timeout_seconds)
            if "." not in name and smtp.sock is not None:  # RFC 5321, 4.1.3
                address = str(smtp.sock.getsockname()[0])
                smtp.local_hostname = f"[IPv6:{address}]" if ":" in address else f"[{address}]"
            if s.smtp_security == "starttls":
                smtp.starttls(context=self._context)
            smtp.ehlo_or_helo_if_needed()
            if s.smtp_username:
                smtp.login(s.smtp_username, self._password)
        except (smtplib.SMTPException, OSError, ValueError) as error:
            self.close()
            raise self._why(error) from None  # what smtplib raises may hold what was sent: a password

    def _why(self, error: Exception) -> CarrierDownError:
        if isinstance(error, smtplib.SMTPAuthenticationError):
            remedy = "Set report.smtp_username and report.smtp_password_file."
            return self._fault(f"does not accept our password ({error.smtp_code})", remedy)
        if isinstance(error, smtplib.SMTPNotSupportedError):
            missing = "STARTTLS" if "STARTTLS" in str(error) else "authentication"
            return self._fault(f"offers no {missing}", "Set report.smtp_security, smtp_port and smtp_username.")
        if isinstance(error, smtplib.SMTPResponseException):
            return self._fault(f"turns us away ({error.smtp_code} {_words(error.smtp_error)})", "Try later.")
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._fault(f"has a certificate that is not accepted: {error.verify_message}", "Set smtp_ca_file.")
        return self._fault(f"cannot be reached: {_kind(error)}", "Look whether it runs; smtp_host and smtp_port.")

    def _fault(self, sentence: str, remedy: str) -> CarrierDownError:
        where = f"{self._settings.smtp_host}:{self._settings.port}"
        return CarrierDownError(f"The mail server {where} {sentence}.", remedy)


def _words(text: bytes | str) -> str:
    """What a server said, in one line: it may say megabytes."""
    return clean_text(text[: 4 * _MAX_WORDS], _MAX_WORDS)


def _kind(error: Exception) -> str:
    # smtplib says that the server hung up when it was itself that did not wait any longer.
    if isinstance(error, TimeoutError) or isinstance(error.__context__, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "closed by the server" if isinstance(error, smtplib.SMTPServerDisconnected) else type(error).__name__


@dataclass(frozen=True)
class Clocks:
    """The clocks, and how to wait."""

    now: Callable[[], Instant] = field(default_factory=lambda: SystemClock().now)
    sleep: Callable[[float], None] = time.sleep


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
    carriers, faults = dict[Channel, Carrier](), list[SkuwiseError]()
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
            urls[team] = checked_url(secret(file, environ, private=True), file)
        except UsageError as error:
            faults.append(error)
    # Also where there is none any more: it gives up what still waits for one.
    carriers["webhook"] = WebhookCarrier(urls, settings.smtp_timeout_seconds)
    return carriers, tuple(faults)


def _recipient(message: Message | deliveries.Told) -> str:
    return clean(f"{message.team or 'the fleet'} ({message.channel}, {message.recipient})")
