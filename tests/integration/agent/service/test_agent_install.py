"""The units: what install writes, what it refuses, and what systemd thinks of them."""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from skuwise.__main__ import COMMANDS
from skuwise.agent.inventory.slurm.job_files import read_job_files
from skuwise.agent.service.install import (
    MARK,
    Installation,
    install,
    plan_files,
    refuse_scripts_that_others_can_write,
    refuse_what_others_can_write,
    uninstall,
)
from skuwise.benchmarks.generators.first import simulate
from skuwise.rules.base.command_registry import configure_command
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.prometheus_engines import needed

ROOT = Path(__file__).parents[4]
UNITS = ROOT / "systemd"
ME = frozenset({0, os.getuid()})


def test_install_writes_this_interpreter_into_the_units_and_uninstall_takes_them_away(tmp_path: Path) -> None:
    said: list[str] = []
    files = plan_files(Installation(Path("/opt/sku wise/bin/python"), ()), tmp_path)
    install(files, tmp_path, said.append, dry_run=True)
    assert not list(tmp_path.iterdir()) and any("would write" in line for line in said)
    install(files, tmp_path, said.append, dry_run=False)
    unit = (tmp_path / "etc/systemd/system/skuwise-agent.service").read_text()
    assert unit.startswith(MARK)
    assert 'ExecStart="/opt/sku wise/bin/python" -m skuwise agent run' in unit
    assert "/usr/bin/skuwise" not in "".join(file.text for file in files)
    (tmp_path / "etc/tmpfiles.d/skuwise.conf").write_text("# the site's own\n")
    with pytest.raises(SkuwiseError, match="not written by skuwise"):
        install(files, tmp_path, said.append, dry_run=False)
    assert uninstall(tmp_path, said.append, dry_run=True) == 7
    assert uninstall(tmp_path, said.append, dry_run=False) == 7
    assert [path.name for path in tmp_path.rglob("*skuwise*") if path.is_file()] == ["skuwise.conf"]
    assert uninstall(tmp_path, said.append, dry_run=False) == 0


def test_slurm_is_served_where_it_is_installed(tmp_path: Path) -> None:
    said: list[str] = []
    files = plan_files(Installation(Path("/opt/skuwise/bin/python"), ()), tmp_path)
    install(files, tmp_path, said.append, dry_run=False)
    lines = [line.strip() for line in said]
    assert "Prolog=/etc/skuwise/slurm/prolog.sh" in lines and "Epilog=/etc/skuwise/slurm/epilog.sh" in lines
    scripts = tmp_path / "etc/skuwise/slurm"
    allocations, marker = tmp_path / "allocations", tmp_path / "drained"
    job = {"SLURM_JOB_ID": "42", "SLURM_JOB_GPUS": "0,1", "SKUWISE_ALLOCATIONS": str(allocations)}
    job["SKUWISE_DRAINED_MARKER"] = str(marker)
    for script, arguments in (("prolog.sh", ()), ("drained.sh", ("a", "fan"))):
        assert (scripts / script).stat().st_mode & 0o777 == 0o755
        subprocess.run([scripts / script, *arguments], env=job, check=True)
    trusted = frozenset({os.getuid()})
    assert [one.devices for one in read_job_files(allocations, trusted).jobs] == [("0", "1")]
    assert marker.read_text() == "a fan\n"
    subprocess.run([scripts / "epilog.sh"], env=job, check=True)
    (over,) = read_job_files(allocations, trusted).jobs
    assert over.until is not None
    (scripts / "site.sh").write_text("# the site's own\n")
    assert uninstall(tmp_path, said.append, dry_run=False) == 8
    assert [path.name for path in scripts.iterdir()] == ["site.sh"]
    assert any("out of slurm.conf" in line for line in said)


