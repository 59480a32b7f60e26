"""`pause | resume | status` over a local socket: one line of JSON each way, for whoever may write to the socket.

The server's thread only carries messages; the loop answers them, so that nothing is shared between threads.
"""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue

from ...rules.base.errors import SkuwiseError

MODE = 0o660
_MOST_BYTES = 4096
_SPEAK_SECONDS = 2.0  # a client that connects and says nothing
_ANSWER_SECONDS = 40.0  # the loop may be in a tick, opening the driver or letting go of it

Message = Mapping[str, object]


class ControlServer:
    """Listens on `path` (mode 0660). `wake` is called when the loop is to `serve` a request."""

    def __init__(self, path: Path, wake: Callable[[], None]) -> None:
        self._path, self._wake = path, wake
        self._requests: SimpleQueue[tuple[Message, SimpleQueue[Message]]] = SimpleQueue()
        self._socket = _listen(path)
        self._closed = False
        threading.Thread(target=self._accept, name="control", daemon=True).start()

    def serve(self, answer: Callable[[Message], Message]) -> None:
        """Answer the requests that wait, on the caller's thread."""
        while not self._requests.empty():  # nobody else takes from it
            message, answers = self._requests.get()
            answers.put(answer(message))

    def close(self) -> None:
        """Stop listening and take the socket's name away."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the accept that the thread stands in
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._closed:
            with contextlib.suppress(OSError):
                client, _ = self._socket.accept()
                with client:
                    client.settimeout(_SPEAK_SECONDS)
                    client.sendall(_encode(self._reply(client.makefile("rb").readline(_MOST_BYTES))))

    def _reply(self, line: bytes) -> Message:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            return {"ok": False, "error": "The request is not a line of JSON."}
        answers: SimpleQueue[Message] = SimpleQueue()
        self._requests.put((message, answers))
        self._wake()
        try:
            return answers.get(timeout=_ANSWER_SECONDS)
        except Empty:
            return {"ok": False, "error": "The agent's loop did not answer in time."}


def ask(path: Path, message: Message) -> Message:
    """The running agent's answer. Raises SkuwiseError where none listens, may be asked, or answers."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(_ANSWER_SECONDS + _SPEAK_SECONDS)
            client.connect(str(path))
            client.sendall(_encode(message))
            answer = json.loads(client.makefile("rb").readline())
    except (FileNotFoundError, ConnectionRefusedError) as error:
        remedy = "Start one, or name its socket (--socket) or its database (--db)."
        raise SkuwiseError(f"No agent listens on {path}.", remedy) from error
    except PermissionError as error:
        remedy = "Run as root, or add this user to the agent's group (skuwise)."
        raise SkuwiseError(f"{path} may not be written by this user.", remedy) from error
    except (OSError, ValueError) as error:
        why = "it does not answer in time, or not as an agent does"
        raise SkuwiseError(f"The agent at {path} cannot be asked: {why}.", "See the agent's log.") from error
    if not isinstance(answer, dict) or not answer.get("ok"):
        said = answer.get("error") if isinstance(answer, dict) else None
        raise SkuwiseError(f"The agent at {path} refused: {said or 'no reason given'}", "See the agent's log.")
    return answer


def _listen(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # What a killed agent left. Only the holder of the database's lock gets here, and only sockets are removed.
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()
        # Nobody can connect before it listens, so its mode is right in time.
        listening.bind(str(path))
        path.chmod(MODE)
        listening.listen(8)
    except OSError as error:
        listening.close()
        raise SkuwiseError(
            f"{path} cannot be listened on ({error}), so pause, resume and status do not work.",
            "Name another place with --socket (at most 107 bytes long).",
        ) from error
    return listening


def _encode(message: Message) -> bytes:
    return json.dumps(dict(message), allow_nan=False).encode() + b"\n"
