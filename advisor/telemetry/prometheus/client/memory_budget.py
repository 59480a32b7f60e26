"""Memory that the answers of one server share while they are read, however many are asked for at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# By json_weight: what 200,000 series of six labels with a value each may take. The program itself takes some 250 MB.
MOST_BYTES = 512 * 1024 * 1024
TOGETHER_BYTES = 32 << 20


class MemoryBudget:
    """So many bytes for all together. What would not fit by itself must not be asked for.

    `together_bytes`: beyond this one waits for the others, unless it is alone: answers are decoded one after another by
    the interpreter's lock anyway, and several half-decoded ones only hold memory.
    """

    def __init__(self, most_bytes: int = MOST_BYTES, together_bytes: int = TOGETHER_BYTES) -> None:
        self.most_bytes = most_bytes
        self._together = min(most_bytes, together_bytes)
        self._held = 0
        self._freed = threading.Condition()

    @contextmanager
    def taking(self, size_bytes: int) -> Iterator[None]:
        """Wait for so much room, which whoever has it gives back without waiting for anything."""
        assert size_bytes <= self.most_bytes
        with self._freed:
            self._freed.wait_for(lambda: not self._held or self._held + size_bytes <= self._together)
            self._held += size_bytes
        try:
            yield
        finally:
            with self._freed:
                self._held -= size_bytes
                self._freed.notify_all()
