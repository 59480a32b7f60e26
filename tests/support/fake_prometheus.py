"""A server of Prometheus' API that answers as a test says, also badly."""

from __future__ import annotations

import contextlib
import http.server
import io
import itertools
import json
import re
import ssl
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import requests
import urllib3
from skuwise.advisor.core.http_session import DeadlineAdapter
from skuwise.tests.support.metrics_fixtures import serving


@dataclass(frozen=True)
class Reply:
    """What is answered. `broken`: the connection closes before the announced length is sent."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    broken: bool = False


@dataclass(frozen=True)
class Request:
    """What was asked: path, parameters of the address or the form, headers in lower case; `search` and `body` as they
    came."""

    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    search: str = ""
    body: str = ""

    @property
    def method(self) -> str:
        return "POST" if self.body else "GET"

    @property
    def query(self) -> str:
        return self.params.get("query", "")


Answer = Callable[[Request], Reply]


def success(data: object, **beside: object) -> Reply:
    # Without blanks, as servers write it.
    return Reply(json.dumps({"status": "success", "data": data, **beside}, separators=(",", ":")).encode())


def vector(*series: tuple[Mapping[str, str], object], **beside: object) -> Reply:
    """An instant answer: labels and value of each series."""
    rows = [{"metric": dict(labels), "value": [0, str(value)]} for labels, value in series]
    return success({"resultType": "vector", "result": rows}, **beside)


def matrix(request: Request, *series: tuple[Mapping[str, str], object], **beside: object) -> Reply:
    """A range answer in which each series has one value all along; a list gives its values by moment."""
    start, end, step = (float(request.params[name]) for name in ("start", "end", "step"))
    moments = [start + n * step for n in range(round((end - start) / step) + 1)]
    rows = []
    for labels, value in series:
        values = value if isinstance(value, list) else [value] * len(moments)
        rows.append({"metric": dict(labels), "values": [[at, str(v)] for at, v in zip(moments, values, strict=False)]})
    return success({"resultType": "matrix", "result": rows}, **beside)


def error(status: int, text: str, **headers: str) -> Reply:
    return Reply(json.dumps({"status": "error", "errorType": "x", "error": text}).encode(), status, headers)


class FakePrometheus:
    """Answers the product's sessions in this process, without a socket. `answer` is asked for each request; `requests`
    holds them in the order in which they came."""

    _running: ClassVar[dict[str, FakePrometheus]] = {}
    _numbers: ClassVar[Iterator[int]] = itertools.count(20000)
    _send: ClassVar[Any] = DeadlineAdapter.send

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[Request] = []
        self.url = f"http://localhost:{next(self._numbers)}"

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        self._running[self.url] = self
        DeadlineAdapter.send = _sent  # type: ignore[method-assign]
        try:
            yield self
        finally:
            del self._running[self.url]
            if not self._running:
                DeadlineAdapter.send = FakePrometheus._send  # type: ignore[method-assign]

    def reply(self, target: str, body: str, headers: Mapping[str, str]) -> Reply:
        parts = urllib.parse.urlsplit(target)
        params = dict(urllib.parse.parse_qsl(parts.query) + urllib.parse.parse_qsl(body))
        request = Request(parts.path, params, {k.lower(): v for k, v in headers.items()}, parts.query, body)
        self.requests.append(request)
        return self._answer(request)


def _sent(adapter: DeadlineAdapter, request: requests.PreparedRequest, **options: Any) -> requests.Response:
    """In place of requests' own, where the address is one of a server that runs here."""
    parts = urllib.parse.urlsplit(request.url or "")
    fake = FakePrometheus._running.get(f"{parts.scheme}://{parts.netloc}")
    if fake is None:
        return FakePrometheus._send(adapter, request, **options)
    asked = request.body.decode() if isinstance(request.body, bytes) else str(request.body or "")
    reply = fake.reply(request.url or "", asked, {name: str(value) for name, value in request.headers.items()})
    headers = {name.replace("_", "-"): value for name, value in reply.headers.items()}
    headers["Content-Length"] = str(len(reply.body) + (1000 if reply.broken else 0))
    raw = urllib3.HTTPResponse(
        io.BytesIO(reply.body), headers, reply.status, preload_content=False, enforce_content_length=True,
        request_method=request.method,
    )  # fmt: skip
    return adapter.build_response(request, raw)


