"""What is asked of a server, by prometheus-api-client over a session with login, retries, one deadline for each call
and a limit on the bytes of an answer.

Redirects are not followed: they would carry the secrets elsewhere. Secrets are read again for each request: tokens live
an hour. The login of a cloud comes from the provider's own library, an extra of the package, and its usual places.
"""

import importlib
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from http.client import HTTPException
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import requests
from msgspec import Meta
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests import PreparedRequest
from requests.auth import AuthBase, _basic_auth_str
from requests.exceptions import ConnectTimeout, RequestException, SSLError
from urllib3.exceptions import HTTPError

from .....agent.base.safe_text import clean_text
from .....rules.base.errors import SkuwiseError, SourceError, UsageError
from ....core.http_session import QuietSession, is_late, is_loopback, secret, within
from . import response as answers
from .response import SMALLER, Grid, LabelSets, RefusedError, SeriesAnswer, TooMuchError, UnreachableError

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)


def _headers(value: object, what: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(
        _HEADER.fullmatch(name) and isinstance(text, str) and text.isprintable() for name, text in value.items()
    ):
        raise UsageError(f"Invalid {what}: expected a table of HTTP headers.", 'Use { "X-Name" = "value" }.')
    return value


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """The section ``[prometheus]``, which contains no secret, only the names of files (advisor/core/http_session.py).

    `login`: the cloud whose own credentials sign requests; `aws_region`: of a workspace whose URL does not name it;
    `timeout_seconds`: for one answer to its last byte; `concurrency`: queries at once; `max_series`: of a measure;
    `cache`: folder of answers, empty: none is kept; None: the usual place; `tenant`: sent as ``X-Scope-OrgID``."""

    bearer_token_file: str = ""
    username: str = ""
    password_file: str = ""
    login: Literal["aws", "google", "azure", ""] = ""
    aws_region: str = ""
    ca_file: str = ""
    client_cert_file: str = ""
    client_key_file: str = ""
    proxy: str = ""
    tenant: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, metadata={"parse": _headers})
    header_files: Mapping[str, str] = field(default_factory=dict, metadata={"parse": _headers})
    timeout_seconds: Annotated[float, Meta(ge=1, le=3600)] = 120.0
    concurrency: Annotated[int, Meta(ge=1, le=32)] = 4
    max_series: Annotated[int, Meta(ge=1, le=10_000_000)] = 200_000
    cache: str | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """The identity of the requests: another one may get other series."""
        return (
            self.tenant, self.username, self.bearer_token_file, self.login, self.client_cert_file,
            sorted(self.headers.items()), sorted(self.header_files.items()),
        )  # fmt: skip


GOOGLE_SCOPE = "https://www.googleapis.com/auth/monitoring.read"
AZURE_SCOPE = "https://prometheus.monitor.azure.com/.default"
_AWS_HOST = re.compile(r"aps-workspaces(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com")
_Sign = Callable[[PreparedRequest], None]


class Login(AuthBase):
    """Adds the headers of settings and files to each request, then the token or signature of a cloud.

    Raises UsageError where a file cannot be read, settings exclude each other or an extra is not installed.
    """

    def __init__(self, url: str, settings: PrometheusSettings, environ: Mapping[str, str]) -> None:
        self._settings, self._environ, self._sign = settings, environ, None
        if sum(map(bool, (settings.bearer_token_file, settings.username, settings.login))) > 1:
            what = "Only one of prometheus.bearer_token_file, username and login can be used."
            raise UsageError(what, "Remove the others.")
        self.headers()  # what is wrong with a file is said before the first query
        if settings.login:
            try:
                self._sign = _CLOUDS[settings.login](url, settings)
            except ImportError:
                what = f'prometheus.login = "{settings.login}" needs a package that is not installed.'
                raise UsageError(what, f"Run pip install 'skuwise[{settings.login}]'.") from None

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers.update(self.headers())
        if self._sign is not None:
            try:
                self._sign(request)
            except Exception as error:
                # Each library has other errors, and their texts may contain a credential.
                what = f"Login to {self._settings.login} failed ({type(error).__name__})."
                raise UnreachableError(what, "Check the credentials with the cloud's own command.") from None
        return request

    def headers(self) -> dict[str, str]:
        settings, environ = self._settings, self._environ
        headers = {**settings.headers, **{name: secret(file, environ) for name, file in settings.header_files.items()}}
        if settings.tenant:
            headers["X-Scope-OrgID"] = settings.tenant
        if settings.bearer_token_file:
            headers["Authorization"] = f"Bearer {secret(settings.bearer_token_file, environ)}"
        if settings.username:
            password = secret(settings.password_file, environ) if settings.password_file else ""
            # UTF-8, as RFC 7617 has it.
            headers["Authorization"] = _basic_auth_str(settings.username.encode(), password.encode())
        for name, value in headers.items():
            if not value.isascii() or value != value.strip():
                raise UsageError(f"Invalid value of header {name}.", "Use ASCII without spaces around it.")
        return headers


