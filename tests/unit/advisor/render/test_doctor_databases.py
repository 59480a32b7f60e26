"""`skuwise doctor` over databases as people run it, and the line that `advise` says of poor coverage."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.demo import simulate
from skuwise.tests.support.schemas import validate

UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z


@pytest.fixture(scope="module")
def founding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("doctor") / "founding.db"
    simulate("founding", path, days=2, seed=4, until=UNTIL, minutes_seconds=3600, nodes=("serve-01", "serve-02"))
    return path


def changed(path: Path, to: Path, *statements: str) -> Path:
    to.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(to, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return to


def document(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict:
    capsys.readouterr()
    assert main(["doctor", *arguments, "--format", "json"]) == status
    found = json.loads(capsys.readouterr().out)
    validate(found, "doctor")
    return found


def test_a_simulated_fleet_is_whole(founding: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--db", str(founding), "--since", "2d")
    assert found["summary"] == {
        "node_count": 2, "gpu_count": 16, "observed_gpu_count": 16, "mig_instances": 0, "unobserved": [],
    }  # fmt: skip
    metrics = {one["metric"]: one for one in found["metrics"]}
    assert {metrics[name]["having"] for name in ("engine_active", "dram_active", "nvlink", "power", "clocks")} == {16}
    assert metrics["dram_active"]["window_share"] == pytest.approx(1.0, abs=0.03)
    assert metrics["dram_active"]["resolution_seconds"] == pytest.approx(1.0, abs=0.1)
    assert {metrics[name]["having"] for name in ("infiniband", "host")} == {2}
    assert all(one["usd_per_hour"] > 0 for one in found["nodes"])
    assert found["gaps"] == []


def test_a_metric_that_is_nowhere_is_a_gap_and_advise_says_so_in_a_line(
    founding: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(founding, tmp_path / "blind.db", *(
        f"UPDATE gpu_{family} SET dram_active_mean = NULL, dram_active_to_p95 = NULL, dram_active_to_max = NULL"
        for family in ("hour", "minute")
    ))  # fmt: skip
    found = document(capsys, "--db", str(path), "--since", "2d")
    assert next(one for one in found["metrics"] if one["metric"] == "dram_active")["having"] == 0
    (gap,) = found["gaps"]
    assert (gap["code"], len(gap["nodes"])) == ("no-dram-active", 2)
    assert main(["advise", "--no-ledger", "--db", str(path), "--since", "2d"]) == 0
    said = capsys.readouterr().err
    assert "Coverage: 16 of 16 GPUs observed, DRAM activity on 0. For remedies run" in said
    assert f"skuwise doctor --db {path}'" in said


def test_advise_says_nothing_where_coverage_is_good(founding: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "--no-ledger", "--db", str(founding), "--since", "2d"]) == 0
    assert "Coverage:" not in capsys.readouterr().err


def test_advise_names_nodes_without_price_region_and_fabric_and_a_window_that_is_mostly_empty(
    founding: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(
        founding, tmp_path / "it's bare.db", "UPDATE node SET region = NULL, node_sku = NULL, instance_type = NULL",
        "DELETE FROM fabric_hour", "DELETE FROM fabric_minute", "DELETE FROM fabric_sample",
    )  # fmt: skip
    assert main(["advise", "--no-ledger", "--db", str(path), "--since", "10d"]) == 0
    said = capsys.readouterr().err
    assert "Coverage: 48.0 h of 10.0 days observed; no price; no fabric counters; region unknown." in said
    assert "it'\"'\"'s bare.db'" in said  # to be copied into a shell
    found = document(capsys, "--db", str(path), "--since", "2d")
    assert [one["code"] for one in found["gaps"]] == ["no-network", "node-sku-unknown", "no-price"]


@pytest.mark.parametrize(
    ("arguments", "status"), [(["--until", "2001-01-01T00:00:00Z", "--since", "1d"], 3), (["--match", 'a="b"'], 2)]
)
def test_where_there_is_nothing_to_examine_one_sentence_says_why(
    founding: Path, arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--db", str(founding), *arguments]) == status
    assert "Traceback" not in capsys.readouterr().err
