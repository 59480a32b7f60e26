"""The documentation names what exists; the pages of docs/reference are those of the code (`make golden`)."""

import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from inspect import cleandoc
from pathlib import Path

import click
import pytest
from skuwise.__main__ import COMMANDS
from skuwise.agent.metrics import BIN_EDGES, FABRIC_METRICS, GPU_METRICS, HOST_METRICS, SERVING_METRICS
from skuwise.agent.store.database import schema_sql
from skuwise.tests.support.command_parsers import every_command
from skuwise.tests.support.golden_files import renewed

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def code_blocks(page: Path) -> list[list[str]]:
    """The lines of each fenced block."""
    return [
        block.splitlines() for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    ]


def test_every_metric_is_documented_with_its_unit() -> None:
    text = (ROOT / "docs/metrics.md").read_text()
    for metric in (*GPU_METRICS, *FABRIC_METRICS, *HOST_METRICS, *SERVING_METRICS):
        assert f"| `{metric.name}` | {metric.unit} |" in text
    assert ", ".join(f"{edge:g}" for edge in BIN_EDGES) in " ".join(text.split())


def test_the_index_leads_to_every_page() -> None:
    text = (ROOT / "docs/README.md").read_text()
    pages = [path.relative_to(ROOT / "docs") for path in sorted((ROOT / "docs").rglob("*.md"))]
    assert [str(page) for page in pages if page.name != "README.md" and f"]({page})" not in text] == []


def heading_anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    plain = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", text) for text in re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    ]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_pages_and_headings_and_commands_are_there(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]*?)(?:#([^)]*))?\)", page.read_text())
    ours = [((page.parent / name) if name else page, anchor) for name, anchor in targets if "://" not in name]
    assert [str(p) for p, _ in ours if not p.exists()] == []
    headed = [(p, anchor) for p, anchor in ours if anchor and p.suffix == ".md"]
    assert [(str(p), anchor) for p, anchor in headed if anchor not in heading_anchors(p)] == []
    shown = [line.split()[1] for block in code_blocks(page) for line in block if line.startswith("skuwise ")]
    assert [name for name in shown if name not in COMMANDS] == []


def test_the_readme_fits_one_screen_and_names_the_apt_line_and_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 60
    lines = [line.split("  #")[0].strip() for block in code_blocks(ROOT / "README.md") for line in block]
    assert lines == ["sudo apt-get install git make python3-venv", "make demo", "make test"]
    assert text.count("![") == 1


COMMANDS_HEAD = """# Commands

Look up a command and its options here, or run `skuwise COMMAND --help`. This page is generated from the code; `make
golden` writes it.

Data goes to stdout, progress and notes to stderr. Exit status: 0 done, 1 failed, 2 wrong usage, 3 nothing to work on.
`skuwise --version` prints the version. `--debug` prints a traceback with an error.

"""

SHARED_FROM = 2  # options of at least so many commands, with the same meaning, are described once


def commands_page() -> str:
    """The page as it should be, for the commands of today."""
    commands = list(every_command())
    counted = Counter(_row(param, context) for _, context in commands for param in context.command.params)
    shared = {row for row, count in counted.items() if count >= SHARED_FROM}
    table = "\n".join(["## Shared options", "", "| option | meaning |", "|---|---|", *sorted(shared), "", ""])
    return COMMANDS_HEAD + table + "\n".join(_section(words, context, shared) for words, context in commands)


def _section(words: Sequence[str], context: click.Context, shared: set[str]) -> str:
    text = (context.command.help or "").partition("\n")[0]
    lines = [f"## skuwise {' '.join(words)}", "", f"{text[:1].upper()}{text[1:].rstrip('.')}.", ""]
    if isinstance(context.command, click.Group):
        return "\n".join([*lines[:-1], "Run it with one of its subcommands.", ""])
    params = {param: _row(param, context) for param in context.command.params}
    rows = [row for row in params.values() if row not in shared]
    options = [param for param, row in params.items() if row in shared and isinstance(param, click.Option)]
    if rows:
        lines += ["| option | meaning |", "|---|---|", *rows, ""]
    if options:
        lines += [f"Shared: {', '.join(f'`{min(option.opts, key=len)}`' for option in options)}.", ""]
    return "\n".join(lines)


def _row(param: click.Parameter, context: click.Context) -> str:
    value, notes = "", []
    if isinstance(param, click.Option):
        value = "" if param.is_flag else param.make_metavar(context).strip("[]")
        spelled = f"{', '.join(sorted(param.opts, key=len))} {value}".rstrip()
        text = param.help or ""
        if param.required:
            notes.append("required")
    else:
        spelled = value = param.human_readable_name.upper().strip("[]")
        about = re.search(rf"^{value}: (.*?)\.$", cleandoc(context.command.help or ""), re.MULTILINE | re.DOTALL)
        text = " ".join(about[1].split()) if about else ""
    if isinstance(param.type, click.Choice) and param.type.choices[0] not in value:
        notes.append("one of: " + ", ".join(param.type.choices))
    if isinstance(param, click.Option) and param.multiple and "repeat" not in text and "more than once" not in text:
        notes.append("repeatable")
    return f"| `{_cell(spelled)}` | {_cell('; '.join([text, *notes] if text else notes))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def test_every_column_of_the_views_is_documented() -> None:
    text = (ROOT / "docs/metrics.md").read_text()
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(schema_sql())
        views = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]
        read = [database.execute(f"SELECT * FROM {view} LIMIT 0").description for view in views]
        columns = {column[0] for description in read for column in description}
    assert len(views) >= 18 and [view for view in views if f"`{view}`" not in text] == []
    plain = {re.sub("_(mean|max|p95|n|bins)$", "", column) for column in columns}
    assert sorted(name for name in plain if name not in text) == []


def test_the_page_of_commands_is_that_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert renewed(ROOT / "docs/reference/commands.md", made := commands_page()) == made
