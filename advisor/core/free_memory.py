"""Memory that is free, given back to the system."""

import ctypes
from contextlib import suppress


def give_back_memory() -> None:
    """Give back what the C library keeps of memory that was freed, where it can (glibc): after a large reading most of
    it is, and a process that is forked then begins with it."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
