"""A text for people with the code that programs read: the one form of notes, blockers, reasons and evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter

Scalar = str | int | float | bool | None
# Of statements of a version that told no codes.
UNSPECIFIED = "unspecified"
_TWO_STOPS = re.compile(r"(?<!\.)\.\.(?=\s|$)")


@dataclass(frozen=True, slots=True)
class CodedText:
    """One statement of the advice. Programs decide by `code` and `fields`, never by `text`, which may be reworded.

    `code`: lower-case words joined by hyphens, one for each kind of statement. `fields`: the values that the text
    names, in base units, unformatted. `text`: the sentence that people read. Two statements that read the same are one.
    """

    code: str
    text: str
    fields: Mapping[str, Scalar] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return self.text


class _SentenceFormatter(Formatter):
    """`str.format` with percentages as the rest of the output has them, as in ``16 %``."""

    def format_field(self, value: object, format_spec: str) -> str:
        text = str(super().format_field(value, format_spec))
        return f"{text[:-1]} %" if format_spec.endswith("%") else text


def coded(code: str, template: str, /, **fields: Scalar) -> CodedText:
    """A statement whose text is `template` (as for `str.format`) filled with `fields`.

    Percentages read ``16 %``. A value that is a sentence leaves one full stop, not two.
    """
    text = _SentenceFormatter().vformat(template, (), fields)
    return CodedText(code, _TWO_STOPS.sub(".", text), fields)


def all_of(statements: Sequence[CodedText]) -> CodedText:
    """Several statements as one text of several sentences: the only one as it is, of more the codes in `fields`,
    separated by spaces."""
    if len(statements) == 1:
        return statements[0]
    codes = " ".join(statement.code for statement in statements)
    return CodedText(
        "several-reasons",
        ". ".join(
            [
                statements[0].text.rstrip("."),
                *(_begun(one.text.rstrip(".")) for one in statements[1:-1]),
                _begun(statements[-1].text),
            ]
        ),
        {"codes": codes},
    )


def _begun(text: str) -> str:
    """`text` as the beginning of a sentence; a name at its start keeps its spelling."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text
