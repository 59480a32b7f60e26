"""The agent as an operator runs it: a real systemd, booted in a container, with the wheel and the stub driver.

Skipped, with the reason, where `machine` says what it lacks.
"""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from skuwise.tests.nvmlstub import StubClock
from skuwise.tests.system import machine as debian

pytestmark = [pytest.mark.system]

SCENARIO = """
[gpu 0-1]
name = NVIDIA H100 80GB HBM3
gpu_util = 0.87
delay_ms.nvmlDeviceGetUtilizationRates = 0 100:600000
"""
DROP_IN = """
[Service]
WatchdogSec=8
RestartSec=1
Environment=LD_LIBRARY_PATH=/opt/nvml SKUWISE_NVML_SCENARIO=/opt/nvml/scenario SKUWISE_NVML_CLOCK=/opt/nvml/clock
Environment=SKUWISE_NVML_DEVICE=/dev/nvidiactl
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[debian.Machine]:
    def prepare(root: Path) -> None:
        debian.put_agent(root, tmp_path_factory)
        (root / "opt/nvml/scenario").write_text(SCENARIO)
        StubClock(root / "opt/nvml/clock").set(1.0)

    with debian.booted(tmp_path_factory, prepare) as booted:
        yield booted


def test_install_late_driver_kill_hang_stall_and_restart(machine: debian.Machine) -> None:
    # An operator installs and starts it.
    said = machine.run(debian.PYTHON, "-m", "skuwise", "agent", "install")
    assert "wrote /etc/systemd/system/skuwise-agent.service" in said and "failed" not in said
    drop_in = machine.root / "etc/systemd/system/skuwise-agent.service.d/stub.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(DROP_IN)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "skuwise-agent.service")

    # The driver loads after the unit has started: it is taken up within a minute, by the same process.
    assert "no GPU can be read" in machine.shows("StatusText")
    agent = machine.shows("MainPID")
    for name, major in (("nvidiactl", "195"), ("other", "234")):
        machine.run("mknod", "-m", "666", f"/dev/{name}", "c", major, "255")
    debian.until(lambda: bool(machine.rows("SELECT 1 FROM gpu_samples")), 75)
    assert (machine.shows("MainPID"), machine.shows("NRestarts")) == (agent, "0")
    group = f"/sys/fs/cgroup{machine.shows('ControlGroup')}/cgroup.procs"
    refused = machine.run("sh", "-c", f"echo $$ > {group}; exec 2>&1; : < /dev/other", check=False)
    assert "Operation not permitted" in refused  # any other device is closed to it
    database = machine.inside(f"{debian.STATE}/skuwise.db")
    debian.until(lambda: len(machine.rows("SELECT 1 FROM gpu_samples WHERE gpu_util > 0.86")) >= 4)
    assert stat.S_IMODE(database.stat().st_mode) == 0o640
    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o750
    assert database.stat().st_uid != 0
    status = Path(f"/proc/{machine.leader}/root/proc/{machine.shows('MainPID')}/status").read_text()
    assert "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status

    # A crash: systemd starts it again, and what was written stays.
    before = machine.rows("SELECT max(ts) FROM host_samples")[0][0]
    machine.run("systemctl", "kill", "-s", "KILL", "skuwise-agent.service")
    debian.until(lambda: machine.shows("NRestarts") == "1" and machine.shows("ActiveState") == "active")
    debian.until(lambda: bool(machine.rows(f"SELECT 1 FROM gpu_samples WHERE ts > {before} + 5")))
    assert machine.rows(f"SELECT count(*) FROM host_samples WHERE ts <= {before}")[0][0]

    # The driver hangs: the GPUs are absent, host and watchdog go on, nothing is restarted.
    StubClock(machine.root / "opt/nvml/clock").set(101.0)
    debian.until(lambda: "driver-hung" in machine.shows("StatusText"))
    hung_at = machine.rows("SELECT max(ts) FROM host_samples")[0][0]
    debian.until(lambda: bool(machine.rows(f"SELECT 1 FROM host_samples WHERE ts > {hung_at} + 12")))
    assert machine.shows("NRestarts") == "1"
    assert machine.rows("SELECT 1 FROM absences WHERE reason = 'driver-hung' AND until IS NULL")
    assert "driver-hung" in machine.run(debian.PYTHON, "-m", "skuwise", "agent", "status")

    # It is restarted while the driver hangs, and the driver comes back.
    StubClock(machine.root / "opt/nvml/clock").set(1.0)
    machine.run("systemctl", "restart", "skuwise-agent.service")
    restarted = machine.rows("SELECT max(ts) FROM host_samples")[0][0]
    debian.until(lambda: bool(machine.rows(f"SELECT 1 FROM gpu_samples WHERE ts > {restarted}")))

    # Pause released, resume takes up; a loop that stands still is ended by the watchdog and started again.
    assert "GPUs released" in machine.run(debian.PYTHON, "-m", "skuwise", "agent", "pause")
    assert "paused" in machine.run(debian.PYTHON, "-m", "skuwise", "agent", "status")
    machine.run(debian.PYTHON, "-m", "skuwise", "agent", "resume")
    restarts = int(machine.shows("NRestarts"))
    machine.run("systemctl", "kill", "-s", "STOP", "skuwise-agent.service")
    debian.until(lambda: int(machine.shows("NRestarts")) == restarts + 1 and machine.shows("ActiveState") == "active")

    # A reload, a stop; the file is whole, and the snapshot's unit works on it.
    machine.run("systemctl", "reload", "skuwise-agent.service")
    debian.until(lambda: machine.shows("ActiveState") == "active")
    machine.run("systemctl", "stop", "skuwise-agent.service")
    assert machine.shows("Result") == "success"
    assert machine.rows("PRAGMA integrity_check") == [("ok",)]
    machine.run("systemctl", "start", "skuwise-snapshot.service")
    assert list(machine.inside(f"{debian.STATE}/snapshots").glob("*.db"))
    assert "removed" in machine.run(debian.PYTHON, "-m", "skuwise", "agent", "uninstall")
    assert database.exists()
