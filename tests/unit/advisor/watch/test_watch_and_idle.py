"""`skuwise watch` and `skuwise idle` in process, on readings made by hand."""

import json
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from skuwise.__main__ import main
from skuwise.advisor.cli import idle, watch
from skuwise.advisor.cli.options import SourceOptions
from skuwise.advisor.core.incident_types import Recent
from skuwise.advisor.demo import simulate
from skuwise.advisor.notify import incidents
from skuwise.advisor.state.file import State
from skuwise.advisor.state.incidents import current
from skuwise.advisor.telemetry.source import Databases
from skuwise.advisor.watch import reading as watch_reading
from skuwise.advisor.watch.reading import holder_of, read_recent
from skuwise.agent.base import clock
from skuwise.rules.base.errors import NothingToDo, StoreError
from skuwise.tests.support.rulebooks import rulebook
from skuwise.tests.support.schemas import validate
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
    (shown,) = first["incidents"]
    assert shown["kind"] == "stopped" and shown["cost_usd"] > 0 and shown["gpu_hours"] == pytest.approx(24, rel=0.02)
    assert main(["watch", *STEM, "--once"]) == 0
    printed = capsys.readouterr()
    assert "2 workloads on 2 nodes evaluated" in printed.out and shown["id"] in printed.out
    assert "nothing was sent" not in printed.err  # the dry run printed it once
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
    assert sorted((i["fleet"], i["title"].partition(":")[0]) for i in load) == [("m1", "w"), ("n1, n2", "idle")]
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
    printed = json.loads(capsys.readouterr().out)
    assert (printed["schema"], printed["state"]) == ("skuwise.idle/1", state)
    assert (printed["idle_since"] is not None) == (state == "idle")
    assert main(["idle", target, *STEM]) == status
    assert capsys.readouterr().out.startswith(f"{state}: ")


def test_idle_answers_for_each_target_as_for_it_alone(capsys) -> None:
    assert main(["idle", "--each", *STEM, "--format", "json"]) == 0
    every = json.loads(capsys.readouterr().out)
    assert (every["schema"], every["longer_than_seconds"], len(every["answers"])) == ("skuwise.idles/1", 7200.0, 20)
    assert [answer["kind"] for answer in every["answers"]] == ["workload"] * 2 + ["node"] * 2 + ["GPU"] * 16
    for answer in every["answers"]:
        main(["idle", answer["id"], *STEM, "--format", "json"])
        alone = json.loads(capsys.readouterr().out) | {"target": answer["target"]}
        validate(alone, "idle")
        assert alone == {"schema": "skuwise.idle/1"} | {name: answer[name] for name in alone if name != "schema"}
    assert main(["idle", "n1", "--each", *STEM, "--format", "json"]) == main(["idle", "--each", *STEM]) == 2


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


HOUR = 3600.0
UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
BOOK = rulebook()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nodes")
    simulate("founding", path, days=0.5, seed=4, until=UNTIL, minutes_seconds=12 * HOUR, nodes=("serve-01", "serve-02"))
    return path


@pytest.fixture(scope="module")
def recent(folder: Path) -> Recent:
    return read_recent(Databases((folder,)), BOOK, lookback_seconds=6 * HOUR, now=UNTIL + 60)


def test_the_last_hours_of_databases_are_told_by_gpu_and_holder(recent: Recent) -> None:
    assert recent.spans.end == UNTIL and not recent.notes
    assert [node.node for node in recent.nodes] == ["serve-01", "serve-02"]
    assert {gpu.sku for gpu in recent.gpus} == {"H100-SXM5"} and len(recent.gpus) == 16
    held = sorted(place for hold in recent.holds for place in hold.gpus)
    assert held == list(range(16)) and len({hold.series_id for hold in recent.holds}) == 1
    engine = recent.gpu["engine"]
    assert engine.shape == (16, len(recent.spans.ends)) and np.nanmax(engine) <= 1.0
    # GPUs that work are read by the minute alone.
    fine = recent.spans.seconds == 60
    assert (recent.gpu["observed"][:, fine] > 0.9).all() and np.isnan(recent.gpu["observed"][:, ~fine]).any()
    carried, line = (recent.node[f"fabric_{name}bytes_per_second"] for name in ("", "line_"))
    assert (carried < 0.01 * line).all()


@pytest.mark.parametrize(
    ("about", "has_engine", "holder"),
    [
        ({"controller_kind": "Notebook"}, False, "notebook"), ({"controller_kind": "PyTorchJob"}, False, "job"),
        ({"controller_kind": "StatefulSet"}, False, "service"), ({"controller_kind": "ReplicaSet"}, False, "service"),
        ({"controller_kind": "StatefulSet", "image": "jupyter/base-notebook:1"}, False, "notebook"),
        ({"controller_kind": "Job"}, True, "job"), ({"controller_kind": "Pod"}, True, "service"),
        ({}, False, "process"),
        ({"scheduler": "slurm", "name": "train"}, False, "job"), ({"scheduler": "slurm"}, True, "service"),
    ],
)  # fmt: skip
def test_what_holds_a_gpu_is_known_by_owner_names_and_engine(about: dict, has_engine: bool, holder: str) -> None:
    workload = {"scheduler": "kubernetes", "name": "x", "command": None, "framework": None, "namespace": None, **about}
    assert holder_of(workload, BOOK.kind_priors, has_engine=has_engine) == holder


def test_a_moment_of_the_past_is_read_and_files_without_one_are_nothing_to_do(folder: Path) -> None:
    past = read_recent(Databases((folder,)), BOOK, lookback_seconds=2 * HOUR, now=UNTIL, until=UNTIL - 3 * HOUR)
    assert past.spans.end == UNTIL - 3 * HOUR
    with pytest.raises(NothingToDo):
        read_recent(Databases((folder,)), BOOK, lookback_seconds=HOUR, now=UNTIL - 100 * HOUR)
