"""Answers of `http.client` whose heads come to an end: it bounds each line and counts headers, but skips "100 Continue"
as often as a server says it, and takes a head that was cut for a whole one."""

from __future__ import annotations

import http.client
from typing import Any, cast

# Status line, headers and all that was said before them. Servers commonly allow themselves 8 to 64 KiB.
MAX_HEAD_BYTES = 256 * 1024


class BoundedResponse(http.client.HTTPResponse):
    """Raises HTTPException for a head that is larger, or cut. For `http.client.HTTPConnection.response_class`."""

    def begin(self) -> None:
        if getattr(self, "headers", None) is not None:
            return
        whole = self.fp
        self.fp = cast("Any", _Head(whole))
        try:
            super().begin()
        finally:
            # On an error it may be closed and gone already.
            if self.fp is not None:
                self.fp = whole
        # urllib3 would log lines that are no headers, with the address, which may be a secret.
        self.headers.defects.clear()
        self.headers.set_payload("")


class _Head:
    """The lines of a connection until they are too many."""

    def __init__(self, whole: Any) -> None:  # noqa: ANN401 - whatever makefile() gives
        self._whole = whole
        self._left = MAX_HEAD_BYTES
        self._begun = False

    def readline(self, limit: int = -1) -> bytes:
        line = self._whole.readline(limit)
        self._left -= len(line)
        if self._left < 0:
            raise http.client.HTTPException(f"the head is larger than {MAX_HEAD_BYTES >> 10} KiB")
        if not line and self._begun:
            raise http.client.HTTPException("the head was cut")
        self._begun = True
        return line

    def close(self) -> None:
        self._whole.close()

    def flush(self) -> None:
        self._whole.flush()
