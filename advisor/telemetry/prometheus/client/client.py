"""A thin layer over prometheus-api-client's session: its ways to reach a server, with limits on what comes back.

`PrometheusConnect` itself drops warnings, reads answers of any size and does not retry POST, so the requests are made
here: each has one deadline from its name's resolution to its last byte, a limit on its size and on the memory that
reading it takes, and retries with growing pauses where the server is busy or failing for a moment. What is late is not
asked again as it is. Redirects are not followed: they would carry the secrets elsewhere.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import TypeVar
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from requests.auth import HTTPBasicAuth
from urllib3.exceptions import DecodeError, HTTPError
from urllib3.util.retry import Retry

from .....agent.base.deadline import Deadline
from .....agent.base.json_weight import json_memory_bytes
from .....agent.base.safe_text import clean_text
from .....rules.base.errors import UsageError
from ....core.credentials import secret
from ....core.http_session import CONNECT_SECONDS, DeadlineAdapter, QuietSession
from ..settings import PrometheusSettings
from .errors import AnswerError, RefusedError, TooMuchError, UnreachableError
from .memory_budget import Room
from .response import MAX_NOTE, Grid, Told, decode, read_matrix, read_vector

_Read = TypeVar("_Read")
MAX_ANSWER_BYTES = 128 * 1024 * 1024
# Answers beyond this are read one at a time: bodies of any number of them would fill the memory by themselves.
SMALL_ANSWER_BYTES = 4 * 1024 * 1024
# Each series takes about a kB while an answer is read, however little it says.
MAX_ANSWER_SERIES = 250_000
# Names of metrics that the advisor asks for: exporters know some hundreds.
MAX_NAMES = 50_000
_MAX_WORDS_BYTES = 65536
ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 30.0
# No attempt begins later than this after the first, so that one question ends within this and one timeout.
RETRY_SECONDS = 120.0
# A server that has given no answer to anything for so many times the timeout is left.
MOST_TIMEOUTS = 5
_BUSY = (408, 425, 429, 500, 502, 503, 504)
# What servers say where a query is too large for them: Prometheus, Thanos, Mimir, VictoriaMetrics.
_TOO_MUCH = (
    "too many samples", "exceeded maximum resolution", "timed out", "timeout", "maxsamples", "max-samples",
    "maxuniquetimeseries", "maxpointspertimeseries", "maxseries", "max-series", "the query hit the max", "exceeds",
    "too many", "deadline exceeded", "out of memory", "response size", "cannot process more than",
    "cannot select more than",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Counters:
    """What a run asked of the server."""

    queries: int
    bytes_read: int


@dataclass(frozen=True, slots=True)
class _Reply:
    """`retry_after`: seconds that the server wants us to wait, 0: none told."""

    status: int
    body: bytearray
    retry_after: float


class _LateError(Exception):
    """A request did not end in time."""


class Client:
    """One server. Usable from several threads at once."""

    def __init__(
        self,
        url: str,
        settings: PrometheusSettings,
        environ: Mapping[str, str],
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        room: Room | None = None,
    ) -> None:
        self.url = check_url(url)
        self._settings = settings
        self._sleep, self._monotonic = sleep, monotonic
        self._max_bytes = max_answer_bytes
        self._adapter = DeadlineAdapter()
        self._session = _session(self.url, settings, environ, self._adapter)
        self._room = room or Room()
        self._large = threading.Lock()
        self._counts: list[int] = []
        self._unanswered_since: float | None = None

    def close(self) -> None:
        self._session.close()

    @property
    def counters(self) -> Counters:
        counts = list(self._counts)
        return Counters(len(counts), sum(counts))

    def instant(self, query: str, at: float, kept: Sequence[str] | None = None) -> Told:
        """The value of each series at a moment."""
        asked = {"query": query, "time": f"{at:.3f}"}
        return self._ask("api/v1/query", asked, lambda document: read_vector(document, kept))

    def range(self, query: str, grid: Grid, kept: Sequence[str] | None = None) -> Told:
        """The values of each series at the moments of `grid`. Raises TooMuchError where a part of it may do."""
        asked = {"query": query, "start": f"{grid.start:.3f}", "end": f"{grid.end:.3f}", "step": f"{grid.step:.3f}"}
        return self._ask("api/v1/query_range", asked, lambda document: read_matrix(document, grid, kept))

    def scalar(self, query: str, at: float) -> float | None:
        """The one number that a query gives; None where it gives none."""
        values = self.instant(query, at, ()).answer.values
        return None if not values.size or values[0, 0] != values[0, 0] else float(values[0, 0])

    def names(self, selector: str, start: float, end: float) -> tuple[str, ...]:
        """The names of metrics that have series matching `selector` between two moments."""
        asked = {"match[]": selector, "start": f"{start:.3f}", "end": f"{end:.3f}"}
        return self._ask("api/v1/label/__name__/values", asked, _names, method="GET")

    def clock(self) -> float | None:
        """What time it is by the server's clock (Unix seconds); None: it does not tell."""
        try:
            told = self._ask("api/v1/query", {"query": "time()"}, lambda document: read_vector(document, ()))
        except (UnreachableError, RefusedError, AnswerError):
            return None
        values = told.answer.values
        return None if not values.size or values[0, 0] != values[0, 0] else float(values[0, 0])

    def about(self, path: str) -> Mapping[str, object]:
        """What the server says of itself at ``api/v1/status/PATH``; empty where it does not say that."""
        try:
            data = self._ask(f"api/v1/status/{path}", {}, lambda document: document.get("data"), method="GET")
        except (UnreachableError, RefusedError, AnswerError):  # forbidden, where queries may be allowed
            return {}
        return data if isinstance(data, dict) else {}

    def _ask(
        self, path: str, asked: Mapping[str, str], read: Callable[[Mapping[str, object]], _Read], method: str = "POST"
    ) -> _Read:
        """What `read` makes of the answer, for which there is room while it does."""
        begun, pause = self._monotonic(), FIRST_PAUSE_SECONDS
        for attempt in range(1, ATTEMPTS + 1):
            last = attempt == ATTEMPTS or self._monotonic() - begun + pause > RETRY_SECONDS or pause > self._left(begun)
            try:
                with self._answered(path, asked, method) as reply:
                    if reply.status not in _BUSY:
                        self._unanswered_since = None
                        return self._read(reply, read)
                    said, too_much = _said(reply.body), _is_too_much(reply.body)
            except _LateError:
                self._unanswered(begun)
                raise TooMuchError(
                    f"The server did not answer within {self._settings.timeout_seconds:g} s.",
                    "Narrow the window or the match, or raise prometheus.timeout.",
                ) from None
            except DecodeError:
                raise AnswerError(
                    f"The answer of {self.url} cannot be decoded.", "Look at what compresses it, such as a proxy."
                ) from None
            except (requests.RequestException, HTTPError, HTTPException) as error:
                if last or isinstance(error, requests.exceptions.SSLError):
                    raise _unreachable(self.url, error) from None
            except OSError as error:  # requests says so of files of certificates
                raise UsageError(
                    f"A file of certificates cannot be read: {clean_text(str(error))}.", "Mend the setting."
                ) from None
            else:
                if too_much or last:
                    # Not worth asking again as it is.
                    self._unanswered(begun)
                    raise (TooMuchError if reply.status in (503, 504) or too_much else RefusedError)(
                        f"The server answers {reply.status}{said}.", "Ask for less, or try again later."
                    )
                if reply.retry_after > self._left(begun):
                    raise UnreachableError(
                        f"{self.url} answers {reply.status}{said}, and wants {reply.retry_after:g} s of peace.",
                        "Try again after that, or raise prometheus.timeout.",
                    )
                pause = max(pause, reply.retry_after)
            self._sleep(min(pause, MAX_PAUSE_SECONDS))
            pause *= 2
        raise AssertionError("the last attempt returns or raises")

    def _left(self, begun: float) -> float:
        """Seconds that the server has to give any answer at all; `begun`: when the question was asked first."""
        since = begun if self._unanswered_since is None else self._unanswered_since
        return MOST_TIMEOUTS * self._settings.timeout_seconds - (self._monotonic() - since)

    def _unanswered(self, since: float) -> None:
        """A question was left without an answer. Raises UnreachableError where none has had one for long."""
        if self._unanswered_since is None:
            self._unanswered_since = since
        seconds = self._monotonic() - self._unanswered_since
        if seconds >= MOST_TIMEOUTS * self._settings.timeout_seconds:
            raise UnreachableError(
                f"{self.url} has answered nothing for {seconds:.0f} s.",
                "Look at its load, or raise prometheus.timeout.",
            ) from None

    @contextmanager
    def _answered(self, path: str, asked: Mapping[str, str], method: str) -> Iterator[_Reply]:
        """One answer, read to its end. Raises _LateError and what requests raises."""
        with ExitStack() as held:
            with self._adapter.within(self._settings.timeout_seconds) as deadline:
                try:
                    reply = self._received(path, asked, method, deadline, held)
                except requests.ConnectTimeout:
                    raise
                except (requests.RequestException, HTTPError, HTTPException, TimeoutError) as error:
                    if deadline.over or isinstance(error, requests.ReadTimeout | TimeoutError):
                        raise _LateError from None
                    raise
            if deadline.over:  # an answer without a length looks whole wherever it is cut
                raise _LateError
            self._counts.append(len(reply.body))
            yield reply

    def _received(
        self, path: str, asked: Mapping[str, str], method: str, deadline: Deadline, held: ExitStack
    ) -> _Reply:
        """`held` is given what must be let go when the body is no longer needed."""
        with self._session.request(
            method,
            f"{self.url}/{path}",
            params=asked if method == "GET" else None,
            data=asked if method == "POST" else None,
            timeout=(CONNECT_SECONDS, self._settings.timeout_seconds),
            allow_redirects=False,
            stream=True,
        ) as response:
            body = bytearray()
            for piece in _pieces(response):
                if response.status_code != 200 and len(body) >= _MAX_WORDS_BYTES:
                    break  # only the words of an error are wanted
                if len(body) <= SMALL_ANSWER_BYTES < len(body) + len(piece):
                    if not self._large.acquire(timeout=deadline.left()):
                        raise TimeoutError
                    held.callback(self._large.release)
                body += piece
                if len(body) > self._max_bytes:
                    raise TooMuchError(
                        f"An answer is larger than {self._max_bytes / 1e6:g} MB.", "Narrow the window or the match."
                    )
            return _Reply(response.status_code, body, _seconds(response.headers.get("Retry-After")))

    def _read(self, reply: _Reply, read: Callable[[Mapping[str, object]], _Read]) -> _Read:
        """The answer's JSON, once it is known what it takes."""
        body = reply.body
        if (series := body.count(b'"metric"')) > MAX_ANSWER_SERIES:
            raise TooMuchError(f"An answer holds {series} series.", "Narrow the match, or advise by shard.")
        weight = json_memory_bytes(body)
        if weight > self._room.most_bytes:
            raise TooMuchError(
                f"An answer of {len(body) / 1e6:.0f} MB is made of too many parts ({series} series).",
                "Narrow the window or the match, or advise by shard.",
            )
        with self._room.taking(weight):
            return read(_judge(reply.status, body))


