"""List private words in docstrings and comments, and names that say nothing; exit status 1 where there are any.

The list holds phrases that a technical writer would not use, and names that do not say what the value is.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("agent", "advisor", "tui", "rules", "tests", "benchmarks", "docs", "deploy")
WORDS = re.compile(
    r"\b(tells?|told|nobody|anew|mend(?:s|ed|ing)?|whoever|reckon\w*|stands? (?:in|beside|there)|looked? at"
    r"|gives? back|held (?:against|back)|weighed?|nor|whose it is|course of|hence|thereby|for want of|comes? to"
    r"|of its own|lets? go|speaks? of|knows? (?:of|no|nothing)|ways? out|road|worth making|to be had)\b",
    re.IGNORECASE,
)
NAMES = frozenset({"told", "one", "own", "found", "mine", "known", "way", "ways"})
_SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def texts(source: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings and comments of a file, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, _SCOPES) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def bindings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Variables and arguments that a file binds, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def main() -> int:
    """Print each place as ``file:line: word``."""
    count = 0
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        source = path.read_text()
        tree = ast.parse(source)
        places = [(line, match[0]) for line, text in texts(source, tree) for match in WORDS.finditer(text)]
        places += [(line, f"name {name}") for line, name in bindings(tree) if name in NAMES]
        count += len(places)
        for line, what in sorted(places):
            print(f"{path.relative_to(ROOT)}:{line}: {what}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
