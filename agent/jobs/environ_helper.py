"""The opt-in helper that reads environments, so that the agent needs no capability; and the agent's side of it.

``/proc/PID/environ`` of other users takes two capabilities that are root in all but name: only this small process has
them (`systemd/skuwise-environ.service`). On a Unix socket it answers its own user and root, for a PID in a Slurm job's
cgroup, with the variables of `processes.ALLOWED_VARIABLES`.
"""

import argparse
import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from ..base.safe_text import clean_text
from .processes import ALLOWED_VARIABLES, origin_of, read_cgroup, read_variables

_QUESTION_LIMIT, _ANSWER_LIMIT = 32, 8192
_CREDENTIALS = struct.Struct("3i")  # PID, UID, GID
_PATIENCE_SECONDS = 1.0  # a client that says nothing does not keep others waiting
_ASK_SECONDS, _REST_SECONDS = 0.2, 60.0


def answer(procfs: Path, question: bytes) -> bytes:
    """The allowed variables of a Slurm job's process as one JSON line; ``{}`` for any other question."""
    text = question.strip()
    pid = int(text) if text.isdigit() and len(text) <= 10 else 0
    origin = origin_of(read_cgroup(procfs, pid))
    variables = read_variables(procfs, pid) if origin.scheduler == "slurm" else {}
    # A PID that was used again in between must not answer for a Slurm process.
    is_same = origin_of(read_cgroup(procfs, pid)) == origin
    return json.dumps(variables if is_same else {}).encode()[:_ANSWER_LIMIT] + b"\n"


def serve(listener: socket.socket, procfs: Path, allowed_uids: frozenset[int]) -> None:
    """Answer one client after the other until the listener is shut down."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client, contextlib.suppress(OSError):
            client.settimeout(_PATIENCE_SECONDS)
            peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if _CREDENTIALS.unpack(peer)[1] in allowed_uids:
                client.sendall(answer(procfs, client.recv(_QUESTION_LIMIT)))


def listen(path: Path) -> socket.socket:
    """A listening socket at `path` that only its owner can reach; one left over from before is replaced."""
    if path.is_socket():
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)  # none can connect before it listens
    listener.listen(8)
    return listener


class HelperVariables:
    """Variables of a process: read here where that is allowed, else asked of the helper behind `path`. Empty where
    both are unknown. A helper that fails is left alone for a minute, so that it never holds up the agent."""

    def __init__(self, procfs: Path, path: Path) -> None:
        self._procfs, self._path = procfs, path
        self._rest_until = 0.0

    def __call__(self, pid: int) -> Mapping[str, str]:
        variables: object = read_variables(self._procfs, pid)
        if not variables and time.monotonic() >= self._rest_until:
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                    client.settimeout(_ASK_SECONDS)
                    client.connect(str(self._path))
                    client.sendall(b"%d\n" % pid)
                    with client.makefile("rb") as file:
                        variables = json.loads(file.readline(_ANSWER_LIMIT))
            except (OSError, ValueError, RecursionError):
                self._rest_until = time.monotonic() + _REST_SECONDS
        entries = variables if isinstance(variables, dict) else {}
        return {key: clean_text(str(value)) for key, value in entries.items() if key in ALLOWED_VARIABLES}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="skuwise-environ", description="answers for the agent; see the unit")
    parser.add_argument("--socket", type=Path, required=True)
    with listen(parser.parse_args().socket) as server:
        serve(server, Path("/proc"), frozenset({0, os.getuid()}))
