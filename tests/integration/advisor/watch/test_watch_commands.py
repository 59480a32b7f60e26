"""`skuwise watch` and `skuwise idle` over simulated node databases, as people and scripts run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.benchmarks.generators.first import simulate

UNTIL = "2026-11-24T00:00:00Z"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "idle"
    simulate("idle", folder, days=1, minutes_seconds=86400, until=parse_moment(UNTIL))
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_held_and_idle_gpus_are_incidents_and_old_data_are_one_alone(fleet: Path, capsys) -> None:
    assert main(["watch", "--db", str(fleet), "--until", UNTIL, "--once", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["data_end"] == UNTIL
    held = [one for one in told["incidents"] if one["kind"] == "held-idle"]
    assert held and all(one["cost_usd"] > 0 and one["gpu_hours"] > 0 for one in held)
    assert (
        main(["watch", "--db", str(fleet), "--once", "--format", "json", "--state", str(fleet.parent / "now.db")]) == 0
    )
    (one,) = json.loads(capsys.readouterr().out)["incidents"]
    assert (one["kind"], one["code"]) == ("telemetry-dead", "source-stale")


def test_idle_exits_with_0_4_5_and_3(fleet: Path, capsys) -> None:
    def ask(target: str, *more: str) -> int:
        return main(["idle", target, "--db", str(fleet), "--longer-than", "2h", *more])

    states = {file.stem: ask(file.stem, "--until", UNTIL) for file in sorted(fleet.glob("*.db"))}
    assert set(states.values()) <= {0, 4} and 0 in states.values(), states
    assert ask("no-such-thing", "--until", UNTIL) == 3
    capsys.readouterr()
    idle = next(node for node, state in states.items() if state == 0)
    assert ask(idle) == 5  # by today's clock the data are old
    assert capsys.readouterr().out.startswith("not known: ")
