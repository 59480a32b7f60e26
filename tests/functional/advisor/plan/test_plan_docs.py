"""The example of docs/plan.md is what the commands print; `RENEW_GOLDEN=1` writes it anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from skuwise.__main__ import main

PAGE = Path(__file__).parents[4] / "docs" / "plan.md"
BLOCK = re.compile(r"(<!-- example: mixed -->\n```text\n)(.*?)(```\n)", re.DOTALL)


@pytest.mark.slow
def test_the_example_of_the_page_is_what_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "110")
    path = tmp_path / "fleet.db"
    assert main(["simulate", "mixed", "--db", str(path), "--days", "7", "--until", "2026-09-21"]) == 0
    capsys.readouterr()
    assert main(["plan", "--db", str(path), "--since", "7d", "--no-ledger"]) == 0
    out = capsys.readouterr().out
    printed = out[: out.index("Not worth the risk")].rstrip() + "\n"
    printed = re.sub(r"\n  \S.*ledger accept", "\n  skuwise ledger accept", printed)
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("RENEW_GOLDEN"):
        PAGE.write_text(BLOCK.sub(lambda m: m[1] + printed + m[3], text), encoding="utf-8")
        return
    found = BLOCK.search(text)
    assert found is not None
    assert found[2] == printed
