"""docs/reference/commands.md: every command with its options, from the parsers."""

from collections import Counter

from skuwise.__main__ import COMMANDS
from skuwise.tests.support.reference.parsers import Option, ParsedCommand, every_parser

HEAD = """# Commands

Look up a command and its options here, or run `skuwise COMMAND --help`. This page is generated from the parsers; `make
golden` writes it.

Data goes to stdout, progress and notes to stderr. Exit status: 0 done, 1 failed, 2 wrong usage, 3 nothing to work on.
`skuwise --version` prints the version. `--debug` prints a traceback with an error.

"""


SHARED_FROM = 2  # options of at least so many commands, with the same meaning, are described once


def page() -> str:
    """The page as it should be, for the commands of today."""
    commands = list(every_parser(COMMANDS))
    groups = {one.words[0] for one in commands if len(one.words) > 1}
    counted = Counter(_row(option) for one in commands for option in _options(one))
    shared = {row for row, count in counted.items() if count >= SHARED_FROM}
    table = "\n".join(["## Shared options", "", "| option | meaning |", "|---|---|", *sorted(shared), "", ""])
    return HEAD + table + "\n".join(_section(one, groups, shared) for one in commands)


def _section(command: ParsedCommand, groups: set[str], shared: set[str]) -> str:
    text = f"{command.text[:1].upper()}{command.text[1:].rstrip('.')}."
    lines = [f"## skuwise {' '.join(command.words)}", "", text, ""]
    if len(command.words) == 1 and command.words[0] in groups:
        return "\n".join([*lines[:-1], "Run it with one of its subcommands.", ""])
    options = _options(command)
    own = [row for row in map(_row, options) if row not in shared]
    common = [f"`{option.names[0]}`" for option in options if _row(option) in shared and option.names]
    if own:
        lines += ["| option | meaning |", "|---|---|", *own, ""]
    if common:
        lines += [f"Shared: {', '.join(common)}.", ""]
    return "\n".join(lines)


def _options(command: ParsedCommand) -> list[Option]:
    return [one for one in command.options if "--help" not in one.names]


def _row(option: Option) -> str:
    value = f" {option.value}" if option.value else ""
    spelled = ", ".join(option.names) + value if option.names else (option.value or "")
    notes = [] if not option.names or not option.required else ["required"]
    if option.choices and not (option.value and option.choices[0] in option.value):
        notes.append("one of: " + ", ".join(option.choices))
    if option.repeats and "repeat" not in option.help and "more than once" not in option.help:
        notes.append("repeatable")
    text = "; ".join([option.help, *notes] if option.help else notes)
    return f"| `{_cell(spelled)}` | {_cell(text)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
