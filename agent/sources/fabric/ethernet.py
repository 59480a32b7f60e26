"""Plain Ethernet NICs, from ``/sys/class/net/*/statistics``: the kernel's own traffic, in bytes.

Only physical ports: not bridges, bonds, VLANs, veths and tunnels (what they carry passes a physical port and would
count twice), not virtual functions handed to others, not the lower half of a paravirtual pair. A NIC that is an RDMA
device too is left to the source `infiniband`: one port is listed once. None of these is a compute fabric unless the
settings say so: a port that carries the default route is `management`, the others are `unknown`.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...base.safe_text import clean_text
from ...model import Absence, Capability, FabricPort, Instant, Probe, Reading, Role
from ..counters import CounterRates, Gap
from ..sysfs_file import KeptFile
from .pci_topology import configured_role

_ETHERNET = "1"  # include/uapi/linux/if_arp.h: ARPHRD_ETHER
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:-]{0,63}")
_COUNTERS = (("tx_bytes_per_second", "tx_bytes"), ("rx_bytes_per_second", "rx_bytes"))
_ACTIVE = "ACTIVE"
_MBIT_BYTES = 1e6 / 8
_MAX_DEPTH = 4
# A node of many containers has hundreds of interfaces that come and go: they are not listed at every tick.
_LOOK_SECONDS = 10.0

# reason -> the sentence a person reads, the remedy
_REASONS: Mapping[str, tuple[str, str]] = {
    "port-not-active": ("The port is not up, so its silence says nothing.", "Check its cable if it should be in use."),
    "device-gone": ("The port went away.", "It is picked up again when it is back."),
    "no-permission": ("The counter may not be read by this user.", "Let the agent's user read sysfs."),
    "read-failed": ("Reading the counter failed; it is tried again at the next tick.", "See the kernel's log."),
    "not-a-number": ("The counter holds no number.", "Report the driver and the text."),
    "counter-reset": ("The counter went back: reset or wrapped.", "Nothing to do: the next interval counts again."),
    "long-gap": ("The counter was not read for too long.", "Nothing to do: the next interval counts again."),
    "first-reading": ("A rate needs two readings.", "Nothing to do: the next interval counts."),
    "not-supported": ("Ethernet ports do not count waiting.", "Nothing to do: it stays missing."),
}


@dataclass(frozen=True, slots=True)
class _Port:
    """One physical port: its files stay open."""

    name: str
    state: KeptFile
    counters: tuple[tuple[str, KeptFile], ...]

    @property
    def key(self) -> str:
        return f"{self.name}/1"

    def close(self) -> None:
        for file in (self.state, *(file for _, file in self.counters)):
            file.close()


class EthernetSource:
    """Every physical Ethernet port. `roles` as for InfiniBand: device, ``device/port`` or pattern."""

    name = "ethernet"

    def __init__(
        self, sysfs: Path, procfs: Path, max_gap_seconds: float, roles: Mapping[str, Role] | None = None
    ) -> None:
        self._class = sysfs / "class/net"
        self._procfs = procfs
        self._roles: Mapping[str, Role] = roles or {}
        self._rates = CounterRates(max_gap_seconds)
        self._ports: tuple[_Port, ...] = ()
        self._down: frozenset[str] = frozenset()  # ports that were down when probed: their speed is not known
        self._listing: frozenset[str] = frozenset()
        self._known: dict[tuple[str, str, str], Absence] = {}
        self._absences: frozenset[Absence] = frozenset()
        self._looked_at = 0.0
        self.wants_probe = False

    def probe(self) -> Probe:
        for port in self._ports:
            port.close()
        self.wants_probe = False
        self._listing = _names(self._class)
        managed = self._default_route()
        ports: list[_Port] = []
        described: list[FabricPort] = []
        lines: list[Capability] = []
        for name in sorted(self._listing):
            home = self._class / name
            if not _is_physical(home):
                continue
            rdma = _rdma_device(home)
            if rdma is not None:
                lines.append(self._left_out(name, rdma))
                continue
            port = _Port(
                name,
                KeptFile(home / "operstate"),
                tuple((metric, KeptFile(home / "statistics" / file)) for metric, file in _COUNTERS),
            )
            role, basis = self._role(name, managed)
            ports.append(port)
            described.append(FabricPort(name, 1, role, "Ethernet", _speed(home)))
            lines += self._capabilities(port, f"role {role}: {basis}")
        self._ports = tuple(ports)
        self._down = frozenset(port.key for port in ports if self._state(port)[1] is not None)
        return Probe(ports=tuple(described), capabilities=tuple(lines))

    def read(self, instant: Instant) -> Reading:
        """Rates of every port since the last reading."""
        if instant.monotonic_seconds - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = instant.monotonic_seconds
            self._notice_changes()
        if not self._ports:
            return Reading()
        fabric: dict[str, Mapping[str, float]] = {}
        states: dict[str, str] = {}
        absences: set[Absence] = set()
        for port in self._ports:
            key = port.key
            state, reason = self._state(port)
            if state:
                states[key] = state
            if reason is not None:
                for metric, _ in port.counters:
                    self._rates.forget((key, metric))
                absences.add(self._absence(key, "*", reason))
                continue
            if key in self._down:
                self.wants_probe = True
            values, missing = self._rates_of(port, instant.monotonic_seconds)
            if values:
                fabric[key] = values
            absences.update(self._absence(key, metric, why) for metric, why in missing.items())
            absences.add(self._absence(key, "xmit_wait_per_second", "not-supported"))
        if absences != self._absences:
            self._absences = frozenset(absences)
        return Reading(fabric=fabric, port_states=states, absences=self._absences)

    def close(self) -> None:
        """Let go of every file. Idempotent."""
        for port in self._ports:
            port.close()

    def _rates_of(self, port: _Port, now: float) -> tuple[dict[str, float], dict[str, str]]:
        values: dict[str, float] = {}
        missing: dict[str, str] = {}
        for metric, file in port.counters:
            count = _count(file)
            if isinstance(count, str):
                self._rates.forget((port.key, metric))
                missing[metric] = count
                continue
            rate = self._rates.rate((port.key, metric), count, now)
            if isinstance(rate, Gap):
                missing[metric] = rate.reason
            else:
                values[metric] = rate
        return values, missing

    def _state(self, port: _Port) -> tuple[str, str | None]:
        """The port's state and, unless it is up, why it is absent."""
        try:
            raw = port.state.read()
        except OSError as error:
            return "", _refusal(error)
        if raw in (b"up\n", b"unknown\n"):
            # Drivers that do not keep the state say "unknown" while they work (Documentation/networking/operstates).
            return _ACTIVE, None
        return clean_text(raw, 32).upper(), "port-not-active"

    def _notice_changes(self) -> None:
        names = _names(self._class)
        if names == self._listing:
            return
        fresh = names - self._listing
        self._listing = names
        if any(_is_physical(self._class / name) for name in fresh):
            self.wants_probe = True

    def _default_route(self) -> frozenset[str]:
        """The interface of the default route, and all that lies beneath it (a bond's or a VLAN's ports)."""
        found: set[str] = set()
        for line in self._routes():
            fields = line.split()
            if len(fields) >= 8 and fields[1] == "00000000" and fields[7] == "00000000" and _NAME.fullmatch(fields[0]):
                found.add(fields[0])
        edge = set(found)
        for _ in range(_MAX_DEPTH):
            edge = {lower for name in edge for lower in _lower(self._class / name)} - found
            found |= edge
        return frozenset(found)

    def _routes(self) -> list[str]:
        """The node's IPv4 routes, those of process 1: in a pod, /proc/net shows the pod's own network."""
        for table in ("1/net/route", "net/route"):
            try:
                with (self._procfs / table).open("rb") as file:
                    return file.read(1 << 20).decode("ascii", "replace").splitlines()[1:]
            except OSError:
                continue
        return []

    def _role(self, name: str, managed: frozenset[str]) -> tuple[Role, str]:
        configured = configured_role(f"{name}/1", self._roles) or configured_role(name, self._roles)
        if configured is not None:
            return configured, "configured"
        if name in managed:
            return "management", "carries the default route"
        return "unknown", "nothing tells what it is for"

    def _capabilities(self, port: _Port, role: str) -> list[Capability]:
        reason = self._state(port)[1]
        if reason is not None:
            absence = self._absence(port.key, "*", reason)
            return [Capability(self.name, "fabric", port.key, "*", role, absence)]
        lines = []
        for metric, file in port.counters:
            count = _count(file)
            absence = self._absence(port.key, metric, count) if isinstance(count, str) else None
            origin = f"statistics/{file.path.name}; {role}"
            lines.append(Capability(self.name, "fabric", port.key, metric, origin, absence))
        return lines

    def _left_out(self, name: str, rdma: str) -> Capability:
        absence = Absence(
            "fabric",
            f"{name}/1",
            "*",
            "counted-as-rdma",
            f"{name} is the RDMA device {rdma}, which stands for this port; its TCP traffic is not counted.",
            "Nothing to do: one piece of hardware is listed once.",
        )
        return Capability(self.name, "fabric", f"{name}/1", "*", str(self._class / name), absence)

    def _absence(self, key: str, metric: str, reason: str) -> Absence:
        """The same object each time, so that an unchanged set is cheap to tell."""
        absence = self._known.get((key, metric, reason))
        if absence is None:
            detail, remedy = _REASONS[reason]
            absence = self._known[(key, metric, reason)] = Absence("fabric", key, metric, reason, detail, remedy)
        return absence


