"""The agent's own child processes: what is heavy runs beside the agent, not in it."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fcntl import F_SETFL, fcntl
from typing import NoReturn, TypeVar

import msgspec

_PATIENCE_SECONDS, _REST_SECONDS = 60.0, 120.0

_Answer = TypeVar("_Answer", bound="Answer")


def child_command(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs `module` of this installation. ``-P``: with ``-m`` alone Python would look for code in the
    current folder first. In the self-contained build `sys.executable` is the program itself, whose entry
    (deploy/standalone/entry.py) takes both as an interpreter would."""
    return (sys.executable, "-P", "-m", module, *arguments)


class ChildError(Exception):
    """Why a child gave no answer; completes "GPU allocations are unknown: WHY."."""


@dataclass(frozen=True)
class Answer:
    """What a child prints, by `say`. `error`: why it has no answer."""

    error: str = ""


def say(answer: Answer) -> None:
    """Print it, as a child."""
    print(msgspec.json.encode(answer).decode(), flush=True)  # noqa: T201


class Child:
    """A process that prints a line of JSON for each line that it is sent; no one ever waits for it. It writes into a
    file in memory: a pipe would stop it after 64 KiB."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._file = -1
        self._until: float | None = None  # None: no answer is due
        self._rest_until = 0.0

    def ask(self) -> bool:
        """Send a line, unless an answer is due or one failed just now; whether it did. Raises ChildError."""
        now = time.monotonic()
        if self._until is not None or (self._process is None and now < self._rest_until):
            return False
        try:
            if self._process is None:
                self._file = os.memfd_create("answer")
                fcntl(self._file, F_SETFL, os.O_APPEND)
                self._process = subprocess.Popen(  # noqa: S603 - our own command
                    self._command, bufsize=0, stdin=subprocess.PIPE, stdout=self._file, stderr=subprocess.DEVNULL
                )
            os.ftruncate(self._file, 0)
            if self._process.stdin is not None:
                self._process.stdin.write(b"\n")
        except OSError as error:
            self._give_up(f"the child process that asks it cannot be started ({error.strerror})")
        self._until = now + _PATIENCE_SECONDS
        return True

    def answer(self, shape: type[_Answer]) -> _Answer | None:
        """What it answered, once; None: not yet, or nothing was asked. Raises ChildError."""
        if self._process is None or self._until is None:
            return None
        is_over = self._process.poll() is not None
        output = os.pread(self._file, os.fstat(self._file).st_size, 0)
        if output.endswith(b"\n"):
            self._until = None
            try:
                answer = msgspec.json.decode(output, type=shape)
            except (ValueError, RecursionError):
                raise ChildError("the child process that asks it gave an answer that is none") from None
            if answer.error:
                raise ChildError(answer.error)
            return answer
        if is_over or time.monotonic() > self._until:
            self._give_up("the child process that asks it ended" if is_over else "it does not answer")
        return None

    def close(self) -> None:
        process, self._process, self._until = self._process, None, None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if process is not None:
            process.kill()
            if process.stdin is not None:
                process.stdin.close()
            process.wait()

    def _give_up(self, why: str) -> NoReturn:
        self.close()
        self._rest_until = time.monotonic() + _REST_SECONDS
        raise ChildError(why) from None
