"""The pages of docs/reference are those of the code; `make golden` writes them."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.__main__ import COMMANDS
from skuwise.agent.store.database import SCHEMA_VERSION, schema_sql
from skuwise.tests.support.command_parsers import Option, ParsedCommand, every_parser
from skuwise.tests.support.golden_files import renewed

FOLDER = Path(__file__).parents[3] / "docs/reference"
COMMANDS_HEAD = """# Commands

Look up a command and its options here, or run `skuwise COMMAND --help`. This page is generated from the parsers; `make
golden` writes it.

Data goes to stdout, progress and notes to stderr. Exit status: 0 done, 1 failed, 2 wrong usage, 3 nothing to work on.
`skuwise --version` prints the version. `--debug` prints a traceback with an error.

"""

SHARED_FROM = 2  # options of at least so many commands, with the same meaning, are described once


def commands_page() -> str:
    """The page as it should be, for the commands of today."""
    commands = list(every_parser(COMMANDS))
    groups = {one.words[0] for one in commands if len(one.words) > 1}
    counted = Counter(_row(option) for one in commands for option in _options(one))
    shared = {row for row, count in counted.items() if count >= SHARED_FROM}
    table = "\n".join(["## Shared options", "", "| option | meaning |", "|---|---|", *sorted(shared), "", ""])
    return COMMANDS_HEAD + table + "\n".join(_section(one, groups, shared) for one in commands)


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


VIEWS_HEAD = """# Database views

Query these views of a node's database with `sqlite3`, Datasette or pandas, on SQLite 3.26 or newer. Open the file
read-only. This page is generated from the schema; `make golden` writes it. [Metrics](../metrics.md) has the unit
and the source of each column.

```sql
SELECT gpu_index, avg(sm_active), avg(dram_active) FROM gpu_samples GROUP BY gpu_index;
```

`ts` is the end of the interval that a row describes, in Unix seconds (UTC). `NULL` means not available; the view
`absences` has the reason. The schema version is `PRAGMA user_version`: major times 1000 plus minor. A minor version
only adds columns and views. `X_*` stands for `X_mean`, `X_max`, `X_p95` and `X_n`.

"""


def views_page() -> str:
    """The page as it should be, for the schema of today."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.executescript(schema_sql())
        names = [
            name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY name")
        ]
        parts = [f"{VIEWS_HEAD}Schema version of this page: {SCHEMA_VERSION}.\n\n| view | columns |\n|---|---|\n"]
        for name in names:
            with closing(database.execute(f"SELECT * FROM {name} LIMIT 0")) as cursor:
                columns = ", ".join(f"`{column}`" for column in _folded([column[0] for column in cursor.description]))
            parts.append(f"| `{name}` | {columns} |\n")
    return "".join(parts)


def _folded(columns: list[str]) -> list[str]:
    """The measures of a rollup as one entry each: `_mean`, `_max`, `_p95` and `_n` as `_*`."""
    rolled = {name.removesuffix("_p95") for name in columns if name.endswith("_p95")}
    folded = []
    for name in columns:
        stem, _, ending = name.rpartition("_")
        if stem in rolled and ending in ("mean", "max", "p95", "n"):
            name = f"{stem}_*"  # noqa: PLW2901
        if name not in folded:
            folded.append(name)
    return folded


@pytest.mark.parametrize(("name", "make"), [("commands", commands_page), ("views", views_page)])
def test_the_page_is_that_of_the_code(name: str, make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert renewed(FOLDER / f"{name}.md", made := make()) == made
