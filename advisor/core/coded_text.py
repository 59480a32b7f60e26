"""A text for people with the code that programs read: the one form of notes, blockers, reasons and evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Scalar = str | int | float | bool | None
# Of statements of a version that told no codes.
UNSPECIFIED = "unspecified"


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


def coded(code: str, template: str, /, **fields: Scalar) -> CodedText:
    """A statement whose text is `template` (`str.format`) filled with `fields`."""
    return CodedText(code, template.format(**fields), fields)


def distinct(statements: Iterable[CodedText]) -> tuple[CodedText, ...]:
    """Each statement once, by their texts: the same in whatever order they came."""
    ordered = sorted(statements, key=lambda one: (one.text, one.code, str(sorted(one.fields.items()))))
    return tuple(dict.fromkeys(ordered))


def all_of(statements: Sequence[CodedText]) -> CodedText:
    """Several statements as one: the only one as it is, of more the codes in `fields`, parted by spaces."""
    if len(statements) == 1:
        return statements[0]
    codes = " ".join(one.code for one in statements)
    return CodedText("several-reasons", "; ".join(one.text for one in statements), {"codes": codes})
