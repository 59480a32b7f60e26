"""NVLink and PCIe traffic from NVML's cumulative field counters, for GPUs on which GPM does not tell it."""

from __future__ import annotations

from ..model import Instant
from . import nvml_errors as errors
from .base import Fault
from .counters import CounterRate
from .nvml_session import GpuReader, NvmlDevice, NvmlSession
from .nvml_table import COUNTERS, EACH_LINK, Answers, FieldBlock, Row

_UNKNOWN = frozenset({errors.NOT_SUPPORTED, errors.INVALID_ARGUMENT})  # there is no such counter or no such link
# PCIe moves 2^32 bytes in less than the shortest interval (0.07 s at Gen5 x16): a counter that may have no more bits
# tells nothing before it has shown that it has.
_32_BITS = 1 << 32


class _Counters:
    """The counters of one GPU, in one block, for the life of its handle. Each of `rows` is the sum of some."""

    def __init__(self, device: NvmlDevice, max_gap_seconds: float) -> None:
        self.rows: list[Row] = []
        self._parts: list[list[tuple[int, CounterRate]]] = []  # of each row: places in the block, and their rates
        self._wide = False  # whether a PCIe counter has shown more than 32 bits
        asked: list[tuple[int, int]] = []
        for row in COUNTERS:
            scopes = range(device.nvlink_places) if row.scope == EACH_LINK else (row.scope,)
            if row.metric in [one.metric for one in self.rows] or (row.scope != 0 and device.nvlink_links == 0):
                continue
            fields = [(row.number, scope) for scope in scopes]
            # A link that is not there is left out for good; with any other error the tick will say so.
            answers = zip(fields, FieldBlock(device.handle, fields).read(), strict=True)
            taken = [one for one, (code, _) in answers if code not in _UNKNOWN]
            if taken:
                self.rows.append(row)
                self._parts.append([(len(asked) + n, CounterRate(max_gap_seconds)) for n in range(len(taken))])
                asked += taken
        self._block = FieldBlock(device.handle, asked)

    def read(self, monotonic: float) -> Answers:
        """For each of `rows` 0 and the rate, or why there is none: a sum that lacks one of its links is too low."""
        numbers = self._block.read()
        rates: list[tuple[int | Fault, float]] = []
        for row, parts in zip(self.rows, self._parts, strict=True):
            total, why, may_wrap = 0.0, None, row.metric.startswith("pcie")
            for place, counter in parts:
                code, number = numbers[place]
                rate = code or counter.rate(number, monotonic)
                if code != 0:
                    counter.forget()
                elif may_wrap and number >= _32_BITS:
                    self._wide = True
                if isinstance(rate, float):
                    total += rate
                else:
                    why = why or rate
            if may_wrap and not self._wide:
                why = why or errors.COUNTER_WRAP
            rates.append((why or 0, total))
        return rates


class NvlinkSource(GpuReader):
    """Rates of the link counters, where GPM is missing. On GPUs with GPM it says nothing at all."""

    name, origin = "nvlink", "NVML fields"

    def __init__(self, session: NvmlSession, max_gap_seconds: float) -> None:
        super().__init__(session, lambda device: _Counters(device, max_gap_seconds))

    def _read_device(self, device: NvmlDevice, instant: Instant) -> dict[str, float | Fault]:
        if device.no_gpm is None or device.parent is not None:
            return {}
        counters = self._state(device)
        of_links = errors.NO_NVLINK if device.nvlink_links == 0 else errors.NO_COUNTER
        without = {row.metric: of_links if row.scope != 0 else errors.NO_COUNTER for row in COUNTERS}
        return without | self._told(device, counters.rows, counters.read(instant.monotonic_seconds))
