"""The units: what install writes, what it refuses, and what systemd thinks of them."""

import functools
import json
import os
import socket
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest
from skuwise.__main__ import main
from skuwise.agent.service.bursts import next_start
from skuwise.agent.service.install import MARK, install, plan_files, refuse, refuse_what_others_can_write, uninstall
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.sysfs_trees import Procfs, dgx_like

ME = frozenset({0, os.getuid()})


@pytest.fixture(autouse=True)
def _no_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where none of systemd's programs is installed: nothing is run."""
    monkeypatch.setattr("skuwise.agent.service.install.shutil.which", lambda _: None)


def test_install_writes_this_interpreter_into_the_units_and_uninstall_takes_them_away(tmp_path: Path) -> None:
    said: list[str] = []
    files = plan_files(Path("/opt/sku wise/bin/python"), " -m skuwise", tmp_path)
    install(files, tmp_path, said.append, dry_run=False)
    unit = (tmp_path / "etc/systemd/system/skuwise-agent.service").read_text()
    assert unit.startswith(MARK)
    assert 'ExecStart="/opt/sku wise/bin/python" -m skuwise agent run' in unit
    assert "/usr/bin/skuwise" not in "".join(files.values())
    (tmp_path / "etc/tmpfiles.d/skuwise.conf").write_text("# the site's own\n")
    with pytest.raises(SkuwiseError, match="not written by skuwise"):
        install(files, tmp_path, said.append, dry_run=False)
    assert uninstall(tmp_path, said.append, dry_run=True) == 7
    assert uninstall(tmp_path, said.append, dry_run=False) == 7
    assert [path.name for path in tmp_path.rglob("*skuwise*") if path.is_file()] == ["skuwise.conf"]
    assert uninstall(tmp_path, said.append, dry_run=False) == 0


@pytest.mark.parametrize(
    ("option", "files", "command"),
    [
        ("environ", ["skuwise-environ.service"], "skuwise.agent.jobs.environ_helper "),
        ("report", ["skuwise-report.service", "skuwise-report.timer"], "skuwise report --send\n"),
        ("slurm", ["skuwise-slurm.service", "skuwise-slurm.timer"], "skuwise slurm import\n"),
        ("watch", ["skuwise-watch.service"], "skuwise watch\n"),
    ],
)
def test_what_is_optional_is_written_only_where_it_is_asked_for(
    tmp_path: Path, option: str, files: list[str], command: str
) -> None:
    said: list[str] = []
    installation = (Path("/srv/skuwise/bin/python"), " -m skuwise", tmp_path)
    units = [tmp_path / "etc/systemd/system" / name for name in files]
    install(plan_files(*installation), tmp_path, said.append, dry_run=False)
    assert not any(unit.exists() for unit in units)
    install(plan_files(*installation, (option,)), tmp_path, said.append, dry_run=False)
    assert f"\nExecStart=/srv/skuwise/bin/python -m {command}" in units[0].read_text()
    (tmp_path / "etc/skuwise/slurm/site.sh").write_text("# the site's own\n")
    assert uninstall(tmp_path, said.append, dry_run=False) == 8 + len(files)
    assert not any(unit.exists() for unit in units)
    assert [path.name for path in (tmp_path / "etc/skuwise/slurm").iterdir()] == ["site.sh"]
    assert any("out of slurm.conf" in line for line in said)


def test_the_command_prints_what_it_would_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "install", "--dry-run", "--root", str(tmp_path), "--with-slurm"]) == 0
    said = capsys.readouterr().out
    assert "would write" in said and "enable --now skuwise-slurm.timer" in said
    assert f"ExecStart={sys.executable} -m skuwise agent run" in said
    assert not list(tmp_path.iterdir())


def test_a_path_that_would_change_the_unit_is_refused(tmp_path: Path) -> None:
    for path in ('/opt/a"b/python', "/opt/a\nExecStartPre=/bin/evil/python", "/opt/a\x1b[2J/python"):
        with pytest.raises(SkuwiseError, match="cannot be used in a systemd unit"):
            plan_files(Path(path), "", tmp_path)


