"""InfiniBand, RoCE, Omni-Path and EFA traffic: the ports under ``/sys/class/infiniband``.

The unit of a counter is its driver's. ``counters/port_xmit_data`` and ``port_rcv_data`` are words of 4 bytes, also on
RoCE (there RDMA only), but flits of 8 bytes of the driver hfi1 (Omni-Path). ``port_xmit_wait`` are ticks, in 32 bits.
``hw_counters`` of the driver efa are bytes. What else a driver has is unknown, and is said to be.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..model import Gpu, LinkLayer
from .base import Fault
from .counters import CounterRate, SysfsFile
from .pci_topology import Nic, configured_role, pci_path, place_nics, sysfs_bus_id
from .ports import RX, TX, WAIT, Port, PortCounter, PortSource, Roles, attribute_text

# By metric: counters of which each tells it, as names to add up.
_Families = Mapping[str, Sequence[Sequence[str]]]
_IB: _Families = {TX: [["port_xmit_data"]], RX: [["port_rcv_data"]], WAIT: [["port_xmit_wait"]]}
_WORD_BYTES = 4
_DRIVER_WORD_BYTES = {"hfi1": 8}  # drivers/infiniband/hw/hfi1/mad.c
# drivers/infiniband/hw/efa/efa_verbs.c (names). Whether tx_bytes holds RDMA too is not documented, so the greater
# counts: both are parts of the truth. rdma_read_resp_bytes is the responder's side of a read, hence sent.
_EFA: _Families = {
    TX: [["tx_bytes"], ["send_bytes", "rdma_write_bytes", "rdma_read_resp_bytes"]],
    RX: [["rx_bytes"], ["recv_bytes", "rdma_read_bytes", "rdma_write_recv_bytes"]],
}


class InfinibandSource(PortSource):
    """Every port under ``/sys/class/infiniband``. Where `gpus` hang tells a NIC's role; `roles` wins."""

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

    def _find_ports(self) -> list[Port]:
        ports = [port for device in sorted(self._listing) for port in self._ports_of(self._class / device)]
        layers: dict[str, LinkLayer] = {port.device: port.link_layer for port in ports}
        nics = [Nic(device, pci_path(self._class / device / "device"), layer) for device, layer in layers.items()]
        gpus = {sysfs_bus_id(gpu.pci_bus_id) or gpu.pci_bus_id for gpu in self._gpus() if gpu.pci_bus_id}
        paths = [path for gpu in gpus if (path := pci_path(self._sysfs / "bus/pci/devices" / gpu))]
        placed = place_nics(nics, paths, len(gpus), self._configured)
        for port in ports:
            role, port.basis = placed[port.device]
            port.role = configured_role(port.key, self._configured) or role
        return ports

    def _ports_of(self, home: Path) -> list[Port]:
        """The ports of one device, by number. A device that goes away meanwhile has none."""
        try:
            numbers = sorted(int(entry.name) for entry in (home / "ports").iterdir() if entry.name.isdecimal())
        except OSError:
            return []
        driver = Path(os.path.realpath(home / "device/driver")).name
        ports: list[Port] = []
        for number in numbers:
            folder = home / "ports" / str(number)
            ethernet = attribute_text(folder / "link_layer") == "Ethernet"
            layer: LinkLayer = "EFA" if driver == "efa" else "Ethernet" if ethernet else "InfiniBand"
            port = Port(f"{home.name}/{number}", home.name, number, layer, SysfsFile(folder / "state"), folder / "rate")
            if layer == "EFA":
                inner = folder / "hw_counters"
                # Kernels before 5.15 list the port's counters under the device.
                alone = len(numbers) == 1 and not (inner / "tx_bytes").exists()
                self._add_counters(port, home / "hw_counters" if alone else inner, _EFA, 1)
            else:
                self._add_counters(port, folder / "counters", _IB, _DRIVER_WORD_BYTES.get(driver, _WORD_BYTES))
            ports.append(port)
        return ports

    def _add_counters(self, port: Port, folder: Path, families: _Families, word_bytes: int) -> None:
        for metric, family in families.items():
            factor = 1 if metric == WAIT else word_bytes
            there = [names for names in ([n for n in names if (folder / n).exists()] for names in family) if names]
            if there:
                sums = " or ".join(" + ".join(names) for names in there)
                port.origins[metric] = f"{folder.name}/{sums}" + (f" x {factor}" if factor > 1 else "")
                port.counters[metric] = [
                    PortCounter([SysfsFile(folder / name) for name in names], factor, CounterRate(self._max_gap))
                    for names in there
                ]
