"""The page of metrics as promtool reads it."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from skuwise.agent.metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS
from skuwise.agent.model import Tick
from skuwise.tests.unit.agent.service.test_totals import GPU, PORT, hostile, page, totals_of


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize("kind", ["full", "hostile", "empty"])
def test_promtool_finds_nothing_wrong_with_the_page(kind: str) -> None:
    ticks = [
        Tick(
            1.7e9 + second,
            1.0,
            {GPU.uuid: {metric.name: 0.4 + 0.1 * (second % 5) for metric in GPU_METRICS}},
            {PORT.key: {metric.name: 2.0 for metric in FABRIC_METRICS}},
            {PORT.key: "ACTIVE"},
            {metric.name: 0.5 for metric in HOST_METRICS},
        )
        for second in range(120)
    ]
    totals = {"full": totals_of(*ticks), "hostile": hostile(), "empty": totals_of()}[kind]
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page(totals).encode(), capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr + done.stdout) == (0, b"")
