"""The host beside the GPUs: CPU, IO wait, memory and physical disks, from procfs.

CPU time that a hypervisor took (steal) counts as used. Disks are those that ``/sys/block`` ties to a device: no
partitions, and no loop, RAM, dm or md devices, whose traffic the disks below them carry already. Network file systems
are not disks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..model import Capability, Instant, Probe, Reading
from .base import GAPS, AbsenceSet, Fault, SourceSpec, table_of
from .counters import CounterRate, NoRate
from .sysfs_file import SysfsFile

# /proc/diskstats counts sectors of 512 bytes whatever the disk's own are (kernel, Documentation/admin-guide/iostats).
_SECTOR_BYTES = 512
# Its columns: major, minor, name, reads, merged, sectors read, ms, writes, merged, sectors written (the same document).
_DISK = re.compile(rb"^ *\d+ +\d+ (\S+) \d+ \d+ (\d{1,20}) \d+ \d+ \d+ (\d{1,20}) ", re.MULTILINE)
_LONGEST_LINE = 1024  # 17 counters of 20 digits and a name
_MOST_DIGITS = 20
_TOO_MUCH = 10**20  # the kernel's counters have 64 bits
_MEMORY = re.compile(rb"^MemTotal: +(\d{1,20}) kB$.*?^MemAvailable: +(\d{1,20}) kB$", re.MULTILINE | re.DOTALL)
_DISK_METRICS = ("disk_read_bytes_per_second", "disk_write_bytes_per_second")
_METRICS: Mapping[str, str] = {
    "cpu_util": "/proc/stat",
    "io_wait": "/proc/stat",
    "mem_used_bytes": "/proc/meminfo",
    **dict.fromkeys(_DISK_METRICS, "/proc/diskstats"),
}
_PROCFS = "Give the agent the host's procfs (--path.procfs)."
_FAULTS: Mapping[str, Fault] = table_of(
    *GAPS.values(),
    Fault("not-readable", "The file cannot be read or lacks the value.", _PROCFS),
    Fault("no-disk", "No physical disk was found here.", "Nothing to do on a diskless node; else check --path.sysfs."),
    Fault("no-time-passed", "No CPU time passed between two readings.", "Sample less often."),
)


class HostSource:
    """One node's host metrics. `Reading.host` also holds ``mem_total_bytes``."""

    name = "host"

    def __init__(self, procfs: Path, sysfs: Path, max_gap_seconds: float) -> None:
        self._block = sysfs / "block"
        self._stat = SysfsFile(procfs / "stat")
        self._meminfo = SysfsFile(procfs / "meminfo")
        self._diskstats = SysfsFile(procfs / "diskstats")
        self._max_gap = max_gap_seconds
        # In clock ticks: busy, idle, waiting for IO.
        self._cpu = (CounterRate(max_gap_seconds), CounterRate(max_gap_seconds), CounterRate(max_gap_seconds))
        # Sectors read and written by the name of a disk; None for one that is not physical.
        self._disks: dict[bytes, tuple[CounterRate, CounterRate] | None] = {}
        self._absent = AbsenceSet("host")

    def probe(self) -> Probe:
        """What can be read here; also looks anew which disks are physical."""
        self._disks = {name: rates for name, rates in self._disks.items() if rates and self._is_physical(name)}
        missing = {
            **dict.fromkeys(("cpu_util", "io_wait"), None if self._cpu_times() else "not-readable"),
            "mem_used_bytes": None if self._memory() else "not-readable",
            **dict.fromkeys(_DISK_METRICS, self._disk_trouble()),
        }
        return Probe(
            capabilities=tuple(
                Capability(self.name, "host", "", metric, origin, _FAULTS[why].of("host", "", metric) if why else None)
                for metric, origin in _METRICS.items()
                for why in [missing[metric]]
            )
        )

    def read(self, instant: Instant) -> Reading:
        host: dict[str, float] = {}
        missing: dict[str, str] = {}
        now = instant.monotonic_seconds
        self._read_cpu(now, host, missing)
        memory = self._memory()
        if memory is None:
            missing["mem_used_bytes"] = "not-readable"
        else:
            host["mem_total_bytes"], host["mem_used_bytes"] = memory
        self._read_disks(now, host, missing)
        for metric, reason in missing.items():
            self._absent.add("", metric, _FAULTS[reason])
        return Reading(host=host, absences=self._absent.finish())

    def close(self) -> None:
        for file in (self._stat, self._meminfo, self._diskstats):
            file.close()

    def _read_cpu(self, now: float, host: dict[str, float], missing: dict[str, str]) -> None:
        times = self._cpu_times()
        if times is None:
            missing["cpu_util"] = missing["io_wait"] = "not-readable"
            return
        busy_counter, idle_counter, waiting_counter = self._cpu
        busy = busy_counter.rate(times[0], now)
        idle, waiting = idle_counter.rate(times[1], now), waiting_counter.rate(times[2], now)
        # The kernel lets idle and iowait step back a little at times (proc(5)); busy going back is a reset.
        if isinstance(busy, NoRate):
            missing["cpu_util"] = missing["io_wait"] = busy.reason
            return
        total = busy + (0.0 if isinstance(idle, NoRate) else idle) + (0.0 if isinstance(waiting, NoRate) else waiting)
        if total <= 0:
            missing["cpu_util"] = missing["io_wait"] = "no-time-passed"
            return
        host["cpu_util"] = busy / total
        if isinstance(waiting, NoRate):
            missing["io_wait"] = waiting.reason
        else:
            host["io_wait"] = waiting / total

    def _cpu_times(self) -> tuple[int, int, int] | None:
        """(busy, idle, iowait) in clock ticks over all CPUs; guest time is inside user and nice already."""
        try:
            name, *fields = self._stat.read(256).split(b"\n", 1)[0].split(None, 9)
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, fields[:8])
        except (OSError, ValueError):
            return None
        busy = user + nice + system + irq + softirq + steal
        if name != b"cpu" or busy >= _TOO_MUCH or idle >= _TOO_MUCH or iowait >= _TOO_MUCH:
            return None
        return busy, idle, iowait

    def _memory(self) -> tuple[float, float] | None:
        """(total, used) in bytes."""
        try:
            text = self._meminfo.read(512)
        except OSError:
            return None
        # As every kernel since 3.14 has it: the total, what is free, what is available.
        words = text.split(None, 9)
        if len(words) == 10 and words[0] == b"MemTotal:" and words[6] == b"MemAvailable:" and words[8] == b"kB":
            numbers = words[1], words[7]
        else:
            found = _MEMORY.search(text)
            numbers = (found[1], found[2]) if found is not None else (b"", b"")
        if not (numbers[0].isdigit() and numbers[1].isdigit()) or max(len(numbers[0]), len(numbers[1])) > _MOST_DIGITS:
            return None
        total, available = int(numbers[0]), int(numbers[1])
        return total * 1024.0, (total - available) * 1024.0

    def _read_disks(self, now: float, host: dict[str, float], missing: dict[str, str]) -> None:
        lines = self._disk_lines()
        if lines is None:
            missing.update(dict.fromkeys(_DISK_METRICS, "not-readable"))
            return
        disks = [(rates, sectors) for name, *sectors in lines if (rates := self._rates_of(name)) is not None]
        for column, metric in enumerate(_DISK_METRICS):
            total, gap = 0.0, "" if disks else "no-disk"
            for rates, sectors in disks:
                rate = rates[column].rate(int(sectors[column]), now)
                if isinstance(rate, NoRate):
                    gap = gap or rate.reason
                else:
                    total += rate
            # A disk without a rate leaves the sum unknown, not smaller.
            if gap:
                missing[metric] = gap
            else:
                host[metric] = total * _SECTOR_BYTES

    def _disk_lines(self) -> list[tuple[bytes, bytes, bytes]] | None:
        """(name, sectors read, sectors written) of every block device; None where procfs does not say."""
        try:
            return _DISK.findall(self._diskstats.read_all(longest_line=_LONGEST_LINE))
        except OSError:
            return None

    def _rates_of(self, name: bytes) -> tuple[CounterRate, CounterRate] | None:
        if name not in self._disks:
            physical = self._is_physical(name)
            self._disks[name] = (CounterRate(self._max_gap), CounterRate(self._max_gap)) if physical else None
        return self._disks[name]

    def _is_physical(self, name: bytes) -> bool:
        # sysfs writes the slash of names such as cciss/c0d0 as an exclamation mark.
        entry = name.decode("utf-8", "surrogateescape").replace("/", "!")
        try:
            return (self._block / entry / "device").exists()
        except OSError:  # no such name can be
            return False

    def _disk_trouble(self) -> str | None:
        lines = self._disk_lines()
        if lines is None:
            return "not-readable"
        return None if any(self._rates_of(name) for name, _, _ in lines) else "no-disk"


HOST = SourceSpec(
    name=HostSource.name,
    metrics=tuple(_METRICS),
    needs="/proc/stat, /proc/meminfo and /proc/diskstats",
    remedy=_PROCFS,
    build=lambda context: HostSource(context.config.procfs, context.config.sysfs, context.config.max_gap_seconds),
)
