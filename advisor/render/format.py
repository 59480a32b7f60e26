"""What a format of the advice is. Each is one module of `formats`, which gives it as ``FORMAT``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..core.advice_types import Advice
from ..views.document.page_options import SHORT, PageOptions


@dataclass(frozen=True, slots=True)
class Screen:
    """Where and how a text is read. `width`: columns; `color`: whether escape sequences work; `page`: what is shown."""

    width: int = 100
    color: bool = False
    page: PageOptions = SHORT


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write an advice; its name is its module's. `suffix`: of a file's name, as in ``.csv``."""

    media_type: str
    suffix: str
    render: Callable[[Advice, Screen], str]
