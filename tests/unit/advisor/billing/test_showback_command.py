"""``skuwise showback`` on a simulated node database: every format, and what is refused."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pandas as pd
import pytest
from skuwise.__main__ import main
from skuwise.advisor.billing import showback_sums
from skuwise.tests.support.founding_database import founding  # noqa: F401 - a fixture
from skuwise.tests.support.schemas import validate

RATE = 98.32  # of a node with InfiniBand, list price, an hour


def written(fleet: Path, file: Path, form: str, *more: str) -> Path:
    assert main(["showback", "--db", str(fleet), "--format", form, "--output", str(file), *more]) == 0
    return file


def test_all_formats_tell_the_same_and_agree_with_the_advice(founding: Path, tmp_path: Path, capsys) -> None:  # noqa: F811
    flat = pd.read_csv(written(founding, tmp_path / "a.csv", "csv"))
    told = json.loads(written(founding, tmp_path / "a.json", "json").read_text("utf-8"))
    validate(told, "showback")
    assert main(["advise", "--db", str(founding), "--format", "json", "--no-ledger"]) == 0
    advice = json.loads(capsys.readouterr().out)
    parts = advice["summary"]["reconciliation"]
    for rows in (flat, pd.DataFrame(told["rows"])):
        assert rows["EffectiveCost"].sum() == pytest.approx(parts["total"], abs=1e-3)
        by = rows.groupby("x_Category")["EffectiveCost"].sum()
        assert by["used"] + by["fabric-premium"] == pytest.approx(parts["workloads"], abs=1e-3)
        for category, part in (("held-idle", "allocated_idle"), ("unallocated", "unallocated")):
            assert by.get(category, 0.0) == pytest.approx(parts[part] or 0.0, abs=1e-3)
    assert abs(told["reconciliation"]["difference_usd"]) < 1e-3
    costs = {w["id"]: w["cost_usd"] for w in advice["workloads"] if w["cost_usd"] is not None}
    of_each = flat.groupby("x_WorkloadId")["EffectiveCost"].sum().to_dict()
    assert of_each == pytest.approx({key: costs[key] for key in of_each}, abs=1e-3)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_rows_that_do_not_sum_replace_no_file_and_json_tells_them(
    founding: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
) -> None:
    file = tmp_path / "last"
    file.write_text("good", "utf-8")
    monkeypatch.setattr(showback_sums, "node_checks", lambda _: {"n1": showback_sums.NodeCheck(1.0, 2.0)})
    assert main(["showback", "--db", str(founding), "--format", form, "--output", str(file)]) == 1
    assert (file.read_bytes() == b"good") == (form != "json")


def test_the_csv_is_a_bill_that_prices_import_reads(founding: Path, tmp_path: Path, capsys) -> None:  # noqa: F811
    file = written(founding, tmp_path / "a.csv", "csv")
    capsys.readouterr()
    assert main(["prices", "import", str(file), "--format", "json"]) == 0
    assert str(RATE) in capsys.readouterr().out


def test_a_price_and_an_account_that_are_typed(founding: Path, tmp_path: Path, capsys) -> None:  # noqa: F811
    options = ["--gpu-hour-usd", "H100-SXM5=2.5", "--billing-account", "=1+1"]
    rows = pd.read_csv(written(founding, tmp_path / "a.csv", "csv", *options))
    h100 = rows[rows["x_GpuSku"] == "H100-SXM5"]
    assert set(h100["ContractedUnitPrice"]) == {20.0} and set(h100["x_PriceBasis"]) == {"negotiated"}
    assert set(rows["BillingAccountId"]) == {"'=1+1"}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--format", "csv", "--output", "/nowhere/a.csv"], 1, "Cannot write /nowhere/a.csv"),
        (["--teams", "/nowhere/teams.toml"], 2, "/nowhere/teams.toml"),
        (["--prices", "/nowhere/prices.yaml"], 2, "/nowhere/prices.yaml"),
        (["--until", "2020-01-01T00:00:00Z", "--since", "1d"], 3, ""),
        (["--by", "color"], 2, ""),
        (["--format", "parquet"], 2, "parquet"),
    ],
)
def test_what_is_refused(arguments, status, words, founding: Path, capsys) -> None:  # noqa: F811
    try:
        found = main(["showback", "--db", str(founding), *arguments])
    except SystemExit as stop:  # argparse's own
        found = stop.code
    told = capsys.readouterr()
    assert found == status and words in told.err and told.out == "" and "Traceback" not in told.err


def test_a_fleet_without_a_price_is_told_in_gpu_hours(founding: Path, tmp_path: Path, capsys) -> None:  # noqa: F811
    file = tmp_path / "one.db"
    shutil.copy(founding, file)
    with sqlite3.connect(file) as db:
        db.execute("UPDATE node SET node_sku = NULL, instance_type = NULL, provider = NULL, region = NULL")
    assert main(["showback", "--db", str(file)]) == 0
    told = capsys.readouterr()
    assert "No node has a price" in told.out and "GPU-hours by category" in told.out
    rows = pd.read_csv(written(file, tmp_path / "one.csv", "csv"))
    assert rows["EffectiveCost"].isna().all() and (rows["x_GpuHours"] > 0).all()
    assert "without a price" in capsys.readouterr().err
