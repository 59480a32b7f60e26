"""Environments given on a command line: names stay, values go, whatever they are called.

`--env`, `-e`, `--setenv`, Slurm's `--export` and the program `env` pass whole environments, and an environment is read
by allow-list only: no name in it says that its value is harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MASK = "***"
_ONE_VALUE = frozenset({"-e", "--env", "--environment", "--env-vars", "--export", "--build-arg"})
_NAME_THEN_VALUE = frozenset({"--setenv"})
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w{0,127})=.*", re.DOTALL)
_SHELLS = frozenset({"env", "printenv"})


def without_environments(argv: Sequence[str]) -> Iterator[str]:
    """`argv` with the values of every environment in it masked. Words are otherwise untouched."""
    option = ""  # the option whose value comes next
    names_left = 0  # words of NAME VALUE that still belong to --setenv
    leading = bool(argv) and argv[0].rpartition("/")[2] in _SHELLS  # env's own NAME=VALUE words
    for number, word in enumerate(argv):
        name, equals, _ = word.partition("=")
        if names_left:
            yield word if names_left == 2 else MASK
            names_left -= 1
        elif option:
            yield _masked(word)
            option = ""
        elif word in _ONE_VALUE:
            yield word
            option = word
        elif word in _NAME_THEN_VALUE:
            yield word
            names_left = 2
        elif equals and name in _ONE_VALUE | _NAME_THEN_VALUE:
            yield f"{name}={_masked(word[len(name) + 1 :])}"
        elif leading and _ASSIGNMENT.fullmatch(word):
            yield _masked(word)
        else:
            leading = leading and (number == 0 or word.startswith("-"))
            yield word


def _masked(value: str) -> str:
    """``NAME=***`` where the value is one assignment, ``NAME`` where it is only a name, else nothing of it."""
    assigned = _ASSIGNMENT.fullmatch(value)
    if assigned is not None and "," not in value:
        return f"{assigned[1]}={MASK}"
    return value if re.fullmatch(r"[A-Za-z_]\w{0,127}", value) else MASK
