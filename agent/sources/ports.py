"""What all sources of ports do alike: find them, read their files each tick, say which are absent and why.

A port that is not active is absent, not silent. A file that a restricted function refuses is not read again: each try
would put a line into the kernel's log. Only `probe` finds out what a new device or a port that came up is.
"""

import errno
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ..base.safe_text import clean_text
from ..metrics import FABRIC_METRICS
from ..model import Absence, Capability, FabricPort, Instant, LinkLayer, Probe, Reading, Role
from .base import FIRST_READING, NOT_A_NUMBER, STAYS_MISSING, CounterRate, Fault, names_in, read_file, sort_out

ACTIVE = "ACTIVE"
Roles = Mapping[str, Role]  # by a device, ``device/port`` or a pattern
# By metric: counters of which each shows it, as names to add up.
Families = Mapping[str, Sequence[Sequence[str]]]
TX, RX, WAIT = METRICS = ("tx_bytes_per_second", "rx_bytes_per_second", "xmit_wait_per_second")
# Names are the kernel's; anything else under the class directory is not ours to open.
DEVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:-]{0,63}")

# A node of many containers has hundreds of interfaces that come and go: they are not listed at every tick.
_LOOK_SECONDS = 10.0
# 32-bit PMA counters may stop at their end instead of wrapping (InfiniBand specification, PortCounters).
_LAST_OF_32_BITS = 0xFFFFFFFF
_MOST = {metric.name: metric.most for metric in FABRIC_METRICS}
# A port carries no more than a few times its line rate: a bond shows one port's rate and counts two.
_MOST_LINE_RATES = 4.0
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT]?)b/sec|$)", re.IGNORECASE)
_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

_AT_FUNCTION = "Sample where the physical function is, or ask its owner to lift the restriction (mlxprivhost)."
_BACK = "It is picked up again when it is back."
_NOT_ACTIVE = Fault(
    "port-not-active", "The port is not up, so no traffic is expected on it.", "Check its cable and its switch."
)
_DEVICE_GONE = Fault("device-gone", "The device went away.", _BACK)
_VANISHED = Fault("vanished", "The counter went away.", _BACK)
_FORBIDDEN = Fault("no-permission", "The counter may not be read by this user.", "Let the agent's user read sysfs.")
_FAILED = Fault("read-failed", "Reading the counter failed; the next tick tries again.", "See the kernel's log.")
_NOT_SUPPORTED = Fault("not-supported", "This kind of port has no such counter.", STAYS_MISSING)
_NO_PMA = Fault("no-pma", "The port has no performance management agent, so it counts nothing.", _AT_FUNCTION)
_RESTRICTED = Fault("restricted", "Firmware or driver refuse this counter here, so it is not read again.", _AT_FUNCTION)
_UNKNOWN_COUNTERS = Fault(
    "unknown-counters", "The port has no byte counters of a known family.", "Report its driver and counters."
)
_SATURATED = Fault("counter-saturated", "The 32-bit counter has reached its maximum.", "Reset it (perfquery -R).")
_ERRORS = {
    **dict.fromkeys((errno.EINVAL, errno.EISDIR, errno.EOPNOTSUPP), _RESTRICTED),  # refused for good
    **dict.fromkeys((errno.EACCES, errno.EPERM), _FORBIDDEN),
    **dict.fromkeys((errno.ENOENT, errno.ENODEV, errno.ENXIO), _VANISHED),
}


class PortCounter(NamedTuple):
    """Counters that together show one metric: the sum of `files` times `factor`, as a `rate`."""

    files: Sequence[Path]
    factor: int
    rate: CounterRate


