"""The usual port: one counter a metric, all of them numbers. It is read with as few steps as there can be.

Whatever is not as usual is left to `PortSource`, which looks at each file by itself and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...model import Role
from ..counters import NoRate
from .ports import METRICS, CounterFamily, PortFiles

# Nothing is decided by what these ports waited for: their wait is a mean over some seconds.
_SELDOM_ROLES: Collection[Role] = ("storage", "management")
_SELDOM_SECONDS = 5.0
_NOT_TOLD = {METRICS[2]: "not-supported"}
_NOTHING: Mapping[str, str] = {}
_DIGITS = 32  # a counter of 64 bits has 20

_Values = tuple[dict[str, float], Mapping[str, str]]  # by metric: the rate, or the reason why there is none


class PlainPort:
    """Reads the files of one port. Not for ports whose counters come in families.

    What a port moved since it was last read shows that it was active, so the state's file, for which some drivers ask
    the firmware, is read only where nothing moved.
    """

    def __init__(self, port: PortFiles, role: Role, active: Collection[bytes], saturated: int | None) -> None:
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
        self._waited = waited
        self._pace = _SELDOM_SECONDS if role in _SELDOM_ROLES else 0.0

    def read(self, now: float) -> _Values | None:
        """Rates since the last reading; None where this port is to be looked at closely."""
        was_sent, was_received = self._sent.last, self._received.last
        waited, waits = self._waited, None
        try:
            if was_sent is None and self._state.read() not in self._active:
                return None
            sent, received = int(self._sent_file.read(_DIGITS)), int(self._received_file.read(_DIGITS))
            if waited is not None and (not self._pace or now - waited.rate.read_at >= self._pace):
                waits = int(waited.files[0].read(_DIGITS))
            still = sent == was_sent and received == was_received
            if still and self._state.read() not in self._active:
                return None
        except (OSError, ValueError):
            self.usable = False  # until it is looked for anew
            return None
        if sent < 0 or received < 0 or self._saturated in (sent, received, waits) or (waits or 0) < 0:
            return None
        sent_rate, received_rate = self._sent.rate(sent, now), self._received.rate(received, now)
        missing: Mapping[str, str] = _NOTHING if waited is not None else _NOT_TOLD
        values: dict[str, float] = {}
        if isinstance(sent_rate, NoRate):
            missing = {**missing, METRICS[0]: sent_rate.reason}
        else:
            values[METRICS[0]] = sent_rate * self._sent_factor
        if isinstance(received_rate, NoRate):
            missing = {**missing, METRICS[1]: received_rate.reason}
        else:
            values[METRICS[1]] = received_rate * self._received_factor
        if waited is not None and waits is not None:
            wait_rate = waited.rate.rate(waits, now)
            if isinstance(wait_rate, NoRate):
                missing = {**missing, METRICS[2]: wait_rate.reason}
            else:
                values[METRICS[2]] = wait_rate * waited.factor
        return values, missing


def _only(port: PortFiles, place: int) -> CounterFamily | None:
    """The one counter that tells a metric; None where there is none, or more than one."""
    families = port.families.get(METRICS[place], ())
    return families[0] if len(families) == 1 and len(families[0].files) == 1 else None
