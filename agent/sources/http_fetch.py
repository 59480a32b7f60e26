"""Reads one metrics page over HTTP, from a server that need not be well-meaning.

It may be slow, endless, compressed, cut or elsewhere: a page is given 3 s in all (not for each read), 8 MiB, no
redirect and no compression. Only loopback addresses are read unless the settings say otherwise; a name is resolved
once per reading and the address that was checked is the one that is connected to.

Asked in HTTP/1.0, whose answers come in one piece that ends with the connection. (`http.client` would do the same for
7 MB of memory: it brings TLS and mail headers along.)
"""

from __future__ import annotations

import ipaddress
import re
import socket
import time
from collections.abc import Callable, Collection, Iterator

from ..base.deadline import resolve_host
from ..base.page_url import PageError, split_url
from .prometheus_text import PageParser, Series

MAX_PAGE_BYTES = 8 * 1024 * 1024
TOTAL_SECONDS = 3.0
_MAX_HEAD_BYTES = 16384
_PIECE = 65536
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?")


def read_page(
    url: str,
    wanted: Collection[str],
    *,
    remote: bool = False,
    max_bytes: int = MAX_PAGE_BYTES,
    total_seconds: float = TOTAL_SECONDS,
    monotonic: Callable[[], float] = time.monotonic,
) -> list[Series]:
    """The wanted series of the page at `url`. Raises PageError, whose reason says what was wrong."""
    deadline = monotonic() + total_seconds
    host, port, path = split_url(url)
    family, address = _address(host, port, remote=remote, seconds=total_seconds)
    name = f"[{host}]" if ":" in host else host
    request = (
        f"GET {path} HTTP/1.0\r\nHost: {name}:{port}\r\nAccept: text/plain;version=0.0.4\r\n"
        "Accept-Encoding: identity\r\nConnection: close\r\nUser-Agent: skuwise\r\n\r\n"
    )
    try:
        with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:

            def timed() -> socket.socket:
                left = deadline - monotonic()
                if left <= 0:
                    raise TimeoutError
                connection.settimeout(left)
                return connection

            timed().connect(address)
            timed().sendall(request.encode("ascii"))
            return _answer(iter(lambda: timed().recv(_PIECE), b""), wanted, max_bytes)
    except TimeoutError:
        raise PageError(
            "page-too-slow", f"The page took longer than {total_seconds:g} s.", "See why its server is slow."
        ) from None
    except ConnectionRefusedError:
        raise PageError("unreachable", f"Nothing listens on port {port} there.", "Start its server.") from None
    except OSError as error:
        what = error.strerror or type(error).__name__
        raise PageError("unreachable", f"The page cannot be read ({what}).", "See its server's log.") from None


def _address(host: str, port: int, *, remote: bool, seconds: float) -> tuple[int, tuple[str, int]]:
    name = host
    if name == "localhost":
        name = "127.0.0.1"
    try:
        ip = ipaddress.ip_address(name)
    except ValueError:
        if not remote:
            raise _not_loopback() from None
        try:
            family, sockaddr = resolve_host(host, port, seconds)[0]
        except TimeoutError:
            raise PageError("page-too-slow", "The host's name was not resolved in time.", "See its resolver.") from None
        except OSError:
            raise PageError("unreachable", "The host name is unknown.", "Fix its address.") from None
        return family, (str(sockaddr[0]), port)
    if not remote and not ip.is_loopback:
        raise _not_loopback()
    return socket.AF_INET6 if ip.version == 6 else socket.AF_INET, (str(ip), port)


def _not_loopback() -> PageError:
    return PageError(
        "not-loopback",
        "Only pages of this node (127.0.0.1, ::1, localhost) are read.",
        "Set scrape_remote = true to read pages of other hosts, on a network you trust.",
    )


def _answer(pieces: Iterator[bytes], wanted: Collection[str], max_bytes: int) -> list[Series]:
    head, body = _head(pieces)
    announced = _check(head, max_bytes)
    parser = PageParser(wanted)
    got = 0
    while body or (body := next(pieces, b"")):
        if announced is not None:
            body = body[: announced - got]
        got += len(body)
        if got > max_bytes:
            raise _too_large(max_bytes)
        parser.feed(body)
        if got == announced:
            break
        body = b""
    if announced is not None and got < announced:
        raise PageError(
            "page-cut", "The page is shorter than the length its server announced.", "See its server's log."
        )
    return parser.finish()


def _head(pieces: Iterator[bytes]) -> tuple[bytes, bytes]:
    """The answer's head, and what came of its body with it."""
    head = b""
    for piece in pieces:
        head += piece
        before, end, body = head.partition(b"\r\n\r\n")
        if end and len(before) <= _MAX_HEAD_BYTES:
            return before, body
        if len(head) > _MAX_HEAD_BYTES or not head.startswith(b"HTTP/"[: len(head)]):
            break
    raise PageError("not-http", "The server at that address does not speak HTTP.", "Fix its address.")


def _check(head: bytes, max_bytes: int) -> int | None:
    """The length that the head announces; None where it does not."""
    first, *lines = head.split(b"\r\n")
    found = _STATUS.fullmatch(first)
    if found is None:
        raise PageError("not-http", "The server at that address does not speak HTTP.", "Fix its address.")
    status = int(found.group(1))
    if 300 <= status < 400:
        raise PageError(
            "redirected", "The server redirected the request; redirects are not followed.", "Set the address it is at."
        )
    if status != 200:
        raise PageError("http-status", f"The page answers with status {status}.", "See its server's log.")
    split = (line.lower().partition(b":") for line in lines)
    fields = {name.strip(): value.strip() for name, _, value in split}
    if fields.get(b"content-encoding", b"identity") != b"identity":
        raise PageError("page-encoded", "The page comes compressed although that was not asked for.", "")
    if fields.get(b"transfer-encoding", b"identity") != b"identity":
        raise PageError("page-encoded", "The page comes in chunks although HTTP/1.0 was asked for.", "")
    announced = fields.get(b"content-length")
    if announced is None:
        return None
    if not announced.isdigit() or len(announced) > 18:
        raise PageError("not-http", "The page's length is not a number.", "See its server's log.")
    if int(announced) > max_bytes:
        raise _too_large(max_bytes)
    return int(announced)


def _too_large(max_bytes: int) -> PageError:
    return PageError(
        "page-too-large", f"The page is larger than {max_bytes >> 20} MiB.", "Have its server export less."
    )
