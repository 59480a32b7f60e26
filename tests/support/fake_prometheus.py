"""A server of Prometheus' API on loopback that answers as a test tells it to, also badly."""

from __future__ import annotations

import contextlib
import http.server
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reply:
    """What is answered.

    `broken`: the connection closes before the announced length is sent. `drips`: it comes byte by byte.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    broken: bool = False
    drips: bool = False


@dataclass(frozen=True)
class Request:
    """What was asked: path, parameters of the address or the form, headers in lower case."""

    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]

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


class _Quiet(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what some tests are about."""


class FakePrometheus:
    """`answer` is asked for each request; `requests` holds them in the order in which they came.

    `answered`: how many answers were sent to their end. `tls`: the server's certificate, and whose it asks for.
    """

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.answered = 0
        fake = self

        class _Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms for the acknowledgement of its head

            def do_GET(self) -> None:
                self._reply()

            def do_POST(self) -> None:
                self._reply()

            def _reply(self) -> None:
                parts = urllib.parse.urlsplit(self.path)
                form = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                params = dict(urllib.parse.parse_qsl(parts.query) + urllib.parse.parse_qsl(form))
                request = Request(parts.path, params, {k.lower(): v for k, v in self.headers.items()})
                fake.requests.append(request)
                reply = answer(request)
                with contextlib.suppress(OSError):
                    self.send_response(reply.status)
                    for name, value in reply.headers.items():
                        self.send_header(name.replace("_", "-"), value)
                    self.send_header("Content-Length", str(len(reply.body) + (1000 if reply.broken else 0)))
                    self.end_headers()
                    for n in range(len(reply.body)) if reply.drips else ():
                        self.wfile.write(reply.body[n : n + 1])
                        time.sleep(0.005)
                    self.wfile.write(b"" if reply.drips else reply.body)
                    fake.answered += 1
                if reply.broken:
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = _Quiet(("127.0.0.1", 0), _Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}"

    @contextlib.contextmanager
    def running(self) -> Iterator[FakePrometheus]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


GPU = {"UUID": "GPU-a", "gpu": "0", "Hostname": "n1", "modelName": "NVIDIA H100 80GB HBM3", "instance": "n1:9400"}


@dataclass
class DcgmServer:
    """A server that scrapes dcgm-exporter: a GPU in constant use for the whole of any window, unless told otherwise.

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
        return matrix(request, *((one, value) for one in self.series))
