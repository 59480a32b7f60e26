"""Values of a file as typed structs, converted by msgspec: errors have the file, the key and a remedy.

A file's tables are subclasses of `Strict`; bounds are part of their types. What no type can express, a struct refuses
in ``__post_init__`` with ``ValueError(sentence, remedy)``.
"""

import re
from collections.abc import Collection, Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from .errors import RulesError
from .sanitize import QUOTED_MAX, clean, quoted, suggest

T = TypeVar("T")
_DATE = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
# A pattern's comment is its description in errors.
Text = Annotated[
    str, Meta(pattern=r"\A(?#text without control characters)(?=[\s\S]*\S)[^\x00-\x09\x0b-\x1f\x7f-\x9f]+\Z")
]
Name = Annotated[str, Meta(pattern=r"\A(?#a name without control characters)(?=.*\S)[^\x00-\x1f\x7f-\x9f]+\Z")]
Slug = Annotated[str, Meta(pattern=r"\A(?#small letters, digits and dashes)[a-z0-9][a-z0-9-]{0,63}\Z")]
# When a figure was read: a date, or the commit of a dated repository.
AsOf = Annotated[str, Meta(pattern=rf"\A(?#a date or a commit, as commit 3f5f6971)({_DATE}|commit [0-9a-f]{{7,40}})\Z")]
# Larger figures become infinite in base units.
Positive = Annotated[float, Meta(gt=0, le=1e18)]
Number = Annotated[float, Meta(ge=-1e18, le=1e18)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Amount = Annotated[float, Meta(ge=0.0)]  # hours, or US dollars paid
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Moment = Annotated[float, Meta(ge=0.0, le=253_402_300_800.0)]  # Unix seconds, up to the year 10000
_NOUNS = {"float": "a number", "int": "a whole number", "str": "text", "bool": "true or false", "array": "a list",
          "object": "a table", "null": "nothing"}  # fmt: skip


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a file: frozen, without unknown keys."""


class Sourced(Strict, frozen=True):
    """Figures with their source, and when they were read."""

    source: Text
    as_of: AsOf


def place(*keys: str) -> str:
    """The position of a value in a file: ``gpus.L4.memory.gb``."""
    return ".".join(key if re.fullmatch(r"[\w-]{1,80}", key) else quoted(key) for key in keys)


def wrong(file: object, at: str | int | None, sentence: str, remedy: str = "Correct it.") -> RulesError:
    """The error for an invalid value: ``FILE: KEY: SENTENCE. REMEDY``. `at`: its keys, or the line; None: the file."""
    where = f"{file}:{at}" if isinstance(at, int) else f"{file}: {at}" if at else f"{file}"
    return RulesError(f"{where}: {sentence.rstrip('.')}.", remedy)


def check_known(
    file: object, at: str, what: str, words: Iterable[str], names: Collection[str], *, otherwise: str = ""
) -> None:
    """Raises RulesError for the first of some words that is none of `names`; the remedy is the nearest of these."""
    for word in words:
        if word not in names:
            remedy = suggest(word, names) or otherwise or f"Known are {', '.join(names)}."
            raise wrong(file, at, f"unknown {what} {quoted(word)}", remedy)


def convert(file: object, value: object, kind: type[T], *at: str, **given: object) -> T:
    """A value as read, typed. `file` and the keys `at` name it in errors. `given`: fields that no file may set. Raises
    RulesError."""
    if given and isinstance(value, dict):
        for key in value.keys() & given:
            raise wrong(file, place(*at), f"unknown key {quoted(key)}", "Remove it.")
        value = {**value, **given}
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        keys, sentence, remedy = _located(value, kind, at, error)
        raise wrong(file, place(*keys), sentence, remedy) from None


def in_words(text: str, unit: str = "") -> str:
    """msgspec's sentence: ``Expected `float` >= 0.1`` is "expected a number >= 0.1". `unit`: what follows "number"."""
    text = re.sub(r"(\d)\.0\b", r"\1", re.sub(r" - at `.*`.*$", "", text))  # the path repeats the value
    text = clean(re.sub(r"`str` matching regex .*?\(\?#(.*?)\).*$", r"\1", text))[:QUOTED_MAX]
    text = re.sub(r"Object missing required field `(.*)`", r"'\1' is missing", text)
    text = re.sub(r"`([a-z]+)(?: \| null)?`", lambda match: _NOUNS.get(match[1], match[1]), text)
    text = text.replace("Invalid enum value", "unknown value").replace("a number", f"a number{unit}", 1)
    return text[:1].lower() + text[1:]


def _located(
    value: object,
    hint: Any,  # noqa: ANN401 - a type or a special form
    at: tuple[str, ...],
    error: msgspec.ValidationError,
) -> tuple[tuple[str, ...], str, str]:
    """The keys of the invalid value, a sentence and a remedy. msgspec names no keys of mappings: each part is tried."""
    while get_origin(hint) in (Annotated, Union, UnionType):
        hint = next(arg for arg in get_args(hint) if arg is not NoneType)
    arguments, kind = get_args(hint), get_origin(hint) or hint
    parts: list[tuple[str, object, Any]] = []
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        types = {field.encode_name: field.type for field in msgspec.structs.fields(hint)}
        if (key := next((key for key in value if key not in types), None)) is not None:
            return at, f"unknown key {quoted(key)}", suggest(key, types) or f"Known are {', '.join(types)}."
        parts = [(key, part, types[key]) for key, part in value.items()]
    elif isinstance(value, dict) and len(arguments) == 2:
        parts = [(key, key, arguments[0]) for key in value]
        parts += [(key, part, arguments[1]) for key, part in value.items()]
    elif isinstance(value, list) and arguments:
        parts = [(str(number), part, arguments[0]) for number, part in enumerate(value, 1)]
    for key, part, inner in parts:
        try:
            msgspec.convert(part, inner)
        except msgspec.ValidationError as inner_error:
            return _located(part, inner, (*at, key), inner_error)
    if isinstance(error.__cause__, ValueError) and len(error.__cause__.args) == 2:
        return at, *error.__cause__.args
    choices = [str(choice) for choice in arguments] if kind is Literal else []
    remedy = suggest(str(value), choices) or f"Known are {', '.join(choices)}." if choices else "Correct it."
    return at, in_words(str(error)), remedy
