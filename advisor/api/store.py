"""JSON documents of commands in SQLite, cut at their top-level lists, so that a page is read without the rest."""

import mmap
import re
import secrets
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import quoted
from ..core.ids import PREFIX_MIN, Named, matching
from ..core.timestamps import rfc3339

Json = dict[str, Any]
_About = dict[str, tuple[Sequence[str], Sequence[str]]]

ITEMS_MAX = 200
PAGE_BYTES = 100_000
# Of a page, for what is beside its items.
_ENVELOPE_BYTES = 2_000
_CANDIDATES = 500  # read for a name that many items share
_MAP_KEYS = 64  # an object with more keys than any record has is a map, which may be cut
_PART_CHARACTERS = 40  # of a text, which are cut as an item of a list is
_ENVELOPE = ("schema", "generated_at", "window")
_SCHEMA = """
CREATE TABLE head (name TEXT, json BLOB);
CREATE TABLE items (section TEXT, position INTEGER, json BLOB, PRIMARY KEY (section, position));
CREATE TABLE keys (section TEXT, position INTEGER, kind TEXT, value TEXT);
"""


class StaleCursor(UsageError):  # noqa: N818 - nothing failed
    """The page to go on from is one of an older document."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A document in SQLite. `version`: a word that no other document has. `made_at`: Unix seconds, when its telemetry
    began to be read. `page_bytes`: of a page or of a single answer, as JSON."""

    db: sqlite3.Connection  # of a file without a name, which all threads read
    made_at: float
    page_bytes: int = PAGE_BYTES
    version: str = field(default_factory=lambda: secrets.token_hex(4))

    def head(self) -> Json:
        """The document without its lists; `sections` has the number of items of each."""
        parts = dict(self.db.execute("SELECT name, json FROM head"))
        counts = dict(self.db.execute("SELECT section, count(*) FROM items GROUP BY section"))
        head = {name: msgspec.json.decode(part) for name, part in parts.items() if part is not None}
        return head | {"sections": {name: counts.get(name, 0) for name, part in parts.items() if part is None}}

    def page(self, section: str, after: str = "", limit: int = 50, **keys: str | None) -> Json:
        """Items of a section behind the cursor `after` (empty: the first) that have all `keys`, under the section's
        name. `page` has their `total`, the cursor of the `next` page (None: there is none) and what was cut out of an
        item that fills a page. Raises UsageError, StaleCursor."""
        if not 1 <= limit <= ITEMS_MAX:
            raise UsageError(f"Invalid limit {limit}.", f"Use 1 to {ITEMS_MAX}.")
        where, values = "section = ?", [section]
        for kind, value in keys.items():
            if value is not None:
                where += " AND position IN (SELECT position FROM keys WHERE kind = ? AND value = ? AND section = ?)"
                values += [kind, value, section]
        parts = dict(self.db.execute("SELECT name, json FROM head"))
        if parts.get(section, b"") is not None:
            names = ", ".join(name for name, part in parts.items() if part is None)
            raise UsageError(f"Unknown section {quoted(section)}.", f"Use one of: {names}.")
        (total,) = self.db.execute(f"SELECT count(*) FROM items WHERE {where}", values).fetchone()  # noqa: S608
        sql = f"SELECT position, json FROM items WHERE {where} AND position > ? ORDER BY position LIMIT ?"  # noqa: S608
        items, cut, last, size, is_more = list[Json](), list[Json](), 0, 0, False
        for position, text in self.db.execute(sql, [*values, self._position(after), limit + 1]):
            size += len(text) + 1
            is_more = len(items) == limit or bool(items and size > self.page_bytes - _ENVELOPE_BYTES)
            if is_more:
                break
            items.append(msgspec.json.decode(text))
            cut, last = self.shorten(items[-1]), position
        page = {"total": total, "next": f"{self.version}.{last}" if is_more else None, "shortened": cut}
        head = {name: msgspec.json.decode(parts[name]) for name in _ENVELOPE if name in parts}
        head.setdefault("generated_at", rfc3339(self.made_at))
        return {**head, section: items, "page": page}

    def shorten(self, value: Json) -> list[Json]:
        """Halve the longest lists, maps and texts in an object until it fits a page. Returns for each the `id` of the
        object, the `field` and how many items (of a text: characters) were `left_out`."""
        left_out: dict[str, int] = {}
        while len(msgspec.json.encode(value)) > self.page_bytes - _ENVELOPE_BYTES:
            length, place, holder, key = max(_long_parts(value, ""), key=lambda part: part[0])
            if not length:
                break
            part = holder[key]
            kept = len(part) // 2
            left_out[place] = left_out.get(place, 0) + len(part) - kept
            holder[key] = dict(list(part.items())[:kept]) if isinstance(part, dict) else part[:kept]
        return [{"id": value.get("id"), "field": field, "left_out": count} for field, count in left_out.items()]

    def related(self, section: str, kind: str, values: Sequence[str]) -> list[Json]:
        """The first items of a section that have one of `values` as their key of a kind."""
        marks = ", ".join("?" * len(values))
        sql = f"SELECT DISTINCT section, position FROM keys WHERE section = ? AND kind = ? AND value IN ({marks})"  # noqa: S608
        return [item for _, item in self._selected(sql, [section, kind, *values])]

    def find(self, asked: str, *sections: str) -> list[tuple[str, Json]]:
        """The items that `asked` names, in the ways in which it names something to a command, with their sections."""
        word = asked.strip()
        name = word.rpartition("@")[0]
        # A number is a job's, and the beginning of no id.
        prefix = word if len(word) >= PREFIX_MIN and not word.isdecimal() else ""
        sql = (
            f"SELECT DISTINCT section, position FROM keys WHERE section IN ({', '.join('?' * len(sections))})"  # noqa: S608
            " AND (kind IN ('id', 'job', 'name', 'node') AND value = ? OR kind = 'name' AND value = ?"
            " OR kind IN ('id', 'digits') AND value >= ? AND value < ?)"
        )
        selected = self._selected(sql, [*sections, word, name, prefix, f"{prefix}\U0010ffff" if prefix else ""])
        candidates = [(_named(section, item), (section, item)) for section, item in selected]
        matches = matching(word, [entry for entry, _ in candidates])
        return [subject for entry, subject in candidates if any(entry is match for match in matches)]

    def names(self) -> list[str]:
        """Some names of items, for suggestions."""
        sql = "SELECT DISTINCT value FROM keys WHERE kind = 'name' LIMIT ?"
        return [name for (name,) in self.db.execute(sql, [_CANDIDATES])]

    def _selected(self, places: str, values: Sequence[object]) -> list[tuple[str, Json]]:
        """The items at the places that an SQL statement selects, with their sections."""
        sql = f"SELECT section, json FROM items JOIN ({places}) USING (section, position) ORDER BY 1, position LIMIT ?"  # noqa: S608
        return [(section, msgspec.json.decode(text)) for section, text in self.db.execute(sql, [*values, _CANDIDATES])]

    def _position(self, cursor: str) -> int:
        version, _, position = cursor.rpartition(".")
        if not cursor:
            return 0
        if not re.fullmatch(r"[0-9]{1,9}", position):
            raise UsageError(f"Invalid cursor {quoted(cursor)}.", "Use 'next' of the page before.")
        if version != self.version:
            raise StaleCursor("The list has changed since that page.", "Begin again with the first page.")
        return int(position)


