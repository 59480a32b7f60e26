"""The page of metrics as promtool reads it."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from skuwise.tests.unit.agent.service.test_totals import full, hostile, page, totals_of


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize("kind", ["full", "hostile", "empty"])
def test_promtool_finds_nothing_wrong_with_the_page(kind: str) -> None:
    totals = {"full": full, "hostile": hostile, "empty": totals_of}[kind]()
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page(totals).encode(), capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr + done.stdout) == (0, b"")
