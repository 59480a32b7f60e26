"""The pages of docs/reference are those of the code; `make golden` writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from skuwise.tests.support.golden_files import renewed
from skuwise.tests.support.reference import commands, views

FOLDER = Path(__file__).parents[3] / "docs/reference"
PAGES = {"commands": commands.page, "views": views.page}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_that_of_the_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make: Callable[[], str] = PAGES[name]
    monkeypatch.setenv("COLUMNS", "80")
    assert renewed(FOLDER / f"{name}.md", make()) == make()
