"""What the agent's socket answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import pytest
from skuwise.agent.service.runtime.control import ControlServer
from skuwise.tests.support.hanging_driver import Session
from skuwise.tests.unit.agent.service.test_driver import Told, driver


def test_a_socket_whose_name_was_taken_away_is_there_again(tmp_path: Path) -> None:
    guarded, _ = driver(Session())
    path = tmp_path / "agent.sock"
    with contextlib.closing(ControlServer(path, lambda: None)) as server:
        path.unlink()
        told = Told(tmp_path, guarded, server)
        told.attendant.attend()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(60)
            client.connect(str(path))
            client.sendall(b"nonsense\n")
            assert b"not a line of JSON" in client.recv(4096)
    assert not path.exists()
    told.instance.release()


@pytest.mark.parametrize("seconds", ["1" + "0" * 400, "NaN", "-1", '"x"'])
def test_no_pause_that_is_asked_for_ends_the_agent(tmp_path: Path, seconds: str) -> None:
    guarded, _ = driver(Session())
    path, asked = tmp_path / "agent.sock", threading.Event()
    with contextlib.closing(ControlServer(path, asked.set)) as server:
        told = Told(tmp_path, guarded, server)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(60)
            client.connect(str(path))
            client.sendall(f'{{"command": "pause", "seconds": {seconds}}}\n'.encode())
            assert asked.wait(60)
            told.attendant.attend()
            assert b"A pause is" in client.recv(4096)
    told.instance.release()
