"""The one strict reader of YAML: of the rules that ship, of a site's own, and of a team's prices.

A file may hold scalars, lists and mappings with text keys, and nothing else. Tags, anchors and aliases, a second
document, a key given twice, deep nesting and large files are refused, each with file and line. Plain scalars are read
as YAML 1.2's core schema says (``no`` and ``1:30`` are text; a date stays text), so that a value means what it looks
like. Values keep the lines they stood on (`Table`, `Items`), for the checks that follow (`rules/base/typed_fields.py`).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml

from .errors import RulesError
from .files import read_bounded
from .sanitize import quoted

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
_NUMBER_STARTS = frozenset("+-.0123456789")


class Table(dict[str, object]):
    """A mapping as read, with the line (from 1) it begins on and the line of every key."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}


class Items(list[object]):
    """A list as read, with the line (from 1) it begins on and the line of every item."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []


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
    _check_layout(rules_dir, (*FOLDERS, TEAMS_FOLDER), FILES)
    teams = rules_dir / TEAMS_FOLDER
    for team in sorted(teams.iterdir()) if teams.is_dir() else ():
        if team.is_dir():
            _check_layout(team, TEAM_FOLDERS, TEAM_FILES)
        elif team.name.endswith(SUFFIXES):
            raise fault(str(team), None, "this is no part of the rules.", "A team has a folder of its own here.")
    return rules_dir


def _check_layout(root: Path, folders: tuple[str, ...], files: tuple[str, ...]) -> None:
    for entry in sorted(root.iterdir()):
        if entry.name.startswith("."):  # a version control's folder, an editor's file
            continue
        known = folders if entry.is_dir() else files
        if entry.name not in known and (entry.is_dir() or entry.name.endswith(SUFFIXES)):
            raise fault(str(entry), None, "this is no part of the rules.", f"Known here are {', '.join(known)}.")
        for file in sorted(entry.iterdir()) if entry.is_dir() else (entry,):
            if file.is_dir() and entry.name != TEAMS_FOLDER:
                raise fault(str(file), None, "a folder here is no part of the rules.", "Put its files one level up.")
            # A pipe would be waited for, a device read; a link that leads nowhere would be passed over.
            if file.name.endswith(SUFFIXES) and not file.is_file():
                raise fault(str(file), None, "this is no ordinary file.", "Put the rules themselves there.")


def layers(rules_dir: Path | None) -> tuple[Traversable | Path, ...]:
    """The folders to read, in order: ours, then a site's, whose entries replace ours of the same name."""
    root = rules_root(rules_dir)
    return (packaged_rules(),) if root is None else (packaged_rules(), root)


def yaml_files(folder: Traversable | Path) -> Iterator[Traversable | Path]:
    """The YAML files straight in a folder, by name; none where there is no such folder."""
    if folder.is_dir():
        yield from sorted((f for f in folder.iterdir() if f.name.endswith(SUFFIXES)), key=lambda f: f.name)


def fault(file: str, line: int | None, sentence: str, remedy: str = "") -> RulesError:
    """The one shape of every complaint about a file: ``FILE:LINE: SENTENCE REMEDY``."""
    return RulesError(f"{file}:{line}: {sentence}" if line else f"{file}: {sentence}", remedy)


def read_table(file: Traversable | Path) -> Table:
    """One file as a `Table`. Raises RulesError, with file and line, for anything that is not strictly that."""
    name = str(file)
    try:
        if isinstance(file, Path):
            raw = read_bounded(file, MAX_BYTES)
        else:
            with file.open("rb") as stream:
                raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise _too_large(name) from error
        raise fault(name, None, f"cannot be read ({error.strerror}).", "Check the path and its permissions.") from error
    return parse_table(raw, name)


def _too_large(name: str) -> RulesError:
    return fault(name, None, f"is larger than {MAX_BYTES // 1024} KiB.", "Split it into several files.")


