"""Values of frozen classes as the plain values of JSON, and back. What comes back is hostile until it is read: every
type is what its field says, every number within its bounds (`rules/base/quantities.py`), and the first thing that is
not is told with its place.

A field stands under its own name, or what its metadata name as ``json``; None there keeps it out of the JSON. Keys that
no field has are left out: later versions add some. A field with a default may be absent.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Annotated, Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from cattrs import ClassValidationError, Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from ...rules.base.errors import UsageError
from ...rules.base.quantities import Moment
from ...rules.base.sanitize import clean
from .timestamps import parse_moment, rfc3339

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Within:
    """What a number may be, both ends included."""

    least: float
    most: float = math.inf


Read = Callable[[Any, Any], Any]
_KEY_SHOWN = 60
_DEPTH = 12  # of what may hold anything
_ANYTHING = Mapping[str, object]
_SCALARS = {str, int, float, bool, NoneType}


class MisfitError(ValueError):
    """A value is not what its field says. `what` goes on after its place, `path` from the outermost key to it."""

    def __init__(self, what: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(what)
        self.what, self.path = what, path

    def within(self, key: str | int) -> MisfitError:
        """The same, told from one level further out."""
        return MisfitError(self.what, (key, *self.path))

    @property
    def place(self) -> str:
        """``workloads[1].kind.label``; keys are outside text, and harmless here."""
        steps = "".join(f"[{key}]" if isinstance(key, int) else f".{clean(key)[:_KEY_SHOWN]}" for key in self.path)
        return steps.removeprefix(".") or "what it holds"


class Codec:
    """One form of JSON. `largest`: no number is larger, either way; `decimals` of floats that are written (None: all).

    `dates`: moments are RFC 3339 in UTC, else Unix seconds. `lenient`: what may be None may be absent. `whole`: every
    field under its own name, those too that are kept out of a contract's JSON.
    """

    def __init__(
        self,
        *,
        largest: float,
        decimals: int | None = None,
        dates: bool = False,
        lenient: bool = False,
        whole: bool = False,
    ) -> None:
        self._lenient, self._whole = lenient, whole
        self._converter = converter = Converter(unstruct_collection_overrides={})
        numbers: dict[type, Read] = {float: _number(-largest, largest), int: _whole(largest)}
        for kind, read in {**numbers, str: _text, bool: _flag}.items():
            converter.register_structure_hook(kind, read)
        for kind in (float, int, bool):
            converter.register_unstructure_hook(kind, lambda value: _written_number(value, decimals))
        converter.register_structure_hook_factory(lambda kind: get_origin(kind) is Literal, _word)
        converter.register_structure_hook_factory(lambda kind: get_origin(kind) is tuple, self._list)
        converter.register_structure_hook_factory(lambda kind: get_origin(kind) is frozenset, self._set)
        converter.register_unstructure_hook_func(lambda kind: get_origin(kind) is frozenset, sorted)
        converter.register_structure_hook_factory(lambda kind: get_origin(kind) is Mapping, self._mapping)
        converter.register_structure_hook_factory(_is_scalar, _scalar)
        converter.register_structure_hook_func(lambda kind: kind == _ANYTHING, anything)
        converter.register_unstructure_hook_func(
            lambda kind: kind == _ANYTHING or _is_scalar(kind), lambda value: plain(value, decimals)
        )
        converter.register_structure_hook_factory(
            lambda kind: _bounds(kind) is not None, lambda kind: _limited(_bounds(kind), largest)
        )
        if dates:
            converter.register_structure_hook_func(lambda kind: kind == Moment, _date)
            converter.register_unstructure_hook_func(lambda kind: kind == Moment, rfc3339)
        converter.register_structure_hook_factory(_is_optional, self._optional)
        converter.register_unstructure_hook_factory(_is_optional, self._written_optional)
        converter.register_structure_hook_factory(dataclasses.is_dataclass, self._class)
        converter.register_unstructure_hook_factory(dataclasses.is_dataclass, self._written)

    def encode(self, value: object) -> Any:  # noqa: ANN401
        """The value of a class as mappings, lists, texts and numbers; what is no finite number is None."""
        return self._converter.unstructure(value)

    def decode(self, kind: type[T], value: object) -> T:
        """A value of a class, of what JSON held. Raises MisfitError."""
        return self._converter.structure(value, kind)

    def reshape(
        self, kind: type, read: Callable[[Any], Any], write: Callable[[dict[str, Any]], Any] | None = None
    ) -> None:
        """Let the JSON of a class have another shape than its fields: `read` makes the one of the other, as far as it
        knows it; `write` the other way round (None: it is written by its fields). Before it is read or written."""
        build, told = self._class(kind), self._written(kind)
        self._converter.register_structure_hook(kind, lambda value, _: build(read(value), kind))
        if write is not None:
            self._converter.register_unstructure_hook(kind, lambda value: write(told(value)))

    def _class(self, kind: Any) -> Read:  # noqa: ANN401
        hints, names = self._fields(kind)
        hooks: dict[str, Any] = {
            name: override(rename=key, omit=key is None, struct_hook=self._converter.get_structure_hook(hints[name]))
            for name, key in names.items()
        }
        build = make_dict_structure_fn(kind, self._converter, **hooks)
        absent = {
            key: None for name, key in names.items() if self._lenient and key and NoneType in get_args(hints[name])
        }

        def read(value: Any, _: Any) -> Any:  # noqa: ANN401
            if not isinstance(value, dict):
                raise MisfitError("is not a mapping")
            try:
                return build({**absent, **value} if absent else value, kind)
            except ClassValidationError as error:
                raise _first(error, names) from None

        return read

    def _written(self, kind: Any) -> Callable[[Any], dict[str, Any]]:  # noqa: ANN401
        hints, names = self._fields(kind)
        hooks: dict[str, Any] = {
            name: override(
                rename=key, omit=key is None, unstruct_hook=self._converter.get_unstructure_hook(hints[name])
            )
            for name, key in names.items()
        }
        return make_dict_unstructure_fn(kind, self._converter, **hooks)

    def _fields(self, kind: Any) -> tuple[dict[str, Any], dict[str, str | None]]:  # noqa: ANN401
        """The types of a class's fields, bounds and all, and what the JSON calls them (None: it does not have them)."""
        names = {
            f.name: f.name if self._whole and f.metadata.get("kept", True) else f.metadata.get("json", f.name)
            for f in dataclasses.fields(kind)
        }
        return get_type_hints(kind, include_extras=True), names

    def _optional(self, kind: Any) -> Read:  # noqa: ANN401
        inner = _inner(kind)
        read = self._converter.get_structure_hook(inner)
        return lambda value, _: None if value is None else read(value, inner)

    def _written_optional(self, kind: Any) -> Callable[[Any], Any]:  # noqa: ANN401
        write = self._converter.get_unstructure_hook(_inner(kind))
        return lambda value: None if value is None else write(value)

    def _list(self, kind: Any) -> Read:  # noqa: ANN401
        inner = get_args(kind)
        length = None if inner[-1] is Ellipsis else len(inner)
        read = self._converter.get_structure_hook(inner[0])

        def read_all(value: Any, _: Any) -> tuple[Any, ...]:  # noqa: ANN401
            if not isinstance(value, list):
                raise MisfitError("is not a list")
            if length is not None and len(value) != length:
                raise MisfitError(f"does not have {length} values")
            found: list[Any] = []
            try:
                for item in value:
                    found.append(read(item, inner[0]))
            except MisfitError as error:
                raise error.within(len(found)) from None
            return tuple(found)

        return read_all

    def _set(self, kind: Any) -> Read:  # noqa: ANN401
        listed = tuple[(*get_args(kind), ...)]
        read = self._list(listed)
        return lambda value, _: frozenset(read(value, listed))

    def _mapping(self, kind: Any) -> Read:  # noqa: ANN401
        key_kind, value_kind = get_args(kind)
        read_key, read_value = map(self._converter.get_structure_hook, (key_kind, value_kind))

        def read(value: Any, _: Any) -> dict[Any, Any]:  # noqa: ANN401
            if not isinstance(value, dict):
                raise MisfitError("is not a mapping")
            found: dict[Any, Any] = {}
            for key, item in value.items():
                try:
                    found[read_key(key, key_kind)] = read_value(item, value_kind)
                except MisfitError as error:
                    raise error.within(key) from None
            return found

        return read


