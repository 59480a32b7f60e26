"""The usual port: one counter a metric, all of them numbers. It is read with as few steps as there can be.

Whatever is not as usual is left to `PortSource`, which looks at each file by itself and says what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from ..counters import CounterRate, NoRate
from .ports import METRICS, CounterFamily, PortFiles

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
