"""The strict reader of YAML: of the rules that ship, of a site's rules folder, and of price files.

A file holds scalars, lists and mappings with text keys. Tags, anchors, aliases, a second document, a duplicate key,
deep nesting and large files are refused with file and line. Plain scalars are read as in YAML 1.2's core schema
(``no``, ``1:30`` and dates are text). Whitespace within text is folded. `rules/base/typed.py` checks the types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from .errors import RulesError
from .files import read_bounded
from .sanitize import quoted
from .typed import convert, wrong

T = TypeVar("T")
V = TypeVar("V")
_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's parser is about ten times faster

SHIPPED, SITE = "shipped", "site"  # origins of values; of a team's: "team NAME"
MAX_BYTES = 1 << 20  # the largest file that ships is below 64 KiB
MAX_DEPTH = 12
SUFFIXES = (".yaml", ".yml")
LAYOUT = (
    "gpus/*", "nodes/*", "waste/*", "custom/*", "bottlenecks.yaml", "exceptions.yaml", "kind_priors.yaml", "kinds.yaml",
    "latency_classes.yaml", "premiums.yaml", "providers.yaml", "reporting.yaml", "rest.yaml", "watch.yaml",
    "teams/*/team.yaml", "teams/*/waste/*", "teams/*/custom/*", "teams/*/exceptions.yaml",
)  # fmt: skip

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_CONSTANTS = {"": None, "~": None, "null": None, "true": True, "false": False}


def packaged_rules() -> Path:
    """The folder of the rules that ship with skuwise."""
    return Path(__file__).parents[1]


def rules_root(rules_dir: Path | None) -> Path | None:
    """A site's rules folder. Raises RulesError for a file in it that would be ignored. None: no folder is set."""
    layout = f"The layout is {', '.join(LAYOUT)}."
    if rules_dir is None:
        return None
    if not rules_dir.is_dir():
        raise RulesError(f"{rules_dir} is not a folder of rules.", layout)
    for file in sorted(rules_dir.rglob("*")):
        path = Path("/", file.relative_to(rules_dir))
        if path.suffix in SUFFIXES and not any(part.startswith(".") for part in path.parts):  # no editor's file
            if not any(path.match(f"/{pattern}") for pattern in LAYOUT):
                raise wrong(file, None, "this is no part of the rules", layout)
            if not file.is_file():  # a pipe would block, a dangling link would be ignored
                raise wrong(file, None, "this is no ordinary file", "Put the rules themselves there.")
    return rules_dir


def layers(rules_dir: Path | None) -> list[tuple[str, Path]]:
    """The folders of rules by origin: those that ship, then a site's. Raises as `rules_root`."""
    root = rules_root(rules_dir)
    return [(SHIPPED, packaged_rules()), *([(SITE, root)] if root is not None else [])]


def read(file: Path, kind: type[T]) -> T:
    """One file as a value of a type. Raises RulesError."""
    return convert(file, read_table(file), kind)


def read_layers(rules_dir: Path | None, name: str, kind: type[T]) -> list[tuple[str, Path, T]]:
    """A file that ships, and a site's of the same name if there is one, with origin and path. Raises RulesError."""
    of_layer = [(origin, folder / name) for origin, folder in layers(rules_dir)]
    return [(origin, file, read(file, kind)) for origin, file in of_layer if file.is_file()]


def read_folders(folders: Iterable[Path], kind: type[T], use: Callable[[object, T], Mapping[str, V]]) -> dict[str, V]:
    """The entries of the YAML files in some folders by name, as `use` makes them of a file; a later folder's replace
    those of the same name. Raises RulesError, also for a name that two files of one folder have."""
    entries: dict[str, V] = {}
    for folder in folders:
        names: dict[str, object] = {}
        for file in sorted(path for path in folder.glob("*") if path.suffix in SUFFIXES):
            for name, entry in use(file, read(file, kind)).items():
                if name in names:
                    raise wrong(file, None, f"{names[name]} has {quoted(name)} already", "Keep one of them.")
                entries[name], names[name] = entry, file
    return entries


def read_table(file: Path) -> dict[str, Any]:
    """One file as a mapping. Raises RulesError with file and, where the parser has it, line."""
    try:
        return parse_table(read_bounded(file, MAX_BYTES), str(file))
    except OSError as error:
        raise wrong(file, None, f"cannot be read ({error.strerror})", "Check the path and its permissions.") from error


def parse_table(raw: bytes, name: str) -> dict[str, Any]:
    """The content of one file, named `name` in errors, as a mapping. Raises RulesError."""
    try:
        loader = _Loader(raw.decode("utf-8"))
        loader.get_event()  # the stream begins, then the document, unless there is none
        value = None
        if isinstance(loader.get_event(), yaml.DocumentStartEvent):
            value = _value(loader, name, loader.get_event())
            loader.get_event()  # the document ends
        if loader.check_event(yaml.DocumentStartEvent):
            raise wrong(name, loader.get_event().start_mark.line + 1, "a second document begins here", "Keep one.")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise wrong(name, line, "this is not UTF-8 text", "Save the file as UTF-8.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
        raise wrong(name, mark and mark.line + 1, f"this is not valid YAML: {problem}", "Correct the line.") from None
    if not isinstance(value, dict):
        what = "is empty" if value is None else "does not hold a mapping of keys to values"
        raise wrong(name, None, what, "See the files that ship for the shape.")
    return value


def _value(loader: Any, name: str, event: Any, depth: int = 1) -> Any:  # noqa: ANN401 - libyaml's are untyped
    """The value that begins with `event`. Nesting is bounded: it cannot exhaust Python's stack."""
    line = event.start_mark.line + 1
    if event.anchor is not None or getattr(event, "tag", None) is not None:
        raise wrong(name, line, "anchors (&name) and tags (!name) are not allowed here", "Write plain values.")
    if isinstance(event, yaml.ScalarEvent):
        text = " ".join(event.value.split())
        if not event.style and text.lower() in _CONSTANTS:
            return _CONSTANTS[text.lower()]
        if event.style or len(text) > 32 or not _NUMBER.fullmatch(text):
            return text
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    if depth > MAX_DEPTH:
        raise wrong(name, line, f"values are nested more than {MAX_DEPTH} deep", "Flatten them.")
    if isinstance(event, yaml.SequenceStartEvent):
        values: list[Any] = []
        while not isinstance(event := loader.get_event(), yaml.SequenceEndEvent):
            values.append(_value(loader, name, event, depth + 1))
        return values
    table: dict[str, Any] = {}
    while not isinstance(event := loader.get_event(), yaml.MappingEndEvent):
        line = event.start_mark.line + 1
        if not isinstance(event, yaml.ScalarEvent) or (event.anchor, event.tag) != (None, None):
            raise wrong(name, line, "a key must be plain text")
        if event.value in table:
            raise wrong(name, line, f"key {quoted(event.value)} is given twice")
        table[event.value] = _value(loader, name, loader.get_event(), depth + 1)
    return table