def plain(value: Any, decimals: int | None = None) -> Any:  # noqa: ANN401
    """Plain JSON values of any that are nested: NaN and infinities are None, NumPy's scalars Python's."""
    if isinstance(value, Mapping):
        return {str(key): plain(one, decimals) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one, decimals) for one in value]
    if value is None or isinstance(value, str | bool):
        return value
    return _written_number(value, decimals)


def _written_number(value: Any, decimals: int | None) -> Any:  # noqa: ANN401
    if type(value) is not float and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return None if not math.isfinite(value) else value if decimals is None else round(value, decimals)
    return value


def anything(value: Any, _: object = None, depth: int = _DEPTH) -> dict[str, object]:  # noqa: ANN401
    """A mapping of whatever JSON can say, nested at most `depth` deep. Raises MisfitError."""
    level: list[Any] = [value]
    for _ in range(depth):
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for values in inner for one in values if isinstance(one, dict | list)]
    if level:
        raise MisfitError("is nested too deeply")
    if not isinstance(value, dict):
        raise MisfitError("is not a mapping")
    return value


def strict_json(text: str) -> Any:  # noqa: ANN401
    """What JSON holds. Raises ValueError for what is none, and for numbers that we never write: whole ones beyond these
    are no counts, and take longer to write than to read."""
    return json.loads(text, parse_constant=_refuse, parse_int=_whole_of, parse_float=_float_of)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is not a number")


