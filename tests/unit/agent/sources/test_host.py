"""The host source against trees whose truth is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.agent.model import Instant, Reading
from skuwise.agent.sources.host import HostSource
from skuwise.tests.support.sysfs_trees import Procfs, Sysfs


def at(seconds: float) -> Instant:
    return Instant(1_700_000_000 + seconds, 50 + seconds)


def reasons(reading: Reading) -> dict[str, str]:
    return {a.metric: a.reason for a in reading.absences}


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Procfs, Sysfs, HostSource]:
    proc, sys = Procfs(tmp_path / "proc"), Sysfs(tmp_path / "sys")
    proc.cpu(idle=1000)
    proc.memory(1000, 250)
    for name in ("nvme0n1", "sda"):
        sys.disk(name)
    for name in ("loop0", "dm-0", "md127", "ram0", "zram0"):
        sys.disk(name, physical=False)
    proc.disks({"nvme0n1": (0, 0), "nvme0n1p1": (0, 0), "sda": (0, 0), "dm-0": (0, 0), "loop0": (0, 0)})
    return proc, sys, HostSource(proc.root, sys.root, 10)


def test_every_metric_over_measured_time(trees: tuple[Procfs, Sysfs, HostSource]) -> None:
    proc, _, source = trees
    source.probe()
    source.read(at(0))
    proc.cpu(user=30, system=10, steal=10, idle=1120, iowait=30)
    proc.disks({"nvme0n1": (4, 8), "nvme0n1p1": (4, 8), "sda": (2, 0), "dm-0": (4, 8), "loop0": (99, 99)})
    reading = source.read(at(2))
    assert reading.host == {
        "cpu_util": 50 / 200,
        "io_wait": 30 / 200,
        "mem_total_bytes": 1000 * 1024,
        "mem_used_bytes": 750 * 1024,
        "disk_read_bytes_per_second": 6 * 512 / 2,
        "disk_write_bytes_per_second": 8 * 512 / 2,
    }
    assert reading.absences == frozenset()


def test_iowait_may_step_back_without_spoiling_the_cpu(trees: tuple[Procfs, Sysfs, HostSource]) -> None:
    proc, _, source = trees
    proc.cpu(user=0, idle=100, iowait=50)
    source.read(at(0))
    proc.cpu(user=50, idle=150, iowait=49)
    reading = source.read(at(1))
    assert reading.host["cpu_util"] == 0.5
    assert "io_wait" not in reading.host
    assert reasons(reading) == {"io_wait": "counter-reset"}


def test_counters_that_go_back_and_long_gaps(trees: tuple[Procfs, Sysfs, HostSource]) -> None:
    proc, _, source = trees
    proc.cpu(user=100, idle=100)
    proc.disks({"sda": (50, 50)})
    source.read(at(0))
    proc.cpu(user=1, idle=1)
    proc.disks({"sda": (1, 60)})
    reading = source.read(at(1))
    assert reasons(reading) == {
        "cpu_util": "counter-reset", "io_wait": "counter-reset", "disk_read_bytes_per_second": "counter-reset",
    }  # fmt: skip
    assert reading.host["disk_write_bytes_per_second"] == 10 * 512
    assert set(reasons(source.read(at(100))).values()) == {"long-gap"}


def test_no_time_between_two_readings(trees: tuple[Procfs, Sysfs, HostSource]) -> None:
    source = trees[2]
    source.read(at(0))
    reading = source.read(at(0.001))
    assert reasons(reading) == {"cpu_util": "no-time-passed", "io_wait": "no-time-passed"}


def test_a_disk_that_appears_leaves_the_sum_unknown_once(trees: tuple[Procfs, Sysfs, HostSource]) -> None:
    proc, sys, source = trees
    source.read(at(0))
    sys.disk("sdb")
    proc.disks({"nvme0n1": (2, 0), "sda": (0, 0), "sdb": (10**9, 10**9)})
    assert reasons(source.read(at(1)))["disk_read_bytes_per_second"] == "first-reading"
    proc.disks({"nvme0n1": (2, 0), "sda": (0, 0), "sdb": (10**9 + 2, 10**9)})
    assert source.read(at(2)).host["disk_read_bytes_per_second"] == 1024


def test_nothing_readable_is_all_absent_with_a_remedy(tmp_path: Path) -> None:
    source = HostSource(tmp_path / "none", tmp_path / "none", 10)
    lines = source.probe().capabilities
    assert len(lines) == 5
    assert all(line.absence and line.absence.reason == "not-readable" and line.absence.remedy for line in lines)
    reading = source.read(at(0))
    assert reading.host == {}
    assert set(reasons(reading).values()) == {"not-readable"}