def _pieces(response: requests.Response) -> Iterator[bytes]:
    """The body as it comes, at most a quarter of a MiB a piece, decompressed."""
    while piece := response.raw.read1(1 << 18, decode_content=True):
        yield piece


def _names(document: Mapping[str, object]) -> tuple[str, ...]:
    data = document.get("data")
    if data is None:
        return ()
    if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
        raise AnswerError("The server's list of metric names is no list of texts.", "Is this the query API?")
    if len(data) > MAX_NAMES:
        raise TooMuchError(f"The server tells of {len(data)} names of metrics.", "Narrow the window or the match.")
    return tuple(data)


def check_url(url: str) -> str:
    """The root of a server's API, without a slash at its end. Raises UsageError; a secret in it is not repeated."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise UsageError("--prometheus has a wrong address.", "Write http://HOST:PORT.") from None
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "--prometheus holds a user or a password.", "Set prometheus.username and prometheus.password_file instead."
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        # Not repeated: a token may stand in it, or a password behind a scheme that was forgotten.
        raise UsageError("--prometheus is no address of a server.", "Write http://HOST:PORT, or with a path.")
    if not url.isprintable() or " " in url:
        raise UsageError("--prometheus has a wrong address.", "Write http://HOST:PORT.")
    return url.rstrip("/")


def _session(
    url: str, settings: PrometheusSettings, environ: Mapping[str, str], adapter: DeadlineAdapter
) -> requests.Session:
    session = QuietSession()
    if settings.ca_file:
        session.verify = settings.ca_file
    if settings.client_cert_file:
        key = settings.client_key_file
        session.cert = (settings.client_cert_file, key) if key else settings.client_cert_file
    if settings.username:
        password = secret(settings.password_file, environ) if settings.password_file else ""
        session.auth = HTTPBasicAuth(settings.username.encode(), password.encode())  # UTF-8, as RFC 7617 has it
    headers = dict(settings.headers)
    headers |= {name: secret(file, environ) for name, file in settings.header_files.items()}
    if settings.tenant:
        headers["X-Scope-OrgID"] = settings.tenant
    if settings.bearer_token_file:
        if settings.username:
            raise UsageError("The settings give both a bearer token and a user.", "Keep one of them.")
        headers["Authorization"] = f"Bearer {secret(settings.bearer_token_file, environ)}"
    for name, value in headers.items():
        if not value.isascii() or value != value.strip():
            raise UsageError(
                f"What is to be sent as {name} cannot stand in a header.", "Give it in ASCII, without blanks around it."
            )
    session.headers.update({"User-Agent": "skuwise", **headers})
    proxy = {"http": settings.proxy, "https": settings.proxy} if settings.proxy else None
    # It mounts an adapter of its own on our session; retries are ours.
    PrometheusConnect(url=url, session=session, proxy=proxy, retry=Retry(0, redirect=0), method="POST")  # type: ignore[arg-type] - its hints lack None
    adapter.serve(session)
    return session


def _judge(status: int, body: bytearray) -> Mapping[str, object]:
    if status in (401, 403):
        raise UnreachableError(
            f"The server refuses us ({status}).", "Set prometheus.bearer_token_file or prometheus.username."
        )
    if 300 <= status < 400:
        raise UnreachableError(f"The server sends us elsewhere ({status}).", "Give the address that it sends to.")
    if status == 404:
        raise RefusedError("The server has no such path (404).", "Check the URL: it must be the API's root.")
    if status != 200:
        kind = TooMuchError if status == 413 or _is_too_much(body) else RefusedError
        raise kind(f"The server answers {status}{_said(body)}.", "Ask for less, or mend the match.")
    document = decode(body)
    if document.get("status") != "success":
        kind = TooMuchError if _is_too_much(body) else RefusedError
        raise kind(f"The server answers with an error{_said(body)}.", "Ask for less, or mend the match.")
    return document


def _said(body: bytearray) -> str:
    """The server's own words on an error, short and harmless; empty where it gave none."""
    error = clean_text(_error(body), MAX_NOTE).rstrip(".")
    return f": {error}" if error else ""


