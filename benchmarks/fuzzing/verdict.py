"""Whether a mutation ended as it must: read, or refused in one sentence that a person can use."""

from __future__ import annotations

import dataclasses
import math
import re
import traceback
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Literal

from skuwise.rules.base.errors import SkuwiseError

from .target import BrokenPromiseError

# Some remedies list what is known: the longest list of ours has 1,000 characters.
MAX_SENTENCE = 1500
# What Python says, not we.
_PYTHON = re.compile(
    r"Traceback|\b[A-Z]\w+(?:Error|Exception)\b|NoneType|<\w+ object at|object has no attribute|codec can't|"
    r"invalid literal for|could not convert|not supported between|unhashable|\[Errno|list index|"
    r"positional argument|maximum recursion|not subscriptable|"
    r"argument of type|takes at most|must be real number"
)
Outcome = Literal["read", "refused", "failure"]


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong. `signature`: the same for faults of one origin."""

    signature: str
    detail: str


def unfit(error: SkuwiseError) -> str:
    """What is wrong with the sentence; empty: nothing."""
    text = str(error)
    if not error.message.strip():
        return "says nothing"
    if len(text) > MAX_SENTENCE:
        return f"is {len(text)} characters long"
    if not text.isprintable():
        return "is not printable"
    if not error.message.rstrip().endswith((".", "!", "?")):
        return "does not end as a sentence does"
    if found := _PYTHON.search(text):
        return f"speaks Python ({found.group()})"
    return ""


def fault_of(error: BaseException) -> Fault:
    """Where it was raised, as far as that is ours, and the whole traceback."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/benchmarks/" not in f.filename]
    ours = [f for f in frames if "skuwise" in f.filename and "site-packages" not in f.filename]
    at = ours[-1] if ours else frames[-1] if frames else None
    place = f"{PurePath(at.filename).parent.name}/{PurePath(at.filename).name}:{at.lineno}" if at else "?"
    kind = type(error).__name__
    if isinstance(error, BrokenPromiseError):
        return Fault(f"{kind} {str(error)[:60]}", str(error))
    told = "".join(traceback.format_exception(error))
    return Fault(f"{kind} at {place}", told[-6000:])


def fault_of_sentence(error: SkuwiseError, why: str) -> Fault:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/benchmarks/" not in f.filename]
    at = frames[-1] if frames else None
    place = f"{PurePath(at.filename).parent.name}/{PurePath(at.filename).name}:{at.lineno}" if at else "?"
    return Fault(f"sentence {why.partition('(')[0].strip()} at {place}", f"{why}: {str(error)[:2000]!r}")


def finite(value: object, where: str = "value", depth: int = 0, *, texts: bool = True) -> None:
    """Raises BrokenPromiseError where a number in `value` is not finite or a text has control characters.

    `texts` False: of a reader whose texts are made harmless where they are shown.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BrokenPromiseError(f"{where} is {value}")
    elif isinstance(value, str):
        if texts and not value.isprintable() and any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in value):
            raise BrokenPromiseError(f"{where} holds control characters")
    elif depth > 12:
        return
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            finite(getattr(value, field.name), f"{type(value).__name__}.{field.name}", depth + 1, texts=texts)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            finite(key, f"a key of {where}", depth + 1, texts=texts)
            finite(inner, where, depth + 1, texts=texts)
    elif isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        for inner in value:
            finite(inner, where, depth + 1, texts=texts)
