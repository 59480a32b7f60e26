"""A command folded so that it can be pasted: each line but the last ends in a backslash."""

from __future__ import annotations

import re

# A word of a shell: runs of plain characters, escaped ones and quoted strings.
_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")
_INDENT = 2


def command_lines(command: str, width: int) -> list[str]:
    """The lines of a command. No word is broken: one that is longer than `width` has a line of its own."""
    lines: list[str] = []
    for word in _WORD.findall(command):
        room = width - 2 - (_INDENT if len(lines) > 1 else 0)  # a blank and the backslash
        if lines and len(lines[-1]) + 1 + len(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    last = len(lines) - 1
    return [" " * (_INDENT if n else 0) + line + (" \\" if n < last else "") for n, line in enumerate(lines)]
