"""The host beside the GPUs: CPU, IO wait, memory and physical disks, from procfs.

CPU time that a hypervisor took (steal) counts as used. Disks are those that ``/sys/block`` ties to a device: no
partitions, loop, RAM, dm or md devices, whose traffic the disks below them carry already.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from ..metrics import HOST_METRICS
from ..model import Capability, Instant, Probe, Reading
from .base import FIRST_READING, CounterRate, Fault, read_file, sort_out

# /proc/diskstats counts sectors of 512 bytes whatever the disk's own are (kernel, Documentation/admin-guide/iostats).
_SECTOR_BYTES = 512
# Its columns: major, minor, name, reads, merged, sectors read, ms, writes, merged, sectors written (the same document).
# The kernel's counters have 64 bits, which is 20 digits.
_DISK = re.compile(rb"^ *\d+ +\d+ (\S+) \d+ \d+ (\d{1,20}) \d+ \d+ \d+ (\d{1,20}) ", re.MULTILINE)
_CPU = re.compile(rb"cpu +" + rb" ".join([rb"(\d{1,20})"] * 8) + rb"\b")
_MEMORY = re.compile(rb"^MemTotal: +(\d{1,20}) kB$.*?^MemAvailable: +(\d{1,20}) kB$", re.MULTILINE | re.DOTALL)
_CPU_METRICS = ("cpu_util", "io_wait")
_DISK_METRICS = ("disk_read_bytes_per_second", "disk_write_bytes_per_second")
_ORIGINS: Mapping[str, str] = {
    **dict.fromkeys(_CPU_METRICS, "/proc/stat"),
    "mem_used_bytes": "/proc/meminfo",
    **dict.fromkeys(_DISK_METRICS, "/proc/diskstats"),
}
_MOST = {metric.name: metric.most for metric in HOST_METRICS}
_MOST["mem_total_bytes"] = _MOST["mem_used_bytes"]
_PROCFS = "Give the agent the host's procfs (--path.procfs)."
_NOT_READABLE = Fault("not-readable", "The file cannot be read or lacks the value.", _PROCFS)
_NO_DISK = Fault("no-disk", "No physical disk was found here.", "Nothing to do if diskless; else check --path.sysfs.")
_NO_TIME = Fault("no-time-passed", "No CPU time passed between two readings.", "Sample less often.")
_Told = dict[str, float | Fault]


class HostSource:
    """One node's host metrics. `Reading.host` also holds ``mem_total_bytes``."""

    name = "host"

    def __init__(self, procfs: Path, sysfs: Path, max_gap_seconds: float) -> None:
        self._procfs, self._sysfs, self._max_gap = procfs, sysfs, max_gap_seconds
        # In clock ticks: busy, idle, waiting for IO.
        self._cpu = [CounterRate(max_gap_seconds) for _ in range(3)]
        # By the disk's name: sectors read and written; empty: not a physical one.
        self._disks: dict[bytes, list[CounterRate]] = {}

    def probe(self) -> Probe:
        """What can be read here; also looks again which disks are physical."""
        self._disks = {name: rates for name, rates in self._disks.items() if rates and self._is_physical(name)}
        # Another source is read, so that this one's counters are left as they are.
        reading = HostSource(self._procfs, self._sysfs, self._max_gap).read(Instant(0.0, 0.0))
        absences = {absence.metric: absence for absence in reading.absences if absence.reason != FIRST_READING.reason}
        lines = (Capability(self.name, "host", "", m, origin, absences.get(m)) for m, origin in _ORIGINS.items())
        return Probe(capabilities=tuple(lines))

    def read(self, instant: Instant) -> Reading:
        now = instant.monotonic_seconds
        values = self._read_cpu(now) | self._read_memory() | self._read_disks(now)
        host, absences = sort_out("host", "", values, _MOST)
        return Reading(host=host, absences=frozenset(absences))

    def close(self) -> None: ...

    def _read_cpu(self, now: float) -> _Told:
        """The values by metric, or why they are missing; guest time is inside user and nice already."""
        match = _CPU.match(read_file(self._procfs / "stat") or b"")
        if match is None:
            return dict.fromkeys(_CPU_METRICS, _NOT_READABLE)
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, match.groups())
        times = (user + nice + system + irq + softirq + steal, idle, iowait)
        busy, idling, waiting = (rate.rate(time, now) for rate, time in zip(self._cpu, times, strict=True))
        # The kernel lets idle and iowait step back a little at times (proc(5)); busy going back is a reset.
        if isinstance(busy, Fault):
            return dict.fromkeys(_CPU_METRICS, busy)
        total = busy + sum(rate for rate in (idling, waiting) if not isinstance(rate, Fault))
        if total <= 0:
            return dict.fromkeys(_CPU_METRICS, _NO_TIME)
        return {"cpu_util": busy / total, "io_wait": waiting if isinstance(waiting, Fault) else waiting / total}

    def _read_memory(self) -> _Told:
        match = _MEMORY.search(read_file(self._procfs / "meminfo") or b"")
        if match is None:
            return {"mem_used_bytes": _NOT_READABLE}
        total, available = int(match[1]), int(match[2])
        return {"mem_total_bytes": total * 1024.0, "mem_used_bytes": (total - available) * 1024.0}

    def _read_disks(self, now: float) -> _Told:
        text = read_file(self._procfs / "diskstats")
        if text is None:
            return dict.fromkeys(_DISK_METRICS, _NOT_READABLE)
        lines = _DISK.findall(text)
        for name, _, _ in lines:
            if name not in self._disks:
                physical = self._is_physical(name)
                self._disks[name] = [CounterRate(self._max_gap) for _ in _DISK_METRICS] if physical else []
        values: _Told = {}
        for column, metric in enumerate(_DISK_METRICS):
            rates = [rate[column].rate(int(sectors[column]), now) for n, *sectors in lines if (rate := self._disks[n])]
            # A disk without a rate leaves the sum unknown, not smaller.
            gap = next((rate for rate in rates if isinstance(rate, Fault)), None if rates else _NO_DISK)
            values[metric] = gap or sum(rate for rate in rates if not isinstance(rate, Fault)) * float(_SECTOR_BYTES)
        return values

    def _is_physical(self, name: bytes) -> bool:
        # sysfs writes the slash of names such as cciss/c0d0 as an exclamation mark.
        entry = name.decode("utf-8", "surrogateescape").replace("/", "!")
        try:
            return (self._sysfs / "block" / entry / "device").exists()
        except OSError:  # no such name can be
            return False
