"""``skuwise job`` on simulated nodes: cards and lists from databases, and what cannot be found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.benchmarks.generators.first import simulate

END = parse_moment("2026-11-16T00:00:00Z")


def test_a_job_is_found_in_databases_and_kept_after_they_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    simulate("fine-tuning", tmp_path / "node.db", days=3, seed=0, until=END, minutes_seconds=72 * 3600.0)
    db = ("--db", str(tmp_path / "node.db"))
    found = []
    for user in ("chen", "dalia", "emre", "farah"):
        if main(["job", "--user", user, "--no-keep", "--format", "json", *db]) == 0:
            found += json.loads(capsys.readouterr().out)["cards"]
    ended = [one for one in found if one["state"] == "ended"]
    listed = min(ended, key=lambda one: (one["data_since"] is not None, one["id"]))
    assert main(["job", listed["job_id"], "--format", "json", *db]) == 0
    card = json.loads(capsys.readouterr().out)
    life = (parse_moment(card["end"]) - parse_moment(card["data_since"] or card["start"])) / 3600
    assert card["gpu_hours"] == pytest.approx(card["gpu_count"] * life, rel=0.05)
    assert card["cost_usd"] == pytest.approx(card["gpu_hours"] * card["price"]["usd_per_gpu_hour"], rel=0.01)
    assert main(["job", listed["job_id"]]) == 0
    assert "from the card kept on" in capsys.readouterr().out
    assert main(["job", listed["name"][:-1], *db]) == 3
    assert listed["name"] in capsys.readouterr().err
    assert main(["job", "\x1b[2J';--", *db]) == 3
    assert "\x1b" not in capsys.readouterr().err