@dataclass(slots=True)
class Port:
    """A port as it was found. `counters`: per metric those that can show it (the greatest rate counts); `line_rate` in
    bytes per second, one way; None: unknown, as of a port that was `down` when it was found."""

    device: str
    number: int
    link_layer: LinkLayer
    state: Path
    rate: Path
    counters: dict[str, list[PortCounter]] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)  # of each metric, for doctor
    role: Role = "unknown"
    basis: str = "its role is unknown"  # what shows the role
    line_rate: float | None = None
    down: bool = False

    @property
    def key(self) -> str:
        return f"{self.device}/{self.number}"

    def add_counters(self, folder: Path, families: Families, max_gap_seconds: float, word_bytes: int = 1) -> None:
        """Count by those of `families` that are in `folder`, in words but for `WAIT`."""
        for metric, family in families.items():
            factor = 1 if metric == WAIT else word_bytes
            there = [names for names in ([n for n in names if (folder / n).exists()] for names in family) if names]
            if there:
                sums = " or ".join(" + ".join(names) for names in there)
                self.origins[metric] = f"{folder.name}/{sums}" + (f" x {factor}" if factor > 1 else "")
                self.counters[metric] = [
                    PortCounter([folder / name for name in names], factor, CounterRate(max_gap_seconds))
                    for names in there
                ]

    def forget(self) -> None:
        for counter in chain.from_iterable(self.counters.values()):
            counter.rate.last = None


