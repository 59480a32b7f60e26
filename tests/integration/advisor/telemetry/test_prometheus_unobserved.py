"""A real Prometheus that lacks a GPU's series: the same count of unobserved GPUs in every renderer."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.timestamps import rfc3339
from skuwise.tests.fleets import FLEETS, only, series, truth
from skuwise.tests.fleets.removal import without_gpu
from skuwise.tests.support.prometheus_engines import prometheus


@pytest.mark.slow
def test_a_gpu_without_series_is_told_by_every_renderer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = only(FLEETS["everything"](days=2.0, interval_s=300.0), "founding-01", "office-01")
    node = next(one for one in fleet.nodes if one.name == "founding-01")
    held = without_gpu(node, 3)(series(fleet, np.random.default_rng(1)))
    known = truth(fleet).gpu_count
    told: dict[str, str] = {}
    with prometheus(tmp_path / "server", held) as url:
        for form in ("table", "json", "csv", "markdown", "html"):
            asked = (
                "advise", "--prometheus", url, "--since", "2d", "--until", rfc3339(fleet.end), "--no-ledger",
                "--format", form,
            )  # fmt: skip
            assert main(list(asked)) == 0
            told[form] = capsys.readouterr().out
    summary = json.loads(told["json"])["summary"]
    assert summary["gpu_count"] == known
    assert sum(len(one["gpus"]) for one in summary["unobserved"]) == 1
    (lost,) = summary["unobserved"]
    assert lost["node"].startswith("founding-01")
    for form in ("table", "markdown", "html"):
        assert f"{known} GPUs, {known - 1} observed, 1 not observed" in " ".join(told[form].split()), form
    rows = [row for row in csv.DictReader(io.StringIO(told["csv"])) if row["row"] == "unobserved"]
    assert [int(row["gpu_count"]) for row in rows] == [1]
