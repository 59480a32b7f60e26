"""Environments given on a command line: names stay, values go, whatever they are called.

`--env`, `-e`, `--setenv`, Slurm's `--export` and the program `env` pass whole environments, and an environment is read
by allow-list only: no name in it says that its value is harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MASK = "***"
_ONE_VALUE = frozenset({"-e", "--env", "--environment", "--env-vars", "--export", "--build-arg", "--from-literal"})
_NAME_THEN_VALUE = frozenset({"--setenv", "-genv", "-env"})
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w{0,127})=.*", re.DOTALL)
# Programs and words of a shell behind which assignments stand before a command.
_LEADERS = frozenset({"env", "printenv", "sudo", "export", "do", "then", "exec"})
_SHORT_OPTION = re.compile(r"-[A-Za-z]")
# mpirun's -x takes NAME or NAME=VALUE; of other programs it is a switch.
_ASSIGNMENT_OPTION = "-x"


def ends_command(word: str) -> bool:
    """Whether a shell begins another command after this word."""
    return word in ("&&", "||", "|", "&") or word.endswith(";")


def without_environments(argv: Sequence[str]) -> Iterator[str]:
    """`argv` with the values of every environment in it masked. Words are otherwise untouched."""
    option = ""  # the option whose value comes next
    names_left = 0  # words of NAME VALUE that still belong to --setenv
    leading = True  # before the command itself: NAME=VALUE words are its environment
    previous = ""
    for word in argv:
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
        elif (leading or previous == _ASSIGNMENT_OPTION) and (assigned := _ASSIGNMENT.fullmatch(word)):
            yield f"{assigned[1]}={MASK}"
        else:
            is_option = word.startswith("-") or _SHORT_OPTION.fullmatch(previous) is not None
            leading = word.rpartition("/")[2] in _LEADERS or (leading and is_option)
            yield word
        leading = leading or ends_command(word)
        previous = word


def _masked(value: str) -> str:
    """``NAME=***`` where the value is one assignment, ``NAME`` where it is only a name, else nothing of it."""
    assigned = _ASSIGNMENT.fullmatch(value)
    if assigned is not None and "," not in value:
        return f"{assigned[1]}={MASK}"
    return value if re.fullmatch(r"[A-Za-z_]\w{0,127}", value) else MASK
