"""A text for people with the code that programs read: the one form of notes, blockers, reasons and evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class CodedText:
    """One statement of the advice. Programs decide by `code` and `fields`, never by `text`, which may be reworded.

    `code`: lower-case words joined by hyphens, one for each kind of statement. `fields`: the values that the text
    names, in base units, unformatted. `text`: the sentence that people read.
    """

    code: str
    text: str
    fields: Mapping[str, Scalar] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text


def coded(code: str, template: str, /, **fields: Scalar) -> CodedText:
    """A statement whose text is `template` (`str.format`) filled with `fields`."""
    return CodedText(code, template.format(**fields), fields)
