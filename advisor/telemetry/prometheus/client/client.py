"""What is asked of a server, by prometheus-api-client over a session with limits (`session`)."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from prometheus_api_client.prometheus_connect import PrometheusConnect

from .....rules.base.errors import SourceError, UsageError
from ..settings import PrometheusSettings
from .response import Grid, LabelSets, RefusedError, SeriesAnswer, TooMuchError, read_document, read_matrix, read_vector
from .session import LimitedSession


class Client:
    """One server. Usable from several threads at once."""

    def __init__(
        self, url: str, settings: PrometheusSettings, environ: Mapping[str, str], **limits: Any,  # noqa: ANN401
    ) -> None:  # fmt: skip
        """`limits`: of `LimitedSession`."""
        self.url = check_url(url)
        self._session = LimitedSession(self.url, settings, environ, **limits)
        # Its methods return what the session's answers hold (`Body`), which its type hints cannot know.
        self._server: Any = PrometheusConnect(url=self.url, method="POST", session=self._session)
        self._session.use_deadlines()  # in place of the adapter that the library mounts
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
            return read_vector(body, kept, self._label_sets)

    def range(self, query: str, grid: Grid, kept: Sequence[str] | None = None) -> SeriesAnswer:
        """The values of each series at the moments of `grid`. Raises TooMuchError where a part may be answered."""
        start, end = (datetime.fromtimestamp(moment, UTC) for moment in (grid.start, grid.end))
        exact = {"start": f"{grid.start:.3f}", "end": f"{grid.end:.3f}"}  # the library's own are whole seconds
        body = self._server.custom_query_range(query, start, end, f"{grid.step:.3f}", params=exact)
        with self._decoding:
            return read_matrix(body, grid, kept, self._label_sets)

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
        data = read_document(self._server.get_label_values("__name__", params=params)["result"]).get("data")
        return tuple(name for name in data if isinstance(name, str)) if isinstance(data, list) else ()

    def about(self, path: str) -> Mapping[str, object]:
        """What the server says of itself at ``api/v1/status/PATH``; empty where it does not say that."""
        data = None
        with suppress(SourceError):  # forbidden, where queries may be allowed
            data = read_document(self._session.request("GET", f"{self.url}/api/v1/status/{path}").body).get("data")
        return data if isinstance(data, dict) else {}


def check_url(url: str) -> str:
    """The root of a server's API, without a slash at its end. Raises UsageError, which repeats no secret in it."""
    with suppress(ValueError):
        parts = urlsplit(url)
        is_plain = url.isprintable() and "@" not in parts.netloc and not any(one in url for one in " ?#")
        if is_plain and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return url.rstrip("/")
    raise UsageError(
        "Invalid URL in --prometheus.",
        "Use http://HOST:PORT, optionally with a path; for a login set prometheus.username and password_file.",
    )
