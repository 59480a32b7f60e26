"""Reading a page over HTTP from servers that answer well, slowly, wrongly and without end."""

import gzip
import http.server
import socket

import pytest
from skuwise.agent.base.settings import PageError, split_url
from skuwise.agent.sources.pages import PageReader, Target, fetch_page, parse_page
from skuwise.tests.support.metrics_fixtures import raw_server, serving


def refused(url: str) -> str:
    with pytest.raises(PageError) as caught:
        parse_page(fetch_page(url), {"up"})
    return caught.value.reason


@pytest.mark.parametrize("chunked", [False, True])
def test_a_page_is_read_and_asked_for_once_plainly(chunked: bool) -> None:
    seen: list[str] = []
    body = b'# TYPE up gauge\nup{a="b"} 1\n'

    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        seen.extend([request.headers["Accept-Encoding"], request.headers["Accept"]])
        request.protocol_version = "HTTP/1.1"
        request.send_response(200)
        if chunked:
            request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body)

    with serving(answer) as (url, asked):
        assert fetch_page(url) == body
        assert asked == ["/metrics"]
    assert seen == ["identity", "text/plain;version=0.0.4"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nup 1\n", "page-cut"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nup 1\nup 2\n", "page-cut"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nup 1\n\r\n9\r\nup", "not-http"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "http-status"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "http-status"),
        (b"\x16\x03\x01\x00\x00", "not-http"),
        (b"", "not-http"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 9999 + b"\r\n", "not-http"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html><body>up 1</body></html>\n", "page-malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"up 1\n" * 100_000), "page-malformed"),
    ],
)
def test_what_lies_is_refused_with_its_reason(answer: bytes, reason: str) -> None:
    def talk(connection: socket.socket) -> None:
        while b"\r\n\r\n" not in connection.recv(65536):
            pass
        connection.sendall(answer)

    with raw_server(talk) as url:
        assert refused(url) == reason


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        *((f"http://{host}/m", "not-loopback") for host in ("10.0.0.1", "example.com", "[::2]", "127.evil.org")),
        *(
            (url, "bad-url")
            for url in (
                "https://127.0.0.1/", "file:///etc/passwd", "http://u:p@127.0.0.1/", "http://", "http://127.0.0.1/a b",
                "http://127.0.0.1:99999/", "http://127.0.0.1/\r\nX: y", "http://127.0.0.1/ü", "127.0.0.1:9400",
            )
        ),
    ],
)  # fmt: skip
def test_only_pages_of_loopback_are_read_unless_told_otherwise(url: str, reason: str) -> None:
    assert refused(url) == reason


def test_the_reader_reads_in_its_own_thread_and_never_twice_within_ten_seconds() -> None:
    with serving("up 1\n") as (first, asked), serving("up 2\n") as (two, _):
        reader = PageReader()
        reader.start((Target(first, {"up"}, 10.0, lambda port: frozenset({port})),), wait=True)
        reader.start((Target(first, {"up"}, 0.001), Target(two, {"up"}, 10.0)), wait=True)
        page, other = reader.latest(first), reader.latest(two)
        reader.close()
    assert page is not None and other is not None
    assert (page.series[0].value, other.series[0].value) == (1.0, 2.0)
    assert page.pids == frozenset({split_url(first)[1]})
    assert asked == ["/metrics"]
