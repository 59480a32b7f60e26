"""The units as systemd reads and rates them, and the scripts that install writes."""

import argparse
import os
import shlex
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from skuwise.__main__ import COMMANDS
from skuwise.agent.cli import agent
from skuwise.agent.service.supervisor import Notifier
from skuwise.rules.base.command_registry import configure_command
from skuwise.tests.support.prometheus_engines import needed

ROOT = Path(__file__).parents[4]
UNITS = ROOT / "systemd"
# Tenths of systemd's exposure level, 0 to 100; docs/operations.md explains what is left.
EXPOSURE = {
    "systemd/skuwise-agent.service": 15,
    "systemd/skuwise-environ.service": 11,
    "systemd/skuwise-report.service": 11,
    "systemd/skuwise-slurm.service": 12,
    "systemd/skuwise-snapshot.service": 2,
    "systemd/skuwise-watch.service": 11,
}


@pytest.mark.parametrize("unit", EXPOSURE)
def test_systemd_rates_the_unit_no_worse(unit: str) -> None:
    needed("systemd-analyze")
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE[unit]}", "--no-pager"]
    done = subprocess.run([*command, str(ROOT / unit)], capture_output=True, text=True, check=False)
    assert "Overall exposure level" in done.stdout, done.stderr
    assert done.returncode == 0, done.stdout[-300:]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_understands_every_line_of_the_units() -> None:
    units = [str(path) for path in sorted((*UNITS.glob("*.service"), *UNITS.glob("*.timer")))]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    faults = [line for line in done.stderr.splitlines() if "skuwise" in line and "is not executable" not in line]
    assert faults == []


def directives(name: str) -> dict[str, list[str]]:
    """The lines of a unit by key, in their order."""
    found: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda path: path.stem)
def test_every_unit_starts_a_command_that_there_is(unit: Path) -> None:
    (command,) = directives(unit.name)["ExecStart"]
    program, *words = shlex.split(command)
    if program != "/usr/bin/skuwise":
        assert words[:2] == ["-m", "skuwise.agent.jobs.environ_helper"]
        return
    pytest.importorskip(COMMANDS[words[0]].module)
    if COMMANDS[words[0]].is_click:
        command = agent.commands[words[1]]
        assert command.make_context(words[1], words[2:]).command is command
        return
    parser = argparse.ArgumentParser()
    configure_command(parser, COMMANDS[words[0]])
    assert callable(parser.parse_args(words[1:]).run)


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
        notifier.tell("READY", "sampling\n8 GPUs")
        notifier.tell("RELOADING")
        notifier.tell("STOPPING", "bye")
        first, second, third = heard(listening)
        assert first == "READY=1\nSTATUS=sampling 8 GPUs"
        assert second.startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert third == "STOPPING=1\nSTATUS=bye"
        for second_of_loop in (0.0, 0.5, 0.9, 1.0, 1.5, 2.0):
            notifier.alive(second_of_loop)
        assert heard(listening) == ["WATCHDOG=1"] * 3


@pytest.mark.parametrize(
    "environ",
    [{}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "-5"}],
)
def test_a_watchdog_that_is_not_ours_is_not_fed(tmp_path: Path, environ: dict[str, str]) -> None:
    with manager(str(tmp_path / "notify")) as listening:
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), **environ})
        notifier.alive(0.0)
        assert heard(listening) == []
