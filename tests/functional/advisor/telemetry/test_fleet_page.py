"""The commands of docs/fleet.md and docs/first-day.md, run in their order on a server that holds two clusters."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from skuwise.__main__ import main
from skuwise.tests.fleets import compose, hardware, series
from skuwise.tests.fleets.blocks import founding
from skuwise.tests.fleets.description import Observed
from skuwise.tests.fleets.generate import by_name
from skuwise.tests.functional.project.test_readme_commands import commands
from skuwise.tests.support.prometheus_engines import victoria

pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[4] / "docs"
SACCT = Path(__file__).parents[3] / "data/sacct"
# The day that the page's shards end at.
END, DAYS = "2026-03-02", 2.0
ADDRESS = "http://127.0.0.1:9090"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    start = datetime.fromisoformat(END).replace(tzinfo=UTC).timestamp() - DAYS * 86400
    found = []
    for seed, cluster in enumerate(("eu", "us")):
        part = founding(f"{cluster}-01", hardware.ND_H100, observed=Observed(node_labels=True))
        fleet = replace(compose(cluster, part, days=DAYS, interval_s=300.0), start=start)
        written = series(fleet, np.random.default_rng(seed))
        found += [replace(one, labels={**one.labels, "cluster": cluster}) for one in written]
    with victoria(tmp_path_factory.mktemp("page"), by_name(found)) as url:
        yield url


@pytest.mark.parametrize("page", ["fleet.md", "first-day.md"])
def test_every_command_of_the_page_works_as_shown(
    page: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("CONFIG", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    # What the page's sacct would have written.
    (tmp_path / "jobs.txt").write_bytes((SACCT / "epoch.txt").read_bytes())
    asked = ["advise", "--prometheus", server, "--until", END, "--no-ledger", "--format", "json"]
    assert main(asked) == 0
    finding = json.loads(capsys.readouterr().out)["findings"][0]["id"]
    shown = commands(DOCS / page)
    assert len(shown) >= 2
    for line in shown:
        arguments = [finding if one == "ID" else one.replace(ADDRESS, server) for one in shlex.split(line)[1:]]
        if "--prometheus" in arguments and "--until" not in arguments:
            arguments += ["--until", END]
        assert main(arguments) == 0, line
        said = capsys.readouterr()
        assert said.out or said.err
    if page == "fleet.md":
        merged = json.loads((tmp_path / "fleet.json").read_text())
        assert merged["summary"]["gpu_count"] == 16