def test_the_helper_with_capabilities_is_written_only_where_it_is_asked_for(tmp_path: Path) -> None:
    said: list[str] = []
    installation = Installation(Path("/srv/skuwise/bin/python"), ())
    unit = tmp_path / "etc/systemd/system/skuwise-environ.service"
    install(plan_files(installation, tmp_path), tmp_path, said.append, dry_run=False)
    assert not unit.exists() and "skuwise-environ" not in "".join(said)
    install(plan_files(installation, tmp_path, ("environ",)), tmp_path, said.append, dry_run=False)
    text = unit.read_text()
    assert "\nExecStart=/srv/skuwise/bin/python -m skuwise.agent.inventory.processes.environ_helper " in text
    assert "/opt/skuwise" not in text and "enable --now skuwise-environ.service" in said[-1]
    assert uninstall(tmp_path, said.append, dry_run=False) == 9
    assert not unit.exists() and not (tmp_path / "etc/skuwise/slurm").exists()


def test_the_report_is_written_only_where_it_is_asked_for(tmp_path: Path) -> None:
    said: list[str] = []
    installation = Installation(Path("/srv/skuwise/bin/python"), ())
    units = [tmp_path / "etc/systemd/system" / f"skuwise-report.{kind}" for kind in ("service", "timer")]
    install(plan_files(installation, tmp_path), tmp_path, said.append, dry_run=False)
    assert not any(unit.exists() for unit in units) and "skuwise-report" not in "".join(said)
    install(plan_files(installation, tmp_path, ("report",)), tmp_path, said.append, dry_run=False)
    assert "\nExecStart=/srv/skuwise/bin/python -m skuwise report --send\n" in units[0].read_text()
    assert "enable --now skuwise-report.timer" in said[-1]
    assert uninstall(tmp_path, said.append, dry_run=False) == 10
    assert not any(unit.exists() for unit in units)


def test_a_folder_for_scripts_that_others_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    refuse_scripts_that_others_can_write(tmp_path, ME)
    settings = tmp_path / "etc/skuwise"
    settings.mkdir(parents=True)
    for path in (settings.parent, settings):
        path.chmod(0o755)
    refuse_scripts_that_others_can_write(tmp_path, ME)
    settings.chmod(0o777)
    with pytest.raises(SkuwiseError, match="what Slurm's prolog runs as root"):
        refuse_scripts_that_others_can_write(tmp_path, ME)


@pytest.mark.parametrize("path", ['/opt/a"b/python', "/opt/a\nExecStartPre=/bin/evil/python", "/opt/a\x1b[2J/python"])
def test_a_path_that_would_change_the_unit_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(SkuwiseError, match="cannot be used in a systemd unit"):
        plan_files(Installation(Path(path), ()), tmp_path)


def test_a_per_cent_sign_is_no_specifier(tmp_path: Path) -> None:
    agent = plan_files(Installation(Path("/opt/100%/$x/python"), ()), tmp_path)[0]
    assert "ExecStart=/opt/100%%/$$x/python -m skuwise" in agent.text


