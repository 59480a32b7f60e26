"""The strict reader of YAML: of the rules that ship, of a site's rules folder, and of price files.

A file holds scalars, lists and mappings with text keys. Tags, anchors, aliases, a second document, a duplicate key,
deep nesting and large files are refused with file and line. Plain scalars are read as in YAML 1.2's core schema
(``no``, ``1:30`` and dates are text). Whitespace within text is folded. `rules/base/typed.py` checks the types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
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

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
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
            raise wrong(file, None, "this is no part of the rules", f"Known here are {', '.join((*folders, *names))}.")
        if not file.is_file():  # a pipe would block, a dangling link would be ignored
            raise wrong(file, None, "this is no ordinary file", "Put the rules themselves there.")
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


def read_folders(
    folders: Iterable[Traversable | Path], kind: type[T], use: Callable[[object, T], Mapping[str, V]]
) -> dict[str, V]:
    """The entries of the YAML files in some folders by name, as `use` makes them of a file; a later folder's replace
    those of the same name. Raises RulesError, also for a name that two files of one folder have."""
    entries: dict[str, V] = {}
    faults = Faults()
    for folder in folders:
        names: dict[str, object] = {}
        paths = [path for path in folder.iterdir() if path.name.endswith(SUFFIXES)] if folder.is_dir() else []
        for file in sorted(paths, key=lambda path: path.name):
            with faults:
                for name, entry in use(file, read(file, kind)).items():
                    if name in names:
                        raise wrong(file, None, f"{names[name]} has {quoted(name)} already", "Keep one of them.")
                    entries[name], names[name] = entry, file
    faults.raise_all()
    return entries


def read_table(file: Traversable | Path) -> dict[str, Any]:
    """One file as a mapping. Raises RulesError with file and, where the parser has it, line."""
    try:
        return parse_table(read_bounded(file, MAX_BYTES) if isinstance(file, Path) else file.read_bytes(), str(file))
    except OSError as error:
        raise wrong(file, None, f"cannot be read ({error.strerror})", "Check the path and its permissions.") from error


def parse_table(raw: bytes, name: str) -> dict[str, Any]:
    """The content of one file, named `name` in errors, as a mapping. Raises RulesError."""
    try:
        value = _build(raw.decode("utf-8"), name)
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


def _build(text: str, name: str) -> object:
    """The value of a document. It has its own stack: nesting in a file cannot exhaust Python's."""
    loader = _Loader(text)
    root: list[Any] = []
    stack: list[Any] = [root]
    keys: list[str | None] = [None]  # of each mapping on the stack, the key whose value comes next
    try:
        while not isinstance(event := loader.get_event(), yaml.StreamEndEvent):
            line, top = event.start_mark.line + 1, stack[-1]
            is_second = isinstance(event, yaml.DocumentStartEvent) and bool(root)
            if is_second or getattr(event, "anchor", None) is not None or getattr(event, "tag", None) is not None:
                marks = "anchors (&name) and tags (!name) are not allowed here"
                sentence = "a second document begins here" if is_second else marks
                raise wrong(name, line, sentence, "Keep one document of plain values.")
            if isinstance(event, yaml.CollectionEndEvent):
                del stack[-1], keys[-1]
            if not isinstance(event, yaml.NodeEvent):
                continue
            word, value = None, {} if isinstance(event, yaml.MappingStartEvent) else []
            if isinstance(event, yaml.ScalarEvent):
                word = event.value
                value = " ".join(word.split()) if event.style else _plain(word)
            is_key = isinstance(top, dict) and keys[-1] is None
            if is_key and (word is None or word in top):
                sentence = "a key must be plain text" if word is None else f"key {quoted(word)} is given twice"
                raise wrong(name, line, sentence)
            if is_key:
                keys[-1] = word
            elif isinstance(top, dict):
                top[keys[-1]], keys[-1] = value, None
            else:
                top.append(value)
            if word is None:
                stack.append(value)
                keys.append(None)
            if len(stack) > MAX_DEPTH + 1:
                raise wrong(name, line, f"values are nested more than {MAX_DEPTH} deep", "Flatten them.")
    finally:
        loader.dispose()
    return root[0] if root else None


def _plain(text: str) -> str | int | float | bool | None:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) > 32 or not _NUMBER.fullmatch(text):
        return " ".join(text.split())
    return int(text) if text.lstrip("+-").isdigit() else float(text)
