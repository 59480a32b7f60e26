"""How this process allocates memory."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # malloc.h


def use_one_arena() -> None:
    """Let all threads allocate from one heap, which costs nothing where one thread runs Python at a time.

    What threads free in heaps of their own stays there. Measured: 1.5 MB less for the agent, and 70 of 265 MB for a
    pass of the watch over a server with 1,000 GPUs. Elsewhere than on glibc it does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
