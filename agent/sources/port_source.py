"""What all sources of ports do alike: find them, read their files each tick, say which are absent and why.

A port that is not active is absent, not silent. A counter that cannot be a rate (reset, wrap, stuck at its end, too
long unread) is a gap with its reason. A file that a restricted function refuses is not read again: each try would put a
line into the kernel's log.

Descriptors stay open and are read again with pread; that of a NIC that went away says so. Which NICs there are is asked
every ten seconds; what a *new* one or a port that came up with an unknown rate is, only `probe` finds out:
`wants_probe` says when it should be called.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ..model import Absence, Capability, FabricPort, Instant, Probe, Reading, Role
from .base import GAPS, NOTHING_READ, STAYS_MISSING, AbsenceSet, Fault, table_of
from .counters import CounterRate, NoRate
from .ports import METRICS, CounterFamily, Direction, PortFiles
from .sysfs_file import SysfsFile

ACTIVE = "ACTIVE"
# A node of many containers has hundreds of interfaces that come and go: they are not listed at every tick.
_LOOK_SECONDS = 10.0
# Names are the kernel's; anything else under the class directory is not ours to open.
DEVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:-]{0,63}")
_BACK = "It is picked up again when it is back."
_FAULTS = table_of(
    *GAPS.values(),
    Fault(
        "port-not-active", "The port is not up, so no traffic is expected on it.", "Check its cable if it should be up."
    ),
    Fault("device-gone", "The device went away.", _BACK),
    Fault("vanished", "The counter went away.", _BACK),
    Fault("no-permission", "The counter may not be read by this user.", "Let the agent's user read sysfs."),
    Fault("read-failed", "Reading the counter failed; it is tried again at the next tick.", "See the kernel's log."),
    Fault("not-a-number", "The counter holds no number.", "Report the driver and the text."),
    Fault("not-supported", "This kind of port has no such counter.", STAYS_MISSING),
)


class PortSource:
    """Every port under one class directory of sysfs. `roles` maps a device, ``device/port`` or a pattern to its role.

    What a kind of port has of its own: `faults` beside the common ones; `refusals`, the errors after which a file is
    not read again; `no_file`, what it means that a counter's file is gone; `saturated`, where its counters may stop;
    `active_texts`, what the state's file of a port that works usually says; `listed`, the metrics that doctor speaks
    of; `no_ports`, the absence where there are none.
    """

    name: str
    faults: Mapping[str, Fault] = {}
    refusals: Collection[int] = ()
    no_file = "device-gone"
    saturated: int | None = None
    active_texts: Collection[bytes] = ()
    listed: Sequence[Direction] = METRICS
    no_ports: Absence | None = None

    def __init__(self, class_dir: Path, max_gap_seconds: float, roles: Mapping[str, Role] | None) -> None:
        self._class = class_dir
        self._max_gap = max_gap_seconds
        self._configured: Mapping[str, Role] = roles or {}
        self._faults = {**_FAULTS, **self.faults}
        self._ports: tuple[PortFiles, ...] = ()
        self._plain: dict[str, PlainPort] = {}  # by the port's key: those that are as usual
        self._roles: dict[str, tuple[Role, str]] = {}  # by the port's key: its role, and what tells it
        self._down_when_probed: set[str] = set()  # their line rate is not known
        self._listing: frozenset[str] = frozenset()
        self._looked_at: float | None = None
        self._gone: frozenset[str] = frozenset()
        self._refused: set[Path] = set()
        self._absent = AbsenceSet("fabric")
        self.wants_probe = False

    # What a kind of port says.

    def _find_ports(self) -> list[PortFiles]:
        """The ports of the devices in `_listing`."""
        raise NotImplementedError

    def _place(self, ports: Sequence[PortFiles]) -> dict[str, tuple[Role, str]]:
        """The role of each port by its key, and what tells it."""
        raise NotImplementedError

    def _parse_state(self, raw: bytes) -> str:
        """The state's text; `ACTIVE` for a port that works."""
        raise NotImplementedError

    def _parse_rate(self, text: str) -> float | None:
        """The line rate in bytes per second, one way; None: it says nothing."""
        raise NotImplementedError

    def _is_port(self, device: str) -> bool:  # noqa: ARG002
        """Whether a new device under the class directory is one of ours."""
        return True

    # What is the same for all.

    def probe(self) -> Probe:
        self.close()
        self._listing, self._gone, self.wants_probe = names_in(self._class), frozenset(), False
        self._ports = tuple(self._find_ports())
        self._roles = self._place(self._ports)
        states = {port.key: self._state(port) for port in self._ports}
        self._down_when_probed = {key for key, (_, reason) in states.items() if reason is not None}
        lines = [line for port in self._ports for line in self._capabilities(port, states[port.key][1])]
        self._plain = {
            port.key: PlainPort(port, self.active_texts, self.saturated)
            for port in self._ports
            if not self._refused.intersection(file.path for file in port.files)
        }
        if not self._ports and self.no_ports is not None:
            lines = [Capability(self.name, "source", self.name, "*", str(self._class), self.no_ports)]
        return Probe(ports=tuple(self._describe(port) for port in self._ports), capabilities=tuple(lines))

    def keep_only(self, role: Role) -> None:
        """Read no ports but those of this role, until the next `probe`."""
        others = [port for port in self._ports if self._roles[port.key][0] != role]
        for port in others:
            port.close()
        self._ports = tuple(port for port in self._ports if port not in others)

    def read(self, instant: Instant) -> Reading:
        """Rates of every port since the last reading."""
        now = instant.monotonic_seconds
        if self._looked_at is None or now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            self._notice_changes()
        if not self._ports:
            return Reading(absences=self._absent.only(self.no_ports)) if self.no_ports is not None else NOTHING_READ
        fabric: dict[str, Mapping[str, float]] = {}
        states: dict[str, str] = {}
        for port in self._ports:
            key = port.key
            plain = self._plain.get(key)
            told = None
            if plain is not None and plain.usable and not self._gone and key not in self._down_when_probed:
                told = plain.read(now)
            if told is None:
                told = self._read_closely(port, now, states)
            else:
                states[key] = ACTIVE
            values, missing = told
            if values:
                fabric[key] = values
            if missing:
                self._add_missing(key, missing)
        return Reading(fabric=fabric, port_states=states, absences=self._absent.finish())

    def _read_closely(
        self, port: PortFiles, now: float, states: dict[str, str]
    ) -> tuple[Mapping[str, float], Mapping[str, str]]:
        """What any port tells, and why the rest is missing; its state goes into `states`."""
        key = port.key
        state, reason = self._state(port)
        if state:
            states[key] = state
        if reason is not None:
            port.forget()
            self._absent.add(key, "*", self._faults[reason])
            return {}, {}
        if key in self._down_when_probed:
            self.wants_probe = True
        if not port.known_counters:
            self._absent.add(key, "*", self._faults["unknown-counters"])
            return {}, {}
        return self._read_port(port, now)

    def close(self) -> None:
        """Let go of every file. Idempotent."""
        for port in self._ports:
            port.forget()
            port.close()

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

    def _rate(self, family: CounterFamily, now: float) -> float | str:
        """The family's rate in its unit, or the reason why there is none."""
        total = 0
        for file in family.files:
            value = self._counter(file)
            if isinstance(value, str):
                family.rate.forget()
                return value
            total += value
        rate = family.rate.rate(total, now)
        return rate.reason if isinstance(rate, NoRate) else rate * family.factor

    def _counter(self, file: SysfsFile) -> int | str:
        """The counter's value, or the reason why there is none."""
        if self._refused and file.path in self._refused:
            return "restricted"
        try:
            raw = file.read().strip()
        except OSError as error:
            return self._refusal(file.path, error)
        if not raw.isdigit():
            return "no-pma" if b"no PMA" in raw and "no-pma" in self._faults else "not-a-number"
        value = int(raw)
        return "counter-saturated" if value == self.saturated else value

    def _refusal(self, path: Path, error: OSError) -> str:
        if error.errno in self.refusals:
            self._refused.add(path)
            return "restricted"
        if error.errno in (errno.EACCES, errno.EPERM):
            return "no-permission"
        return self.no_file if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO) else "read-failed"

    def _state(self, port: PortFiles) -> tuple[str, str | None]:
        """The port's state text and, unless it is active, the reason why the port is absent."""
        if port.device in self._gone:
            return "", "device-gone"
        if self._refused and port.state.path in self._refused:
            return "", "restricted"
        try:
            state = self._parse_state(port.state.read())
        except OSError as error:
            reason = self._refusal(port.state.path, error)
            return "", "device-gone" if reason == self.no_file else reason
        return state, None if state == ACTIVE else "port-not-active"

    def _notice_changes(self) -> None:
        listing = names_in(self._class)
        if listing == self._listing:
            return
        known = {port.device for port in self._ports}
        fresh = listing - self._listing - known
        gone = frozenset(known - listing)
        for port in self._ports:
            if port.device in gone - self._gone:
                port.close()
        self._gone, self._listing = gone, listing
        self.wants_probe = self.wants_probe or any(self._is_port(name) for name in fresh)

    def _describe(self, port: PortFiles) -> FabricPort:
        # A port that is down reports the rate it would train to at worst, not its line rate.
        rate = None
        if port.key not in self._down_when_probed:
            try:
                rate = self._parse_rate(port.rate.read().decode("ascii", "replace"))
            except OSError:
                rate = None
        return FabricPort(port.device, port.port, self._roles[port.key][0], port.link_layer, rate)

    def _capabilities(self, port: PortFiles, reason: str | None) -> list[Capability]:
        role, basis = self._roles[port.key]
        told = f"role {role}: {basis}"
        whole = reason or (None if port.known_counters else "unknown-counters")
        if whole is not None:
            absence = self._absent.of(port.key, "*", self._faults[whole])
            return [Capability(self.name, "fabric", port.key, "*", told, absence)]
        lines = []
        for metric in self.listed:
            found = [self._first_trouble(family.files) for family in port.families.get(metric, ())]
            trouble = None if None in found else (found[0] if found else "not-supported")
            absence = None if trouble is None else self._absent.of(port.key, metric, self._faults[trouble])
            origin = f"{port.origins.get(metric, 'no counter')}; {told}"
            lines.append(Capability(self.name, "fabric", port.key, metric, origin, absence))
        return lines

    def _first_trouble(self, files: Sequence[SysfsFile]) -> str | None:
        values = (self._counter(file) for file in files)
        return next((value for value in values if isinstance(value, str)), None)

    def _add_missing(self, key: str, missing: Mapping[str, str]) -> None:
        reasons = set(missing.values())
        if len(missing) == len(METRICS) and len(reasons) == 1:
            missing = {"*": reasons.pop()}
        for metric, reason in missing.items():
            self._absent.add(key, metric, self._faults[reason])


