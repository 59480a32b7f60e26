"""Notes of an advice gathered by code and counted: one line for many of a kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..core.coded_text import UNSPECIFIED, CodedText

# What many notes of one code say together. `{count}`: how many.
_TOGETHER = {
    "work-is-over": "{count} workloads ended, or moved to other nodes, and did not recur: no savings there next month.",
    "signals-contradict": "No verdict on waste of {count} workloads: their signals contradict one another.",
    "idle-not-judged": "No verdict on idle GPUs of {count} nodes: utilization and activity contradict one another.",
    "silenced-by-exception": "{count} exceptions silence findings.",
}
_EXAMPLE_MAX = 160


@dataclass(frozen=True, slots=True)
class NoteGroup:
    """The notes of one code, in their order."""

    code: str
    notes: tuple[CodedText, ...]

    @property
    def text(self) -> str:
        """The note itself where it is the only one; else one sentence, or the first with the count of the others."""
        first, count = self.notes[0].text, len(self.notes)
        if count == 1:
            return first
        together = _TOGETHER.get(self.code)
        if together is not None:
            return together.format(count=count)
        example = first if len(first) <= _EXAMPLE_MAX else f"{first[: _EXAMPLE_MAX - 1].rstrip()}…"
        return f"{example} ({count - 1} more notes like this)"


def note_groups(notes: Iterable[CodedText]) -> tuple[NoteGroup, ...]:
    """The notes by code, in the order in which the codes first appear. Those without a code stay apart."""
    groups: dict[str, list[CodedText]] = {}
    for number, note in enumerate(notes):
        groups.setdefault(note.code if note.code != UNSPECIFIED else f"{number}", []).append(note)
    return tuple(NoteGroup(code, tuple(same)) for code, same in groups.items())
