"""requests with a limit for a request as a whole: names, connecting, TLS, the proxy, sending, head and body; and its
secrets, which are read from files and never from settings.

`requests` has only a timeout for each wait. The adapter here gives urllib3 connections that put every socket under the
deadline of the calling thread (`within`). The session ignores redirects: `requests` would read the body of one to its
end, whatever its size, and parse its address even if it is not followed.
"""

import ipaddress
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from socket import socket
from typing import Any

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ReadTimeoutError
from urllib3.util.retry import Retry

from ...agent.base.deadline import Deadline
from ...agent.base.safe_text import clean_text
from ...rules.base.errors import UsageError
from ...rules.base.files import open_stream

CONNECT_SECONDS = 10.0  # after which connecting is tried again
# It logs lines that are no headers, with the address, which may be a secret.
logging.getLogger("urllib3").setLevel(logging.CRITICAL)
_MAX_WORDS = 200
MAX_SECRET_BYTES = 65536
_LATE = "no answer in time"


class _Current(threading.local):
    """The deadline of this thread's requests, and whether one was sent completely since it began."""

    deadline: Deadline
    sent = False


_current = _Current()


@contextmanager
def within(seconds: float) -> Iterator[Deadline]:
    """End this thread's requests after so many seconds, with the errors that urllib3 raises then."""
    with Deadline(seconds) as deadline:
        _current.deadline, _current.sent = deadline, False
        yield deadline


class _Plain(HTTPConnection):
    def _new_conn(self) -> socket:
        self.timeout = min(CONNECT_SECONDS, _current.deadline.left())
        connection = super()._new_conn()
        _current.deadline.guard(connection)
        return connection

    def request(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as urllib3 has it
        if self.sock is not None:
            _current.deadline.guard(self.sock)  # kept from an earlier request
        super().request(*args, **kwargs)
        _current.sent = True


class _Secure(_Plain, HTTPSConnection):
    """`_Plain` comes first: TLS wraps the socket that it makes."""


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain  # type: ignore[assignment] - as urllib3's own do


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure  # type: ignore[assignment] - as urllib3's own do


class DeadlineAdapter(HTTPAdapter):
    """For requests in a `within` block. Usable from several threads at once; it retries nothing."""

    def __init__(self) -> None:
        super().__init__(max_retries=Retry(0, redirect=0, read=False))

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as requests has it
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:  # noqa: ANN401 - as requests has it
        if not proxy.lower().startswith(("http://", "https://")):
            raise requests.exceptions.InvalidProxyURL("only http and https proxies are used")
        manager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = self.poolmanager.pool_classes_by_scheme
        return manager


class QuietSession(requests.Session):
    """Follows no redirect, keeps no cookies, and ignores proxies and passwords of the environment."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self.adapters = dict.fromkeys(("https://", "http://"), DeadlineAdapter())

    def mount(self, prefix: str | bytes, adapter: BaseAdapter) -> None:
        """Mount nothing: users of the session would replace the adapter."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002 - as requests has it
        return None


def is_late(error: Exception, deadline: Deadline) -> bool:
    """Whether a request failed because its answer was late: by the deadline, or by a timeout just before it. Not
    connecting in time is another failure."""
    return deadline.over or isinstance(error, requests.ReadTimeout | ReadTimeoutError | TimeoutError)


class UnansweredError(Exception):
    """A request without an answer, and why, without its address, which may be a secret. `sent`: it may have arrived."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


def post(url: str, content: bytes, headers: Mapping[str, str], seconds: float) -> tuple[int, str]:
    """Post JSON once: the status, and the beginning of an error's body. `seconds`: from connecting to the end of the
    answer. Raises UnansweredError."""
    session = QuietSession()
    session.headers.update({"User-Agent": "skuwise", "Content-Type": "application/json", **headers})
    with session, within(seconds) as deadline:
        try:
            with session.post(url, data=content, timeout=seconds, allow_redirects=False, stream=True) as answer:
                status = answer.status_code
                words = answer.raw.read(_MAX_WORDS, decode_content=False) if status >= 300 else b""
        except (requests.RequestException, HTTPError, HTTPException, OSError, ValueError) as error:
            is_tls = isinstance(error, requests.exceptions.SSLError)
            why = "its certificate is not accepted" if is_tls else type(error).__name__
            raise UnansweredError(_LATE if is_late(error, deadline) else why, sent=_current.sent) from None
        if deadline.over:  # the answer may be cut
            raise UnansweredError(_LATE, sent=True)
    return status, clean_text(words, _MAX_WORDS)


def secret(name: str, environ: Mapping[str, str], *, private: bool = False) -> str:
    """The stripped content of a secret file; a name without a slash is a systemd credential, a file of
    ``$CREDENTIALS_DIRECTORY``. Raises UsageError, which never contains the secret.

    `private`: refuse a file that other users can read. systemd protects its credentials itself.
    """
    path = Path(name)
    if "/" not in name:
        folder = environ.get("CREDENTIALS_DIRECTORY")
        if not folder:
            message = f"No systemd credentials are available to this process, but {name} is one."
            raise UsageError(message, "Use a path, or set LoadCredential= in the unit.")
        path, private = Path(folder) / name, False
    try:
        with open_stream(path) as file:
            if private and os.fstat(file.fileno()).st_mode & 0o077:
                raise UsageError(f"The file {path} is readable by other users.", "Run chmod 0600 on it.")
            content = file.read(MAX_SECRET_BYTES + 1)
        text = content.decode("utf-8").strip()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Fix the setting or the file.") from error
    except UnicodeDecodeError:
        raise UsageError(f"The file {path} is not text.", "Write only the secret to the file.") from None
    if not text or len(content) > MAX_SECRET_BYTES or not text.isprintable():
        raise UsageError(f"The file {path} does not hold exactly one line.", "Write one line to the file: the secret.")
    return text


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name or number; no name is resolved."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