class PortSource:
    """Every port under one class directory of sysfs. `no_ports`: the fault where there are none; None: it is none."""

    name: str
    no_ports: Fault | None = None

    def __init__(self, class_dir: Path, max_gap_seconds: float, roles: Roles | None) -> None:
        self._class, self._max_gap = class_dir, max_gap_seconds
        self._configured: Roles = roles or {}
        self._ports: list[Port] = []
        self._listing: frozenset[str] = frozenset()
        self._looked_at: float | None = None
        self._refused: set[Path] = set()
        self.wants_probe = False

    def _find_ports(self) -> tuple[list[Port], list[Capability]]:
        raise NotImplementedError

    def _is_port(self, device: str) -> bool:  # noqa: ARG002
        return True

    def probe(self) -> Probe:
        self._listing = self._names()
        self._ports, lines = self._find_ports()
        for port in self._ports:
            configured = configured_role(port.key, self._configured) or configured_role(port.device, self._configured)
            if configured is not None:
                port.role, port.basis = configured, "configured"
            missing = {absence.metric: absence for absence in self._read_port(port, 0.0)[2]}
            port.forget()
            port.down = "*" in missing and missing["*"].reason != _UNKNOWN_COUNTERS.reason
            # A port that is down reports the rate it would train to at worst, not its line rate.
            port.line_rate = None if port.down else parse_line_rate(attribute_text(port.rate))
            for metric, absence in missing.items():
                why = None if absence.reason == FIRST_READING.reason else absence
                origin = f"{port.origins.get(metric, 'no counter')}; role {port.role}: {port.basis}"
                lines.append(Capability(self.name, "fabric", port.key, metric, origin, why))
        if not self._ports and self.no_ports is not None:
            lines = [self.no_ports.line(self.name, str(self._class))]
        self.wants_probe = False
        ports = tuple(FabricPort(p.device, p.number, p.role, p.link_layer, p.line_rate) for p in self._ports)
        return Probe(ports=ports, capabilities=tuple(lines))

    def keep_only(self, role: Role) -> None:
        """Read no ports but those of this role, until the next `probe`."""
        self._ports = [port for port in self._ports if port.role == role]

    def read(self, instant: Instant) -> Reading:
        now = instant.monotonic_seconds
        if self._looked_at is None or now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at, listing = now, self._names()
            for port in self._ports:
                if port.device not in listing:
                    port.forget()
            fresh = listing - self._listing - {port.device for port in self._ports}
            self.wants_probe = self.wants_probe or any(self._is_port(name) for name in fresh)
            self._listing = listing
        if not self._ports and self.no_ports is not None:
            return Reading(absences=frozenset({self.no_ports.of("source", self.name)}))
        fabric: dict[str, Mapping[str, float]] = {}
        states: dict[str, str] = {}
        absences: list[Absence] = []
        for port in self._ports:
            state, values, absent = self._read_port(port, now)
            if state:
                states[port.key] = state
            if values:
                fabric[port.key] = values
            elif len({absence.reason for absence in absent}) == 1:
                absent = [replace(absent[0], metric="*")]
            absences += absent
        return Reading(fabric=fabric, port_states=states, absences=frozenset(absences))

    def close(self) -> None: ...

    def _names(self) -> frozenset[str]:
        return frozenset(filter(DEVICE_NAME.fullmatch, names_in(self._class)))

    def _read_port(self, port: Port, now: float) -> tuple[str, dict[str, float], list[Absence]]:
        values, absences = ({}, []) if port.down else self._rates(port, now)
        # What moved something was active: the state, for which some drivers ask the firmware, is then not read.
        if values.get(TX) or values.get(RX):
            return ACTIVE, values, absences
        text = self._text(port.state)
        # ``4: ACTIVE``, or an interface's ``up`` or ``unknown``, which drivers say that do not keep the state
        # (Documentation/networking/operstates).
        word = clean_text(text, 32).rpartition(":")[2].strip().upper() if isinstance(text, bytes) else ""
        state = ACTIVE if word in ("UP", "UNKNOWN") else word
        if state != ACTIVE:
            port.forget()
            fault = text if isinstance(text, Fault) else _NOT_ACTIVE
            return state, {}, [(_DEVICE_GONE if fault == _VANISHED else fault).of("fabric", port.key)]
        if not (port.counters.get(TX) and port.counters.get(RX)):
            return state, {}, [_UNKNOWN_COUNTERS.of("fabric", port.key)]
        if port.down:
            self.wants_probe = True
            values, absences = self._rates(port, now)
        return state, values, absences

    def _rates(self, port: Port, now: float) -> tuple[dict[str, float], list[Absence]]:
        readings: dict[str, float | Fault] = {}
        for metric in METRICS:
            rates = [self._rate(counter, now) for counter in port.counters.get(metric, ())]
            best = max((rate for rate in rates if isinstance(rate, float)), default=None)
            readings[metric] = best if best is not None else rates[0] if rates else _NOT_SUPPORTED
        most = _MOST[TX] if port.line_rate is None else min(_MOST[TX], _MOST_LINE_RATES * port.line_rate)
        return sort_out("fabric", port.key, readings, {TX: most, RX: most})

    def _rate(self, counter: PortCounter, now: float) -> float | Fault:
        total = 0
        for text in map(self._text, counter.files):
            if isinstance(text, bytes) and text.isdigit() and int(text) != _LAST_OF_32_BITS:
                total += int(text)
                continue
            counter.rate.last = None
            if isinstance(text, Fault):
                return text
            return _SATURATED if text.isdigit() else _NO_PMA if b"no PMA" in text else NOT_A_NUMBER
        rate = counter.rate.rate(total, now)
        return rate if isinstance(rate, Fault) else rate * counter.factor

    def _text(self, path: Path) -> bytes | Fault:
        if path in self._refused:
            return _RESTRICTED
        try:
            with path.open("rb", buffering=0) as file:
                return (file.read(128) or b"").strip()
        except OSError as error:
            fault = _ERRORS.get(error.errno or 0, _FAILED)
            if fault == _RESTRICTED:
                self._refused.add(path)
            return fault


def configured_role(name: str, configured: Roles) -> Role | None:
    """The role configured for `name` (a device, or ``device/port``): exact before pattern; None: not configured."""
    if name in configured:
        return configured[name]
    return next((role for pattern, role in configured.items() if fnmatchcase(name, pattern)), None)


def attribute_text(path: Path) -> str:
    """One short attribute, cleaned; empty if it cannot be read."""
    return clean_text(read_file(path) or b"")


def parse_line_rate(text: str) -> float | None:
    """``400 Gb/sec (4X NDR)``, or an interface's speed in Mbit/s, as bytes per second one way; None: unknown (-1)."""
    match = _RATE.match(text)
    bits = float(match[1]) * _SCALE["M" if match[2] is None else match[2].upper()] if match is not None else 0.0
    return bits / 8 if 0 < bits < 1e14 else None
