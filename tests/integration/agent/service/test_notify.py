"""What systemd is told, and that nothing it does can hurt."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from skuwise.agent.service.runtime.notify import Notifier


def manager(address: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(address)
    listening.setblocking(False)
    return listening


def heard(listening: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(listening.recv(4096).decode())
        except BlockingIOError:
            return found


@pytest.mark.parametrize("abstract", [False, True])
def test_the_datagrams_are_those_of_sd_notify(tmp_path: Path, abstract: bool) -> None:
    name = f"@skuwise-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with manager("\0" + name[1:] if abstract else name) as listening:
        notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "4000000", "WATCHDOG_PID": str(os.getpid())})
        notifier.ready("sampling\n8 GPUs")
        notifier.reloading()
        notifier.stopping("bye")
        first, second, third = heard(listening)
        assert first == "READY=1\nSTATUS=sampling 8 GPUs"
        assert second.startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert third == "STOPPING=1\nSTATUS=bye"
        for second_of_loop in (0.0, 0.5, 0.9, 1.0, 1.5, 2.0):
            notifier.alive(second_of_loop)
        assert heard(listening) == ["WATCHDOG=1"] * 3
        notifier.close()


@pytest.mark.parametrize(
    "environ",
    [{}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "-5"}],
)
def test_a_watchdog_that_is_not_ours_is_not_fed(tmp_path: Path, environ: dict[str, str]) -> None:
    with manager(str(tmp_path / "notify")) as listening:
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), **environ})
        notifier.alive(0.0)
        assert heard(listening) == []
        notifier.close()