def _aws(url: str, settings: PrometheusSettings) -> _Sign:
    auth, aws_request = map(importlib.import_module, ("botocore.auth", "botocore.awsrequest"))
    session = importlib.import_module("botocore.session").get_session()
    host = _AWS_HOST.fullmatch(urlsplit(url).hostname or "")
    region = settings.aws_region or (host[1] if host else session.get_config_variable("region"))
    if not region:
        raise UsageError("The AWS region is unknown.", "Set prometheus.aws_region.")

    def sign(request: PreparedRequest) -> None:
        # A space is signed as %20; requests writes + for it, and %2B for a plus.
        request.url = (request.url or "").replace("+", "%20")
        signed = aws_request.AWSRequest(request.method, request.url, data=request.body)
        if content_type := request.headers.get("Content-Type"):
            signed.headers["Content-Type"] = content_type
        credentials = session.get_credentials()  # None raises NoCredentialsError below
        frozen = credentials and credentials.get_frozen_credentials()
        auth.SigV4Auth(frozen, "aps", region).add_auth(signed)
        request.headers.update(dict(signed.headers.items()))

    return sign


def _google(_url: str, _settings: PrometheusSettings) -> _Sign:
    auth = importlib.import_module("google.auth")
    transport = importlib.import_module("google.auth.transport.requests").Request()
    default = cache(lambda: auth.default(scopes=[GOOGLE_SCOPE])[0])

    def sign(request: PreparedRequest) -> None:
        if not default().valid:  # no token yet, or it expires within minutes
            default().refresh(transport)
        request.headers["Authorization"] = f"Bearer {default().token}"

    return sign


def _azure(_url: str, _settings: PrometheusSettings) -> _Sign:
    credential = importlib.import_module("azure.identity").DefaultAzureCredential()
    return lambda request: request.headers.update(Authorization=f"Bearer {credential.get_token(AZURE_SCOPE).token}")


_CLOUDS = {"aws": _aws, "google": _google, "azure": _azure}


MAX_ANSWER_BYTES = 128 * 1024 * 1024
MAX_ERROR_BYTES = 65536
ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.5
MOST_TIMEOUTS = 5  # a query that is late is split and sent again, unless the server answers nothing for so long
_RETRIED = (429, 502, 503, 504)  # too many requests, busy, or restarting


class Body(requests.Response):
    """An answer within the limits. Its JSON is the body itself: prometheus-api-client drops a server's warnings."""

    def __init__(self, content: bytearray) -> None:
        super().__init__()
        self.status_code, self.body = 200, content

    def json(self, **_: Any) -> Any:  # noqa: ANN401 - as requests has it
        return {"data": {"result": self.body}}