def names_in(folder: Path) -> frozenset[str]:
    """The devices under a class directory; empty where there is none."""
    try:
        return frozenset(name for name in os.listdir(folder) if DEVICE_NAME.fullmatch(name))  # noqa: PTH208 - hot path
    except OSError:
        return frozenset()


_NOT_TOLD = {METRICS[2]: "not-supported"}
_NOTHING: Mapping[str, str] = {}
_DIGITS = 32  # a counter of 64 bits has 20

_Values = tuple[dict[str, float], Mapping[str, str]]  # by metric: the rate, or the reason why there is none


class PlainPort:
    """Reads the files of one port. Not for ports whose counters come in families.

    What a port moved since it was last read shows that it was active, so the state's file, for which some drivers ask
    the firmware, is read only where nothing moved.
    """

    def __init__(self, port: PortFiles, active: Collection[bytes], saturated: int | None) -> None:
        sent, received = _only(port, 0), _only(port, 1)
        waited = _only(port, 2)
        told = waited is not None or not port.families.get(METRICS[2])
        self.usable = told and sent is not None and received is not None
        if sent is None or received is None:
            return
        self._state, self._active = port.state, active
        self._saturated = -1 if saturated is None else saturated
        self._sent_file, self._sent, self._sent_factor = sent.files[0], sent.rate, sent.factor
        self._received_file, self._received, self._received_factor = received.files[0], received.rate, received.factor
        self._waited: CounterRate | None = None
        self._waited_factor = waited.factor if waited is not None else 1.0
        self._never: Mapping[str, str] = _NOT_TOLD
        if waited is not None:
            self._waited_file, self._waited, self._never = waited.files[0], waited.rate, _NOTHING

    def read(self, now: float) -> _Values | None:
        """Rates since the last reading; None where this port is to be looked at closely."""
        sent, received, waited = self._sent, self._received, self._waited
        was_sent, was_received, waits = sent.last, received.last, None
        try:
            # Ten ports with three counters each: what a call of Python's costs counts here.
            fd = self._sent_file.fd
            sends = int(self._sent_file.read() if fd is None else os.pread(fd, _DIGITS, 0))
            fd = self._received_file.fd
            receives = int(self._received_file.read() if fd is None else os.pread(fd, _DIGITS, 0))
            if waited is not None:
                fd = self._waited_file.fd
                waits = int(self._waited_file.read() if fd is None else os.pread(fd, _DIGITS, 0))
            moved = was_sent is not None and was_received is not None and (sends > was_sent or receives > was_received)
            if not moved and self._state.read() not in self._active:
                return None
        except (OSError, ValueError):
            self.usable = False  # until it is looked for anew
            return None
        if sends < 0 or receives < 0 or (waits or 0) < 0 or self._saturated in (sends, receives, waits):
            return None
        if waited is not None and waits is not None:
            # The usual: all three were read together, not long ago, and none went back.
            since, last, elapsed = sent.at, waited.last, now - sent.at
            if (
                was_sent is not None
                and was_received is not None
                and last is not None
                and sends >= was_sent
                and receives >= was_received
                and waits >= last
                and since == received.at == waited.at
                and 0.0 < elapsed <= sent.max_gap_seconds
            ):
                sent.last, received.last, waited.last = sends, receives, waits
                sent.at = received.at = waited.at = now
                return {
                    "tx_bytes_per_second": (sends - was_sent) / elapsed * self._sent_factor,
                    "rx_bytes_per_second": (receives - was_received) / elapsed * self._received_factor,
                    "xmit_wait_per_second": (waits - last) / elapsed * self._waited_factor,
                }, _NOTHING
        values: dict[str, float] = {}
        missing: Mapping[str, str] = self._never
        for metric, counter, number, factor in (
            (METRICS[0], sent, sends, self._sent_factor),
            (METRICS[1], received, receives, self._received_factor),
            (METRICS[2], waited, waits, self._waited_factor),
        ):
            if counter is not None and number is not None:
                rate = counter.rate(number, now)
                if isinstance(rate, NoRate):
                    missing = {**missing, metric: rate.reason}
                else:
                    values[metric] = rate * factor
        return values, missing


def _only(port: PortFiles, place: int) -> CounterFamily | None:
    """The one counter that tells a metric; None where there is none, or more than one."""
    families = port.families.get(METRICS[place], ())
    return families[0] if len(families) == 1 and len(families[0].files) == 1 else None
