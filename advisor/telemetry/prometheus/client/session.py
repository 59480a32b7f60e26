"""The HTTP session of one server: login, retries, one deadline for each call, and a limit on the bytes of an answer.

Redirects are not followed: they would carry the secrets elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import DecodeError, HTTPError

from .....agent.base.safe_text import clean_text
from .....rules.base.errors import SourceError, UsageError
from ....core.http_session import CONNECT_SECONDS, DeadlineAdapter, QuietSession, is_late
from ....core.loopback import is_loopback
from ..settings import PrometheusSettings
from .errors import AnswerError, RefusedError, TooMuchError, UnreachableError
from .login import Login
from .response import query_error

MAX_ANSWER_BYTES = 128 * 1024 * 1024
MAX_ERROR_BYTES = 65536
ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.5
# A query that is late is split and sent again: a server that answers nothing at all is given up after this many.
MOST_TIMEOUTS = 5
# Too many requests, and what servers and the proxies before them return while they are busy or restart.
_RETRIED = (429, 502, 503, 504)


class Body(requests.Response):
    """An answer that was read within the limits. What prometheus-api-client takes from its JSON is the body itself: the
    library drops a server's warnings."""

    def __init__(self, content: bytearray) -> None:
        super().__init__()
        self.status_code = 200
        self.body = content

    def json(self, **_: Any) -> Any:  # noqa: ANN401 - as requests has it
        return {"data": {"result": self.body}}


