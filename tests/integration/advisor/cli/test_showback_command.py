"""``skuwise showback`` on simulated nodes: every format, the example of docs/showback.md, and what is refused."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import sqlite3
from pathlib import Path

import jsonschema
import pandas as pd
import pytest
from skuwise.__main__ import main
from skuwise.advisor.billing.focus_rows import COLUMNS
from skuwise.advisor.billing.showback_json import load_showback_schema
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.benchmarks.generators.first import simulate
from skuwise.tests.support.fake_prometheus import DcgmServer, FakePrometheus

pytestmark = pytest.mark.slow

RENEW = bool(os.environ.get("RENEW_GOLDEN"))
PAGE = Path(__file__).parents[4] / "docs/showback.md"
END = parse_moment("2026-11-16T00:00:00Z")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("showback") / "fleet.db"
    simulate("small", file, days=3, seed=0, until=END)
    return file


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def written(fleet: Path, file: Path, form: str, *more: str) -> Path:
    assert main(["showback", "--db", str(fleet), "--format", form, "--output", str(file), *more]) == 0
    return file


def teams_of_the_page(folder: Path) -> Path:
    found = re.search(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    file = folder / "teams.toml"
    file.write_text(found[1], "utf-8")
    return file


def test_the_example_of_the_page(fleet: Path, tmp_path: Path, capsys) -> None:
    assert main(["showback", "--db", str(fleet), "--teams", str(teams_of_the_page(tmp_path))]) == 0
    text = capsys.readouterr().out
    pattern = re.compile(r"(<!-- example: teams -->\n```text\n)(.*?)(```)", re.DOTALL)
    page = PAGE.read_text("utf-8")
    if RENEW:
        page = pattern.sub(lambda found: f"{found[1]}{text}{found[3]}", page)
        PAGE.write_text(page, "utf-8")
    found = pattern.search(page)
    assert found is not None and found[2] == text
    assert max(map(len, text.splitlines())) <= 100


def test_the_page_names_every_column() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE.read_text("utf-8")))
    constant = {"BillingCurrency", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency",
                "ServiceCategory", "ServiceName", "ServiceSubcategory"}  # fmt: skip
    assert set(COLUMNS) - named == constant


def test_all_formats_tell_the_same_and_agree_with_the_advice(fleet: Path, tmp_path: Path, capsys) -> None:
    flat = pd.read_csv(written(fleet, tmp_path / "a.csv", "csv"))
    table = pd.read_parquet(written(fleet, tmp_path / "a.parquet", "parquet"))
    told = json.loads(written(fleet, tmp_path / "a.json", "json").read_text("utf-8"))
    jsonschema.validate(told, load_showback_schema())
    assert main(["advise", "--db", str(fleet), "--format", "json", "--no-ledger"]) == 0
    advice = json.loads(capsys.readouterr().out)
    parts = advice["summary"]["reconciliation"]
    for rows in (flat, table, pd.DataFrame(told["rows"])):
        assert rows["EffectiveCost"].sum() == pytest.approx(parts["total"], abs=1e-3)
        by = rows.groupby("x_Category")["EffectiveCost"].sum()
        assert by["used"] + by["fabric-premium"] == pytest.approx(parts["workloads"], abs=1e-3)
        assert by["held-idle"] == pytest.approx(parts["allocated_idle"], abs=1e-3)
        assert by["unallocated"] == pytest.approx(parts["unallocated"], abs=1e-3)
        assert by["unobserved"] == pytest.approx(parts["unobserved"], abs=1e-3)
    assert abs(told["reconciliation"]["difference_usd"]) < 1e-3
    costs = {w["id"]: w["cost_usd"] for w in advice["workloads"] if w["cost_usd"] is not None}
    of_each = flat.groupby("x_WorkloadId")["EffectiveCost"].sum().to_dict()
    assert of_each == pytest.approx({key: costs[key] for key in of_each}, abs=1e-3)


@pytest.mark.parametrize("form", ["csv", "parquet", "json"])
def test_rows_that_do_not_sum_replace_no_file_and_json_tells_them(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    from skuwise.advisor.billing import showback_sums

    file = tmp_path / "last"
    file.write_text("good", "utf-8")
    monkeypatch.setattr(showback_sums, "node_checks", lambda _: {"n1": showback_sums.NodeCheck(1.0, 2.0)})
    assert main(["showback", "--db", str(fleet), "--format", form, "--output", str(file)]) == 1
    assert (file.read_bytes() == b"good") == (form != "json")


def test_the_csv_is_a_bill_that_prices_import_reads(fleet: Path, tmp_path: Path, capsys) -> None:
    file = written(fleet, tmp_path / "a.csv", "csv")
    capsys.readouterr()
    assert main(["prices", "import", str(file), "--format", "json"]) == 0
    assert "98.32" in capsys.readouterr().out


def test_tokens_that_engines_reported_have_a_cost(fleet: Path, tmp_path: Path, capsys) -> None:
    file = tmp_path / "told.db"
    shutil.copy(fleet, file)
    with sqlite3.connect(file) as db:
        name = "rag-answer-62"
        ((ref, node),) = db.execute(
            "SELECT DISTINCT w.id, n.id FROM workload w JOIN workload_gpus u ON u.workload_id = w.workload_id"
            " JOIN node n ON n.node = u.node WHERE w.name = ?",
            (name,),
        ).fetchall()
        db.execute("INSERT INTO server VALUES (1, ?, 'vllm', 'http://127.0.0.1:8000/metrics')", (node,))
        moments = [END - 3600 * 24 + 15 * (n + 1) for n in range(24 * 240)]
        db.executemany(
            "INSERT INTO serving_sample (server_id, workload_ref, ts, interval_ms, generation_tokens_per_second)"
            " VALUES (1, ?, ?, 15000, 20000)",
            [(ref, ts) for ts in moments],
        )
    assert main(["showback", "--db", str(file), "--by", "workload", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (group,) = [one for one in told["groups"] if one["name"] == name]
    assert group["tokens"] == pytest.approx(2000 * 3600 * 24, rel=0.1)
    # Its eight GPUs are a whole node.
    rate = next(node["usd_per_hour"] for node in told["nodes"] if node["node"] == _node_of(told, name))
    assert group["usd_per_million_tokens"] == pytest.approx(rate / (2000 * 3600) * 1e6, rel=0.02)


def _node_of(told: dict, name: str) -> str:
    return next(row["ResourceId"] for row in told["rows"] if row["x_Workload"] == name)


def test_prices_of_ones_own_and_an_account(fleet: Path, tmp_path: Path) -> None:
    options = ["--gpu-hour-usd", "H100-SXM5=2.5", "--billing-account", "=1+1"]
    rows = pd.read_csv(written(fleet, tmp_path / "a.csv", "csv", *options))
    h100 = rows[rows["x_GpuSku"] == "H100-SXM5"]
    assert set(h100["ContractedUnitPrice"]) == {20.0} and set(h100["x_PriceBasis"]) == {"negotiated"}
    assert set(rows["BillingAccountId"]) == {"'=1+1"}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--format", "parquet"], 2, "needs a file. Add --output FILE."),
        (["--format", "csv", "--output", "/nowhere/a.csv"], 1, "Cannot write /nowhere/a.csv"),
        (["--format", "parquet", "--output", "/nowhere/a.parquet"], 1, "Name a folder you can write to"),
        (["--teams", "/nowhere/teams.toml"], 2, "/nowhere/teams.toml"),
        (["--prices", "/nowhere/prices.yaml"], 2, "/nowhere/prices.yaml"),
        (["--until", "2020-01-01T00:00:00Z", "--since", "1d"], 3, ""),
        (["--by", "color"], 2, ""),
    ],
)
def test_what_is_refused(arguments, status, words, fleet: Path, capsys) -> None:
    try:
        found = main(["showback", "--db", str(fleet), *arguments])
    except SystemExit as stop:  # argparse's own
        found = stop.code
    told = capsys.readouterr()
    assert found == status and words in told.err and told.out == "" and "Traceback" not in told.err


def test_parquet_is_not_written_to_a_terminal(fleet: Path, capsys) -> None:
    ours, theirs = pty.openpty()
    try:
        assert main(["showback", "--db", str(fleet), "--format", "parquet", "--output", os.ttyname(theirs)]) == 2
    finally:
        os.close(ours)
        os.close(theirs)
    assert "is a terminal" in capsys.readouterr().err


def test_one_gpu_without_a_price(tmp_path: Path, capsys) -> None:
    file = tmp_path / "one.db"
    simulate("single-gpu", file, days=1, seed=0, until=END)
    with sqlite3.connect(file) as db:
        db.execute("UPDATE node SET node_sku = NULL, instance_type = NULL, provider = NULL, region = NULL")
    assert main(["showback", "--db", str(file)]) == 0
    told = capsys.readouterr()
    assert "No node has a price" in told.out and "GPU-hours by category" in told.out
    rows = pd.read_csv(written(file, tmp_path / "one.csv", "csv"))
    assert rows["EffectiveCost"].isna().all() and (rows["x_GpuHours"] > 0).all()
    assert "without a price" in capsys.readouterr().err


def test_a_server_is_read_as_well(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("SKUWISE_PROMETHEUS_CACHE", "")
    file = tmp_path / "server.csv"
    with FakePrometheus(DcgmServer()).running() as server:
        window = ["--since", "2d", "--until", "2026-09-20T00:00:00Z"]
        command = ["showback", "--prometheus", server.url, *window, "--gpu-hour-usd", "H100-SXM5=2"]
        assert main([*command, "--format", "csv", "--output", str(file)]) == 0
        assert main(command) == 0
    rows = pd.read_csv(file)
    assert rows["EffectiveCost"].sum() == pytest.approx(2 * rows["x_GpuHours"].sum(), abs=1e-4)
    assert rows["x_GpuHours"].sum() == pytest.approx(48, rel=0.05)
    assert "difference below $0.01" in capsys.readouterr().out
