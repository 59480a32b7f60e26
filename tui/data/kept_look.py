"""What a run saw of a source, kept for the first seconds of the next one: advice and the health of its telemetry.

A file is believed only where it is as it was written (SHA-256), by this version, for the same source, options and
window. Nothing of it is shown once the source has been read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ... import __version__
from ...advisor.core.advice_types import Advice
from ...advisor.core.cache_folder import CacheFolder
from ...advisor.core.scalars import numpy_hook
from ...advisor.show.series.health import Health
from ..state import Look, WindowChoice

SUFFIX = ".look"
_FORM = f"skuwise-look-2 {__version__}\n".encode()
MOST_BYTES = 64 * 1024**2  # some 10,000 workloads
_MOST_TOGETHER = 256 * 1024**2


@dataclass(frozen=True)
class _Kept:
    """`shown` None: it is `advice`."""

    at: float
    advice: Advice
    shown: Advice | None
    health: Health


class KeptLooks:
    """Looks in a folder (None: nowhere). `basis`: what, beside the window, a look depends on; see `basis_of`.
    `most_bytes`: of one file."""

    def __init__(self, folder: Path | None, basis: str, most_bytes: int = MOST_BYTES) -> None:
        self._folder, self._basis, self._most_bytes = CacheFolder(folder, SUFFIX), basis, most_bytes

    def get(self, window: WindowChoice) -> Look | None:
        """The last look at a window that ends with the newest data; None: there is none to be believed."""
        name = self._name(window)
        content = self._folder.read(name, _FORM, self._most_bytes) if name is not None else None
        if content is None:
            return None
        try:
            kept = msgspec.json.decode(content, type=_Kept)
        except (msgspec.DecodeError, RecursionError):
            return None
        return Look(window, kept.advice, kept.advice if kept.shown is None else kept.shown, kept.health, kept.at)

    def put(self, look: Look) -> None:
        """Keep a look in place of the last one; one that is too large is not kept."""
        name = self._name(look.window)
        if name is None or self._folder.path is None:
            return
        shown = None if look.shown is look.advice else look.shown
        try:
            # Every field, and every digit: it is shown as if it had just been made.
            content = msgspec.json.encode(_Kept(look.at, look.advice, shown, look.health), enc_hook=numpy_hook)
        except UnicodeEncodeError:  # a name that is not UTF-8
            return
        if len(content) <= self._most_bytes:
            self._folder.write(name, _FORM, content)
            self._folder.prune(_MOST_TOGETHER)

    def _name(self, window: WindowChoice) -> str | None:
        """None: the window has an end of its own, so nobody asks for it again."""
        return None if window.until is not None else f"{_digest((self._basis, repr(window.seconds)))}{SUFFIX}"


def basis_of(source_key: str, *options: object) -> str:
    """What a look depends on as one text. `options`: values whose `repr` says all about them."""
    return _digest((source_key, *map(repr, options)))


def _digest(parts: tuple[str, ...]) -> str:
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
