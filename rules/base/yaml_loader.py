"""The strict reader of YAML: of the rules that ship, of a site's rules folder, and of price files.

A file holds scalars, lists and mappings with text keys. Tags, anchors, aliases, a second document, a duplicate key,
deep nesting and large files are refused with file and line. Plain scalars are read as in YAML 1.2's core schema
(``no``, ``1:30`` and dates are text). Whitespace within text is folded. `rules/base/typed.py` checks the types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import yaml

from .errors import RulesError
from .files import read_bounded
from .sanitize import quoted
from .typed import Name, convert

T = TypeVar("T")
V = TypeVar("V")
_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's parser is about ten times faster

SHIPPED, SITE = "shipped", "site"  # origins of values; of a team's: "team NAME"
MAX_BYTES = 1 << 20  # the largest file that ships is below 64 KiB
MAX_DEPTH = 12
MAX_VALUES = 50_000
SUFFIXES = (".yaml", ".yml")
FOLDERS = ("gpus", "nodes", "waste", "custom")
FILES = (
    "bottlenecks.yaml", "exceptions.yaml", "kind_priors.yaml", "kinds.yaml",
    "latency_classes.yaml", "premiums.yaml", "providers.yaml", "reporting.yaml", "rest.yaml", "watch.yaml",
)  # fmt: skip
TEAMS_FOLDER, TEAM_FILE = "teams", "team.yaml"
TEAM_FOLDERS, TEAM_FILES = ("waste", "custom"), (TEAM_FILE, "exceptions.yaml")

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class Faults(list[RulesError]):
    """Collects the errors of several files: ``with faults:`` around each, then `raise_all`."""

    def __enter__(self) -> Faults:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, RulesError):
            self.extend((error, *error.others))
        return isinstance(error, RulesError)

    def raise_all(self) -> None:
        """Raise the first error, with the `others`; nothing where there is none."""
        if self:
            self[0].others = tuple(self[1:])
            raise self[0]


def packaged_rules() -> Traversable:
    """The rules that ship with skuwise, from wherever the package is installed."""
    return files("skuwise").joinpath("rules")


def rules_root(rules_dir: Path | None) -> Path | None:
    """A site's rules folder. Raises RulesError for a file in it that would be ignored. None: no folder is set."""
    if rules_dir is None:
        return None
    if not rules_dir.is_dir():
        layout = ", ".join((*FOLDERS, TEAMS_FOLDER, *FILES))
        raise RulesError(f"{rules_dir} is not a folder of rules.", f"Its layout is {layout}.")
    for file in sorted(rules_dir.rglob("*")):
        *above, name = file.relative_to(rules_dir).parts
        if not name.endswith(SUFFIXES) or any(part.startswith(".") for part in (*above, name)):
            continue  # a version control's folder, an editor's file, a text for people
        folders, names = FOLDERS, FILES
        if above[:1] == [TEAMS_FOLDER] and len(above) > 1:
            above, folders, names = above[2:], TEAM_FOLDERS, TEAM_FILES
        if not (above[0] in folders and len(above) == 1 if above else name in names):
            raise fault(file, None, "this is no part of the rules.", f"Known here are {', '.join((*folders, *names))}.")
        if not file.is_file():  # a pipe would block, a dangling link would be ignored
            raise fault(file, None, "this is no ordinary file.", "Put the rules themselves there.")
    return rules_dir


def layers(rules_dir: Path | None) -> list[tuple[str, Traversable | Path]]:
    """The folders of rules by origin: those that ship, then a site's. Raises as `rules_root`."""
    root = rules_root(rules_dir)
    return [(SHIPPED, packaged_rules()), *([(SITE, root)] if root is not None else [])]


def read(file: Traversable | Path, kind: type[T]) -> T:
    """One file as a value of a type. Raises RulesError."""
    return convert(file, read_table(file), kind)


def read_layers(rules_dir: Path | None, name: str, kind: type[T]) -> list[tuple[str, Traversable | Path, T]]:
    """A file that ships, and a site's of the same name if there is one, with origin and path. Raises RulesError."""
    of_layer = [(origin, folder.joinpath(name)) for origin, folder in layers(rules_dir)]
    return [(origin, file, read(file, kind)) for origin, file in of_layer if file.is_file()]


def read_folder(
    folder: Traversable | Path, kind: type[T], use: Callable[[Traversable | Path, T], Mapping[str, V]]
) -> dict[str, V]:
    """The entries of a folder's files by name, as `use` makes them of a file. Raises RulesError, also for a name that
    two files have."""
    entries: dict[str, V] = {}
    files: dict[str, object] = {}
    faults = Faults()
    for file in yaml_files(folder):
        with faults:
            for name, entry in use(file, read(file, kind)).items():
                if name in entries:
                    raise fault(file, None, f"{files[name]} has {quoted(name)} already.", "Keep one of them.")
                entries[name], files[name] = entry, file
    faults.raise_all()
    return entries


def read_folders(
    rules_dir: Path | None, name: str, kind: type[T], use: Callable[[Traversable | Path, T], Mapping[str, V]]
) -> dict[str, V]:
    """As `read_folder`, of the folder that ships and a site's, whose entries replace those of the same name."""
    entries: dict[str, V] = {}
    faults = Faults()
    for _, layer in layers(rules_dir):
        with faults:
            entries |= read_folder(layer.joinpath(name), kind, use)
    faults.raise_all()
    return entries


