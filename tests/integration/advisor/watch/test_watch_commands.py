"""`skuwise watch` and `skuwise idle` over simulated node databases, as people and scripts run them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from skuwise.__main__ import main

UNTIL = "2026-11-24T00:00:00Z"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "idle"
    assert main(["simulate", "idle", "--db", str(folder), "--days", "1", "--minutes", "24h", "--until", UNTIL]) == 0
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


def test_odd_files_are_told_and_count_no_node_twice(fleet: Path, tmp_path: Path, capsys) -> None:
    both = tmp_path / "both"
    shutil.copytree(fleet, both)
    (both / "broken.db").write_bytes(b"no database at all" * 100)
    shutil.copy(sorted(fleet.glob("*.db"))[0], both / "copy.db")
    for file in (*fleet.glob("*.db"), "copy.db"):
        with sqlite3.connect(both / Path(file).name) as db:
            db.execute("UPDATE workload SET name = 'a' || char(27) || '[31m' || char(10) || '<b>'")
    assert main(["watch", "--db", str(both), "--until", UNTIL, "--once", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert any("broken.db" in note["text"] for note in told["notes"])
    assert any(note["code"] == "node-told-twice" for note in told["notes"])
    ids = [one["id"] for one in told["incidents"]]
    assert len(ids) == len(set(ids))
    assert main(["watch", "--db", str(both), "--until", UNTIL, "--once"]) == 0
    assert "\x1b" not in "".join(capsys.readouterr())
    assert main(["watch", "--db", str(both / "broken.db"), "--once"]) == 1