def store(document: Path, made_at: float, page_bytes: int = PAGE_BYTES) -> Stored:
    """Cut the JSON in `document` into SQLite."""
    with document.open("rb") as file, tempfile.NamedTemporaryFile(prefix="skuwise-answers-") as place:
        text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        # SQLite itself keeps threads apart (its default, "serialized"). The file has no name once it is open.
        db = sqlite3.connect(place.name, check_same_thread=False)
        db.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -500; {_SCHEMA}")
        about: _About = {}
        # The parts are views of the file, whose text and values are never in memory as a whole.
        for name, part in parts.items():
            if memoryview(part)[:1] != b"[":
                db.execute("INSERT INTO head VALUES (?, ?)", [name, bytes(part)])
                continue
            db.execute("INSERT INTO head VALUES (?, NULL)", [name])
            for position, text in enumerate(msgspec.json.decode(part, type=list[msgspec.Raw]), 1):
                item = msgspec.json.decode(text)
                db.execute("INSERT INTO items VALUES (?, ?, ?)", [name, position, msgspec.json.encode(item)])
                keys = ((name, position, kind, value) for kind, value in _keys(name, item, about))
                db.executemany("INSERT INTO keys VALUES (?, ?, ?, ?)", keys)
        db.execute("CREATE INDEX keys_by_value ON keys (kind, value, section, position)")
        db.commit()
    return Stored(db, made_at, page_bytes)