class LimitedSession(QuietSession):
    """Usable from several threads at once. `sleep` and `monotonic`: clocks, for tests."""

    def __init__(
        self,
        url: str,
        settings: PrometheusSettings,
        environ: Mapping[str, str],
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        super().__init__()
        self.url = url
        self.body_sizes: list[int] = []
        self._timeout, self._max_bytes = settings.timeout_seconds, max_answer_bytes
        self._sleep, self._monotonic = sleep, monotonic
        self._last_answer = monotonic()
        self.adapter = DeadlineAdapter()
        self.headers["User-Agent"] = "skuwise"
        if is_loopback(urlsplit(url).hostname or ""):
            # Compression costs both sides more than it saves where nothing goes through a network.
            self.headers["Accept-Encoding"] = "identity"
        self.auth = Login(url, settings, environ)
        if settings.proxy:
            self.proxies = {"http": settings.proxy, "https": settings.proxy}
        self.verify = settings.ca_file or True
        if settings.client_cert_file:
            key = settings.client_key_file
            self.cert = (settings.client_cert_file, key) if key else settings.client_cert_file

    def request(  # type: ignore[override] - what else the library passes is set here
        self,
        method: str,
        url: str,
        params: Mapping[str, Any] | None = None,
        **_: Any,  # noqa: ANN401
    ) -> Body:
        """An answer within the limits. Raises SourceError and UsageError, never what requests raises.

        Parameters of a POST are a form: a long query does not fit in an address.
        """
        pause, begun = FIRST_PAUSE_SECONDS, self._monotonic()
        with self.adapter.within(self._timeout) as deadline:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    status, retry_after, body = self._received(method, url, params or {})
                    if deadline.over:  # an answer without a length looks whole wherever it is cut
                        raise TimeoutError
                except DecodeError:
                    raise AnswerError(
                        f"The answer of {self.url} cannot be decoded.", "Check the compression, for example in a proxy."
                    ) from None
                except (requests.RequestException, HTTPError, HTTPException, TimeoutError) as error:
                    if not isinstance(error, requests.ConnectTimeout) and is_late(error, deadline):
                        raise self._unless_silent(
                            TooMuchError(
                                f"No answer from the server within {self._timeout:g} s.",
                                "Use a shorter window or a narrower --match, or raise prometheus.timeout.",
                            )
                        ) from None
                    failure: SourceError = _unreachable(self.url, error)
                    is_final = isinstance(error, requests.exceptions.SSLError)
                except OSError as error:  # requests says so of files of certificates
                    raise UsageError(
                        f"Cannot read a certificate file: {clean_text(str(error))}.",
                        "Fix the certificate paths in [prometheus].",
                    ) from None
                else:
                    if status not in _RETRIED:
                        self._last_answer = self._monotonic()
                    if status == 200:
                        return Body(body)
                    if status == 401 and attempt == 1:
                        continue  # a token may expire while its request is on the way: it is read again
                    failure = _refusal(status, body)
                    is_final = status not in _RETRIED or (isinstance(failure, TooMuchError) and status != 504)
                    pause = max(pause, retry_after)
                if is_final or attempt == ATTEMPTS or pause >= begun + self._timeout - self._monotonic():
                    raise self._unless_silent(failure)
                self._sleep(pause)
                pause *= 2
        raise AssertionError("the last attempt returns or raises")

    def _unless_silent(self, failure: SourceError) -> SourceError:
        """`failure`, or UnreachableError where no query has been answered for long."""
        seconds = self._monotonic() - self._last_answer
        if seconds < MOST_TIMEOUTS * self._timeout:
            return failure
        return UnreachableError(
            f"No answer from {self.url} for {seconds:.0f} s.",
            "Check the load of the server, or raise prometheus.timeout.",
        )

    def _received(self, method: str, url: str, params: Mapping[str, Any]) -> tuple[int, float, bytearray]:
        """Status, seconds of Retry-After (0: none) and body of one attempt."""
        with super().request(
            method,
            url,
            params=params if method == "GET" else None,
            data=params if method == "POST" else None,
            timeout=(CONNECT_SECONDS, self._timeout),
            allow_redirects=False,
            stream=True,
        ) as response:
            body = bytearray()
            # Decompressed piece by piece: a body of some kB can hold gigabytes.
            while piece := response.raw.read1(1 << 18, decode_content=True):
                body += piece
                if response.status_code != 200 and len(body) > MAX_ERROR_BYTES:
                    break  # only the words of an error are needed
                if len(body) > self._max_bytes:
                    raise TooMuchError(
                        f"Answer too large: more than {self._max_bytes / 1e6:g} MB.",
                        "Use a shorter window or a narrower --match.",
                    )
            self.body_sizes.append(len(body))
            retry_after = 0.0
            with suppress(ValueError):  # a date
                retry_after = max(0.0, float(response.headers.get("Retry-After", 0)))  # 0 for nan too
            return response.status_code, retry_after, body


def _refusal(status: int, body: bytearray) -> SourceError:
    """The error for an answer with this status. Its remedy fits the cause."""
    if status in (401, 403):
        return UnreachableError(
            f"Access denied by the server (HTTP {status}).",
            "Check prometheus.bearer_token_file, prometheus.username or prometheus.login.",
        )
    if 300 <= status < 400:
        return UnreachableError(
            f"The server redirected the request (HTTP {status}); redirects are not followed.",
            "Use the URL of the redirect's target.",
        )
    if status == 404:
        return RefusedError("Path not found on the server (HTTP 404).", "Check the URL: it must be the API's root.")
    error = query_error(f"HTTP {status}", body, too_much=status in (413, 504))
    if not isinstance(error, TooMuchError) and (status >= 500 or status == 429):
        error.remedy = "Try again later."
    return error


def _unreachable(url: str, error: Exception) -> UnreachableError:
    why, remedy = "connection failed or was closed", "Check the URL and that the server is running."
    if isinstance(error, requests.exceptions.SSLError):
        why, remedy = "certificate not accepted", "Set prometheus.ca_file."
    elif isinstance(error, requests.exceptions.ProxyError):
        why, remedy = "no answer from the proxy", "Check prometheus.proxy."
    elif isinstance(error, requests.exceptions.Timeout):
        why, remedy = "timeout", "Check the address and the network."
    return UnreachableError(f"{url} cannot be read: {why}.", remedy)
