"""Kubernetes manifests read and patches written, so that kubectl takes a value for what it is here.

kubectl reads YAML 1.1 with differences (``1e3`` is a number for it, text for PyYAML), so every text that is not plainly
a word is quoted on the way out. On the way in dates stay text.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean, quoted

_DEPTH_MAX = 100
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*[A-Za-z0-9]")
# Words that some reader of YAML takes for a truth value or nothing. 0x, 1e3 and the like begin with a digit.
_NOT_WORDS = frozenset({"yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
# Numbers as kubectl reads them: those of PyYAML without the ones of base 60 (10:30 is text), and 0o17.
_WHOLE = re.compile(r"^[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[oO]?[0-7_]+|0|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_INT, _REAL, _DATE = (f"tag:yaml.org,2002:{one}" for one in ("int", "float", "timestamp"))

Document = dict[str, Any]


class _Reader(yaml.SafeLoader):
    """Mappings with text keys, each given once; numbers as kubectl reads them; dates stay text."""


class _Writer(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)


_Reader.yaml_implicit_resolvers = {
    first: [(tag, _WHOLE if tag == _INT else form) for tag, form in known if tag not in (_DATE, _REAL)]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Reader.add_implicit_resolver(_REAL, _FLOAT, list("-+0123456789."))


def _mapping(loader: _Reader, node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key: Hashable = loader.construct_object(key_node, deep=True)  # type: ignore[no-untyped-call]
        line = key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise UsageError(f"The key in line {line} is not text.", "Quote it.")
        if key in found:
            raise UsageError(f"The key {quoted(key)} is repeated in line {line}.", "Remove one of the two.")
        found[key] = loader.construct_object(value_node, deep=True)  # type: ignore[no-untyped-call]
    return found


def _whole_text(loader: _Reader, node: yaml.ScalarNode) -> str:
    """JSON writes a character beyond U+FFFF as a pair, which PyYAML leaves apart. Raises ValueError for half of one."""
    text = str(loader.construct_scalar(node))
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16")


_Reader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Reader.add_constructor("tag:yaml.org,2002:str", _whole_text)


def _text(dumper: _Writer, text: str) -> yaml.ScalarNode:
    plain = _WORD.fullmatch(text) and text.lower() not in _NOT_WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Writer.add_representer(str, _text)


def read_values(raw: bytes, name: str) -> list[Any]:
    """The documents of a YAML file, of whatever kind. Raises UsageError."""
    try:
        text = raw.decode("utf-8")
        _check_shape(text, name)
        return [one for one in yaml.load_all(text, Loader=_Reader) if one is not None]
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{clean(name)} is not UTF-8 text.", "Export the manifest with 'kubectl get -o yaml'."
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        where = getattr(getattr(error, "problem_mark", None), "line", None)
        line = f", line {where + 1}" if where is not None else ""
        raise UsageError(
            f"{clean(name)} is not valid YAML{line}.", "Export the manifest with 'kubectl get -o yaml'."
        ) from error


def read_documents(raw: bytes, name: str) -> list[Document]:
    """The objects of a manifest; a ``List`` counts as its items. Raises UsageError for what kubectl would not print."""
    found = read_values(raw, name)
    documents: list[Document] = []
    for one in found:
        own = one.get("items") if isinstance(one, dict) and one.get("kind") == "List" else [one]
        documents += own if isinstance(own, list) else []
    for one in documents:
        named = isinstance(one, dict) and isinstance(one.get("metadata"), dict)
        if not named or not all(isinstance(v, str) and v for v in (one.get("apiVersion"), one.get("kind"))):
            raise UsageError(
                f"{clean(name)} has a document without apiVersion, kind or metadata.",
                "Export the manifest with 'kubectl get -o yaml'.",
            )
    return documents


def _check_shape(text: str, name: str) -> None:
    """Aliases and deep nesting are refused before anything is built of them."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise UsageError(
                f"{clean(name)} uses YAML anchors.", "Export the manifest with 'kubectl get -o yaml', which has none."
            )
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEPTH_MAX:
            raise UsageError(f"{clean(name)} is nested more than {_DEPTH_MAX} deep.", "Name a Kubernetes manifest.")


def write_document(value: Document) -> str:
    """One document, in ASCII."""
    return yaml.dump(
        value, Dumper=_Writer, sort_keys=False, default_flow_style=False, allow_unicode=False, width=10_000
    )
