"""The node's ports: InfiniBand, RoCE, Omni-Path and EFA under ``/sys/class/infiniband``, and plain Ethernet NICs under
``/sys/class/net``.

The unit of a counter is its driver's: ``port_xmit_data`` and ``port_rcv_data`` are words of 4 bytes, also on RoCE
(there RDMA only), but flits of 8 bytes of hfi1 (Omni-Path, hfi1/mad.c); ``port_xmit_wait`` are ticks, ``hw_counters``
of efa bytes. Of Ethernet only physical ports count: what bridges, bonds, VLANs, veths and tunnels carry passes one of
these.

A NIC is compute that shares a PCI switch or a root port with a GPU or, where no NIC is nearer, a root complex; where
they share nothing (on Azure each has its root), by kind, name and number. Ethernet is never, unless the settings say
so. ``storage`` is not guessed: nothing in sysfs shows it.
"""

import os
import re
from collections.abc import Callable, Collection, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from ..base.safe_text import clean_text
from ..model import Capability, Gpu, LinkLayer, Role
from .base import Fault, names_in
from .ports import RX, TX, WAIT, Families, Port, PortSource, Roles, attribute_text

_IB: Families = {TX: [["port_xmit_data"]], RX: [["port_rcv_data"]], WAIT: [["port_xmit_wait"]]}
# drivers/infiniband/hw/efa/efa_verbs.c (names). Whether tx_bytes holds RDMA too is not documented, so the greater
# counts: both are parts of the truth. rdma_read_resp_bytes is the responder's side of a read, which sends.
_EFA: Families = {
    TX: [["tx_bytes"], ["send_bytes", "rdma_write_bytes", "rdma_read_resp_bytes"]],
    RX: [["rx_bytes"], ["recv_bytes", "rdma_read_bytes", "rdma_write_recv_bytes"]],
}
_ETHERNET = "1"  # include/uapi/linux/if_arp.h: ARPHRD_ETHER
_COUNTERS: Families = {TX: [["tx_bytes"]], RX: [["rx_bytes"]]}
_LISTED_ONCE = "Nothing to do: one piece of hardware is listed once."
_FROM_ROOT_COMPLEX = re.compile(r"(?<=/)pci[0-9a-f]{4,8}:[0-9a-f]{2}(?:/.*)?$")
_BUS_ID = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
_NAMED_COMPUTE = re.compile(r"_ib\d+$")

PciPath = tuple[str, ...]


class Nic(NamedTuple):
    """One RDMA device. `pci_path` runs from the root complex down to the device; empty: not a PCI device."""

    device: str
    pci_path: PciPath
    link_layer: LinkLayer


def sysfs_bus_id(bus_id: str) -> str | None:
    """NVML's ``00000000:1B:00.0`` as sysfs writes it, ``0000:1b:00.0``; None if it is no bus id."""
    match = _BUS_ID.fullmatch(bus_id.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}".lower()


def pci_path(device: Path) -> PciPath:
    """The components of a device's real path from its PCI root complex on; empty if it has none."""
    match = _FROM_ROOT_COMPLEX.search(os.path.realpath(device))
    return tuple(match[0].split("/")) if match else ()


def place_nics(nics: Sequence[Nic], gpus: Collection[PciPath], gpu_count: int) -> dict[str, tuple[Role, str]]:
    """The role of each NIC, and what shows it. `gpus`: where those hang that sysfs shows; `gpu_count`: of all."""
    # How many components are shared with the nearest GPU (1: the root complex alone).
    nearest = {nic.device: max((_shared(nic.pci_path, path) for path in gpus), default=0) for nic in nics}
    switch_level = any(depth >= 2 for depth in nearest.values())
    roots = {path[0] for path in gpus} | {nic.pci_path[0] for nic in nics if nic.pci_path}
    bridge_tells = not switch_level and len(roots) > 1
    placed = switch_level or (bridge_tells and 1 in nearest.values())
    infiniband = sum(nic.link_layer == "InfiniBand" for nic in nics)
    one_each = not placed and infiniband == gpu_count >= 2

    def place(nic: Nic) -> tuple[Role, str]:
        if nearest[nic.device] >= 2:
            return "compute", "shares a PCIe switch or root port with a GPU"
        if nearest[nic.device] == 1 and bridge_tells:
            return "compute", "shares a PCIe root complex with a GPU, and no NIC is nearer to one"
        if nic.link_layer == "EFA":
            return "compute", "EFA exists for the compute fabric"
        if not placed and _NAMED_COMPUTE.search(nic.device):
            return "compute", "named as an InfiniBand compute port; the PCI tree is inconclusive"
        if one_each and nic.link_layer == "InfiniBand":
            return "compute", "as many InfiniBand NICs as GPUs; the PCI tree is inconclusive"
        return "unknown", "not attached to a GPU"

    return {nic.device: place(nic) for nic in nics}