def _long_parts(value: Any, place: str) -> Iterator[tuple[float, str, Any, Any]]:  # noqa: ANN401
    """All that may be cut: its length in items of a list, its name, and where it is."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        name = f"{place}.{key}" if place and isinstance(value, dict) else place or str(key)
        if isinstance(part, str):
            yield len(part) / _PART_CHARACTERS, name, value, key
        elif isinstance(part, dict | list):
            if isinstance(part, list) or len(part) > _MAP_KEYS:
                yield float(len(part)), name, value, key
            yield from _long_parts(part, name)


def _keys(section: str, item: Any, about: _About) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """What an item can be found by. `about`: teams and nodes of the workloads and findings so far, by their ids; those
    of this item are added. An item without its own has those of its findings and its workload."""
    if not isinstance(item, dict):
        return
    named, owner, values = _named(section, item), item.get("owner"), {}
    for kind in ("workload", "rule", "action", "findings", "nodes", "node"):
        values[kind] = _texts(item.get(kind))
    parents = [about[id_] for id_ in (*values["findings"], *values["workload"]) if id_ in about]
    teams = _texts(owner.get("team")) if isinstance(owner, dict) else [team for teams, _ in parents for team in teams]
    nodes = (*values.pop("nodes"), *values["node"]) or [node for _, nodes in parents for node in nodes]
    if section in ("workloads", "findings"):
        about[named.id] = teams, nodes
    values |= {"id": (named.id,), "digits": (named.id.partition("-")[2],), "name": (named.name,)}
    values |= {"job": named.jobs, "team": teams, "node": nodes, "finding": values.pop("findings")}
    yield from ((kind, value) for kind, parts in values.items() for value in dict.fromkeys(parts) if value)


def _named(section: str, item: Json) -> Named:
    """An item of advice, of cards or of answers about idleness, as something that can be named."""
    scheduled = item["scheduler"] if isinstance(item.get("scheduler"), dict) else item
    array, task = scheduled.get("array_job_id"), scheduled.get("array_task_id")
    pod, namespace = item.get("pod"), item.get("namespace")
    names = [scheduled.get("job_id"), pod, f"{array}_{task}" if array and task else None]
    names.append(f"{namespace}/{pod}" if namespace and pod else None)
    # A node names its workloads, and the findings on the node itself.
    nodes = () if item.get("workload") else _texts(item.get("nodes")) or _texts(item.get("node"))
    what, id_, name = ("".join(_texts(item.get(key))) for key in ("kind", "id", "name"))
    return Named(id_, what or section, name, nodes, (*_texts(item.get("jobs")), *_texts(names)))


def _texts(value: object) -> tuple[str, ...]:
    """The texts in a list, or the only one."""
    return tuple(part for part in (value if isinstance(value, list) else [value]) if isinstance(part, str))
