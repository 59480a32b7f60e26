"""`skuwise watch` and `skuwise idle` in process, on readings made by hand."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest
from skuwise.__main__ import main
from skuwise.advisor.cli import idle, watch
from skuwise.advisor.cli.options import SourceOptions
from skuwise.advisor.notify import incidents
from skuwise.advisor.state.file import State
from skuwise.advisor.state.incidents import current
from skuwise.advisor.watch import reading as watch_reading
from skuwise.agent.base import clock
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.watch_readings import END, MINUTES, REST, TRAINING, Work, eight, reading

# Loaded here: urllib3 binds a socket when it is first imported, which no unit test may.
assert incidents
STEM = ["--db", "nodes", "--until", "2026-09-21T00:00:00Z"]
STOPPED = (MINUTES - 180, TRAINING), (180, REST)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    works = [Work("idle", eight("n1"), STOPPED), Work("busy", eight("n2"), ((MINUTES, TRAINING),))]
    monkeypatch.setattr(SourceOptions, "open", lambda *_: None)
    for module in (watch, idle):
        monkeypatch.setattr(module.time, "time", lambda: END + 60.0)
    monkeypatch.setattr(watch_reading, "read_recent", lambda *_, **__: reading(works))
    return tmp_path


def files(home: Path) -> list[Path]:
    return sorted((home / "state/skuwise").glob("*.db"))


def test_a_look_prints_what_is_open_and_a_second_one_opens_nothing_again(home: Path, capsys) -> None:
    assert main(["watch", *STEM, "--once", "--format", "json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["schema"] == "skuwise.watch/1" and (first["workloads"], first["nodes"]) == (2, 2)
    (one,) = first["incidents"]
    assert one["kind"] == "stopped" and one["cost_usd"] > 0 and one["gpu_hours"] == pytest.approx(24, rel=0.02)
    assert main(["watch", *STEM, "--once"]) == 0
    told = capsys.readouterr()
    assert "2 workloads on 2 nodes evaluated" in told.out and one["id"] in told.out
    assert "nothing was sent" not in told.err  # the dry run told it once
    (path,) = files(home)
    with State(path).reading() as db:
        assert len(current(db)) == 1
    with State(path).alone("Another", lock="watch"):
        assert main(["watch", *STEM]) == 1
    assert "Another skuwise watch already uses" in capsys.readouterr().err


def test_two_fleets_at_one_address_have_a_file_each(home: Path, monkeypatch, capsys) -> None:
    assert main(["watch", *STEM, "--once"]) == 0
    monkeypatch.setattr(watch_reading, "read_recent", lambda *_, **__: reading([Work("w", eight("m1"), STOPPED)]))
    assert main(["watch", *STEM, "--once"]) == 0
    assert len(files(home)) == 2 and capsys.readouterr().out
    assert main(["incidents", "list", "--format", "json"]) == 0
    load = json.loads(capsys.readouterr().out)["incidents"]
    assert sorted((one["fleet"], one["title"].partition(":")[0]) for one in load) == [("m1", "w"), ("n1, n2", "idle")]
    assert main(["incidents", "acknowledge", "w"]) == 0
    named = files(home)[0]
    assert main(["watch", *STEM, "--once", "--state", str(named)]) == (2 if "n1" in named.name else 0)


def test_a_pass_that_fails_is_said_and_the_watch_goes_on(home: Path, monkeypatch, capsys) -> None:
    stop = Mock(**{"wait.side_effect": [False, True]})
    seen = [StoreError("No source.", "Look."), reading([Work("w", eight(), ((MINUTES, REST),), "notebook")])]
    monkeypatch.setattr(clock, "Signals", lambda _: stop)
    monkeypatch.setattr(watch_reading, "read_recent", Mock(side_effect=seen))
    assert main(["watch", *STEM, "--every", "1m"]) == 0
    said = capsys.readouterr().err
    assert "this pass failed, and is repeated in 1 min: No source." in said and "opened: " in said
    assert said.rstrip().endswith("stopping") and str(files(home)[0]) in said


@pytest.mark.parametrize(
    ("target", "status", "state"), [("idle", 0, "idle"), ("n2", 4, "busy"), ("GPU-n1-3", 0, "idle")]
)
def test_idle_answers_with_its_exit_status(target: str, status: int, state: str, capsys) -> None:
    assert main(["idle", target, *STEM, "--format", "json"]) == status
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["state"]) == ("skuwise.idle/1", state)
    assert (told["idle_since"] is not None) == (state == "idle")
    assert main(["idle", target, *STEM]) == status
    assert capsys.readouterr().out.startswith(f"{state}: ")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["idle", "no-such-thing", *STEM], 3, "no-such-thing"), (["idle", *STEM, "--longer-than", "1s"], 2, "5m to 3d"),
        (["watch", *STEM, "--every", "2s"], 2, "1m to 1h"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_a_sentence(words: list[str], status: int, said: str, capsys) -> None:
    assert main(words) == status
    assert said in capsys.readouterr().err
