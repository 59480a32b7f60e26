"""What holds for unit tests: no process, no server, no network. Tests that need one are integration tests."""

import multiprocessing.process
import os
import socket
import subprocess
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
import urllib3.util.connection  # noqa: F401 - it binds a socket when it is imported, to see whether there is IPv6


def _forbidden(what: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        pytest.fail(f"A unit test may not {what}. Move it to tests/integration.")

    return refuse


@pytest.fixture(autouse=True)
def _no_process_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess.Popen, "__init__", _forbidden("start a program"))
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", _forbidden("start a process"))
    for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"):
        monkeypatch.setattr(os, name, _forbidden("start a process"))
    for name in ("bind", "connect", "connect_ex", "listen"):
        monkeypatch.setattr(socket.socket, name, _forbidden("use a socket"))
