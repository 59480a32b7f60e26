"""`skuwise watch` and `skuwise idle` over simulated node databases, as people and scripts run them."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
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


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def watched(fleet: Path, *more: str) -> list[str]:
    return ["watch", "--db", str(fleet), "--until", UNTIL, "--once", *more]


def test_a_look_prints_what_is_open_and_a_second_one_opens_nothing_again(fleet, home, capsys):
    assert main(watched(fleet, "--format", "json")) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["schema"] == "skuwise.watch/1" and first["data_end"] == UNTIL
    held = [one for one in first["incidents"] if one["kind"] == "held-idle"]
    assert held and all(one["cost_usd"] > 0 and one["gpu_hours"] > 0 for one in held)
    assert main(watched(fleet, "--format", "json")) == 0
    again = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in again["incidents"]] == [one["id"] for one in first["incidents"]]


def test_a_dry_run_says_so_and_the_table_names_owner_and_cost(fleet, home, capsys):
    assert main(watched(fleet)) == 0
    told = capsys.readouterr()
    assert "evaluated, data up to 2026-11-24 00:00 UTC" in told.out and "held but idle" in told.out
    assert "nothing was sent" in told.err


def test_a_pass_loads_nothing_that_draws(fleet, home):
    code = "import sys\nfrom skuwise.__main__ import main\nmain(sys.argv[1:])\nprint('matplotlib' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, *watched(fleet)], capture_output=True, text=True, timeout=120, check=False
    )
    assert "held but idle" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "False"


def test_old_data_are_one_incident_and_no_verdict(fleet, home, capsys):
    assert main(["watch", "--db", str(fleet), "--once", "--format", "json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["incidents"]
    assert (one["kind"], one["code"]) == ("telemetry-dead", "source-stale")


def test_a_watch_without_a_source_and_with_odd_times_is_wrong_usage(home, capsys):
    assert main(["watch", "--once"]) == 2
    assert "Add --db PATH or --prometheus URL" in capsys.readouterr().err
    assert main(["watch", "--db", "x", "--every", "2s"]) == 2
    assert main(["idle", "--db", "x", "--longer-than", "1s"]) == 2


def test_idle_exits_with_0_4_5_and_3(fleet, home, capsys):
    def ask(*words: str) -> int:
        return main(["idle", *words, "--until", UNTIL, "--longer-than", "2h"])

    nodes = sorted(file.stem for file in fleet.glob("*.db"))
    states = {node: ask(node, "--db", str(fleet)) for node in nodes}
    assert set(states.values()) <= {0, 4} and 0 in states.values(), states
    assert ask("no-such-thing", "--db", str(fleet)) == 3
    capsys.readouterr()
    idle = next(node for node, state in states.items() if state == 0)
    assert ask(idle, "--db", str(fleet), "--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "skuwise.idle/1" and told["state"] == "idle" and told["idle_since"] is not None
    assert main(["idle", idle, "--db", str(fleet)]) == 5  # by today's clock the data are old
    assert capsys.readouterr().out.startswith("not known: ")


def test_a_file_that_cannot_be_read_is_left_out_and_alone_it_is_an_error(fleet, home, tmp_path, capsys):
    both = tmp_path / "both"
    shutil.copytree(fleet, both)
    (both / "broken.db").write_bytes(b"no database at all" * 100)
    assert main(watched(both, "--format", "json")) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert any("broken.db" in note["text"] for note in notes)
    alone = tmp_path / "alone.db"
    alone.write_bytes(b"no database at all" * 100)
    assert main(["watch", "--db", str(alone), "--once"]) == 1
    assert main(["idle", "--db", str(alone)]) == 1


def test_a_node_in_two_files_is_evaluated_once(fleet, home, tmp_path, capsys):
    twice = tmp_path / "twice"
    shutil.copytree(fleet, twice)
    first = sorted(twice.glob("*.db"))[0]
    shutil.copy(first, twice / "copy.db")
    assert main(watched(twice, "--format", "json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert any(note["code"] == "node-told-twice" for note in told["notes"])
    ids = [one["id"] for one in told["incidents"]]
    assert len(ids) == len(set(ids))


def test_names_from_a_database_are_cleaned(fleet, home, tmp_path, capsys):
    evil = tmp_path / "evil"
    shutil.copytree(fleet, evil)
    for file in evil.glob("*.db"):
        with sqlite3.connect(file) as db:
            db.execute("UPDATE workload SET name = 'a' || char(27) || '[31m' || char(10) || '<b>'")
    assert main(watched(evil)) == 0
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err
