"""Plain Ethernet NICs, from ``/sys/class/net/*/statistics``: the kernel's own traffic, in bytes.

Only physical ports: not bridges, bonds, VLANs, veths and tunnels (what they carry passes a physical port and would
count twice), not virtual functions handed to others, not the lower half of a paravirtual pair. A NIC that is an RDMA
device too is left to the source `infiniband`: one port is listed once. None of these is a compute fabric unless the
settings say so: a port that carries the default route is `management`, the others are `unknown`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..base.safe_text import clean_text
from ..model import Capability, Probe, Role
from .base import Fault, SourceSpec
from .counters import CounterRate
from .pci_topology import configured_role
from .port_source import ACTIVE, DEVICE_NAME, PortSource
from .ports import METRICS, CounterFamily, Direction, PortFiles, attribute_text
from .sysfs_file import SysfsFile

_ETHERNET = "1"  # include/uapi/linux/if_arp.h: ARPHRD_ETHER
_COUNTERS: Mapping[Direction, str] = {"tx_bytes_per_second": "tx_bytes", "rx_bytes_per_second": "rx_bytes"}
_MBIT_BYTES = 1e6 / 8
_MAX_DEPTH = 4


class EthernetSource(PortSource):
    """Every physical Ethernet port."""

    name = "ethernet"
    listed = tuple(_COUNTERS)
    # Drivers that do not keep the state say "unknown" while they work (Documentation/networking/operstates).
    active_texts = (b"up\n", b"unknown\n")

    def __init__(
        self, sysfs: Path, procfs: Path, max_gap_seconds: float, roles: Mapping[str, Role] | None = None
    ) -> None:
        super().__init__(sysfs / "class/net", max_gap_seconds, roles)
        self._procfs = procfs
        self._left_out: list[Capability] = []

    def probe(self) -> Probe:
        self._left_out = []
        probe = super().probe()
        return replace(probe, capabilities=(*self._left_out, *probe.capabilities))

    def _find_ports(self) -> list[PortFiles]:
        ports: list[PortFiles] = []
        for name in sorted(filter(self._is_port, self._listing)):
            rdma = _rdma_device(self._class / name)
            if rdma is None:
                ports.append(self._port(name))
            else:
                absence = Fault(
                    "counted-as-rdma",
                    f"{name} is the RDMA device {rdma}, which stands for this port; its TCP traffic is not counted.",
                    "Nothing to do: one piece of hardware is listed once.",
                ).of("fabric", f"{name}/1")
                where = str(self._class / name)
                self._left_out.append(Capability(self.name, "fabric", f"{name}/1", "*", where, absence))
        return ports

    def _port(self, name: str) -> PortFiles:
        home = self._class / name
        files: dict[Direction, SysfsFile] = {
            metric: SysfsFile(home / "statistics" / file) for metric, file in _COUNTERS.items()
        }
        return PortFiles(
            key=f"{name}/1",
            device=name,
            port=1,
            link_layer="Ethernet",
            state=SysfsFile(home / "operstate"),
            families={m: (CounterFamily((f,), 1.0, CounterRate(self._max_gap)),) for m, f in files.items()},
            origins={metric: f"statistics/{file}" for metric, file in _COUNTERS.items()},
            rate=SysfsFile(home / "speed"),
        )

    def _place(self, ports: Sequence[PortFiles]) -> dict[str, tuple[Role, str]]:
        managed = self._default_route()
        return {port.key: self._role(port.device, managed) for port in ports}

    def _role(self, name: str, managed: frozenset[str]) -> tuple[Role, str]:
        configured = configured_role(f"{name}/1", self._configured) or configured_role(name, self._configured)
        if configured is not None:
            return configured, "configured"
        if name in managed:
            return "management", "carries the default route"
        return "unknown", "its role is unknown"

    def _parse_state(self, raw: bytes) -> str:
        return ACTIVE if raw in self.active_texts else clean_text(raw, 32).upper()

    def _parse_rate(self, text: str) -> float | None:
        """Its driver may not say (-1)."""
        speed = text.strip()
        return int(speed) * _MBIT_BYTES if speed.isdecimal() and 0 < int(speed) < 10**8 else None

    def _is_port(self, device: str) -> bool:
        return _is_physical(self._class / device)

    def _default_route(self) -> frozenset[str]:
        """The interface of the default route, and all that lies beneath it (a bond's or a VLAN's ports)."""
        found: set[str] = set()
        for line in self._routes():
            fields = line.split()
            if (
                len(fields) >= 8
                and fields[1] == "00000000"
                and fields[7] == "00000000"
                and DEVICE_NAME.fullmatch(fields[0])
            ):
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


def _is_physical(home: Path) -> bool:
    device = home / "device"
    if not device.exists() or attribute_text(home / "type") != _ETHERNET:
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


ETHERNET = SourceSpec(
    name=EthernetSource.name,
    metrics=METRICS[:2],
    needs="/sys/class/net",
    remedy="Give the agent the host's sysfs (--path.sysfs).",
    build=lambda context: EthernetSource(
        context.config.sysfs, context.config.procfs, context.config.max_gap_seconds, context.config.fabric_roles
    ),
)
