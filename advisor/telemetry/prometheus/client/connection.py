"""The session that carries what prometheus-api-client asks, with limits on what comes back.

The library builds paths and parameters and takes the JSON of an answer from its session. By itself it reads answers of
any size, drops what servers say beside the data, and does not ask again; so the session does: each request has one
deadline from its name's resolution to its last byte, a limit on its size and on the memory that reading it takes, and
is tried again after growing pauses where the server is busy or failing for a moment. What is late is not asked again as
it is. Redirects are not followed: they would carry the secrets elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, TypedDict, Unpack
from urllib.parse import urlsplit

import requests
from requests.auth import HTTPBasicAuth
from urllib3.exceptions import DecodeError, HTTPError

from .....agent.base.deadline import Deadline
from .....agent.base.json_weight import json_memory_bytes
from .....agent.base.safe_text import clean_text
from .....rules.base.errors import UsageError
from ....core.credentials import secret
from ....core.http_session import CONNECT_SECONDS, DeadlineAdapter, QuietSession, is_late
from ....core.loopback import is_loopback
from ..settings import PrometheusSettings
from .errors import AnswerError, RefusedError, TooMuchError, UnreachableError
from .matrix_text import matrix_weight
from .memory_budget import MemoryBudget
from .replies import MAX_WORDS_BYTES, document_of, error_words, is_too_much, unreachable, wanted_pause

Document = Mapping[str, object]
MAX_ANSWER_BYTES = 128 * 1024 * 1024
# Answers beyond this are read one at a time: bodies of any number of them would fill the memory by themselves.
SMALL_ANSWER_BYTES = 8 * 1024 * 1024
# Each series takes about a kB while an answer is read, however little it says.
MAX_ANSWER_SERIES = 250_000
ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 30.0
# No attempt begins later than this after the first, so that one question ends within this and one timeout.
RETRY_SECONDS = 120.0
# A server that has given no answer to anything for so many times the timeout is left.
MOST_TIMEOUTS = 5
_BUSY = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class _Reply:
    """`retry_after`: seconds that the server wants us to wait, 0: none told."""

    status: int
    body: bytearray
    retry_after: float


class _LateError(Exception):
    """A request did not end in time."""


class ReadResponse(requests.Response):
    """An answer that was read already: its JSON is what the reader of `LimitedSession.reading` made of it."""

    def __init__(self, read: Document) -> None:
        super().__init__()
        self.status_code = 200
        self._read = read

    def json(self, **_: Any) -> Any:  # noqa: ANN401 - as requests has it
        return self._read


class Limits(TypedDict, total=False):
    """Who waits and tells the time, and what answers may take; what is not given is as usual."""

    sleep: Callable[[float], None]
    monotonic: Callable[[], float]
    max_answer_bytes: int
    room: MemoryBudget


class LimitedSession(QuietSession):
    """Asks one server. Usable from several threads at once."""

    def __init__(
        self, url: str, settings: PrometheusSettings, environ: Mapping[str, str], **limits: Unpack[Limits]
    ) -> None:
        super().__init__()
        self.url = url
        self.body_sizes: list[int] = []
        self._timeout = settings.timeout_seconds
        self._sleep, self._monotonic = limits.get("sleep", time.sleep), limits.get("monotonic", time.monotonic)
        self._max_bytes = limits.get("max_answer_bytes", MAX_ANSWER_BYTES)
        self._room = limits.get("room") or MemoryBudget()
        self._large = threading.Lock()
        self._unanswered_since: float | None = None
        self._readers = threading.local()
        self._adapter = DeadlineAdapter()
        self._authenticate(settings, environ)

    def take_over(self) -> None:
        """Carry everything ourselves, also where a library mounted an adapter of its own."""
        self._adapter.serve(self)

    @contextmanager
    def reading(
        self, read: Callable[[Document], Document], text: Callable[[bytearray], Document | None] | None = None
    ) -> Iterator[None]:
        """In this block `read` makes of each answer's JSON what this thread is given of it, while there is room.

        `text`: the same of the answer's text, which takes the room of a matrix; None: it leaves this one to `read`.
        """
        self._readers.read, self._readers.text = read, text
        try:
            yield
        finally:
            self._readers.read = self._readers.text = None

    def request(  # type: ignore[override] - what is not ours to choose is taken and left
        self,
        method: str,
        url: str,
        params: Mapping[str, Any] | None = None,
        **_: Any,  # noqa: ANN401
    ) -> requests.Response:
        """An answer within all limits. Raises SourceError and UsageError, never what requests raises.

        What is posted is a form: a long query does not fit in an address.
        """
        asked = dict(params or {})
        begun, pause = self._monotonic(), FIRST_PAUSE_SECONDS
        for attempt in range(1, ATTEMPTS + 1):
            last = attempt == ATTEMPTS or self._monotonic() - begun + pause > RETRY_SECONDS or pause > self._left(begun)
            try:
                with self._answered(method, url, asked) as reply:
                    if reply.status not in _BUSY:
                        self._unanswered_since = None
                        return self._taken(reply)
                    said, too_much = error_words(reply.body), is_too_much(reply.body)
            except _LateError:
                self._unanswered(begun)
                raise TooMuchError(
                    f"No answer from the server within {self._timeout:g} s.",
                    "Use a shorter window or a narrower --match, or raise prometheus.timeout.",
                ) from None
            except DecodeError:
                raise AnswerError(
                    f"The answer of {self.url} cannot be decoded.", "Check the compression, for example in a proxy."
                ) from None
            except (requests.RequestException, HTTPError, HTTPException) as error:
                if last or isinstance(error, requests.exceptions.SSLError):
                    raise unreachable(self.url, error) from None
            except OSError as error:  # requests says so of files of certificates
                raise UsageError(
                    f"Cannot read a certificate file: {clean_text(str(error))}.",
                    "Fix the certificate paths in [prometheus].",
                ) from None
            else:
                if too_much or last:
                    # Not worth asking again as it is.
                    self._unanswered(begun)
                    raise (TooMuchError if reply.status in (503, 504) or too_much else RefusedError)(
                        f"The server returned HTTP {reply.status}{said}.",
                        "Use a shorter window or a narrower --match, or try again later.",
                    )
                if reply.retry_after > self._left(begun):
                    raise UnreachableError(
                        f"{self.url} returned HTTP {reply.status}{said} and asks to retry after "
                        f"{reply.retry_after:g} s.",
                        "Try again later, or raise prometheus.timeout.",
                    )
                pause = max(pause, reply.retry_after)
            self._sleep(min(pause, MAX_PAUSE_SECONDS))
            pause *= 2
        raise AssertionError("the last attempt returns or raises")

    def _left(self, begun: float) -> float:
        """Seconds that the server has to give any answer at all; `begun`: when the question was asked first."""
        since = begun if self._unanswered_since is None else self._unanswered_since
        return MOST_TIMEOUTS * self._timeout - (self._monotonic() - since)

    def _unanswered(self, since: float) -> None:
        """A question was left without an answer. Raises UnreachableError where none has had one for long."""
        if self._unanswered_since is None:
            self._unanswered_since = since
        seconds = self._monotonic() - self._unanswered_since
        if seconds >= MOST_TIMEOUTS * self._timeout:
            raise UnreachableError(
                f"No answer from {self.url} for {seconds:.0f} s.",
                "Check the load of the server, or raise prometheus.timeout.",
            ) from None

    @contextmanager
    def _answered(self, method: str, url: str, asked: Mapping[str, Any]) -> Iterator[_Reply]:
        """One answer, read to its end. Raises _LateError and what requests raises."""
        with ExitStack() as held:
            with self._adapter.within(self._timeout) as deadline:
                try:
                    reply = self._received(method, url, asked, deadline, held)
                except requests.ConnectTimeout:
                    raise
                except (requests.RequestException, HTTPError, HTTPException, TimeoutError) as error:
                    if is_late(error, deadline):
                        raise _LateError from None
                    raise
            if deadline.over:  # an answer without a length looks whole wherever it is cut
                raise _LateError
            self.body_sizes.append(len(reply.body))
            yield reply

    def _received(self, method: str, url: str, asked: Mapping[str, Any], deadline: Deadline, held: ExitStack) -> _Reply:
        """`held` is given what must be let go when the body is no longer needed."""
        with super().request(
            method,
            url,
            params=asked if method == "GET" else None,
            data=asked if method == "POST" else None,
            timeout=(CONNECT_SECONDS, self._timeout),
            allow_redirects=False,
            stream=True,
        ) as response:
            body = bytearray()
            # As it comes, at most a quarter of a MiB a piece, decompressed.
            while piece := response.raw.read1(1 << 18, decode_content=True):
                if response.status_code != 200 and len(body) >= MAX_WORDS_BYTES:
                    break  # only the words of an error are wanted
                if len(body) <= SMALL_ANSWER_BYTES < len(body) + len(piece):
                    if not self._large.acquire(timeout=deadline.left()):
                        raise TimeoutError
                    held.callback(self._large.release)
                body += piece
                if len(body) > self._max_bytes:
                    raise TooMuchError(
                        f"Answer too large: more than {self._max_bytes / 1e6:g} MB.",
                        "Use a shorter window or a narrower --match.",
                    )
            return _Reply(response.status_code, body, wanted_pause(response.headers.get("Retry-After")))

    def _taken(self, reply: _Reply) -> ReadResponse:
        """The answer's JSON, once it is known what it takes."""
        body = reply.body
        if (series := body.count(b'"metric"')) > MAX_ANSWER_SERIES:
            raise TooMuchError(f"Answer too large: {series} time series.", "Use a narrower --match.")
        text = getattr(self._readers, "text", None)
        weight = matrix_weight(body, series)
        if text is not None and reply.status == 200 and weight <= self._room.most_bytes:
            with self._room.taking(weight):
                found = text(body)
            if found is not None:
                return ReadResponse(found)
        weight = json_memory_bytes(body)
        if weight > self._room.most_bytes:
            raise TooMuchError(
                f"Answer too large: {len(body) / 1e6:.0f} MB with {series} time series.",
                "Use a shorter window or a narrower --match.",
            )
        with self._room.taking(weight):
            document = document_of(reply.status, body)
            read = getattr(self._readers, "read", None)
            return ReadResponse(document if read is None else read(document))

    def _authenticate(self, settings: PrometheusSettings, environ: Mapping[str, str]) -> None:
        if settings.ca_file:
            self.verify = settings.ca_file
        if settings.client_cert_file:
            key = settings.client_key_file
            self.cert = (settings.client_cert_file, key) if key else settings.client_cert_file
        if settings.username:
            password = secret(settings.password_file, environ) if settings.password_file else ""
            self.auth = HTTPBasicAuth(settings.username.encode(), password.encode())  # UTF-8, as RFC 7617 has it
        headers = dict(settings.headers)
        headers |= {name: secret(file, environ) for name, file in settings.header_files.items()}
        if settings.tenant:
            headers["X-Scope-OrgID"] = settings.tenant
        if settings.bearer_token_file:
            if settings.username:
                raise UsageError(
                    "Conflicting settings: both a bearer token and a user name are set.", "Remove one of them."
                )
            headers["Authorization"] = f"Bearer {secret(settings.bearer_token_file, environ)}"
        for name, value in headers.items():
            if not value.isascii() or value != value.strip():
                raise UsageError(
                    f"Invalid value of header {name}: only ASCII is allowed, without spaces around it.",
                    "Fix the header value.",
                )
        if is_loopback(urlsplit(self.url).hostname or ""):
            # Nothing is sent through a network: to compress would cost both sides more than it spares.
            headers = {"Accept-Encoding": "identity", **headers}
        self.headers.update({"User-Agent": "skuwise", **headers})