class FakeServer(FakePrometheus):
    """The same on loopback, with an address while it runs. `tls`: the server's certificate, and whose it asks for."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(answer)
        self._tls = tls

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        def answered(handler: http.server.BaseHTTPRequestHandler) -> None:
            form = handler.rfile.read(int(handler.headers.get("Content-Length") or 0)).decode()
            reply = self.reply(handler.path, form, dict(handler.headers))
            handler.send_response(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.end_headers()
            handler.wfile.write(reply.body)

        with serving(answered, tls=self._tls) as (url, _):
            self.url = url.removesuffix("/metrics")
            yield self


GPU = {"UUID": "GPU-a", "gpu": "0", "Hostname": "n1", "modelName": "NVIDIA H100 80GB HBM3", "instance": "n1:9400"}


@dataclass
class DcgmServer:
    """A server that scrapes dcgm-exporter: a GPU in constant use for the whole of any window, unless stated otherwise.

    `series`: labels of the GPUs; `names`: what the index holds; `by_query`: beginning of a query -> its answer.
    """

    series: list[Mapping[str, str]] = field(default_factory=lambda: [GPU])
    names: tuple[str, ...] = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE")
    count: int | None = None
    by_query: dict[str, Answer] = field(default_factory=dict)

    def __call__(self, request: Request) -> Reply:
        for part, answer in self.by_query.items():
            if request.query.startswith(part):
                return answer(request)
        if request.path.endswith("/values"):
            return success(list(self.names))
        if request.path.startswith("/api/v1/status"):
            return error(404, "not found")
        if request.query == "vector(1)":
            return vector(({}, 1))
        if request.query.startswith("union"):
            return error(400, "parse error")
        if request.path.endswith("/query"):
            return vector(({}, self.count if self.count is not None else len(self.series)))
        if request.query.startswith("max(count_over_time"):
            return matrix(request, ({}, 60))
        value = 60 if request.query.startswith("count_over_time") else 50
        return matrix(request, *((entry, value) for entry in self.series))


_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"')
_COUNTER = ("_total", "_count", "_sum", "_bucket")


@dataclass
class SeriesServer:
    """A server of series that never change: of a gauge its value, of a counter its growth a second. It knows just
    enough of PromQL: selectors, `rate`, `increase`, counts of samples a minute apart, and one division."""

    series: Mapping[str, Sequence[tuple[Mapping[str, str], float]]]

    def __call__(self, request: Request) -> Reply:
        query = request.query
        if request.path.endswith("/values"):
            return success(sorted(self.series))
        if request.path.startswith("/api/v1/status") or query.startswith("union"):
            return error(404, "not found")
        if query == "vector(1)":
            return vector(({}, 1))
        step = float(request.params.get("step", 3600))
        first, _, second = query.partition(" / rate(")
        rows = [(labels, self._value(first, value, step)) for labels, value in self._chosen(first)]
        if second and (below := dict(enumerate(value for _, value in self._chosen(second)))):
            rows = [(labels, value / below[min(n, len(below) - 1)]) for n, (labels, value) in enumerate(rows)]
        if query.startswith(("count(", "max(count_over_time", "sum(", "quantile(")):
            rows = [({}, step / 60 if "count_over_time" in query else len(rows))] if rows else []
        return vector(*rows) if request.path.endswith("/query") else matrix(request, *rows)

    def _chosen(self, query: str) -> list[tuple[Mapping[str, str], float]]:
        """The series of the metrics that a query names, by its selectors."""
        result = []
        for name, selector in re.findall(r"([A-Za-z_:][\w:]*)(\{[^}]*\})?", query):
            asked = _MATCHER.findall(selector)
            result += [(labels, v) for labels, v in self.series.get(name, ()) if all(_fits(labels, *a) for a in asked)]
        return result

    def _value(self, query: str, value: float, step: float) -> float:
        if query.startswith("count_over_time") or "(count_over_time" in query:
            return step / 60
        return value * step if "increase(" in query else value


def _fits(labels: Mapping[str, str], name: str, how: str, wanted: str) -> bool:
    has = labels.get(name, "")
    same = has == wanted if how in {"=", "!="} else re.fullmatch(wanted, has) is not None
    return same != how.startswith("!")


def of_page(text: str, seconds: float, **labels: str) -> dict[str, list[tuple[Mapping[str, str], float]]]:
    """The series of a metrics page that has counted for so many seconds, for a `SeriesServer`."""
    result: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition("{") if "{" in line else (line.split()[0], "", f"}} {line.split()[1]}")
            about, _, value = rest.rpartition("} ")
            part = {key: held for key, _, held in _MATCHER.findall(about)}
            number = float(value.split()[0]) / (seconds if name.endswith(_COUNTER) else 1.0)
            result.setdefault(name, []).append(({**labels, **part}, number))
    return result
