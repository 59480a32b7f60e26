"""The opt-in helper that reads environments, so that the agent needs no capability; and the agent's side of it.

``/proc/PID/environ`` of other users takes CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH together, which is root in all but
name. They are given to this small process alone (`systemd/skuwise-environ.service`). It answers two questions on a Unix
socket, only to its own user and root, and only about processes in a Slurm job's cgroup: "PID" with the variables of
`procfs.ALLOWED_VARIABLES`, and "gpus PID" with the minor numbers of the GPUs that the process holds open.

What it cannot tell: a job that salloc or srun started has no ``SLURM_JOB_GPUS`` in any environment, and a process opens
every GPU that it may, also such as its job was not given where cgroup.conf does not keep them apart.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ..base.safe_text import clean_text
from .cgroups import origin_of, read_majors
from .processes import ALLOWED_VARIABLES, device_number, read_cgroup, read_open_minors, read_variables

_QUESTION_LIMIT, _ANSWER_LIMIT = 32, 8192
_GPUS = b"gpus "
_PATIENCE_SECONDS = 1.0  # a client that says nothing does not keep others waiting
_ASK_SECONDS, _REST_SECONDS = 0.2, 60.0


def answer(procfs: Path, question: bytes) -> bytes:
    """The allowed variables of a Slurm job's process, or the GPUs it holds open, as one JSON line; ``{}`` for any other
    question."""
    text = question.strip()
    asks_gpus = text.startswith(_GPUS)
    text = text.removeprefix(_GPUS)
    pid = int(text) if text.isdigit() and len(text) <= 10 else 0
    found: Mapping[str, str | list[int]] = {}
    if _is_slurm(procfs, pid):
        found = {"gpus": sorted(_open_gpus(procfs, pid))} if asks_gpus else dict(read_variables(procfs, pid))
    # Asked before and after: a PID that was used again in between must not answer for a Slurm process.
    return json.dumps(found if _is_slurm(procfs, pid) else {}).encode()[:_ANSWER_LIMIT] + b"\n"


def serve(listener: socket.socket, procfs: Path, allowed_uids: frozenset[int]) -> None:
    """Answer one client after the other until the listener is shut down."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client, contextlib.suppress(OSError):
            client.settimeout(_PATIENCE_SECONDS)
            if _peer_uid(client) in allowed_uids:
                client.sendall(answer(procfs, client.recv(_QUESTION_LIMIT)))


def listen(path: Path) -> socket.socket:
    """A listening socket at `path` that only its owner can reach; one left over from before is replaced."""
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(8)
    return listener


class HelperVariables:
    """Variables of a process: read here where that is allowed, else asked of the helper behind `path`.

    Empty where neither tells. A helper that fails is left alone for a minute, so that it never holds up the agent.
    """

    def __init__(self, procfs: Path, path: Path | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._procfs = procfs
        self._path = path
        self._monotonic = monotonic
        self._rest_until = 0.0

    def __call__(self, pid: int) -> Mapping[str, str]:
        found = read_variables(self._procfs, pid)
        answer = {} if found else self._ask(b"%d\n" % pid)
        return found or {key: clean_text(str(value)) for key, value in answer.items() if key in ALLOWED_VARIABLES}

    def open_minors(self, pid: int) -> frozenset[int]:
        """The minor numbers of the GPUs that the process holds open; empty where nobody may look."""
        found = _open_gpus(self._procfs, pid)
        minors = [] if found else self._ask(b"gpus %d\n" % pid).get("gpus")
        return found or frozenset(one for one in minors if isinstance(one, int)) if isinstance(minors, list) else found

    def _ask(self, question: bytes) -> dict[str, object]:
        if self._path is None or self._monotonic() < self._rest_until:
            return {}
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(_ASK_SECONDS)
                client.connect(str(self._path))
                client.sendall(question)
                with client.makefile("rb") as file:
                    found = json.loads(file.readline(_ANSWER_LIMIT + 1))
        except (OSError, ValueError, RecursionError):
            self._rest_until = self._monotonic() + _REST_SECONDS
            return {}
        return found if isinstance(found, dict) else {}


def _open_gpus(procfs: Path, pid: int) -> frozenset[int]:
    return read_open_minors(procfs, pid, read_majors(procfs).gpus, device_number)


def _is_slurm(procfs: Path, pid: int) -> bool:
    return origin_of(read_cgroup(procfs, pid)).scheduler == "slurm"


def _peer_uid(client: socket.socket) -> int:
    size = struct.calcsize("3i")
    return struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[1]


def main(arguments: list[str]) -> int:
    """Serve until ended."""
    parser = argparse.ArgumentParser(prog="skuwise-environ", description="answers for the agent; see the unit")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--procfs", type=Path, default=Path("/proc"))
    options = parser.parse_args(arguments)
    with listen(options.socket) as listener:
        serve(listener, options.procfs, frozenset({0, os.getuid()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
