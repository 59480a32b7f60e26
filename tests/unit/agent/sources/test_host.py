"""The host source against trees whose truth is known, and the pure parts of the NVML sources."""

import ctypes
import struct
from pathlib import Path

import pytest
from skuwise.agent.config import AgentConfig
from skuwise.agent.metrics import GPU_METRICS
from skuwise.agent.service.assembly import other_sources
from skuwise.agent.sources import nvml_table as table
from skuwise.agent.sources.host import HostSource
from skuwise.tests.support.sysfs_trees import Procfs, Sysfs, at, reasons


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


def test_counters_that_go_back_and_long_gaps(trees: tuple[Procfs, Sysfs, HostSource]) -> None:
    proc, _, source = trees
    proc.cpu(user=0, idle=100, iowait=50)
    proc.disks({"sda": (50, 50)})
    source.read(at(0))
    proc.cpu(user=50, idle=150, iowait=49)  # iowait may step back without spoiling the CPU
    proc.disks({"sda": (1, 60)})
    reading = source.read(at(1))
    assert reasons(reading) == {"io_wait": "counter-reset", "disk_read_bytes_per_second": "counter-reset"}
    assert (reading.host["cpu_util"], reading.host["disk_write_bytes_per_second"]) == (0.5, 10 * 512)
    proc.cpu(user=1, idle=1)
    assert reasons(source.read(at(2))) == dict.fromkeys(("cpu_util", "io_wait"), "counter-reset")
    assert set(reasons(source.read(at(100))).values()) == {"long-gap"}


def test_a_node_without_anything_is_all_absent_with_a_remedy(tmp_path: Path) -> None:
    config = AgentConfig(sysfs=tmp_path / "none", procfs=tmp_path / "none")
    sources = {source.name: source for source in other_sources(config, list, list, lambda _: frozenset())}
    assert list(sources) == ["infiniband", "ethernet", "host", "serving", "dcgm"]
    lines = {name: source.probe().capabilities for name, source in sources.items()}
    readings = {name: source.read(at(0)) for name, source in sources.items()}
    assert all((reading.fabric, reading.host, reading.gpus) == ({}, {}, {}) for reading in readings.values())
    assert len(lines["host"]) == 5 and {line.absence for line in lines["host"]} == readings["host"].absences
    assert all(absence.reason == "not-readable" and absence.remedy for absence in readings["host"].absences)
    for source in sources.values():
        source.close()


@pytest.mark.parametrize(
    ("available", "written", "reasons_"),
    [(1001, 8, {"mem_used_bytes": "out-of-range"}), (250, 10**19, {"disk_write_bytes_per_second": "out-of-range"})],
)
def test_a_reading_that_cannot_be_is_missing(
    trees: tuple[Procfs, Sysfs, HostSource], available: int, written: int, reasons_: dict[str, str]
) -> None:
    proc, _, source = trees
    source.read(at(0))
    proc.cpu(idle=2000)
    proc.memory(1000, available)
    proc.disks({"sda": (0, written)})
    reading = source.read(at(1))
    assert reasons(reading) == reasons_
    assert not set(reasons_) & set(reading.host)


def test_the_table_has_every_metric_of_a_gpu_and_no_other():
    assert {row.metric for row in table.TABLE} == {metric.name for metric in GPU_METRICS} == table.MOST.keys()


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (1, b"\x07\x00\x00\x00\xff\xff\xff\xff", 7),
        (3, struct.pack("<Q", 2**64 - 1), 2**64 - 1),
        (5, struct.pack("<i", -5) + b"\xff" * 4, -5),
        (6, b"\x09\x00" + b"\xff" * 6, 9),
    ],
)
def test_the_value_type_says_which_member_of_the_union_counts(monkeypatch, kind, data, expected):
    def driver(_handle, _count, block):
        ctypes.memmove(ctypes.addressof(block) + 24, struct.pack("=II8s", kind, 0, data), 16)
        return 0

    monkeypatch.setattr(table, "function", lambda _: driver)
    assert table.FieldBlock(None, [(83, 0)]).read() == [(0, expected)]
