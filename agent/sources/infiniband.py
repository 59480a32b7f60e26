"""InfiniBand, RoCE and EFA traffic from sysfs."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..model import Absence, Gpu, LinkLayer, Role
from .base import Fault, SourceSpec, table_of
from .pci_topology import Nic, configured_role, gpu_paths, pci_path, place_nics, sysfs_bus_id
from .port_source import ACTIVE, PortSource
from .ports import METRICS, PortFiles, find_ports, parse_port_state, parse_rate

_FAULTS = table_of(
    Fault(
        "port-not-active",
        "The port is not ACTIVE, so no traffic is expected on it.",
        "Check its cable and the subnet manager if it should be in use.",
    ),
    Fault(
        "no-pma",
        "The port has no performance management agent, so it counts nothing.",
        "Sample where the physical function is.",
    ),
    Fault(
        "restricted",
        "The HCA's firmware or driver refuses this counter to this function (EINVAL), as on a DGX or a virtual "
        "machine. The agent does not retry, to keep the kernel's log clean.",
        "Sample where the physical function is, or ask its owner to lift the restriction (mlxprivhost).",
    ),
    Fault(
        "unknown-counters",
        "The port has no byte counters of a known family.",
        "Report the driver and its counters' names.",
    ),
    Fault(
        "counter-saturated",
        "The 32-bit counter has reached its maximum and no longer counts.",
        "Reset it (perfquery -R).",
    ),
)


class InfinibandSource(PortSource):
    """Every port under ``/sys/class/infiniband``.

    `gpus` says which GPUs are here, by whose place in the PCI tree a NIC's role is told; `roles` wins over that.
    """

    name = "infiniband"
    faults = _FAULTS
    refusals = frozenset({errno.EINVAL, errno.EISDIR, errno.EOPNOTSUPP})
    no_file = "vanished"
    # 32-bit PMA counters may stop at their end instead of wrapping (InfiniBand specification, PortCounters).
    saturated = 0xFFFFFFFF
    active_texts = (b"4: ACTIVE\n",)
    no_ports = Absence(
        "source",
        "infiniband",
        "*",
        "no-fabric",
        "This node shows no InfiniBand, RoCE or EFA device.",
        "Nothing to do, unless it should have one: then load the NIC's driver.",
    )

    def __init__(
        self,
        sysfs: Path,
        gpus: Callable[[], Sequence[Gpu]],
        max_gap_seconds: float,
        roles: Mapping[str, Role] | None = None,
    ) -> None:
        super().__init__(sysfs / "class/infiniband", max_gap_seconds, roles)
        self._sysfs = sysfs
        self._gpus = gpus

    def _find_ports(self) -> list[PortFiles]:
        return [port for device in sorted(self._listing) for port in find_ports(self._class / device, self._max_gap)]

    def _place(self, ports: Sequence[PortFiles]) -> dict[str, tuple[Role, str]]:
        layers: dict[str, LinkLayer] = {port.device: port.link_layer for port in ports}
        nics = [Nic(device, pci_path(self._class / device / "device"), layer) for device, layer in layers.items()]
        bus_ids = [gpu.pci_bus_id for gpu in self._gpus() if gpu.pci_bus_id]
        gpu_count = len({sysfs_bus_id(bus_id) or bus_id for bus_id in bus_ids})
        placed = place_nics(nics, gpu_paths(self._sysfs, bus_ids), gpu_count, self._configured)
        return {
            port.key: (
                configured_role(port.key, self._configured) or placed[port.device].role,
                placed[port.device].basis,
            )
            for port in ports
        }

    def _parse_state(self, raw: bytes) -> str:
        return ACTIVE if raw in self.active_texts else parse_port_state(raw)

    def _parse_rate(self, text: str) -> float | None:
        return parse_rate(text)


INFINIBAND = SourceSpec(
    name=InfinibandSource.name,
    metrics=METRICS,
    needs="/sys/class/infiniband",
    remedy="Load the NIC's driver, or give the agent the host's sysfs (--path.sysfs).",
    build=lambda context: InfinibandSource(
        context.config.sysfs, context.gpus, context.config.max_gap_seconds, context.config.fabric_roles
    ),
)
