"""The texts of a page, or of any value made of dataclasses, as they are when all its parts are filled in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

from skuwise.advisor.core.coded_text import CodedText

from .terms import Complaint, complaints, load_wording
from .texts import ROOT, Shown

# Names of programs, pods and people, and commands to paste, are not our words.
_NOT_OURS = frozenset(
    ("name", "names", "command", "owner", "nodes", "node", "gpus", "fields", "code", "png", "id", "sources")
)


def texts_of(value: object) -> Iterator[str]:
    """Every text of two words and more within `value`, but names and commands."""
    if isinstance(value, CodedText):
        yield value.text
    elif isinstance(value, str) and not isinstance(value, Enum):
        if value.count(" ") >= 1:
            yield value
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            if field.name not in _NOT_OURS:
                yield from texts_of(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if key not in _NOT_OURS:
                yield from texts_of(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from texts_of(one)


def wrong_in(*values: object) -> list[Complaint]:
    """What rules/wording.yaml has against the texts of `values`, each text once."""
    texts = dict.fromkeys(text for value in values for text in texts_of(value))
    assert texts, "a page without a text"
    return list(complaints((Shown(ROOT / "page", 1, text) for text in texts), load_wording()))