def test_what_others_can_write_is_refused(tmp_path: Path) -> None:
    prefix, real, program = tmp_path / "opt", tmp_path / "opt/real", tmp_path / "opt/bin/python"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").mkdir()
    real.write_text("")
    program.symlink_to(real)
    for path in (tmp_path, prefix, prefix / "bin", prefix / "lib", real):
        path.chmod(0o755)
    check = functools.partial(refuse_what_others_can_write, program, prefix / "lib", hidden=())
    check(ME)
    for path in (prefix / "lib", real, prefix / "bin", prefix):
        path.chmod(0o777)
        with pytest.raises(SkuwiseError, match="mode 0777"):
            check(ME)
        path.chmod(0o755)
    with pytest.raises(SkuwiseError, match="others than root"):
        check((54321,))
    with pytest.raises(SkuwiseError, match="what Slurm's prolog runs"):
        refuse([prefix], "Slurm's prolog runs", (54321,))
    real.unlink()
    with pytest.raises(SkuwiseError, match="cannot be checked"):
        check(ME)
    with pytest.raises(SkuwiseError, match="lies under /home"):
        refuse_what_others_can_write(Path("/home/me/venv/bin/python"), prefix)


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def agent(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    dgx_like(tmp_path / "sys")
    (tmp_path / "sys/block").mkdir()
    proc = Procfs(tmp_path / "proc")
    proc.cpu(user=5, idle=5)
    proc.memory(1000, 600)
    proc.disks({"sda": (1, 2)})
    monkeypatch.setenv("SKUWISE_DB", str(tmp_path / "node.db"))
    monkeypatch.setenv("SKUWISE_DCGM_URL", "")
    monkeypatch.setattr("skuwise.agent.service.doctor.ask_scontrol", lambda: "")

    def run(command: str, *arguments: str) -> tuple[int, str]:
        paths = ("--path.sysfs", str(tmp_path / "sys"), "--path.procfs", str(tmp_path / "proc"))
        return main(["agent", command, *arguments, *paths]), capsys.readouterr().out

    return run


def test_once_prints_what_can_be_read(agent: Run) -> None:
    status, out = agent("once", "--format", "json")
    reading = json.loads(out)
    assert status == 0 and reading["gpus"] == [] and reading["host"]["mem_used_bytes"] == 400 * 1024
    assert {port["device"] for port in reading["fabric"]} >= {"mlx5_0", "mlx5_1"}
    assert "no-driver" in {absence["reason"] for absence in reading["absences"]}
    _, table = agent("once")
    assert "No GPU can be read here." in table and "mlx5_0/1" in table and "agent doctor" in table


def test_doctor_names_each_cause_with_its_remedy(agent: Run) -> None:
    status, out = agent("doctor", "--format", "json")
    lines = json.loads(out)
    assert status == 0
    assert all(line["detail"] and line["remedy"] for line in lines if line["status"] == "absent")
    assert any(line["source"] == "infiniband" and line["status"] == "read" for line in lines)
    assert "Remedy:" in agent("doctor")[1]


def test_where_no_agent_runs_its_commands_say_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(socket.socket, "connect", Mock(side_effect=FileNotFoundError))
    for command in ("status", "resume", "pause"):
        assert main(["agent", command]) == 1
        assert "No agent listens" in capsys.readouterr().err


def test_bursts_come_once_a_window_spread_over_a_fleet_and_as_before_after_a_restart() -> None:
    starts = [next_start("gpu-017", 1.8e9, 300.0)]
    for _ in range(500):
        starts.append(next_start("gpu-017", starts[-1], 300.0))
    windows = [int(start // 300) for start in starts]
    assert windows == list(range(windows[0], windows[0] + 501))
    assert min(b - a for a, b in pairwise(starts)) >= 150.0
    offsets = sorted(start % 300 for start in starts)
    assert offsets[0] < 10 and offsets[-1] > 140  # work that repeats every 300 s is met at many points
    fleet = [next_start(f"gpu-{i:04d}", 1.8e9, 300.0) for i in range(1000)]
    assert max(sum(moment <= start < moment + 10 for start in fleet) for moment in fleet) < 120  # at one time
    assert next_start("gpu-0001", fleet[1] - 1.0, 300.0) == fleet[1]
