"""NVML's field values, asked in one call through an array that is built once and read without ctypes objects."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence

# nvml.h, field identifiers.
ENERGY = 83  # mJ since driver load
NVLINK_MB_PER_SECOND, NVLINK_LINK_COUNT = 90, 91  # speed of one link one way, in MB/s; links of the GPU
NVLINK_DATA_TX_KIB, NVLINK_DATA_RX_KIB = 138, 139  # scope: link, or ALL_LINKS
PCIE_TX_BYTES, PCIE_RX_BYTES = 197, 198  # may wrap at 32 bits
NVLINK_XMIT_BYTES, NVLINK_RCV_BYTES = 202, 204  # NVLink5, scope: link
ALL_LINKS = 0xFFFFFFFF

# nvmlFieldValue_t: fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value (a union of 8 bytes).
_ENTRY = struct.Struct("=IIqqIIQ")
_DOUBLE, _UINT, _ULONG, _ULONGLONG, _LONGLONG, _INT, _USHORT = range(7)  # nvmlValueType_t

NvmlCall = Callable[..., int]


def argument_of(handle: object) -> object:
    """A GPU's handle as ctypes passes it on: made once, it is not converted again at each call."""
    return ctypes.c_void_p.from_param(ctypes.cast(handle, ctypes.c_void_p).value)  # type: ignore[arg-type]


class FieldBlock:
    """The same fields of one GPU, asked again and again."""

    def __init__(self, call: NvmlCall, handle: object, fields: Sequence[tuple[int, int]]) -> None:
        self._call, self._handle, self._count = call, handle, ctypes.c_int32(len(fields))
        self._buffer = ctypes.create_string_buffer(_ENTRY.size * len(fields))
        for number, (field, scope) in enumerate(fields):
            struct.pack_into("=II", self._buffer, number * _ENTRY.size, field, scope)

    def read(self) -> int:
        """Ask for all. Returns NVML's code for the call; each field has its own in `values`."""
        return self._call(self._handle, self._count, self._buffer)

    def ask(self, handle: object) -> tuple[int, int | float]:
        """The first field of another GPU: NVML's code, of the call or of the field, and the number."""
        code = self._call(handle, self._count, self._buffer)
        if code:
            return code, 0
        _, _, _, _, kind, code, raw = _ENTRY.unpack_from(self._buffer)
        return code, raw if kind == _ULONGLONG or code else _number(kind, raw)

    def values(self) -> list[tuple[int, int | float]]:
        """(NVML code, number) of each field, in order."""
        return [
            (code, raw if kind == _ULONGLONG or code else _number(kind, raw))
            for _, _, _, _, kind, code, raw in _ENTRY.iter_unpack(self._buffer)
        ]


def _number(kind: int, raw: int) -> int | float:
    """The union's member that `kind` names; the rest of its bytes is left over from earlier calls."""
    data = raw.to_bytes(8, "little")
    if kind == _DOUBLE:
        return struct.unpack("<d", data)[0]
    if kind == _UINT:
        return raw & 0xFFFFFFFF
    if kind == _USHORT:
        return raw & 0xFFFF
    if kind == _INT:
        return struct.unpack_from("<i", data)[0]
    if kind == _LONGLONG:
        return struct.unpack("<q", data)[0]
    return raw