def prefix(folder: Path) -> Installation:
    """A small installation that only we can write."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "real").write_text("")
    (folder / "bin/python").symlink_to(folder / "real")
    (folder / "lib/module.py").write_text("")
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)
    return Installation(folder / "bin/python", (folder / "lib",))


def test_a_prefix_that_others_can_write_is_refused(tmp_path: Path) -> None:
    installation = prefix(tmp_path / "opt")
    check = functools.partial(refuse_what_others_can_write, installation, hidden_folders=())
    check(ME)
    for path in ("lib/module.py", "real", "bin", "."):
        (tmp_path / "opt" / path).chmod(0o777)
        with pytest.raises(SkuwiseError, match="can be written by everyone"):
            check(ME)
        (tmp_path / "opt" / path).chmod(0o755)
    with pytest.raises(SkuwiseError, match="belongs to user"):
        check(frozenset({54321}))
    (tmp_path / "opt/real").unlink()
    with pytest.raises(SkuwiseError, match="cannot be checked"):
        check(ME)


def test_a_prefix_that_the_unit_hides_is_refused() -> None:
    with pytest.raises(SkuwiseError, match="lies under /home"):
        refuse_what_others_can_write(Installation(Path("/home/me/venv/bin/python"), ()))


def test_the_command_prints_what_it_would_do(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "skuwise", "agent", "install", "--dry-run", "--root", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"ExecStart={sys.executable} -m skuwise agent run" in done.stdout
    assert not list(tmp_path.iterdir())


def test_devices_are_named_in_both_ways_and_no_capability_is_kept() -> None:
    unit = (UNITS / "skuwise-agent.service").read_text()
    for line in ("DeviceAllow=char-nvidia rw", "DeviceAllow=char-nvidia-frontend rw", "PrivateDevices=no"):
        assert f"\n{line}\n" in unit
    assert "\nCapabilityBoundingSet=\n" in unit and "\nAmbientCapabilities=\n" in unit
    assert "ProcSubset=" not in re.sub(r"^#.*$", "", unit, flags=re.MULTILINE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_understands_every_line_of_the_reports_units() -> None:
    units = [str(UNITS / f"skuwise-report.{kind}") for kind in ("service", "timer")]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    faults = [line for line in done.stderr.splitlines() if "skuwise-report" in line and "is not executable" not in line]
    assert faults == []


def test_the_import_of_slurms_jobs_is_written_only_where_it_is_asked_for(tmp_path: Path) -> None:
    said: list[str] = []
    installation = Installation(Path("/srv/skuwise/bin/python"), ())
    units = [tmp_path / "etc/systemd/system" / f"skuwise-slurm.{kind}" for kind in ("service", "timer")]
    install(plan_files(installation, tmp_path), tmp_path, said.append, dry_run=False)
    assert not any(unit.exists() for unit in units)
    install(plan_files(installation, tmp_path, ("slurm",)), tmp_path, said.append, dry_run=False)
    assert "\nExecStart=/srv/skuwise/bin/python -m skuwise slurm import\n" in units[0].read_text()
    assert "enable --now skuwise-slurm.timer" in said[-1]
    uninstall(tmp_path, said.append, dry_run=False)
    assert not any(unit.exists() for unit in units)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_understands_every_line_of_the_imports_units() -> None:
    units = [str(UNITS / f"skuwise-slurm.{kind}") for kind in ("service", "timer")]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    faults = [line for line in done.stderr.splitlines() if "skuwise-slurm" in line and "is not executable" not in line]
    assert faults == []


def test_the_watch_is_written_only_where_it_is_asked_for(tmp_path: Path) -> None:
    said: list[str] = []
    installation = Installation(Path("/srv/skuwise/bin/python"), ())
    unit = tmp_path / "etc/systemd/system/skuwise-watch.service"
    install(plan_files(installation, tmp_path), tmp_path, said.append, dry_run=False)
    assert not unit.exists() and "skuwise-watch" not in "".join(said)
    install(plan_files(installation, tmp_path, ("watch",)), tmp_path, said.append, dry_run=False)
    assert "\nExecStart=/srv/skuwise/bin/python -m skuwise watch\n" in unit.read_text()
    assert "enable --now skuwise-watch.service" in said[-1]
    assert uninstall(tmp_path, said.append, dry_run=False) == 9
    assert not unit.exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_understands_every_line_of_the_watchs_unit() -> None:
    unit = str(UNITS / "skuwise-watch.service")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    faults = [line for line in done.stderr.splitlines() if "skuwise-watch" in line and "is not executable" not in line]
    assert faults == []


def directives(name: str) -> dict[str, list[str]]:
    """The lines of a unit by key, in their order."""
    found: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_the_watch_and_the_report_share_user_folders_and_secrets() -> None:
    watch, report = directives("skuwise-watch.service"), directives("skuwise-report.service")
    for key in ("User", "Group", "UMask", "StateDirectory", "CacheDirectory", "ConfigurationDirectory"):
        assert watch[key] == report[key], key
    assert {"XDG_STATE_HOME=%S", "XDG_CACHE_HOME=%C"} <= set(watch["Environment"][0].split())
    assert set(report["LoadCredential"]) < set(watch["LoadCredential"])
    # Wrong settings end it; everything else is tried again.
    assert (watch["Restart"], watch["RestartPreventExitStatus"]) == (["always"], ["2"])


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda path: path.stem)
def test_every_unit_starts_a_command_that_there_is(unit: Path) -> None:
    (command,) = directives(unit.name)["ExecStart"]
    program, *words = shlex.split(command)
    if program != "/usr/bin/skuwise":
        assert words[:2] == ["-m", "skuwise.agent.inventory.processes.environ_helper"]
        return
    pytest.importorskip(COMMANDS[words[0]].module)
    parser = argparse.ArgumentParser()
    configure_command(parser, COMMANDS[words[0]])
    assert callable(parser.parse_args(words[1:]).run)


# Tenths of systemd's exposure level, 0 to 100; docs/operations.md explains what is left.
EXPOSURE = {
    "systemd/skuwise-agent.service": 15,
    "systemd/skuwise-environ.service": 11,
    "systemd/skuwise-report.service": 11,
    "systemd/skuwise-slurm.service": 12,
    "systemd/skuwise-snapshot.service": 2,
    "systemd/skuwise-watch.service": 11,
}


def test_every_unit_has_its_rate_pinned() -> None:
    units = (ROOT / "systemd").glob("*.service")
    assert {str(path.relative_to(ROOT)) for path in units} == set(EXPOSURE)


@pytest.mark.parametrize("unit", EXPOSURE)
def test_systemd_rates_the_unit_no_worse(unit: str) -> None:
    needed("systemd-analyze")
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE[unit]}", "--no-pager"]
    done = subprocess.run([*command, str(ROOT / unit)], capture_output=True, text=True, check=False)
    assert "Overall exposure level" in done.stdout, done.stderr
    assert done.returncode == 0, done.stdout[-300:]


def test_the_page_names_what_is_left_of_the_agents_exposure_and_why() -> None:
    needed("systemd-analyze")
    unit = str(UNITS / "skuwise-agent.service")
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--json=short", unit]
    rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    text = (ROOT / "docs/operations.md").read_text().replace("\\|", "|")
    left = [row["name"].partition("=/")[0].rstrip("=") for row in rows if row.get("exposure") and not row.get("set")]
    assert left
    assert [name for name in left if f"`{name}" not in text] == []


@pytest.mark.slow
def test_the_watchs_unit_runs_until_it_is_stopped_and_keeps_its_state_beside_the_reports(tmp_path: Path) -> None:
    """Its command and environment as the unit has them; the settings are a user's, and the user is ours."""
    simulate("idle", tmp_path / "fleet", days=1, until=time.time() // 3600 * 3600, minutes_seconds=86400)
    config = tmp_path / "config/skuwise/skuwise.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f"[report]\ndb = ['{tmp_path / 'fleet'}']\n")
    unit = directives("skuwise-watch.service")
    given = dict(pair.split("=", 1) for line in unit["Environment"] for pair in line.split())
    places = {"%S": str(tmp_path / "state"), "%C": str(tmp_path / "cache")}
    environ = {**os.environ, **{name: places.get(value, value) for name, value in given.items()}}
    environ["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    (command,) = unit["ExecStart"]
    words = [sys.executable, "-m", "skuwise", *shlex.split(command)[1:]]
    state = tmp_path / "state/skuwise/incidents.db"
    with subprocess.Popen(words, env=environ, stderr=subprocess.PIPE, text=True) as process:
        ends = time.monotonic() + 120
        while not state.exists() and time.monotonic() < ends:
            time.sleep(0.1)
        second = subprocess.run([*words, "--once"], env=environ, capture_output=True, text=True, check=False)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=60)
    assert state.parent == tmp_path / "state" / unit["StateDirectory"][0] and state.exists(), told
    assert process.returncode == 0 and "Traceback" not in told
    # Two watchers of the same incidents would notify twice.
    assert second.returncode == 1 and "Traceback" not in second.stderr
