"""Values of a file made into typed ones by msgspec: what cannot be is refused with file, key and a remedy.

A mapping's keys are the fields of a frozen dataclass, and bounds stand with their types. What no type can say a class
refuses in ``__post_init__``, by ``ValueError(sentence, remedy)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from msgspec import Meta

from .errors import RulesError
from .sanitize import QUOTED_MAX, clean, quoted, suggest

T = TypeVar("T")
_DATE = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
# A pattern's comment says it in words, for errors.
Text = Annotated[
    str, Meta(pattern=r"\A(?#text without control characters)(?=[\s\S]*\S)[^\x00-\x09\x0b-\x1f\x7f-\x9f]+\Z")
]
Name = Annotated[str, Meta(pattern=r"\A(?#a name without control characters)(?=.*\S)[^\x00-\x1f\x7f-\x9f]+\Z")]
Slug = Annotated[str, Meta(pattern=r"\A(?#small letters, digits and dashes)[a-z0-9][a-z0-9-]{0,63}\Z")]
Day = Annotated[str, Meta(pattern=rf"\A(?#a date as 2026-09-19){_DATE}\Z")]
# When a figure was read: a date, or the commit of a dated repository.
AsOf = Annotated[str, Meta(pattern=rf"\A(?#a date or a commit, as commit 3f5f6971)({_DATE}|commit [0-9a-f]{{7,40}})\Z")]
# What is larger is no figure of anything, and becomes infinite where it is brought to base units.
Positive = Annotated[float, Meta(gt=0, le=1e18)]
Number = Annotated[float, Meta(ge=-1e18, le=1e18)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
_NOUNS = {"float": "a number", "int": "a whole number", "str": "text", "bool": "true or false", "array": "a list",
          "object": "a table", "null": "nothing"}  # fmt: skip
_keys = cache(get_type_hints)


def joined(text: str) -> str:
    """A sentence that a file has on several lines, on one."""
    return " ".join(text.split())


def place(*keys: str) -> str:
    """Where in a file something stands: ``gpus.L4.memory.gb``."""
    return ".".join(key if re.fullmatch(r"[\w-]{1,80}", key) else quoted(key) for key in keys)


def wrong(file: object, at: str, sentence: str, remedy: str = "Correct it.") -> RulesError:
    """The one shape of a complaint about a value: ``FILE: KEY: SENTENCE. REMEDY``."""
    return RulesError(f"{file}: {at}: {sentence.rstrip('.')}." if at else f"{file}: {sentence.rstrip('.')}.", remedy)


def convert(file: object, value: object, kind: type[T], *at: str) -> T:
    """A value as read, typed. `file` and the keys `at` which it stands name it in errors. Raises RulesError."""
    for keys, key, known in _unknown(value, kind, at):
        raise wrong(
            file, place(*keys), f"unknown key {quoted(key)}", suggest(key, known) or f"Known are {', '.join(known)}."
        )
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        keys, sentence, remedy = _located(value, kind, at, error)
        raise wrong(file, place(*keys), sentence, remedy) from None


def in_words(text: str, unit: str = "") -> str:
    """msgspec's sentence: ``Expected `float` >= 0.1`` is "expected a number >= 0.1". `unit`: what follows "number"."""
    text = re.sub(r" - at `.*`.*$", "", text)  # it repeats the value
    text = clean(re.sub(r"`str` matching regex .*?\(\?#(.*?)\).*$", r"\1", text))[:QUOTED_MAX]
    text = re.sub(r"Object missing required field `(.*)`", r"'\1' is missing", text)
    text = re.sub(r"`([a-z]+)(?: \| null)?`", lambda m: _NOUNS.get(m[1], m[1]), text)
    text = text.replace("Invalid enum value", "unknown value").replace("a number", f"a number{unit}", 1)
    return text[:1].lower() + text[1:]


def _bare(hint: object) -> object:
    while get_origin(hint) in (Annotated, Union, UnionType):
        hint = next(get_arg for get_arg in get_args(hint) if get_arg is not NoneType)
    return hint


def _parts(value: object, hint: object) -> list[tuple[str, object, Any]]:
    """The keys of a value, with what stands there and the type that it shall have (object: the key is unknown)."""
    args = get_args(hint)
    if isinstance(value, dict):
        known = _shape(hint)
        if known is not None:
            return [(key, part, known.get(key, object)) for key, part in value.items()]
        return [(key, part, args[1]) for key, part in value.items()] if len(args) == 2 else []
    return [(str(n), part, args[0]) for n, part in enumerate(value, 1)] if isinstance(value, list) and args else []


def _shape(hint: object) -> dict[str, Any] | None:
    return _keys(hint, include_extras=True) if is_dataclass(hint) or is_typeddict(hint) else None


def _unknown(value: object, hint: object, at: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, list[str]]]:
    hint = _bare(hint)
    known = _shape(hint)
    for key, part, inner in _parts(value, hint):
        if known is not None and key not in known:
            yield at, key, list(known)
        yield from _unknown(part, inner, (*at, key))


def _located(
    value: object,
    hint: object,
    at: tuple[str, ...],
    error: msgspec.ValidationError,
) -> tuple[tuple[str, ...], str, str]:
    """Where exactly it is wrong, in words: msgspec names no keys of mappings, so the parts are tried one by one."""
    hint = _bare(hint)
    tried = _parts(value, hint)
    if isinstance(value, dict) and _shape(hint) is None and len(get_args(hint)) == 2:
        tried = [*((key, key, get_args(hint)[0]) for key in value), *tried]
    for key, part, inner in tried:
        try:
            msgspec.convert(part, inner)
        except msgspec.ValidationError as found:
            return _located(part, inner, (*at, key), found)
    if isinstance(error.__cause__, ValueError) and len(error.__cause__.args) == 2:
        return at, *error.__cause__.args
    choices = [str(get_arg) for get_arg in get_args(hint)] if get_origin(hint) is Literal else []
    remedy = suggest(str(value), choices) or f"Known are {', '.join(choices)}." if choices else "Correct it."
    return at, in_words(str(error)), remedy


Amount = Annotated[float, Meta(ge=0.0)]  # of hours, or of dollars paid: none is below zero
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Moment = Annotated[float, Meta(ge=0.0, le=253_402_300_800.0)]  # Unix seconds, up to the year 10000
