"""Kubernetes manifests read and patches written, so that kubectl takes every value for what it was.

kubectl reads YAML 1.1 with differences (``1e3`` is a number for it, text for PyYAML; ``10:30`` the other way round), so
what stands plain in a manifest and is no whole number, truth value or null is kept as written, and every other text
that is not plainly a word is quoted on the way out.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from .change import GivenFile

Document = dict[str, Any]

_EXPORT = "Export the manifest with 'kubectl get -o yaml'."
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*[A-Za-z0-9]")
# Words that some reader of YAML takes for a truth value or nothing. 0x, 1e3 and the like begin with a digit.
_NOT_WORDS = frozenset({"yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
_PLAIN = {"true": True, "false": False, "null": None, "~": None, "": None}
_TEXT = "tag:yaml.org,2002:str"


class _AsWritten(str):
    """A plain scalar whose meaning is left to kubectl."""

    __slots__ = ()


class _Reader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own form


class _Writer(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002
        return True


def _scalar(loader: _Reader, node: yaml.ScalarNode) -> Any:  # noqa: ANN401
    text = str(loader.construct_scalar(node))
    if node.style is not None:
        return text
    if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text):
        return int(text)
    return _PLAIN[text] if text in _PLAIN else text if _is_word(text) else _AsWritten(text)


def _is_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None and text.lower() not in _NOT_WORDS


def _text(dumper: _Writer, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(_TEXT, text, style=None if _is_word(text) else '"')


def _as_written(dumper: _Writer, text: _AsWritten) -> yaml.ScalarNode:
    return dumper.represent_scalar(dumper.resolve(yaml.ScalarNode, str(text), (True, False)), str(text))


_Reader.add_constructor(_TEXT, _scalar)
_Writer.add_representer(str, _text)
_Writer.add_representer(_AsWritten, _as_written)


def read_documents(given: GivenFile) -> list[Document]:
    """The objects of a manifest; a ``List`` counts as its items. Raises UsageError for what is no plain YAML."""
    text, name = given.text, clean(given.path.name)
    try:
        # Before anything is built of them: an alias of aliases grows without end.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise UsageError(f"{name} uses YAML aliases.", "Export it with 'kubectl get -o yaml', which has none.")
        found = [one for one in yaml.load_all(text, Loader=_Reader) if one is not None]
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        where = getattr(getattr(error, "problem_mark", None), "line", None)
        line = f", line {where + 1}" if where is not None else ""
        raise UsageError(f"{name} is not valid YAML{line}.", _EXPORT) from error
    documents: list[Any] = []
    for one in found:
        documents += one["items"] if isinstance(one, dict) and one.get("kind") == "List" else [one]
    return documents


def write_document(value: Document) -> str:
    """One document, in ASCII."""
    return yaml.dump(value, Dumper=_Writer, sort_keys=False, allow_unicode=False, width=10_000)
