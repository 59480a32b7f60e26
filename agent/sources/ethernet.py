"""Plain Ethernet NICs, from ``/sys/class/net/*/statistics``: the kernel's own traffic, in bytes.

Only physical ports: what bridges, bonds, VLANs, veths and tunnels carry passes one of these and would count twice. Nor
virtual functions handed to others, nor the lower half of a paravirtual pair. A NIC that is an RDMA device is left to
the source `infiniband`. None of these is a compute fabric unless the settings say so: a port that carries the default
route is `management`, the others are `unknown`.
"""

from __future__ import annotations

from pathlib import Path

from ..base.safe_text import clean_text
from ..model import Capability
from .base import Fault, names_in, read_file
from .ports import DEVICE_NAME, RX, TX, Families, Port, PortSource, Roles, SysfsFile, attribute_text

_ETHERNET = "1"  # include/uapi/linux/if_arp.h: ARPHRD_ETHER
_COUNTERS: Families = {TX: [["tx_bytes"]], RX: [["rx_bytes"]]}
_LISTED_ONCE = "Nothing to do: one piece of hardware is listed once."


class EthernetSource(PortSource):
    """Every physical Ethernet port."""

    name = "ethernet"

    def __init__(self, sysfs: Path, procfs: Path, max_gap_seconds: float, roles: Roles | None = None) -> None:
        super().__init__(sysfs / "class/net", max_gap_seconds, roles)
        self._procfs = procfs

    def _find_ports(self) -> tuple[list[Port], list[Capability]]:
        managed = self._default_route()
        ports: list[Port] = []
        left_out: list[Capability] = []
        for name in sorted(filter(self._is_port, self._listing)):
            home = self._class / name
            port = Port(name, 1, "Ethernet", SysfsFile(home / "operstate"), home / "speed")
            if rdma := names_in(home / "device/infiniband"):
                detail = f"{name} is the RDMA device {clean_text(rdma[0], 64)}; its TCP traffic is not counted."
                absence = Fault("counted-as-rdma", detail, _LISTED_ONCE).of("fabric", port.key)
                left_out.append(Capability(self.name, "fabric", port.key, "*", str(home), absence))
                continue
            port.add_counters(home / "statistics", _COUNTERS, self._max_gap)
            if name in managed:
                port.role, port.basis = "management", "carries the default route"
            ports.append(port)
        return ports, left_out

    def _is_port(self, device: str) -> bool:
        home = self._class / device
        if not (home / "device").exists() or attribute_text(home / "type") != _ETHERNET:
            return False
        # A master that is a device too is the upper half of a paravirtual pair (hv_netvsc) and counts what the lower
        # one moves; a bond or a bridge is not one.
        others = ("wireless", "phy80211", "device/physfn", "master/device")
        return not any((home / name).exists() for name in others)

    def _default_route(self) -> frozenset[str]:
        """The interface of the default route, and all that lies beneath it (a bond's or a VLAN's ports)."""
        # Of process 1 first: in a pod, /proc/net shows the pod's own network.
        routes = read_file(self._procfs / "1/net/route") or read_file(self._procfs / "net/route") or b""
        edges: set[str] = set()
        for fields in map(str.split, routes.decode("ascii", "replace").splitlines()[1:]):
            if len(fields) >= 8 and fields[1] == fields[7] == "00000000" and DEVICE_NAME.fullmatch(fields[0]):
                edges.add(fields[0])
        edge = set(edges)
        while edge:
            beneath = {lower for name in edge for lower in names_in(self._class / name) if lower.startswith("lower_")}
            edge = {lower.removeprefix("lower_") for lower in beneath} - edges
            edges |= edge
        return frozenset(edges)
