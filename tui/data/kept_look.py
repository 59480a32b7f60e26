"""What a run read of a source, kept for the first seconds of the next one: advice and the health of its telemetry.

A file is used only if it is unchanged (SHA-256), of this version, and of the same source, options and window.
"""

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
_MOST_TOGETHER = 256 * 1024**2


@dataclass(frozen=True)
class _Kept:
    """`shown` None: it is `advice`."""

    at: float
    advice: Advice
    shown: Advice | None
    health: Health


class KeptLooks:
    """Looks in a folder (None: nowhere). `basis`: what a look depends on beside the window, values whose `repr` is
    complete. `most_bytes`: of one file; enough for some 10,000 workloads."""

    def __init__(self, folder: Path | None, basis: tuple[object, ...], most_bytes: int = 64 * 1024**2) -> None:
        self._folder, self._basis, self._most_bytes = CacheFolder(folder, SUFFIX), basis, most_bytes

    def get(self, window: WindowChoice) -> Look | None:
        """Return the last look at a window; None: there is none to use."""
        content = self._folder.read(self._name(window), _FORM, self._most_bytes)
        try:
            kept = msgspec.json.decode(content or b"", type=_Kept)
        except (msgspec.DecodeError, RecursionError):
            return None
        return Look(window, kept.advice, kept.shown or kept.advice, kept.health, kept.at)

    def put(self, look: Look) -> None:
        """Keep a look in place of the last one; one that is too large is not kept."""
        if self._folder.path is None:
            return
        shown = None if look.shown is look.advice else look.shown
        try:
            # Every field and every digit: it is shown as if it had just been computed.
            content = msgspec.json.encode(_Kept(look.at, look.advice, shown, look.health), enc_hook=numpy_hook)
        except UnicodeEncodeError:  # a name that is not UTF-8
            return
        if len(content) <= self._most_bytes:
            self._folder.write(self._name(look.window), _FORM, content)
            self._folder.prune(_MOST_TOGETHER)

    def _name(self, window: WindowChoice) -> str:
        parts = "\x1f".join(map(repr, (*self._basis, window.seconds)))
        return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:32] + SUFFIX
