"""A command folded so that it can be pasted: each line but the last ends in a backslash."""

from __future__ import annotations

import re

# A word of a shell: runs of plain characters, escaped ones and quoted strings.
_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")
_INDENT = 2


def command_lines(command: str, width: int) -> list[str]:
    """The lines of a command. No word is broken: one that is longer than `width` has a line of its own."""
    lines: list[str] = []
    for part in _parts(command, width - _INDENT - 2):
        room = width - 2 - (_INDENT if len(lines) > 1 else 0)  # a blank and the backslash
        if lines and len(lines[-1]) + 1 + len(part) <= room:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    last = len(lines) - 1
    return [" " * (_INDENT if n else 0) + line + (" \\" if n < last else "") for n, line in enumerate(lines)]


def _parts(command: str, room: int) -> list[str]:
    """The words of a command, an option with its value together where they fit."""
    parts: list[str] = []
    for word in _WORD.findall(command):
        last = parts[-1] if parts else ""
        if last.startswith("--") and " " not in last and not word.startswith("-") and len(last) + len(word) < room:
            parts[-1] = f"{last} {word}"
        else:
            parts.append(word)
    return parts
