# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""Dollars on the first day, through the commands: exporters alone, without labels, and by dollars per GPU-hour."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.tests.support.schemas import advised


@pytest.fixture(autouse=True)
def nobodys_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def hall(founding: Path, tmp_path: Path) -> Path:
    """The founding case in somebody's own hall: no provider, no SKU, no region."""
    path = tmp_path / "hall.db"
    shutil.copy(founding, path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE node SET provider = NULL, region = NULL, node_sku = NULL, instance_type = NULL")
        db.commit()
    return path


def test_dollars_per_gpu_hour_from_the_flag_or_the_settings(hall, tmp_path, capsys) -> None:
    before = advised(capsys, "--db", str(hall))
    assert before["summary"]["cost_usd"] is None
    (line,) = [n for n in before["notes"] if n["code"] == "prices-missing"]
    assert "--gpu-hour-usd H100-SXM5=PRICE" in line["text"]
    by_flag = advised(capsys, "--db", str(hall), "--gpu-hour-usd", "H100-SXM5=2.10")
    assert by_flag["summary"]["cost_usd"] == pytest.approx(2.10 * by_flag["summary"]["gpu_hours"])
    (price,) = by_flag["prices"]
    assert (price["basis"], price["region_assumed"]) == ("owned", False)
    assert price["source"] == "your setting, gpu_hour_usd"
    assert by_flag["summary"]["recoverable_usd_per_month"] == 0
    settings = tmp_path / "config" / "skuwise" / "skuwise.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[prices]\ngpu_hour_usd = { "H100-SXM-80GB" = 2.10 }\n')
    assert advised(capsys, "--db", str(hall))["prices"] == by_flag["prices"]
    # The agent reads the same file, and passes over what is the advisor's.
    assert main(["explain", "--db", str(hall), by_flag["findings"][0]["id"], "--no-ledger"]) == 0
