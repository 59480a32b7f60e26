"""A real HTTP server on loopback that takes what is posted to it, and answers with the status that a test sets."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """`status`: of the next answers; `posted`: (path, JSON, headers) of what came, in order; `hang`: set, it answers
    nothing until the test is over."""

    url: str = ""
    status: int = 200
    hang: bool = False
    posted: list[tuple[str, Any, dict[str, str]]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def webhook_receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.posted.append((self.path, json.loads(body), dict(self.headers)))
            if receiver.hang:
                receiver.over.wait(60)
                return
            self.send_response(receiver.status)
            if 300 <= receiver.status < 400:
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"words")

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.over.set()
        server.shutdown()
        server.server_close()
