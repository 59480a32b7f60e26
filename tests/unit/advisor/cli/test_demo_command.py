"""`skuwise demo` in process, on two nodes of its fleet."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.cli import demo


def test_the_demo_writes_advice_and_mail_and_prints_the_next_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = functools.partial(demo.simulate, nodes=("h100-ib-serve-01", "h100-eth-tune-01"))
    monkeypatch.setattr(demo, "simulate", few)
    monkeypatch.setattr(demo, "DAYS", 3)
    monkeypatch.setattr(demo, "_has_gpus", lambda: False)
    assert main(["demo", "--dir", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert [line[:3] for line in said.err.splitlines()] == ["1/4", "2/4", "3/4", "4/4"]
    assert "explain" in said.out and str(tmp_path / "fleet.db") in said.out
    assert {"advice.html", "fleet.db", "mail"} <= {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "mail" / "fleet.html").exists()
    assert main(["demo", "--dir", str(tmp_path)]) == 2  # it is there already
