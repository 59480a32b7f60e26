"""Hands mails to one SMTP server: STARTTLS or TLS with its certificate checked, AUTH, a limit on every wait."""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from ...agent.base.deadline import Deadline
from ...agent.base.safe_text import clean_text
from ...rules.base.errors import UsageError
from ..state.parcel import Parcel, Reply
from .delivery import CarrierDownError
from .settings import ReportSettings

# The talk before a content has so many times the timeout of one answer: a server that drips would be waited for without
# an end.
_ANSWERS_A_MAIL = 5
# RFC 5321, 4.5.3.2.6: so long a server may take to accept a content. Who does not wait for it sends it twice.
_ACCEPT_SECONDS = 600.0
# Connections that broke one after the other before the rest is left for later.
_MOST_BROKEN = 3
# Servers end a connection after so many mails (Postfix: 100), and not all say so politely.
_MAILS_A_CONNECTION = 50
# An answer has lines without an end where the server likes; RFC 5321 has no limit, and 64 KiB is beyond any.
_MAX_ANSWER_BYTES = 65536
_TOO_LARGE = 552
_MAX_WORDS = 300


class SmtpCarrier:
    """One server. It connects when something is to be sent and keeps the connection. `password` empty: no AUTH;
    `accept_seconds`: how long the server may take to accept a content."""

    def __init__(self, settings: ReportSettings, password: str, *, accept_seconds: float = _ACCEPT_SECONDS) -> None:
        if settings.sender is None or not settings.smtp_host:
            missing = "from" if settings.sender is None else "smtp_host"
            raise UsageError(f"Nothing can be sent: report.{missing} is not set.", "Set it in [report].")
        self._settings = settings
        self._sender = settings.sender.addr_spec
        self._password = password
        self._accept_seconds = accept_seconds
        self._context = _context(settings)
        self._smtp: _Limited | None = None
        self._carried = 0
        self._broken = 0
        self._down: CarrierDownError | None = None

    def ready(self, parcel: Parcel) -> None:  # noqa: ARG002 - one server takes all
        """See to a connection that takes a mail. Raises CarrierDownError."""
        if self._down is not None:
            raise self._down
        if self._smtp is not None and self._carried % _MAILS_A_CONNECTION and self._is_there(self._smtp):
            return
        self.close()
        self._smtp = self._connect()

    def carry(self, parcel: Parcel) -> Mapping[str, Reply]:
        """Hand over one mail, and tell what the server said to each recipient."""
        smtp = self._smtp
        assert smtp is not None, "ready() was not called"
        self._carried += 1
        replies: dict[str, Reply] = {}
        try:
            with smtp.within(self._settings.smtp_timeout_seconds * _ANSWERS_A_MAIL):
                taken = self._address(smtp, parcel, replies)
            if taken:
                with smtp.within(self._accept_seconds):
                    replies.update(dict.fromkeys(taken, self._hand_over(smtp, parcel.content)))
            self._broken = 0
        except (smtplib.SMTPException, OSError) as error:
            self._broken += 1
            self.close()
            for recipient in parcel.recipients:
                replies.setdefault(recipient, Reply("later", f"the connection broke: {_kind(error)}"))
            if self._broken >= _MOST_BROKEN:
                self._down = self._down or self._fault("breaks every connection", "Check its log.")
        return replies

    def close(self) -> None:
        smtp, self._smtp = self._smtp, None
        if smtp is not None:
            with suppress(smtplib.SMTPException, OSError), smtp.within(self._settings.smtp_timeout_seconds):
                smtp.quit()
            smtp.close()

    def _address(self, smtp: smtplib.SMTP, parcel: Parcel, replies: dict[str, Reply]) -> list[str]:
        """Name sender and recipients. Gives who was taken; what was said to the others goes into `replies`."""
        options = [f"size={len(parcel.content)}"] if smtp.has_extn("size") else []
        code, text = smtp.mail(self._sender, options)
        if code != 250:
            if 500 <= code < 600 and code != _TOO_LARGE:
                # Not a recipient's fault, so nobody is given up: the next run finds the settings mended.
                self._down = self._fault(f"refuses our sender ({code} {_words(text)})", "Set report.from.")
            result = "refused" if code == _TOO_LARGE else "later"
            replies.update(dict.fromkeys(parcel.recipients, Reply(result, f"{code} {_words(text)}")))
            return []
        taken: list[str] = []
        for recipient in parcel.recipients:
            code, text = smtp.rcpt(recipient)
            if code in (250, 251, 252):
                taken.append(recipient)
            else:
                replies[recipient] = _reply(code, text)
        return taken

    def _hand_over(self, smtp: smtplib.SMTP, content: bytes) -> Reply:
        assert smtp.sock is not None
        smtp.sock.settimeout(self._accept_seconds)
        try:
            return _reply(*smtp.data(content))
        except smtplib.SMTPDataError as error:  # DATA itself was not taken
            return _reply(error.smtp_code, _bytes(error.smtp_error))
        finally:
            if smtp.sock is not None:
                smtp.sock.settimeout(self._settings.smtp_timeout_seconds)

    def _connect(self) -> _Limited:
        s = self._settings
        smtp: _Limited | None = None
        try:
            # Without a name smtplib would look ours up, which no deadline bounds.
            name = socket.gethostname()
            if s.smtp_security == "tls":
                smtp = _LimitedTLS(s.smtp_host, s.port, name, timeout=s.smtp_timeout_seconds, context=self._context)
            else:
                smtp = _Limited(s.smtp_host, s.port, name, timeout=s.smtp_timeout_seconds)
            smtp.local_hostname = _own_name(name, smtp)
            with smtp.within(s.smtp_timeout_seconds * _ANSWERS_A_MAIL):
                if s.smtp_security == "starttls":
                    smtp.starttls(context=self._context)
                smtp.ehlo_or_helo_if_needed()
                if s.smtp_username:
                    smtp.login(s.smtp_username, self._password)
        except (smtplib.SMTPException, OSError, ValueError) as error:
            if smtp is not None:
                smtp.close()
            raise self._why(error) from None  # what smtplib raises may hold what was sent: a password
        return smtp

    def _is_there(self, smtp: _Limited) -> bool:
        try:
            with smtp.within(self._settings.smtp_timeout_seconds):
                return smtp.rset()[0] == 250
        except (smtplib.SMTPException, OSError):
            return False

    def _why(self, error: Exception) -> CarrierDownError:
        s = self._settings
        if isinstance(error, smtplib.SMTPAuthenticationError):
            return self._fault(
                f"does not accept our password ({error.smtp_code})",
                "Set report.smtp_username and report.smtp_password_file.",
            )
        if isinstance(error, smtplib.SMTPNotSupportedError):
            if s.smtp_security == "starttls" and "STARTTLS" in str(error):
                return self._fault("offers no STARTTLS", "Set report.smtp_security.")
            return self._fault("offers no authentication", "Leave report.smtp_username out, or ask for another port.")
        if isinstance(error, smtplib.SMTPResponseException):
            return self._fault(f"turns us away ({error.smtp_code} {_words(_bytes(error.smtp_error))})", "Try later.")
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._fault(f"has a certificate that is not accepted: {error.verify_message}", "Set smtp_ca_file.")
        return self._fault(f"cannot be reached: {_kind(error)}", "Look whether it runs; smtp_host and smtp_port.")

    def _fault(self, sentence: str, remedy: str) -> CarrierDownError:
        where = f"{self._settings.smtp_host}:{self._settings.port}"
        return CarrierDownError(f"The mail server {where} {sentence}.", remedy)


