"""`pause | resume | status` over a local socket: one line of JSON each way, for users who may write to the socket.

The loop answers between its ticks: nothing is shared between threads, and an answer may take until the next tick.
"""

import contextlib
import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from ...rules.base.errors import SkuwiseError

MODE = 0o660
_MOST_BYTES = 4096
_SPEAK_SECONDS = 0.2  # a client that connects and says nothing holds up one tick by this
_ANSWER_SECONDS = 40.0  # the loop may be in a tick, opening the driver or letting go of it

Message = Mapping[str, object]
_NO_REQUEST: Message = {"ok": False, "error": "The request is not a line of JSON."}


class ControlServer:
    """Listens on `path` (mode 0660). Raises SkuwiseError where that cannot be."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        try:
            # What a killed agent left. Only the holder of the database's lock gets here, and only sockets are removed.
            if path.is_socket():
                path.unlink()
            # None can connect before it listens, so its mode is right in time.
            self._socket.bind(str(path))
            path.chmod(MODE)
            self._socket.listen(8)
        except OSError as error:
            self._socket.close()
            raise SkuwiseError(
                f"{path} cannot be listened on ({error}), so pause, resume and status do not work.",
                "Name another place with --socket (at most 107 bytes long).",
            ) from error

    def serve(self, answer: Callable[[Message], Message]) -> None:
        with contextlib.suppress(OSError):  # no one waits, or went away
            client, _ = self._socket.accept()
            with client:
                client.settimeout(_SPEAK_SECONDS)
                try:
                    message = json.loads(client.recv(_MOST_BYTES))
                except (ValueError, RecursionError):
                    message = None
                is_text = isinstance(message, dict)
                client.sendall(_encode(answer(message) if is_text else _NO_REQUEST))

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


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


def _encode(message: Message) -> bytes:
    return json.dumps(dict(message), allow_nan=False).encode() + b"\n"