def _shared(path: PciPath, other: PciPath) -> int:
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(path, other, strict=False))])


class InfinibandSource(PortSource):
    """Every port under ``/sys/class/infiniband``. Where `gpus` hang shows a NIC's role; `roles` wins."""

    name = "infiniband"
    no_ports = Fault(
        "no-fabric", "This node shows no InfiniBand, RoCE or EFA device.", "If it has one, load the NIC's driver."
    )

    def __init__(
        self, sysfs: Path, gpus: Callable[[], Sequence[Gpu]], max_gap_seconds: float, roles: Roles | None = None
    ) -> None:
        super().__init__(sysfs / "class/infiniband", max_gap_seconds, roles)
        self._sysfs = sysfs
        self._gpus = gpus

    def _find_ports(self) -> tuple[list[Port], list[Capability]]:
        ports = [port for device in sorted(self._listing) for port in self._ports_of(self._class / device)]
        layers: dict[str, LinkLayer] = {port.device: port.link_layer for port in ports}
        nics = [Nic(device, pci_path(self._class / device / "device"), layer) for device, layer in layers.items()]
        gpus = {sysfs_bus_id(gpu.pci_bus_id) or gpu.pci_bus_id for gpu in self._gpus() if gpu.pci_bus_id}
        paths = [path for gpu in gpus if (path := pci_path(self._sysfs / "bus/pci/devices" / gpu))]
        placed = place_nics(nics, paths, len(gpus))
        for port in ports:
            port.role, port.basis = placed[port.device]
        return ports, []

    def _ports_of(self, home: Path) -> list[Port]:
        numbers = sorted(int(name) for name in names_in(home / "ports") if name.isdecimal())
        driver = Path(os.path.realpath(home / "device/driver")).name
        ports: list[Port] = []
        for number in numbers:
            folder = home / "ports" / str(number)
            ethernet = attribute_text(folder / "link_layer") == "Ethernet"
            layer: LinkLayer = "EFA" if driver == "efa" else "Ethernet" if ethernet else "InfiniBand"
            port = Port(home.name, number, layer, folder / "state", folder / "rate")
            if layer == "EFA":
                inner = folder / "hw_counters"
                # Kernels before 5.15 list the port's counters under the device.
                alone = len(numbers) == 1 and not (inner / "tx_bytes").exists()
                port.add_counters(home / "hw_counters" if alone else inner, _EFA, self._max_gap)
            else:
                port.add_counters(folder / "counters", _IB, self._max_gap, 8 if driver == "hfi1" else 4)
            ports.append(port)
        return ports


class EthernetSource(PortSource):
    name = "ethernet"

    def __init__(self, sysfs: Path, max_gap_seconds: float, roles: Roles | None = None) -> None:
        super().__init__(sysfs / "class/net", max_gap_seconds, roles)

    def _find_ports(self) -> tuple[list[Port], list[Capability]]:
        ports: list[Port] = []
        left_out: list[Capability] = []
        for name in sorted(filter(self._is_port, self._listing)):
            home = self._class / name
            port = Port(name, 1, "Ethernet", home / "operstate", home / "speed")
            if rdma := names_in(home / "device/infiniband"):
                detail = f"{name} is the RDMA device {clean_text(rdma[0], 64)}; its TCP traffic is not counted."
                absence = Fault("counted-as-rdma", detail, _LISTED_ONCE).of("fabric", port.key)
                left_out.append(Capability(self.name, "fabric", port.key, "*", str(home), absence))
                continue
            port.add_counters(home / "statistics", _COUNTERS, self._max_gap)
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
