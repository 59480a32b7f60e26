"""The units as systemd reads and rates them, and the scripts that install writes."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from skuwise.__main__ import COMMANDS, Root
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


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda path: path.stem)
def test_every_unit_starts_a_command_that_there_is(unit: Path) -> None:
    (command,) = re.findall("^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    program, *words = shlex.split(command)
    if program != "/usr/bin/skuwise":
        assert words[:2] == ["-m", "skuwise.agent.jobs.environ_helper"]
        return
    pytest.importorskip(COMMANDS[words[0]].module)
    group, rest = Root(COMMANDS), words[1:]
    command = group.get_command(group.make_context("skuwise", words), words[0])
    while isinstance(command, click.Group):
        command, rest = command.commands[rest[0]], rest[1:]
    assert command is not None and command.make_context(command.name, rest).command is command