def read_named(rules_dir: Path | None, name: str, kind: type[T]) -> Mapping[str, T]:
    """The entries under the one key of a file, which is the file's name; a site's replace those of the same name."""
    key = name.partition(".")[0]
    shape: Any = Mapping[Name, kind]  # type: ignore[valid-type]
    entries: dict[str, T] = {}
    for _, file, table in read_layers(rules_dir, name, dict[str, Any]):
        if list(table) != [key]:
            raise fault(file, None, f"its only key is {key!r}.", "See the file that ships for the shape.")
        entries |= convert(file, table[key], shape, key)
    return entries


def yaml_files(folder: Traversable | Path) -> Iterator[Traversable | Path]:
    """The YAML files directly in a folder, by name; none where there is no such folder."""
    if folder.is_dir():
        yield from sorted((f for f in folder.iterdir() if f.name.endswith(SUFFIXES)), key=lambda f: f.name)


def fault(file: object, line: int | None, sentence: str, remedy: str) -> RulesError:
    """The error for a whole file or a line: ``FILE:LINE: SENTENCE REMEDY``."""
    return RulesError(f"{file}:{line}: {sentence}" if line else f"{file}: {sentence}", remedy)


def read_table(file: Traversable | Path) -> dict[str, Any]:
    """One file as a mapping. Raises RulesError with file and, where the parser has it, line."""
    try:
        return parse_table(read_bounded(file, MAX_BYTES) if isinstance(file, Path) else file.read_bytes(), str(file))
    except OSError as error:
        raise fault(file, None, f"cannot be read ({error.strerror}).", "Check the path and its permissions.") from error


def parse_table(raw: bytes, name: str) -> dict[str, Any]:
    """The content of one file, named `name` in errors, as a mapping. Raises RulesError."""
    if len(raw) > MAX_BYTES:
        raise fault(name, None, f"it is larger than {MAX_BYTES >> 20} MiB.", "Split it into several files.")
    try:
        value = _build(raw.decode("utf-8"), name)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise fault(name, line, "this is not UTF-8 text.", "Save the file as UTF-8.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
        line = mark.line + 1 if mark else None
        raise fault(name, line, f"this is not valid YAML: {problem}.", "Correct the line.") from None
    if not isinstance(value, dict):
        what = "is empty" if value is None else "does not hold a mapping of keys to values"
        raise fault(name, None, f"{what}.", "See the files that ship for the shape.")
    return value


def _events(text: str, name: str) -> Iterator[yaml.Event]:
    """The scalars, and the beginnings and ends of collections. Raises RulesError for what rules must not contain."""
    loader = _Loader(text)
    documents = values = 0
    try:
        while not isinstance(event := loader.get_event(), yaml.StreamEndEvent):
            line = event.start_mark.line + 1
            documents += isinstance(event, yaml.DocumentStartEvent)
            values += isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent))
            if isinstance(event, yaml.AliasEvent):
                raise fault(name, line, "aliases (*name) are not allowed here.", "Write the value out.")
            if documents > 1:
                raise fault(name, line, "a second document begins here.", "Keep one document a file.")
            if values > MAX_VALUES:
                raise fault(name, line, f"there are more than {MAX_VALUES} values.", "Split the file.")
            if getattr(event, "anchor", None) is not None or getattr(event, "tag", None) is not None:
                raise fault(name, line, "anchors (&name) and tags (!name) are not allowed here.", "Write plain values.")
            if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent, yaml.CollectionEndEvent)):
                yield event
    finally:
        loader.dispose()


def _build(text: str, name: str) -> object:
    """The value of a document. It has its own stack: nesting in a file cannot exhaust Python's."""
    root: list[Any] = []
    stack: list[Any] = [root]
    keys: list[str | None] = [None]  # of each mapping on the stack, the key whose value comes next
    for event in _events(text, name):
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
            keys.pop()
            continue
        top, line = stack[-1], event.start_mark and event.start_mark.line + 1
        value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        if isinstance(event, yaml.ScalarEvent):
            value = " ".join(event.value.split()) if event.style else _plain(event.value)
        if not isinstance(top, dict):
            top.append(value)
        elif keys[-1] is not None:
            top[keys[-1]], keys[-1] = value, None
        elif not isinstance(event, yaml.ScalarEvent):
            raise fault(name, line, "a key must be plain text.", "Quote it if it was meant as text.")
        elif event.value in top:
            raise fault(name, line, f"key {quoted(event.value)} is given twice.", "Remove one of them.")
        else:
            top[event.value], keys[-1] = None, event.value
        if not isinstance(event, yaml.ScalarEvent):
            if len(stack) > MAX_DEPTH:
                raise fault(name, line, f"values are nested more than {MAX_DEPTH} deep.", "Flatten them.")
            stack.append(value)
            keys.append(None)
    return root[0] if root else None


def _plain(text: str) -> str | int | float | bool | None:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) > 32 or not _NUMBER.fullmatch(text):
        return " ".join(text.split())
    return int(text) if text.lstrip("+-").isdigit() else float(text)