class _Limited(smtplib.SMTP):
    """A connection with limits for what is done within `within`, for the whole of its greeting, and for an answer."""

    _deadline: Deadline | None = None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Cut the connection where the block lasts longer, and raise TimeoutError."""
        with Deadline(seconds) as deadline:
            if self.sock is not None:
                deadline.guard(self.sock)
            self._deadline = deadline
            try:
                yield
            except (smtplib.SMTPException, OSError) as error:
                if deadline.over:
                    raise TimeoutError from error
                raise
            finally:
                self._deadline = None
            if deadline.over:  # what was said last may have been cut
                raise TimeoutError

    def connect(
        self, host: str = "localhost", port: int = 0, source_address: Any = None  # noqa: ANN401 - smtplib's own
    ) -> tuple[int, bytes]:  # fmt: skip
        with self.within(self.timeout * _ANSWERS_A_MAIL):
            return super().connect(host, port, source_address)

    def getreply(self) -> tuple[int, bytes]:
        if self.sock is not None:
            if self.file is None:
                self.file = cast("Any", _Answers(self.sock.makefile("rb")))
            cast("_Answers", self.file).left = _MAX_ANSWER_BYTES
        return super().getreply()

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        """smtplib's own way to a connection, which TLS is put around."""
        assert self._deadline is not None
        connection = self._deadline.connect(host, port, most_seconds=timeout)
        connection.settimeout(timeout)
        return connection


class _LimitedTLS(smtplib.SMTP_SSL, _Limited):
    """The same, with TLS from the start."""


class _EndlessError(OSError):
    """An answer that is longer than any."""


class _Answers:
    """What a server says, line by line; `left`: bytes that the answer may still have."""

    def __init__(self, said: BinaryIO) -> None:
        self._said = said
        self.left = 0

    def readline(self, limit: int = -1) -> bytes:
        line = self._said.readline(limit)
        self.left -= len(line)
        if self.left < 0:
            raise _EndlessError
        return line

    def close(self) -> None:
        self._said.close()


def _own_name(name: str, smtp: smtplib.SMTP) -> str:
    """What we call ourselves to the server: the machine's name where it is a full one, else our address (RFC 5321)."""
    if "." in name or smtp.sock is None:
        return name
    address = str(smtp.sock.getsockname()[0])
    return f"[IPv6:{address}]" if ":" in address else f"[{address}]"


def _context(settings: ReportSettings) -> ssl.SSLContext | None:
    if settings.smtp_security == "none":
        return None
    try:
        return ssl.create_default_context(cafile=settings.smtp_ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"The certificates in {settings.smtp_ca_file} cannot be read: {_kind(error)}.", "Fix report.smtp_ca_file."
        ) from error


def _reply(code: int, text: bytes) -> Reply:
    result = "accepted" if 200 <= code < 300 else "refused" if 500 <= code < 600 else "later"
    return Reply(result, f"{code} {_words(text)}")


def _words(text: bytes) -> str:
    """What a server said, in one line: it may say megabytes."""
    return clean_text(text[: 4 * _MAX_WORDS], _MAX_WORDS)


def _bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _kind(error: Exception) -> str:
    """What went wrong in words that repeat nothing that was sent."""
    # smtplib says that the server hung up when it was itself that did not wait any longer.
    if isinstance(error, TimeoutError) or isinstance(error.__context__, TimeoutError):
        return "no answer in time"
    if isinstance(error.__context__, _EndlessError):
        return "an answer without an end"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "closed by the server" if isinstance(error, smtplib.SMTPServerDisconnected) else type(error).__name__