def _error(body: bytearray) -> str:
    try:
        document = json.loads(body[:_MAX_WORDS_BYTES])
    except (ValueError, RecursionError):
        return ""
    error = document.get("error") if isinstance(document, dict) else None
    return error if isinstance(error, str) else ""


def _is_too_much(body: bytearray) -> bool:
    said = _error(body).lower()
    return any(words in said for words in _TOO_MUCH)


def _seconds(header: str | None) -> float:
    """Of a Retry-After header; 0 for none, and for a date."""
    try:
        seconds = float(header or 0)
    except ValueError:
        return 0.0
    return max(0.0, seconds)  # 0 for nan too


def _unreachable(url: str, error: Exception) -> UnreachableError:
    kinds = (
        (requests.exceptions.SSLError, "its certificate is not accepted", "Set prometheus.ca_file."),
        (requests.exceptions.ProxyError, "the proxy does not answer", "Check prometheus.proxy."),
        (requests.exceptions.Timeout, "it does not answer in time", "Check the address and the network."),
        (
            (requests.exceptions.ConnectionError, HTTPError, HTTPException),
            "no connection can be made, or it broke",
            "Is the server running?",
        ),
    )
    for kind, why, remedy in kinds:
        if isinstance(error, kind):
            return UnreachableError(f"{url} cannot be read: {why}.", remedy)
    return UnreachableError(f"{url} cannot be read ({type(error).__name__}).", "Check the address.")
