"""Every statement that the advisor can make, by its code, read from the code that makes it: docs/statements.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.verdicts.kinds.course_shapes import COURSE_SHAPES
from skuwise.advisor.verdicts.kinds.work_shapes import WORK_SHAPES
from skuwise.rules.policy.thresholds import load_waste_rules

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "statements.md"
HEAD = "| code | text | made in |\n|---|---|---|\n"
_MAKERS = ("coded", "CodedText")


@dataclass(frozen=True, slots=True, order=True)
class Statement:
    """`code`: with ``{gaps}`` where it is one of a family; `text`: a template; `place`: the file that makes it."""

    code: str
    text: str
    place: str


def statements(root: Path = ROOT / "advisor") -> tuple[Statement, ...]:
    """Every statement that the advisor can make, by code."""
    found = [one for path in sorted(root.rglob("*.py")) for one in _of_file(path)]
    own = [one for one in found if one.code not in ("shape-{self.name}", "{rule_code}-wrong-if-{n}")]
    for shapes, place in ((WORK_SHAPES, "work_shapes"), (COURSE_SHAPES, "course_shapes")):
        file = f"advisor/verdicts/kinds/{place}.py"
        own += [Statement(f"shape-{shape.name}", shape.sentence, file) for shape in shapes]
    own += [
        Statement(f"{rule.id}-wrong-if-{n}", text, "rules/waste")
        for rule in load_waste_rules().values()
        for n, text in enumerate(rule.would_change_if, 1)
    ]
    return tuple(sorted(own))


def pattern(template: str) -> re.Pattern[str]:
    """What fits a template, whatever stands in its gaps."""
    return re.compile(".*".join(re.escape(part) for part in re.split(r"\{[^{}]*\}", template)), re.DOTALL)


def said_in(value: object) -> Iterator[CodedText]:
    """Every statement within advice, or a part of it."""
    if isinstance(value, CodedText):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from said_in(getattr(value, field.name))
    elif isinstance(value, tuple):
        for one in value:
            yield from said_in(one)


def table() -> str:
    rows = (
        f"| `{one.code}` | {' '.join(one.text.split()).replace('|', chr(92) + '|')} | `{one.place}` |"
        for one in statements()
    )
    return HEAD + "\n".join(rows) + "\n"


def _of_file(path: Path) -> Iterator[Statement]:
    tree = ast.parse(path.read_text("utf-8"))
    place = path.relative_to(ROOT).as_posix()
    constants = _assigned(tree.body)
    for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]:
        known = {**constants, **(_assigned(list(ast.walk(scope))) if scope is not tree else {})}
        body = ast.walk(scope) if scope is not tree else _outside_functions(tree)
        for node in body:
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) >= 2):
                continue
            if node.func.id not in _MAKERS:
                continue
            code = _text(node.args[0], known)
            if code is not None:
                yield Statement(code, _text(node.args[1], known) or "{text}", place)


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from ast.walk(node)


def _assigned(nodes: list[ast.stmt] | list[ast.AST]) -> dict[str, list[ast.expr]]:
    """What each name is set to, in the order of the lines."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name):
                found.setdefault(target.id, []).append(node.value)
    return {name: sorted(values, key=lambda value: value.lineno) for name, values in found.items()}


def _text(node: ast.expr, known: dict[str, list[ast.expr]]) -> str | None:
    """A literal, an f-string with its gaps as they are written, or the one that a name stands for; None: neither."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (
            str(part.value) if isinstance(part, ast.Constant)
            else "{" + (ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else "") + "}"
            for part in node.values
        )  # fmt: skip
        return "".join(parts)
    if isinstance(node, ast.IfExp):
        return _text(node.body, known)
    if isinstance(node, ast.Name) and node.id in known:
        before = [value for value in known[node.id] if value.lineno <= node.lineno]
        return _text(before[-1], {}) if before else None
    return None
