"""InfiniBand, RoCE and EFA traffic from sysfs.

A port that is not ACTIVE is absent, not silent. A counter that cannot be a rate (reset, wrap, stuck at its 32-bit end,
too long unread) is a gap with its reason. A file that a restricted function refuses (EINVAL) is not read again: each
try would put a line into the kernel's log.

Descriptors stay open and are read again with pread; that of a NIC that went away says so. Which NICs there are is asked
every ten seconds; what a *new* one or a port that came up with an unknown rate is, only `probe` finds out:
`wants_probe` says when it should be called.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...model import Absence, Capability, FabricPort, Instant, LinkLayer, Probe, Reading, Role
from ..counters import Gap
from ..sysfs_file import KeptFile
from .pci_topology import Nic, Placement, configured_role, gpu_paths, pci_path, place_nics, sysfs_bus_id
from .ports import METRICS, Direction, Family, PortFiles, find_devices, find_ports, parse_rate, parse_state

_ACTIVE = "ACTIVE"
_LOOK_SECONDS = 10.0  # how often the list of devices is looked at
# 32-bit PMA counters may stop at their end instead of wrapping (InfiniBand specification, PortCounters).
_SATURATED = 0xFFFFFFFF

# reason -> the sentence a person reads, the remedy
_REASONS: Mapping[str, tuple[str, str]] = {
    "port-not-active": (
        "The port is not ACTIVE, so its silence says nothing.",
        "Check its cable and the subnet manager if it should be in use.",
    ),
    "no-pma": (
        "The port has no performance management agent, so it counts nothing.",
        "Sample where the physical function is.",
    ),
    "restricted": (
        "The HCA's firmware or driver refuses this counter to this function (EINVAL, as restricted functions of a DGX "
        "and of virtual machines do), and each try would fill the kernel's log: it is not tried again.",
        "Sample where the physical function is, or have who owns it lift the restriction (mlxprivhost).",
    ),
    "no-permission": ("The counter may not be read by this user.", "Let the agent's user read sysfs."),
    "not-supported": ("This kind of port has no such counter.", "Nothing to do: it stays missing."),
    "unknown-counters": (
        "The port has no byte counters of a known family.",
        "Report the driver and its counters' names.",
    ),
    "not-a-number": ("The counter holds no number.", "Report the driver and the text."),
    "vanished": ("The counter went away.", "It is picked up again when it is back."),
    "device-gone": ("The device went away.", "It is picked up again when it is back."),
    "read-failed": ("Reading the counter failed; it is tried again at the next tick.", "See the kernel's log."),
    "counter-saturated": ("The 32-bit counter stands at its end and counts no more.", "Reset it (perfquery -R)."),
    "counter-reset": ("The counter went back: reset or wrapped.", "Nothing to do: the next interval counts again."),
    "long-gap": ("The counter was not read for too long.", "Nothing to do: the next interval counts again."),
    "first-reading": ("A rate needs two readings.", "Nothing to do: the next interval counts."),
}
_NO_FABRIC = Absence(
    "source",
    "infiniband",
    "*",
    "no-fabric",
    "This node shows no InfiniBand, RoCE or EFA device.",
    "Nothing to do, unless it should have one: then load the NIC's driver.",
)


class InfinibandSource:
    """Every port under ``/sys/class/infiniband``.

    `gpu_pci_bus_ids` as NVML writes them; `roles` maps a device, ``device/port`` or a pattern to its role and wins over
    what the PCI tree tells.
    """

    name = "infiniband"

    def __init__(
        self,
        sysfs: Path,
        gpu_pci_bus_ids: Sequence[str],
        max_gap_seconds: float,
        roles: Mapping[str, Role] | None = None,
    ) -> None:
        self._sysfs = sysfs
        self._class = sysfs / "class/infiniband"
        self._bus_ids = tuple(gpu_pci_bus_ids)
        self._roles: Mapping[str, Role] = roles or {}
        self._max_gap = max_gap_seconds
        self._ports: tuple[PortFiles, ...] = ()
        self._down_when_probed: set[str] = set()  # their line rate is not known
        self._devices: list[str] = []
        self._looked_at: float | None = None
        self._gone: frozenset[str] = frozenset()
        self._refused: set[Path] = set()
        self._known: dict[tuple[str, str, str], Absence] = {}
        self._absences: frozenset[Absence] = frozenset()
        self.placements: Mapping[str, Placement] = {}
        self.wants_probe = False

    def set_gpus(self, gpu_pci_bus_ids: Sequence[str]) -> None:
        """Other GPUs are here now; the next `probe` places the NICs by them."""
        self._bus_ids = tuple(gpu_pci_bus_ids)

    def probe(self) -> Probe:
        self._let_go()
        self._devices = find_devices(self._class)
        self._ports = tuple(
            port for device in sorted(self._devices) for port in find_ports(self._class / device, self._max_gap)
        )
        self._gone, self.wants_probe = frozenset(), False
        layers: dict[str, LinkLayer] = {port.device: port.link_layer for port in self._ports}
        nics = [Nic(device, pci_path(self._class / device / "device"), layer) for device, layer in layers.items()]
        gpu_count = len({sysfs_bus_id(bus_id) or bus_id for bus_id in self._bus_ids})
        self.placements = place_nics(nics, gpu_paths(self._sysfs, self._bus_ids), gpu_count, self._roles)
        if not self._ports:
            return Probe(capabilities=(Capability(self.name, "source", self.name, "*", str(self._class), _NO_FABRIC),))
        states = {port.key: self._state(port) for port in self._ports}
        ports = tuple(self._describe(port, states[port.key]) for port in self._ports)
        self._down_when_probed = {key for key, (_, reason) in states.items() if reason is not None}
        lines = tuple(line for port in self._ports for line in self._capabilities(port, states[port.key]))
        return Probe(ports=ports, capabilities=lines)

    def keep_only(self, role: Role) -> None:
        """Read no ports but those of this role, until the next `probe`."""
        for port in self._ports:
            if self._role(port) != role:
                for file in port.every_file():
                    file.close()
        self._ports = tuple(port for port in self._ports if self._role(port) == role)

    def read(self, instant: Instant) -> Reading:
        now = instant.monotonic_seconds
        if self._looked_at is None or now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            self._notice_changes()
        if not self._ports:
            return Reading(absences=self._keep(frozenset({_NO_FABRIC})))
        fabric: dict[str, Mapping[str, float]] = {}
        states: dict[str, str] = {}
        absences: set[Absence] = set()
        for port in self._ports:
            key = port.key
            if port.device in self._gone:
                self._forget(port)
                absences.add(self._absence(key, "*", "device-gone"))
                continue
            state, reason = self._state(port)
            if state:
                states[key] = state
            if reason is not None:
                self._forget(port)
                absences.add(self._absence(key, "*", reason))
                continue
            if key in self._down_when_probed:
                self.wants_probe = True
            if not port.known_counters:
                absences.add(self._absence(key, "*", "unknown-counters"))
                continue
            values, missing = self._read_port(port, now)
            if values:
                fabric[key] = values
            if missing:
                absences.update(self._as_absences(key, missing))
        return Reading(fabric=fabric, port_states=states, absences=self._keep(frozenset(absences)))

    def close(self) -> None:
        self._let_go()

    def _read_port(self, port: PortFiles, now: float) -> tuple[dict[str, float], dict[str, str]]:
        values: dict[str, float] = {}
        missing: dict[str, str] = {}
        for metric in METRICS:
            families = port.families.get(metric, ())
            best: float | None = None
            reason = "" if families else "not-supported"
            for family in families:
                rate = self._rate(family, now)
                if isinstance(rate, str):
                    reason = reason or rate
                elif best is None or rate > best:
                    best = rate
            if best is not None:
                values[metric] = best
            else:
                missing[metric] = reason
        return values, missing

    def _rate(self, family: Family, now: float) -> float | str:
        """The family's rate in its unit, or the reason why there is none."""
        total = 0
        for file in family.files:
            value = self._counter(file)
            if isinstance(value, str):
                family.rate.forget()
                return value
            total += value
        rate = family.rate.rate(total, now)
        return rate.reason if isinstance(rate, Gap) else rate * family.factor

    def _counter(self, file: KeptFile) -> int | str:
        """The counter's value, or the reason why there is none."""
        if self._refused and file.path in self._refused:
            return "restricted"
        try:
            raw = file.read()
        except OSError as error:
            return self._refusal(file.path, error)
        try:
            value = int(raw)
        except ValueError:
            return "no-pma" if b"no PMA" in raw else "not-a-number"
        if value == _SATURATED:
            return "counter-saturated"
        return value if value >= 0 else "not-a-number"

    def _refusal(self, path: Path, error: OSError) -> str:
        if error.errno in (errno.EINVAL, errno.EISDIR, errno.EOPNOTSUPP):
            self._refused.add(path)
            return "restricted"
        if error.errno in (errno.EACCES, errno.EPERM):
            return "no-permission"
        return "vanished" if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO) else "read-failed"

    def _state(self, port: PortFiles) -> tuple[str, str | None]:
        """The port's state text and, unless it is ACTIVE, the reason why the port is absent."""
        if self._refused and port.state.path in self._refused:
            return "", "restricted"
        try:
            raw = port.state.read()
        except OSError as error:
            reason = self._refusal(port.state.path, error)
            return "", "device-gone" if reason == "vanished" else reason
        if raw == b"4: ACTIVE\n":
            return _ACTIVE, None
        state = parse_state(raw)
        return state, None if state == _ACTIVE else "port-not-active"

    def _notice_changes(self) -> None:
        listing = find_devices(self._class)
        if listing == self._devices:
            return
        mine = {port.device for port in self._ports}
        here = set(listing)
        if here - mine - set(self._devices):
            self.wants_probe = True
        gone = frozenset(mine - here)
        for port in self._ports:
            if port.device in gone - self._gone:
                for file in port.every_file():
                    file.close()
        self._gone, self._devices = gone, listing

    def _describe(self, port: PortFiles, state: tuple[str, str | None]) -> FabricPort:
        # A port that is down reports the rate it would train to at worst, not its line rate.
        rate = None
        if state[1] is None:
            try:
                rate = parse_rate(port.rate.read().decode("ascii", "replace"))
            except OSError:
                rate = None
        return FabricPort(port.device, port.port, self._role(port), port.link_layer, rate)

    def _role(self, port: PortFiles) -> Role:
        return configured_role(port.key, self._roles) or self.placements[port.device].role

    def _capabilities(self, port: PortFiles, state: tuple[str, str | None]) -> list[Capability]:
        placement = self.placements[port.device]
        role = f"role {self._role(port)}: {placement.basis}"
        whole = state[1] or (None if port.known_counters else "unknown-counters")
        if whole is not None:
            absence = self._absence(port.key, "*", whole)
            return [Capability(self.name, "fabric", port.key, "*", role, absence)]
        lines = []
        for metric in METRICS:
            found = [self._first_trouble(family.files) for family in port.families.get(metric, ())]
            trouble = None if None in found else (found[0] if found else "not-supported")
            absence = None if trouble is None else self._absence(port.key, metric, trouble)
            origin = f"{port.origins.get(metric, 'no counter')}; {role}"
            lines.append(Capability(self.name, "fabric", port.key, metric, origin, absence))
        return lines

    def _first_trouble(self, files: Sequence[KeptFile]) -> str | None:
        values = (self._counter(file) for file in files)
        return next((value for value in values if isinstance(value, str)), None)

    def _as_absences(self, key: str, missing: Mapping[str, str]) -> list[Absence]:
        reasons = set(missing.values())
        if len(missing) == len(METRICS) and len(reasons) == 1:
            return [self._absence(key, "*", reasons.pop())]
        return [self._absence(key, metric, reason) for metric, reason in missing.items()]

    def _absence(self, key: str, metric: Direction | str, reason: str) -> Absence:
        """The same object each time, so that an unchanged set is cheap to tell."""
        absence = self._known.get((key, metric, reason))
        if absence is None:
            detail, remedy = _REASONS[reason]
            absence = Absence("fabric", key, metric, reason, detail, remedy)
            self._known[(key, metric, reason)] = absence
        return absence

    def _keep(self, absences: frozenset[Absence]) -> frozenset[Absence]:
        if absences != self._absences:
            self._absences = absences
        return self._absences

    @staticmethod
    def _forget(port: PortFiles) -> None:
        for families in port.families.values():
            for family in families:
                family.rate.forget()

    def _let_go(self) -> None:
        for port in self._ports:
            self._forget(port)
            for file in port.every_file():
                file.close()
