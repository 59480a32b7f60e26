"""The pages of docs/reference are those of the code; `make golden` writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from skuwise.__main__ import COMMANDS
from skuwise.tests.support.golden_files import renewed
from skuwise.tests.support.reference import commands, views
from skuwise.tests.support.reference.parsers import every_parser

FOLDER = Path(__file__).parents[3] / "docs/reference"
PAGES = {"commands": commands.page, "views": views.page}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_that_of_the_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make: Callable[[], str] = PAGES[name]
    monkeypatch.setenv("COLUMNS", "80")
    assert renewed(FOLDER / f"{name}.md", make()) == make()


def test_the_page_of_commands_has_every_command_and_option() -> None:
    text = (FOLDER / "commands.md").read_text()
    for command in every_parser(COMMANDS):
        assert f"## skuwise {' '.join(command.words)}\n" in text
        for name in (name for option in command.options for name in option.names):
            assert name in text or name in ("-h", "--help"), name


def test_the_page_of_views_has_the_views_that_are_promised() -> None:
    text = (FOLDER / "views.md").read_text()
    for view in ("nodes", "gpus", "gpu_samples", "gpu_minutes", "gpu_hours", "workloads", "workload_gpus", "absences"):
        assert f"| `{view}` | " in text
