"""The advice in its formats, which are the modules of `formats`; each is loaded when it is asked for."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from . import formats

if TYPE_CHECKING:
    from ..core.advice_types import Advice
    from ..views.document.page_options import PageOptions
    from .format import Format


def format_names() -> tuple[str, ...]:
    """What ``--format`` takes, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(formats.__path__)))


def format_named(name: str) -> Format:
    """The format of a module. Raises TypeError where the module describes none."""
    from .format import Format  # noqa: PLC0415 - it needs the advice's types: not at the start

    found = getattr(importlib.import_module(f".{name}", formats.__name__), "FORMAT", None)
    if not isinstance(found, Format):
        raise TypeError(f"{formats.__name__}.{name} has no FORMAT")
    return found


def render(advice: Advice, form: str, *, width: int = 100, color: bool = False, page: PageOptions | None = None) -> str:
    """The advice in the format of this name. `width` and `color` concern text on a screen only, as do the sections of
    `page` (None: the short page, without commands)."""
    from .format import SHORT, Screen  # noqa: PLC0415

    return format_named(form).render(advice, Screen(width, color, page or SHORT))