def parse_table(raw: bytes, name: str) -> Table:
    """The bytes of one file, called `name` in errors, as a `Table`."""
    if len(raw) > MAX_BYTES:
        raise _too_large(name)
    try:
        value, line = _Builder(name).build(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise fault(name, line, "this is not UTF-8 text.", "Save the file as UTF-8.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
        line = mark.line + 1 if mark else None
        raise fault(name, line, f"this is not valid YAML: {problem}.", "Correct the line.") from None
    if not isinstance(value, Table):
        what = "is empty" if value is None else "does not hold a mapping of keys to values"
        raise fault(name, line, f"{what}.", "See the files that ship for the shape.")
    return value


class _Builder:
    """Values from the parser's events. Its own stack: nesting in the file cannot exhaust Python's."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stack: list[Table | Items] = []
        self._keys: list[str | None] = []
        self._count = self._documents = 0
        self._root: object = None
        self._root_line = 1

    def build(self, text: str) -> tuple[object, int]:
        """The root value and the line it begins on."""
        loader = _Loader(text)
        try:
            while not isinstance(event := loader.get_event(), yaml.StreamEndEvent):
                self._take(event, event.start_mark.line + 1)
        finally:
            loader.dispose()
        return self._root, self._root_line

    def _take(self, event: yaml.events.Event, line: int) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._check(event, line)
            if self._stack and isinstance(self._stack[-1], Table) and self._keys[-1] is None:
                self._key(event.value, line)
            else:
                self._put(event.value if event.style else _plain(event.value), line)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._check(event, line)
            self._open(Table(line) if isinstance(event, yaml.MappingStartEvent) else Items(line), line)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._keys.pop()
            value = self._stack.pop()
            self._put(value, value.line)
        elif isinstance(event, yaml.AliasEvent):
            raise self._fault(line, "aliases (*name) are not allowed here.", "Write the value out.")
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise self._fault(line, "a second document begins here.", "Keep one document a file.")

    def _check(self, event: yaml.events.NodeEvent, line: int) -> None:
        self._count += 1
        if self._count > MAX_VALUES:
            raise self._fault(line, f"there are more than {MAX_VALUES} values.", "Split the file.")
        if event.anchor is not None:
            raise self._fault(line, "anchors (&name) are not allowed here.", "Write the value out.")
        if event.tag is not None:  # type: ignore[attr-defined]
            raise self._fault(line, "tags (!name) are not allowed here.", "Write plain values only.")

    def _open(self, container: Table | Items, line: int) -> None:
        if self._stack and isinstance(self._stack[-1], Table) and self._keys[-1] is None:
            raise self._fault(line, "a key must be plain text.", "Quote it if it was meant as text.")
        if len(self._stack) >= MAX_DEPTH:
            raise self._fault(line, f"values are nested more than {MAX_DEPTH} deep.", "Flatten them.")
        self._stack.append(container)
        self._keys.append(None)

    def _key(self, key: str, line: int) -> None:
        table = self._stack[-1]
        assert isinstance(table, Table)
        if key in table.lines:
            raise self._fault(
                line, f"key {quoted(key)} is given twice (first in line {table.lines[key]}).", "Remove one of them."
            )
        table.lines[key] = line
        self._keys[-1] = key

    def _put(self, value: object, line: int) -> None:
        if not self._stack:
            self._root, self._root_line = value, line
            return
        top = self._stack[-1]
        if isinstance(top, Items):
            top.append(value)
            top.lines.append(line)
            return
        key = self._keys[-1]
        assert key is not None  # the parser gives a key before every value, and `_open` refuses keys that are not text
        top[key] = value
        self._keys[-1] = None

    def _fault(self, line: int, sentence: str, remedy: str) -> RulesError:
        return fault(self._name, line, sentence, remedy)


def _plain(text: str) -> str | int | float | bool | None:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] in _NUMBER_STARTS:
        if len(text) <= 20 and _INT.fullmatch(text):
            return int(text)
        if len(text) <= 32 and _FLOAT.fullmatch(text):
            return float(text)
    return text
