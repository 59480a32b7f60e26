"""A text for people with the code that programs read: notes, blockers, reasons and evidence."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter

Scalar = str | int | float | bool | None
UNSPECIFIED = "unspecified"  # the code of statements that an early version stored without one
_TWO_STOPS = re.compile(r"(?<!\.)\.\.(?=\s|$)")


@dataclass(frozen=True, slots=True)
class CodedText:
    """One statement of the advice. Programs use `code` and `fields`; the wording of `text` may change.

    `fields`: the values in the text, in base units, unformatted. Statements with the same code and text are equal.
    """

    code: str
    text: str
    fields: Mapping[str, Scalar] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return self.text


class _SentenceFormatter(Formatter):
    """`str.format` that writes percentages as ``16 %``."""

    def format_field(self, value: object, format_spec: str) -> str:
        text = str(super().format_field(value, format_spec))
        return f"{text[:-1]} %" if format_spec.endswith("%") else text


def coded(code: str, template: str, /, **fields: Scalar) -> CodedText:
    """A statement from a `str.format` template and its `fields`. A value that ends with a full stop adds no second."""
    text = _SentenceFormatter().vformat(template, (), fields)
    return CodedText(code, _TWO_STOPS.sub(".", text), fields)


def all_of(statements: Sequence[CodedText]) -> CodedText:
    """Several statements as one text, with their codes in `fields`; a single statement unchanged."""
    if len(statements) == 1:
        return statements[0]
    first, *rest = (statement.text for statement in statements)
    *sentences, last = (first, *map(_capitalized, rest))
    text = ". ".join([*(sentence.rstrip(".") for sentence in sentences), last])
    return CodedText("several-reasons", text, {"codes": " ".join(statement.code for statement in statements)})


def _capitalized(text: str) -> str:
    """`text` as the beginning of a sentence; a name at its start keeps its spelling."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text