class LimitedSession(QuietSession):
    """Usable from several threads at once. `sleep` and `monotonic`: clocks, for tests."""

    def __init__(
        self, url: str, settings: PrometheusSettings, environ: Mapping[str, str], *,
        sleep: Callable[[float], None] = time.sleep, monotonic: Callable[[], float] = time.monotonic,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:  # fmt: skip
        super().__init__()
        self.url, self._timeout, self._max_bytes = url, settings.timeout_seconds, max_answer_bytes
        self.body_sizes: list[int] = []
        self._sleep, self._monotonic, self._last_answer = sleep, monotonic, monotonic()
        self.headers["User-Agent"] = "skuwise"
        if is_loopback(urlsplit(url).hostname or ""):
            self.headers["Accept-Encoding"] = "identity"  # compression costs more than it saves without a network
        self.auth = Login(url, settings, environ)
        self.proxies = dict.fromkeys(("http", "https"), settings.proxy) if settings.proxy else {}
        self.verify = settings.ca_file or True
        cert, key = settings.client_cert_file, settings.client_key_file
        self.cert = (cert, key) if cert and key else cert or None

    def request(  # type: ignore[override] - what else the library passes is set here
        self, method: str, url: str, params: Mapping[str, Any] | None = None, **_: Any  # noqa: ANN401
    ) -> Body:  # fmt: skip
        """An answer within the limits. Raises SourceError and UsageError, never what requests raises."""
        attempt, pause, begun = 0, FIRST_PAUSE_SECONDS, self._monotonic()
        with within(self._timeout) as deadline:
            while True:
                attempt += 1
                try:
                    status, retry_after, body = self._received(method, url, params or {})
                    if deadline.over:  # an answer without a length looks whole wherever it is cut
                        raise TimeoutError
                except (RequestException, HTTPError, HTTPException, OSError) as error:
                    failure = self._failure(error, late=is_late(error, deadline))
                    is_final = isinstance(error, SSLError) or not isinstance(failure, UnreachableError)
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
                now = self._monotonic()
                if is_final or attempt == ATTEMPTS or pause >= begun + self._timeout - now:
                    break
                self._sleep(pause)
                pause *= 2
        if now - self._last_answer >= MOST_TIMEOUTS * self._timeout:
            what = f"No answer from {self.url} for {now - self._last_answer:.0f} s."
            raise UnreachableError(what, "Check the load of the server, or raise prometheus.timeout.")
        raise failure

    def _failure(self, error: Exception, *, late: bool) -> SkuwiseError:
        if late and not isinstance(error, ConnectTimeout):
            what = f"No answer from the server within {self._timeout:g} s."
            return TooMuchError(what, f"{SMALLER[:-1]}, or raise prometheus.timeout.")
        if isinstance(error, OSError) and not isinstance(error, RequestException):  # requests says so of their files
            what = f"Cannot read a certificate file: {clean_text(str(error))}."
            return UsageError(what, "Fix the certificate paths in [prometheus].")
        if isinstance(error, SSLError):
            return UnreachableError(f"{self.url}: certificate not accepted.", "Set prometheus.ca_file.")
        what = f"{self.url} cannot be read: connection failed or was closed."
        return UnreachableError(what, "Check the URL, prometheus.proxy and that the server is running.")

    def _received(self, method: str, url: str, params: Mapping[str, Any]) -> tuple[int, float, bytearray]:
        with super().request(
            method, url, params if method == "GET" else None, params if method == "POST" else None,
            timeout=self._timeout, allow_redirects=False, stream=True,
        ) as response:  # fmt: skip
            body = bytearray()
            # Decompressed piece by piece: a body of some kB can hold gigabytes.
            while piece := response.raw.read1(1 << 18, decode_content=True):
                body += piece
                if response.status_code != 200 and len(body) > MAX_ERROR_BYTES:
                    break  # only the words of an error are needed
                if len(body) > self._max_bytes:
                    raise TooMuchError(f"Answer too large: more than {self._max_bytes / 1e6:g} MB.", SMALLER)
            self.body_sizes.append(len(body))
            pause = response.headers.get("Retry-After", "")  # seconds or a date
            return response.status_code, float(pause) if pause.isdecimal() else 0.0, body


def _refusal(status: int, body: bytearray) -> SkuwiseError:
    if status in (401, 403):
        remedy = "Check prometheus.bearer_token_file, prometheus.username or prometheus.login."
        return UnreachableError(f"Access denied by the server (HTTP {status}).", remedy)
    if 300 <= status < 400:
        what = f"The server redirected the request (HTTP {status}); redirects are not followed."
        return UnreachableError(what, "Use the URL of the redirect's target.")
    if status == 404:
        return RefusedError("Path not found on the server (HTTP 404).", "Check the URL: it must be the API's root.")
    error = answers.query_error(f"HTTP {status}", body, too_much=status in (413, 504))
    if not isinstance(error, TooMuchError) and (status >= 500 or status == 429):
        error.remedy = "Try again later."
    return error


class Client:
    def __init__(
        self, url: str, settings: PrometheusSettings, environ: Mapping[str, str], **limits: Any,  # noqa: ANN401
    ) -> None:  # fmt: skip
        self.url = check_url(url)
        self._session = LimitedSession(self.url, settings, environ, **limits)
        # Its methods return what the session's answers hold (`Body`), which its type hints cannot know.
        self._server: Any = PrometheusConnect(url=self.url, method="POST", session=self._session)
        self.body_sizes = self._session.body_sizes
        self._label_sets = LabelSets()
        # Decoded JSON takes many times its text, and the interpreter decodes one answer at a time anyway.
        self._decoding = threading.Lock()

    def close(self) -> None:
        self._server.close()

    def instant(self, query: str, at: float | None, kept: Sequence[str] | None = None) -> SeriesAnswer:
        """The value of each series at a moment (Unix seconds; None: the server's now)."""
        body = self._server.custom_query(query, params={} if at is None else {"time": f"{at:.3f}"})
        with self._decoding:
            return answers.read_vector(body, kept, self._label_sets)

    def range(self, query: str, grid: Grid, kept: Sequence[str] | None = None) -> SeriesAnswer:
        """The values of each series at the moments of `grid`. Raises TooMuchError where a part may be answered."""
        start, end = (datetime.fromtimestamp(moment, UTC) for moment in (grid.start, grid.end))
        exact = {"start": f"{grid.start:.3f}", "end": f"{grid.end:.3f}"}  # the library's own are whole seconds
        body = self._server.custom_query_range(query, start, end, f"{grid.step:.3f}", params=exact)
        with self._decoding:
            return answers.read_matrix(body, grid, kept, self._label_sets)

    def scalar(self, query: str, at: float | None) -> float | None:
        """The one number that a query gives; None where it gives none."""
        values = self.instant(query, at, ()).values
        return None if not values.size or values[0, 0] != values[0, 0] else float(values[0, 0])

    def names(self, selector: str, start: float, end: float) -> tuple[str, ...]:
        """The names of metrics that have series matching `selector` between two moments (Unix seconds). All names are
        read where patterns of names are refused (GoogleCloudPlatform/prometheus-engine#1601)."""
        span = {"start": f"{start:.3f}", "end": f"{end:.3f}"}
        try:
            return self._names({"match[]": selector, **span})
        except RefusedError as error:
            pattern = re.search(r'__name__=~"([^"]*)"', selector)
            if isinstance(error, TooMuchError) or pattern is None:
                raise
            return tuple(name for name in self._names(span) if re.fullmatch(pattern[1], name))

    def _names(self, params: Mapping[str, str]) -> tuple[str, ...]:
        data = answers.read_document(self._server.get_label_values("__name__", params=params)["result"]).get("data")
        return tuple(name for name in data if isinstance(name, str)) if isinstance(data, list) else ()

    def about(self, path: str) -> Mapping[str, object]:
        """What the server says of itself at ``api/v1/status/PATH``; empty where it does not say that."""
        data = None
        with suppress(SourceError):  # forbidden, where queries may be allowed
            data = answers.read_document(self._session.request("GET", f"{self.url}/api/v1/status/{path}").body).get(
                "data"
            )
        return data if isinstance(data, dict) else {}


def check_url(url: str) -> str:
    """The root of a server's API, without a slash at its end. Raises UsageError, which repeats no secret in it."""
    with suppress(ValueError):
        parts = urlsplit(url)
        is_plain = url.isprintable() and "@" not in parts.netloc and not any(character in url for character in " ?#")
        if is_plain and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return url.rstrip("/")
    remedy = "Use http://HOST:PORT, optionally with a path; for a login set prometheus.username and password_file."
    raise UsageError("Invalid URL in --prometheus.", remedy)
