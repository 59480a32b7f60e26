"""The one strict reader of YAML: of the rules that ship, of a site's own, and of a team's prices.

A file may hold scalars, lists and mappings with text keys, and nothing else. Tags, anchors and aliases, a second
document, a key given twice, deep nesting and large files are refused, each with file and line. Plain scalars are read
as YAML 1.2's core schema says (``no`` and ``1:30`` are text; a date stays text), so that a value means what it looks
like. What the values may be is said by types (`rules/base/typed.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import yaml

from .errors import RulesError
from .files import read_bounded
from .sanitize import quoted
from .typed import Name, convert

T = TypeVar("T")
_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's parser is some ten times faster

MAX_BYTES = 1 << 20  # the largest file that ships is below 64 KiB
MAX_DEPTH = 12
MAX_VALUES = 50_000
SUFFIXES = (".yaml", ".yml")
FOLDERS = ("gpus", "nodes", "waste", "custom")
FILES = (
    "bottlenecks.yaml", "exceptions.yaml", "kind_priors.yaml", "kinds.yaml",
    "latency_classes.yaml", "premiums.yaml", "providers.yaml", "reporting.yaml", "rest.yaml", "watch.yaml",
)  # fmt: skip
TEAMS_FOLDER = "teams"
TEAM_FILE = "team.yaml"
TEAM_FOLDERS = ("waste", "custom")  # what a team may set for itself
TEAM_FILES = (TEAM_FILE, "exceptions.yaml")

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def packaged_rules() -> Traversable:
    """The rules that ship with skuwise, from wherever the package is installed."""
    return files("skuwise").joinpath("rules")


def rules_root(rules_dir: Path | None) -> Path | None:
    """A site's own rules folder, checked to hold nothing that would be silently passed over. None stands for none."""
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
            known = ", ".join((*folders, *names))
            raise fault(file, None, "this is no part of the rules.", f"Known here are {known}.")
        # A pipe would be waited for, a device read; a link that leads nowhere would be passed over.
        if not file.is_file():
            raise fault(file, None, "this is no ordinary file.", "Put the rules themselves there.")
    return rules_dir


def read(file: Traversable | Path, kind: type[T]) -> T:
    """One file as a value of a type. Raises RulesError."""
    return convert(file, read_table(file), kind)


def read_layers(rules_dir: Path | None, name: str, kind: type[T]) -> list[tuple[Traversable | Path, T]]:
    """A file that ships, and then a site's own of the same name, whose entries replace ours. Raises RulesError."""
    root = rules_root(rules_dir)
    file = root / name if root is not None else None
    return [(one, read(one, kind)) for one in (packaged_rules().joinpath(name), file) if one and one.is_file()]


def read_named(rules_dir: Path | None, name: str, kind: type[T]) -> Mapping[str, T]:
    """The entries under the one key of a file, which is called as the file is; a site's replace those it names."""
    key = name.partition(".")[0]
    shape: Any = TypedDict("shape", {key: Mapping[Name, kind]})  # type: ignore[misc]
    return {name: one for _, top in read_layers(rules_dir, name, shape) for name, one in top[key].items()}


def read_folders(rules_dir: Path | None, folder: str, read_one: Callable[[Traversable | Path, set[str]], None]) -> None:
    """Hands the files of a folder that ships, and then those of a site's, to `read_one`, with a set for each folder."""
    for layer in (packaged_rules(), rules_root(rules_dir)):
        here: set[str] = set()
        if layer is not None:
            each(yaml_files(layer.joinpath(folder)), lambda file, here=here: read_one(file, here))


def each(files: Iterable[T], read_one: Callable[[T], None]) -> None:
    """Reads all of them. What is wrong with several is one RulesError, which has the `others`."""
    found: list[RulesError] = []
    for file in files:
        try:
            read_one(file)
        except RulesError as error:
            found += [error, *error.others]
    if found:
        found[0].others = tuple(found[1:])
        raise found[0]


def all_of(*steps: Callable[[], None]) -> None:
    """As `each`: every step is taken, whatever is wrong with those before it."""
    each(steps, lambda step: step())


def yaml_files(folder: Traversable | Path) -> Iterator[Traversable | Path]:
    """The YAML files straight in a folder, by name; none where there is no such folder."""
    if folder.is_dir():
        yield from sorted((f for f in folder.iterdir() if f.name.endswith(SUFFIXES)), key=lambda f: f.name)


def fault(file: object, line: int | None, sentence: str, remedy: str) -> RulesError:
    """The one shape of a complaint about a whole file or a line: ``FILE:LINE: SENTENCE REMEDY``."""
    return RulesError(f"{file}:{line}: {sentence}" if line else f"{file}: {sentence}", remedy)


def read_table(file: Traversable | Path) -> dict[str, Any]:
    """One file as a mapping. Raises RulesError, with file and line, for anything that is not strictly that."""
    try:
        if isinstance(file, Path):
            return parse_table(read_bounded(file, MAX_BYTES), str(file))
        return parse_table(file.read_bytes(), str(file))
    except OSError as error:
        raise fault(file, None, f"cannot be read ({error.strerror}).", "Check the path and its permissions.") from error


def parse_table(raw: bytes, name: str) -> dict[str, Any]:
    """The bytes of one file, called `name` in errors, as a mapping."""
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


def _build(text: str, name: str) -> object:  # noqa: PLR0912 - one branch for each event
    """The value that the parser's events tell. Its own stack: nesting in the file cannot exhaust Python's."""
    root: list[Any] = []
    stack: list[Any] = [root]
    keys: list[str | None] = [None]  # of each mapping on the stack, the key whose value is to come
    count = 0
    loader = _Loader(text)
    try:
        while not isinstance(event := loader.get_event(), yaml.StreamEndEvent):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.CollectionEndEvent):
                stack.pop()
                keys.pop()
            elif isinstance(event, yaml.AliasEvent):
                raise fault(name, line, "aliases (*name) are not allowed here.", "Write the value out.")
            elif isinstance(event, yaml.DocumentStartEvent) and root:
                raise fault(name, line, "a second document begins here.", "Keep one document a file.")
            if not isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)):
                continue
            count += 1
            if count > MAX_VALUES:
                raise fault(name, line, f"there are more than {MAX_VALUES} values.", "Split the file.")
            if event.anchor is not None or event.tag is not None:
                raise fault(name, line, "anchors (&name) and tags (!name) are not allowed here.", "Write plain values.")
            key, top = keys[-1], stack[-1]
            if key is None and isinstance(top, dict):
                if not isinstance(event, yaml.ScalarEvent):
                    raise fault(name, line, "a key must be plain text.", "Quote it if it was meant as text.")
                if event.value in top:
                    raise fault(name, line, f"key {quoted(event.value)} is given twice.", "Remove one of them.")
                top[event.value], keys[-1] = None, event.value
                continue
            value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            if isinstance(event, yaml.ScalarEvent):
                value = event.value if event.style else _plain(event.value)
            if isinstance(top, dict):
                top[key], keys[-1] = value, None
            else:
                top.append(value)
            if not isinstance(event, yaml.ScalarEvent):
                if len(stack) > MAX_DEPTH:
                    raise fault(name, line, f"values are nested more than {MAX_DEPTH} deep.", "Flatten them.")
                stack.append(value)
                keys.append(None)
    finally:
        loader.dispose()
    return root[0] if root else None


def _plain(text: str) -> str | int | float | bool | None:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) <= 20 and _INT.fullmatch(text):
        return int(text)
    return float(text) if len(text) <= 32 and _FLOAT.fullmatch(text) else text
