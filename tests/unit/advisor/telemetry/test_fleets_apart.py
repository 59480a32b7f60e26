# pyright: reportOptionalMemberAccess=false
"""Fleets in turn: what was decided on one never speaks of the other."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.fleet_identity import fleet_of
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.demo import simulate
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.ledger.sync import LedgerSync
from skuwise.advisor.telemetry.sqlite.reader import read_frame

UNTIL = parse_moment("2026-03-09")


def as_if_real(database: Path, other: Path, cluster: str = "") -> Path:
    """A copy of a simulated database whose GPUs a driver might have named: nodes, work and ids of advice stay."""
    other.parent.mkdir(exist_ok=True)
    shutil.copy(database, other)
    with closing(sqlite3.connect(other)) as db, db:
        for table in ("gpu", "workload_use"):
            db.execute(f"UPDATE {table} SET gpu_uuid = replace(gpu_uuid, 'GPU-', 'GPU-{other.stem[:1]}')")
        db.execute("UPDATE node SET cluster = ?", [cluster])
    return other


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulated") / "founding.db"
    simulate("founding", path, days=2, seed=4, until=UNTIL, minutes_seconds=3600, nodes=("serve-01", "serve-02"))
    return path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Callable[..., tuple[str, str]]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run_(*arguments: object, status: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        assert main([str(one) for one in arguments]) == status, capsys.readouterr().err
        told = capsys.readouterr()
        return told.out, told.err

    return run_


def advice(run, *arguments: object) -> dict:
    return json.loads(run("advise", *arguments, "--format", "json")[0])


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "state/skuwise/ledgers").glob("*.db"))


def test_a_simulated_move_is_none_of_a_real_fleet(run, simulated: Path, tmp_path: Path) -> None:
    real = as_if_real(simulated, tmp_path / "real.db")
    first = advice(run, "--db", simulated)
    best = first["recommendations"][0]
    assert first["summary"]["recoverable_usd_per_month"] > 0
    run("ledger", "accept", best["id"])
    run("ledger", "dismiss", first["recommendations"][1]["id"], "--why", "a rehearsal")
    theirs = advice(run, "--db", real)
    same = {r["id"] for r in first["recommendations"]} & {r["id"] for r in theirs["recommendations"]}
    assert best["id"] in same  # the ids alone do not tell the fleets apart
    assert all(r["decision"] is None for r in theirs["recommendations"])
    assert theirs["summary"]["recoverable_usd_per_month"] > 0
    again = {r["id"]: r["decision"] for r in advice(run, "--db", simulated)["recommendations"]}
    assert again[best["id"]]["state"] == "accepted"
    assert [path.name.startswith("simulated-") for path in files(tmp_path)] == [False, True]


def test_an_id_of_two_fleets_is_asked_about_and_the_list_names_both(run, simulated: Path, tmp_path: Path) -> None:
    real = as_if_real(simulated, tmp_path / "real.db", "eu")
    id_ = advice(run, "--db", simulated)["recommendations"][0]["id"]
    run("advise", "--db", real)
    said = run("ledger", "accept", id_, status=2)[1]
    assert f"{id_} is in 2 ledgers" in said and "--ledger" in said
    mine, theirs = files(tmp_path)
    run("ledger", "accept", id_, "--ledger", mine)
    text = run("ledger", "list")[0]
    assert f"Fleet eu ({mine})" in text and "Fleet simulated " in text
    listed = json.loads(run("ledger", "list", "--all", "--format", "json")[0])["recommendations"]
    assert {(r["fleet"], r["state"]) for r in listed if r["id"] == id_} == {
        ("eu", "accepted"), (Ledger(theirs).fleets()[0].name, "proposed"),
    }  # fmt: skip


def test_a_ledger_that_was_named_is_its_fleets(run, simulated: Path, tmp_path: Path) -> None:
    real, other = (as_if_real(simulated, tmp_path / name) for name in ("real.db", "other.db"))
    named, empty = tmp_path / "named.db", tmp_path / "empty.db"
    run("advise", "--db", real, "--ledger", named)
    run("advise", "--db", real, "--ledger", named)
    for database, why in (
        (simulated, "simulated and real telemetry cannot share a ledger"),
        (other, "no GPU in common"),
    ):
        before = named.read_bytes()
        out, said = run("advise", "--db", database, "--ledger", named, status=2)
        assert not out and why in said and "Remove --ledger" in said
        assert said.splitlines()[-1].count(named.name) == 1 and named.read_bytes() == before
    empty.touch()
    run("advise", "--db", other, "--ledger", empty)
    assert Ledger(empty).fleets()[0].members


def test_a_fleet_stays_itself_while_nodes_come_and_go(run, simulated: Path, tmp_path: Path) -> None:
    real = as_if_real(simulated, tmp_path / "real.db")
    run("advise", "--db", real)
    (own,) = files(tmp_path)
    smaller = as_if_real(simulated, tmp_path / "r" / "real-of-today.db")
    with closing(sqlite3.connect(smaller)) as db, db:  # half of the nodes were replaced
        db.execute("UPDATE gpu SET gpu_uuid = 'GPU-new' || gpu_uuid WHERE node_id % 2")
        db.execute("UPDATE node SET node = 'new-' || node WHERE id % 2")
    run("advise", "--db", smaller)
    assert files(tmp_path) == [own]
    assert any("new" in member for member in Ledger(own).fleets()[0].members)


def test_a_moved_node_does_not_make_one_fleet_of_two(simulated: Path, tmp_path: Path) -> None:
    home = tmp_path / "skuwise" / "ledgers"
    said: list[str] = []
    first = fleet_of(read_frame([as_if_real(simulated, tmp_path / "a.db", "eu")]))
    second = fleet_of(read_frame([as_if_real(simulated, tmp_path / "b.db", "us")]))
    one = LedgerSync(None, False, said.append, home).of(first).written().path
    gpu, node = next(iter(first.members.items()))
    moved = replace(second, members={**second.members, gpu: node})
    other = LedgerSync(None, False, said.append, home).of(moved).written().path
    assert one != other
    assert LedgerSync(None, False, said.append, home).of(first).path == one
