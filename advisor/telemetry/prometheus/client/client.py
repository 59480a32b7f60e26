"""What is asked of a server, by prometheus-api-client over a session with limits (`connection`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Unpack, cast
from urllib.parse import urlsplit

from prometheus_api_client.prometheus_connect import PrometheusConnect
from urllib3.util.retry import Retry

from .....rules.base.errors import UsageError
from ..settings import PrometheusSettings
from .connection import Document, LimitedSession, Limits
from .errors import AnswerError, RefusedError, TooMuchError, UnreachableError
from .matrix_text import LabelBook, matrix_text
from .response import Grid, ServerAnswer, read_matrix, read_vector

# Names of metrics that the advisor asks for: exporters know some hundreds.
MAX_NAMES = 50_000


@dataclass(frozen=True, slots=True)
class QueryCounters:
    """What a run asked of the server."""

    queries: int
    bytes_read: int


class Client:
    """One server. Usable from several threads at once."""

    def __init__(
        self,
        url: str,
        settings: PrometheusSettings,
        environ: Mapping[str, str],
        *,
        session: type[LimitedSession] = LimitedSession,
        **limits: Unpack[Limits],
    ) -> None:
        self.url = check_url(url)
        self._session = session(self.url, settings, environ, **limits)
        proxy = {"http": settings.proxy, "https": settings.proxy} if settings.proxy else None
        hints = cast("dict[str, Any]", {"session": self._session, "proxy": proxy})  # its hints lack None
        self._server = PrometheusConnect(url=self.url, retry=Retry(0, redirect=0), method="POST", **hints)
        self._session.take_over()
        self._book = LabelBook()

    def close(self) -> None:
        self._server.close()

    @property
    def counters(self) -> QueryCounters:
        sizes = list(self._session.body_sizes)
        return QueryCounters(len(sizes), sum(sizes))

    def instant(self, query: str, at: float, kept: Sequence[str] | None = None) -> ServerAnswer:
        """The value of each series at a moment."""
        with self._session.reading(lambda document: _result(read_vector(document, kept))):
            return cast("ServerAnswer", self._server.custom_query(query, params={"time": f"{at:.3f}"}))

    def range(self, query: str, grid: Grid, kept: Sequence[str] | None = None) -> ServerAnswer:
        """The values of each series at the moments of `grid`. Raises TooMuchError where a part of it may do."""
        start, end = (datetime.fromtimestamp(moment, UTC) for moment in (grid.start, grid.end))
        # The library sends whole seconds, unless its parameters say more.
        exact = {"start": f"{grid.start:.3f}", "end": f"{grid.end:.3f}"}

        def of_text(body: bytearray) -> Document | None:
            parts = matrix_text(body)
            read = None if parts is None else parts.read(grid, names, self._book)
            return None if read is None else _result(read)

        names = None if kept is None else tuple(kept)
        with self._session.reading(lambda document: _result(read_matrix(document, grid, kept)), of_text):
            found = self._server.custom_query_range(query, start, end, f"{grid.step:.3f}", params=exact)
            return cast("ServerAnswer", found)

    def scalar(self, query: str, at: float) -> float | None:
        """The one number that a query gives; None where it gives none."""
        return _one_number(self.instant(query, at, ()))

    def names(self, selector: str, start: float, end: float) -> tuple[str, ...]:
        """The names of metrics that have series matching `selector` between two moments."""
        asked = {"match[]": selector, "start": f"{start:.3f}", "end": f"{end:.3f}"}
        with self._session.reading(lambda document: {"data": _names(document)}):
            return cast("tuple[str, ...]", self._server.get_label_values("__name__", params=asked))

    def clock(self) -> float | None:
        """What time it is by the server's clock (Unix seconds); None: it does not tell."""
        try:
            with self._session.reading(lambda document: _result(read_vector(document, ()))):
                return _one_number(cast("ServerAnswer", self._server.custom_query("time()")))
        except (UnreachableError, RefusedError, AnswerError):
            return None

    def about(self, path: str) -> Mapping[str, object]:
        """What the server says of itself at ``api/v1/status/PATH``; empty where it does not say that."""
        try:
            data = self._session.get(f"{self.url}/api/v1/status/{path}").json().get("data")
        except (UnreachableError, RefusedError, AnswerError):  # forbidden, where queries may be allowed
            return {}
        return data if isinstance(data, dict) else {}


def _result(read: ServerAnswer) -> Document:
    """An answer in the place where the library looks for its series."""
    return {"data": {"result": read}}


def _one_number(told: ServerAnswer) -> float | None:
    values = told.answer.values
    return None if not values.size or values[0, 0] != values[0, 0] else float(values[0, 0])


def _names(document: Mapping[str, object]) -> tuple[str, ...]:
    data = document.get("data")
    if data is None:
        return ()
    if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
        raise AnswerError(
            "Invalid list of metric names: expected strings.",
            "Check that --prometheus is the URL of a Prometheus query API.",
        )
    if len(data) > MAX_NAMES:
        raise TooMuchError(
            f"The server has too many metric names: {len(data)}.", "Use a shorter window or a narrower --match."
        )
    return tuple(data)


def check_url(url: str) -> str:
    """The root of a server's API, without a slash at its end. Raises UsageError; a secret in it is not repeated."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise UsageError("Invalid URL in --prometheus.", "Use http://HOST:PORT.") from None
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "Invalid URL in --prometheus: it contains a user or a password.",
            "Set prometheus.username and prometheus.password_file instead.",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        # Not repeated: a token may stand in it, or a password behind a scheme that was forgotten.
        raise UsageError("Invalid URL in --prometheus.", "Use http://HOST:PORT, optionally with a path.")
    if not url.isprintable() or " " in url:
        raise UsageError("Invalid URL in --prometheus.", "Use http://HOST:PORT.")
    return url.rstrip("/")
