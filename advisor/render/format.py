"""What a format of the advice is. Each is one module of `formats`, which gives it as ``FORMAT``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..core.advice_types import Advice


@dataclass(frozen=True, slots=True)
class Screen:
    """What is known of the place where a text is read. `width`: columns; `color`: whether escape sequences work."""

    width: int = 100
    color: bool = False


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write an advice; its name is its module's. `suffix`: of a file's name, as in ``.csv``."""

    media_type: str
    suffix: str
    render: Callable[[Advice, Screen], str]
