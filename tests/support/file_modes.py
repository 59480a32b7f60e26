"""Tests of files that may not be written, for root too: the kernel lets root write them unless it gives that up."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION_3 = 0x20080522  # linux/capability.h
_DAC_OVERRIDE = 1 << 1  # to write whatever the modes say


@contextmanager
def bound_by_modes() -> Iterator[None]:
    """This thread may write only what the modes of files and folders let their owner write, as any user.

    The user stays who it is: as another, root could not enter or import from its private folders.
    """
    held = ctypes.create_string_buffer(24)  # effective, permitted and inheritable: the low 32 of each, then the high
    _call("capget", held)
    before = struct.unpack("=6I", held.raw)
    _call("capset", struct.pack("=6I", before[0] & ~_DAC_OVERRIDE, *before[1:]))
    try:
        yield
    finally:
        _call("capset", struct.pack("=6I", *before))


def _call(name: str, sets: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(struct.pack("=Ii", _VERSION_3, 0), sets) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