def _whole_of(text: str) -> int:
    value = int(text) if len(text) < 20 else _refuse(text)
    return value if abs(value) <= 2**53 else _refuse(text)


def _float_of(text: str) -> float:
    value = float(text)
    return value if -1e300 <= value <= 1e300 else _refuse(text)


def _first(error: ClassValidationError, names: Mapping[str, str | None]) -> Exception:
    """What is wrong with the first field of a class."""
    noted, others = error.group_exceptions()
    if not noted:
        return others[0]
    fault, note = noted[0]
    key = names[note.name] or ""
    return fault.within(key) if isinstance(fault, MisfitError) else MisfitError("is missing", (key,))


def _is_optional(kind: Any) -> bool:  # noqa: ANN401
    return len(get_args(kind)) == 2 and NoneType in get_args(kind)


def _inner(kind: Any) -> Any:  # noqa: ANN401
    return next(one for one in get_args(kind) if one is not NoneType)


def _bounds(kind: Any) -> Within | None:  # noqa: ANN401
    found = kind.__metadata__ if get_origin(kind) is Annotated else ()
    return next((Within(one.ge, math.inf if one.le is None else one.le) for one in found if hasattr(one, "ge")), None)


def _limited(bounds: Within | None, largest: float) -> Read:
    assert bounds is not None
    return _number(max(bounds.least, -largest), min(bounds.most, largest))


def _number(least: float, most: float) -> Read:
    def read(value: Any, _: Any) -> float:  # noqa: ANN401
        """A number as it is written: a whole one stays whole."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise MisfitError("is not a number")
        if not least <= value <= most:
            raise MisfitError(f"is not between {least:g} and {most:g}")
        return value

    return read


def _whole(largest: float) -> Read:
    """A count: every whole number here is one."""
    number = _number(0, largest)

    def read(value: Any, kind: Any) -> int:  # noqa: ANN401
        if not isinstance(number(value, kind), int):
            raise MisfitError("is not a whole number")
        return value

    return read


def _text(value: Any, _: Any) -> str:  # noqa: ANN401
    if not isinstance(value, str):
        raise MisfitError("is not text")
    # Names, labels and reasons come again and again: kept once, all takes a third less.
    return sys.intern(value)


def _flag(value: Any, _: Any) -> bool:  # noqa: ANN401
    if not isinstance(value, bool):
        raise MisfitError("is neither true nor false")
    return value


def _word(kind: Any) -> Read:  # noqa: ANN401
    words = get_args(kind)

    def read(value: Any, _: Any) -> str:  # noqa: ANN401
        if _text(value, kind) not in words:
            raise MisfitError(f"is not one of {', '.join(sorted(words))}")
        return value

    return read


def _is_scalar(kind: Any) -> bool:  # noqa: ANN401
    return len(get_args(kind)) > 2 and set(get_args(kind)) <= _SCALARS


def _scalar(kind: Any) -> Read:  # noqa: ANN401
    kinds = get_args(kind)

    def read(value: Any, _: Any) -> Any:  # noqa: ANN401
        if isinstance(value, str):
            return _text(value, str)
        return value if type(value) in kinds else _number(-math.inf, math.inf)(value, float)

    return read


def _date(value: Any, _: Any) -> float:  # noqa: ANN401
    """Unix seconds of an RFC 3339 moment in UTC."""
    text = _text(value, str)
    try:
        if text.endswith("Z"):
            return parse_moment(text)
    except UsageError:
        pass
    raise MisfitError("is not an RFC 3339 time in UTC")
