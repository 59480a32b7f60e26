"""Every text that a user can see, with the file and line it is written on.

Of Python all literals but docstrings, types and what is code of another language; of Markdown the prose, without code;
of YAML and JSON the values of the keys that hold prose; of templates what stands between tags; of golden files all.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]

# What is written for machines: SQL, PromQL, patterns, unit files, HTML made in code.
_CODE = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|WHERE|JOIN)\b|\bsum by\b|\(\?[:P=!<]|</?[a-z]+[ >]"
    r"|^\s*[{}\[\]<>|*+.^$\\/-]+\s*$"
)
_PROSE_KEYS = frozenset(
    ("text", "texts", "why", "reason", "reasons", "note", "notes", "description", "title", "what", "summary", "remedy",
     "would_change_if", "sentence", "statement", "evidence", "message", "help", "says", "says_of", "explanation")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shown:
    """`text` as a user sees it, ``{}`` where a value stands; `line` from 1; `sentences`: whether it is made of them."""

    path: Path
    line: int
    text: str
    sentences: bool = True


def sources(root: Path = ROOT) -> list[Path]:
    """The files that hold texts for users."""
    found = [root / name for name in ("__main__.py", "__init__.py", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    for folder in ("agent", "advisor", "tui", "rules"):
        found += sorted((root / folder).rglob("*.py"))
    for folder in ("rules", "advisor/render", "deploy", "systemd"):
        found += [
            p
            for p in sorted((root / folder).rglob("*"))
            if p.suffix in (".yaml", ".json", ".html", ".jinja", ".j2", ".txt", ".service", ".timer")
            and p.name != "wording.yaml"
        ]
    found += sorted((root / "docs").rglob("*.md"))
    found += [p for p in sorted((root / "tests" / "golden").rglob("*")) if p.is_file()]
    # The lists of words by which secrets are found are no sentences.
    return [p for p in found if not {"__pycache__", "redaction"} & set(p.parts) and p.is_file()]


def shown(path: Path) -> Iterator[Shown]:
    """The texts of one file."""
    text = path.read_text("utf-8", errors="replace")
    if "golden" in path.parts:
        yield from _golden(path, text)
    elif path.suffix == ".py":
        yield from _python(path, text)
    elif path.suffix == ".md":
        yield from _markdown(path, text)
    elif path.suffix == ".yaml":
        yield from _yaml(path, text)
    elif path.suffix == ".json":
        for one in _values(json.loads(text)):
            yield Shown(path, _line_of(text, one), one)
    elif path.suffix in (".service", ".timer"):
        for number, one in enumerate(text.splitlines(), 1):
            if one.startswith("Description="):
                yield Shown(path, number, one.partition("=")[2])
    else:
        yield from _template(path, text)


def _python(path: Path, source: str) -> Iterator[Shown]:
    tree = ast.parse(source)
    silent: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as doc):
                silent.add(id(doc))
            case ast.Subscript(slice=inner):
                silent.update(id(one) for one in ast.walk(inner) if isinstance(one, ast.Constant))
            case ast.JoinedStr(values=parts):
                silent.update(id(one) for one in parts)
                silent.update(
                    id(one.format_spec)
                    for one in parts
                    if isinstance(one, ast.FormattedValue) and one.format_spec is not None
                )
            case ast.Call(func=ast.Attribute(attr="compile" | "fullmatch" | "match" | "search" | "sub" | "execute")):
                silent.update(id(one) for one in node.args)
            case ast.Call(func=ast.Attribute(value=ast.Constant() as listed, attr="split")):
                silent.add(id(listed))
            case ast.Call(func=ast.Name(id="coded" | "CodedText"), args=[code, *_]):
                silent.add(id(code))
            case _:
                pass
    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(
                one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) else "{}"
                for one in node.values
            )
        else:
            continue
        text = re.sub(r"\{[^{}]*\}", "{}", text)
        if " " in text.strip() and re.search(r"[A-Za-z]{2}", text) and not _CODE.search(text):
            yield Shown(path, node.lineno, text)


def _markdown(path: Path, source: str) -> Iterator[Shown]:
    """Paragraph by paragraph, so that a sentence over several lines is one."""
    paragraph: list[str] = []
    begin, fenced = 1, False
    for number, line in enumerate([*source.splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if fenced:
            continue
        ends = not line.strip() or re.match(r"\s*([-*#|>]|\d+\.)", line)
        if ends and paragraph:
            yield Shown(path, begin, _prose(" ".join(paragraph)), sentences=False)
            paragraph = []
        if line.strip():
            begin = begin if paragraph else number
            paragraph.append(line.strip())
    if paragraph:
        yield Shown(path, begin, _prose(" ".join(paragraph)), sentences=False)


def _prose(text: str) -> str:
    without_code = re.sub(r"\{[^{}]*\}", "{}", re.sub(r"`[^`]*`", "{}", text))
    return re.sub(r"\]\([^)]*\)", "]", without_code)


def _yaml(path: Path, source: str) -> Iterator[Shown]:
    try:
        documents = list(yaml.safe_load_all(source))
    except yaml.YAMLError:  # a template
        return
    for one in _values(documents):
        yield Shown(path, _line_of(source, one), re.sub(r"\{[^{}]*\}", "{}", one))


def _values(value: object, prose: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _values(one, str(key) in _PROSE_KEYS)
    elif isinstance(value, list):
        for one in value:
            yield from _values(one, prose)
    elif prose and isinstance(value, str) and " " in value:
        yield value


def _line_of(source: str, text: str) -> int:
    """Where it begins, as near as its first words tell."""
    at = source.find(text[:30])
    return source.count("\n", 0, at) + 1 if at >= 0 else 1


def _template(path: Path, source: str) -> Iterator[Shown]:
    bare = re.sub(r"<(style|script)\b.*?</\1>", lambda m: "\n" * m[0].count("\n"), source, flags=re.DOTALL)
    bare = re.sub(r"\{[%#].*?[%#]\}|<[^>]*>", lambda m: "\n" * m[0].count("\n") + " ", bare, flags=re.DOTALL)
    for number, line in enumerate(bare.splitlines(), 1):
        text = re.sub(r"\{\{.*?\}\}", "{}", line).strip()
        if " " in text:
            yield Shown(path, number, text, sentences=path.suffix != ".txt")


def _golden(path: Path, source: str) -> Iterator[Shown]:
    """Lines as they are: a sentence may go on over several, which the texts it is made of are checked for."""
    # A name that a table cuts off, and what ends a cell or a paragraph.
    bare = re.sub(r"\S+│", " ", source)
    if path.suffix in (".html", ".svg"):
        bare = re.sub(r"<(style|script)\b.*?</\1>", "", bare, flags=re.DOTALL)
        bare = re.sub(r"</?(?:td|th|tr|p|div|h\d|li|ul|table|text|tspan)\b[^>]*>|<br[^>]*>", "\n", bare)
        bare = re.sub(r"<[^>]*>", " ", bare).replace("&#160;", " ")
    if path.suffix == ".json":
        for one in _values(json.loads(source)):
            yield Shown(path, _line_of(source, one), one)
        return
    for number, line in enumerate(bare.splitlines(), 1):
        if line.strip():
            yield Shown(path, number, line.strip(), sentences=path.suffix == ".html")