def _names(class_dir: Path) -> frozenset[str]:
    try:
        return frozenset(name for name in os.listdir(class_dir) if _NAME.fullmatch(name))  # noqa: PTH208 - hot path
    except OSError:
        return frozenset()


def _is_physical(home: Path) -> bool:
    device = home / "device"
    if not device.exists() or _text(home / "type") != _ETHERNET:
        return False
    if (home / "wireless").exists() or (home / "phy80211").exists() or (device / "physfn").exists():
        return False
    # The upper half of a paravirtual pair (hv_netvsc) is a device too and counts what the lower one moves; a bond's
    # or a bridge's is not one.
    return not (home / "master/device").exists()


def _rdma_device(home: Path) -> str | None:
    """The RDMA device of the same hardware; None where it has none."""
    try:
        names = sorted(os.listdir(home / "device/infiniband"))  # noqa: PTH208
    except OSError:
        return None
    return clean_text(names[0], 64) if names else None


def _lower(home: Path) -> list[str]:
    try:
        return [name[6:] for name in os.listdir(home) if name.startswith("lower_")]  # noqa: PTH208
    except OSError:
        return []


def _speed(home: Path) -> float | None:
    """Line rate in bytes per second, one way; None while it is down, or where its driver does not say (-1)."""
    text = _text(home / "speed")
    return int(text) * _MBIT_BYTES if text.isdecimal() and 0 < int(text) < 10**8 else None


def _count(file: KeptFile) -> int | str:
    """The counter's value, or the reason why there is none."""
    try:
        raw = file.read()
    except OSError as error:
        return _refusal(error)
    text = raw.strip()
    return int(text) if text.isdigit() else "not-a-number"


def _refusal(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "no-permission"
    return "device-gone" if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO) else "read-failed"


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(64).decode("ascii", "replace").strip()
    except OSError:
        return ""
