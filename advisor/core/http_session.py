"""requests with a limit for a request as a whole: names, connecting, TLS, the proxy, sending, head and body.

`requests` has a timeout for each wait only. The adapter here gives urllib3 connections of ours, which put every socket
under the deadline of the thread that asks. The session reads nothing that nobody asked for: `requests` would read a
redirect's body to its end, whatever its size, and take its address apart even where it is not followed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from socket import gaierror, socket
from typing import Any

import requests
import requests.cookies
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
)
from urllib3.util.retry import Retry

from ...agent.base.deadline import Deadline
from ...agent.base.safe_text import clean_text

# A connection that is not made by then will not be: it is tried again where there is time left.
CONNECT_SECONDS = 10.0
# It logs lines that are no headers, with the address, which may be a secret.
logging.getLogger("urllib3").setLevel(logging.CRITICAL)
_MAX_WORDS = 200


class _Asking(threading.local):
    """What this thread asks: until when, and whether a request went out whole since then."""

    deadline: Deadline | None = None
    sent = False


class DeadlineAdapter(HTTPAdapter):
    """Mount it on a session, and ask within `within`. Usable from several threads at once; it retries nothing."""

    def __init__(self) -> None:
        self._asking = _Asking()
        self._pools = _pools(self._asking)
        super().__init__(max_retries=Retry(0, redirect=0, read=False))

    def serve(self, session: requests.Session) -> None:
        """Take all that is asked of a session, in place of other adapters."""
        for prefix in list(session.adapters):
            session.mount(prefix, self)

    @contextmanager
    def within(self, seconds: float) -> Iterator[Deadline]:
        """What this thread asks in the block ends after so many seconds, with the error that urllib3 makes of it."""
        with Deadline(seconds) as deadline:
            self._asking.deadline, self._asking.sent = deadline, False
            try:
                yield deadline
            finally:
                self._asking.deadline = None

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as requests has it
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:  # noqa: ANN401 - as requests has it
        if not proxy.lower().startswith(("http://", "https://")):
            raise requests.exceptions.InvalidProxyURL("only http and https proxies are used")
        manager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = self._pools
        return manager

    @property
    def sent(self) -> bool:
        """Whether a request of the last `within` went out whole: it may have arrived, whatever was answered."""
        return self._asking.sent


class QuietSession(requests.Session):
    """Follows nothing, keeps no cookies, and takes neither proxy nor password from the environment."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies = _NoCookies()

    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002 - as requests has it
        return None


class _NoCookies(requests.cookies.RequestsCookieJar):
    def extract_cookies(self, response: object, request: object) -> None:  # type: ignore[override]
        """Keep none."""


def _pools(asking: _Asking) -> dict[str, Any]:
    """urllib3's pools, of connections under the deadline of whoever asks."""

    class _Plain(HTTPConnection):
        def _new_conn(self) -> socket:
            return _connected(self, asking.deadline)

        def request(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as urllib3 has it
            if asking.deadline is not None and self.sock is not None:
                asking.deadline.guard(self.sock)  # it was kept from an earlier request
            super().request(*args, **kwargs)
            asking.sent = True

    class _Secure(_Plain, HTTPSConnection):
        """What is plain comes first: TLS is put around the socket that it makes."""

    class _PlainPool(HTTPConnectionPool):
        ConnectionCls = _Plain  # type: ignore[assignment] - as urllib3's own do

    class _SecurePool(HTTPSConnectionPool):
        ConnectionCls = _Secure  # type: ignore[assignment] - as urllib3's own do

    return {"http": _PlainPool, "https": _SecurePool}


def is_late(error: Exception, deadline: Deadline) -> bool:
    """Whether a request failed because its answer did not come in time: by the deadline, or by the timeout of a wait,
    which may run off just before it. A connection that is not made within its own time is another matter."""
    return deadline.over or isinstance(error, requests.ReadTimeout | ReadTimeoutError | TimeoutError)


class UnansweredError(Exception):
    """A request without an answer, and why: in words without its address, which may be a secret. `sent`: whether it
    went out whole, so that it may have arrived."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


def post(url: str, content: bytes, headers: Mapping[str, str], seconds: float, *, proxy: str = "") -> tuple[int, str]:
    """Post JSON once: the status, and the beginning of what is said of another than 2xx. `seconds`: from connecting to
    the end of the answer. Raises UnansweredError."""
    adapter, session = DeadlineAdapter(), QuietSession()
    adapter.serve(session)
    session.headers.update({"User-Agent": "skuwise", "Content-Type": "application/json", **headers})
    if proxy:
        session.proxies = {"http": proxy, "https": proxy}
    timeout = (min(CONNECT_SECONDS, seconds), seconds)
    with session, adapter.within(seconds) as deadline:
        try:
            with session.post(url, data=content, timeout=timeout, allow_redirects=False, stream=True) as answer:
                status = answer.status_code
                words = answer.raw.read(_MAX_WORDS, decode_content=False) if status >= 300 else b""
        except (requests.RequestException, HTTPError, HTTPException, OSError, ValueError) as error:
            is_tls = isinstance(error, requests.exceptions.SSLError)
            why = "its certificate is not accepted" if is_tls else type(error).__name__
            why = "no answer in time" if is_late(error, deadline) else why
            raise UnansweredError(why, sent=adapter.sent) from None
        if deadline.over:  # what was said last may have been cut
            raise UnansweredError("no answer in time", sent=True)
    return status, clean_text(words, _MAX_WORDS)


def _connected(connection: HTTPConnection, deadline: Deadline | None) -> socket:
    if deadline is None:
        raise NewConnectionError(connection, "asked without a deadline")
    host = connection._dns_host
    try:
        made = deadline.connect(host, connection.port or connection.default_port, most_seconds=CONNECT_SECONDS)
    except gaierror as error:
        raise NameResolutionError(host, connection, error) from error
    except TimeoutError as error:
        raise ConnectTimeoutError(connection, f"Connection to {host} timed out.") from error
    except OSError as error:
        raise NewConnectionError(connection, f"Failed to establish a new connection: {error}") from error
    for option in connection.socket_options or ():
        made.setsockopt(*option)
    return made
