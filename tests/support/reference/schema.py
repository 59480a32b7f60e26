"""docs/reference/schema.md: every field of the advice as JSON, from its schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from skuwise.advisor.render.json import load_schema

Node = Mapping[str, Any]
HEAD = """# JSON schema of the advice

Read the output of `skuwise advise --format json` with these fields. The schema name is `skuwise.advice/1`: fields are
added, never renamed or removed. The file is `advisor/render/schema/advice-1.schema.json`. This page is generated from
it; `make golden` writes it.

Base units are in the names (`_usd`, `_bytes`, `_hours`). Ratios are 0 to 1. Times are RFC 3339, UTC. `null` means not
available. Programs read `code` and its fields, never the text beside it.

"""


def page() -> str:
    """The page as it should be, for the schema of today."""
    schema = load_schema()
    parts = [HEAD, "## The document\n\n", _table(schema, schema)]
    for name, part in schema["$defs"].items():
        rows = _table(part, schema)
        about = part.get("description")
        parts += [f"\n## {name}\n\n", f"{about}\n\n" if about else "", rows or f"{_kind(part)}\n"]
    return "".join(parts)


def _table(node: Node, schema: Node) -> str:
    rows = [f"| `{name}` | {_cell(kind)} | {_cell(about)} |" for name, kind, about in _fields(node, "")]
    return "\n".join(["| field | type | meaning |", "|---|---|---|", *rows, ""]) if rows else ""


def _fields(node: Node, path: str) -> Iterator[tuple[str, str, str]]:
    """Every field below `node`; a field that is not required has a question mark."""
    required = node.get("required", ())
    for name, one in node.get("properties", {}).items():
        spelled = f"{path}{name}" + ("" if name in required else "?")
        yield spelled, _kind(one), " ".join(str(one.get("description", "")).split())
        inner, suffix = one, "."
        while inner.get("type") == "array" and isinstance(inner.get("items"), Mapping):
            inner, suffix = inner["items"], "[]."
        yield from _fields(inner, f"{path}{name}{suffix}")


def _kind(node: Node) -> str:
    if "$ref" in node:
        name = str(node["$ref"]).rsplit("/", 1)[-1]
        return f"[{name}](#{name})" if str(node["$ref"]).startswith("#/$defs/") else f"as `{name}`"
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return " or ".join(f"`{'null' if one is None else one}`" for one in node["enum"])
    for union in ("anyOf", "oneOf"):
        if union in node:
            return " or ".join(dict.fromkeys(_kind(one) for one in node[union]))
    kind = node.get("type", "any")
    if kind == "array":
        return f"array of {_kind(node['items'])}" if isinstance(node.get("items"), Mapping) else "array"
    names = [kind] if isinstance(kind, str) else list(kind)
    return " or ".join(names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
