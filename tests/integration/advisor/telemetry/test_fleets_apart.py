# pyright: reportOptionalMemberAccess=false
"""Fleets in turn: what was decided on one never speaks of the other, nor does an answer of its server."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.advice_types import Fleet
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.demo import simulate
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.ledger.sync import LedgerSync
from skuwise.advisor.telemetry.fleet_identity import fleet_of
from skuwise.advisor.telemetry.source import Databases, PrometheusServer
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.rules.base.errors import UsageError
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.fake_prometheus import (
    GPU,
    DcgmServer,
    FakePrometheus,
    Reply,
    Request,
    error,
    matrix,
    success,
)
from skuwise.tui.data.loaders import SourceLoader
from skuwise.tui.state import FINDINGS_WINDOW

DAY = 86400.0
NOW = 1_790_000_000.0 // DAY * DAY
UNTIL = parse_moment("2026-03-09")
CATALOG = load_catalog()
BOTH = ({**GPU}, {**GPU, "UUID": "GPU-a2", "Hostname": "n2", "instance": "n2:9400"})


# ---- answers of servers


def read(fake: FakePrometheus, folder: Path, said: list[str], *, until: float = NOW, cached: bool = True) -> Frame:
    environ = {"SKUWISE_PROMETHEUS_CACHE": str(folder / "kept"), "XDG_CONFIG_HOME": str(folder)}
    server = PrometheusServer(fake.url, (), environ, said.append, cached)
    return server.read(CATALOG, since=2 * DAY, until=until, now=until + DAY)


def measures(requests: Sequence[Request]) -> list[Request]:
    return [r for r in requests if r.path.endswith("query_range") and not r.query.startswith("max by (__name__")]


def test_another_server_behind_the_same_address_is_not_told_from_the_answers_of_the_first(tmp_path: Path) -> None:
    server, said = DcgmServer(), list[str]()
    with FakePrometheus(server).running() as fake:
        first = read(fake, tmp_path, said)
        server.series[:] = [{**GPU, "UUID": "GPU-b"}]
        asked = len(fake.requests)
        second = read(fake, tmp_path, said)
        assert measures(fake.requests[asked:])
        server.series[:] = [GPU]
        before, heard = len(fake.requests), list(said)
        again = read(fake, tmp_path, said)
        assert not measures(fake.requests[before:])  # what was kept of the first is still there
    assert first.gpus["gpu_uuid"].tolist() == again.gpus["gpu_uuid"].tolist() == ["GPU-a"]
    assert second.gpus["gpu_uuid"].tolist() == ["GPU-b"]
    assert [one for one in heard if "another server answers" in one] == [
        f"another server answers at {fake.url} than last time: cached answers are not used"
    ]
    assert len([one for one in said if "another server answers" in one]) == 2


def test_the_same_server_keeps_its_answers_while_time_passes_and_nodes_are_added(tmp_path: Path) -> None:
    joined = NOW + 6 * 3600  # a node more, in the course of the next day

    def answer(request: Request) -> Reply:
        if not request.path.endswith("query_range") or request.query.startswith("max("):
            return server(request)
        start, end, step = (float(request.params[name]) for name in ("start", "end", "step"))
        moments = [start + n * step for n in range(round((end - start) / step) + 1)]
        late = [50.0 if at >= joined else float("nan") for at in moments]
        return matrix(request, (BOTH[0], 50), (BOTH[1], late))

    server, said = DcgmServer(), []
    with FakePrometheus(answer).running() as fake:
        read(fake, tmp_path, said)
        asked = len(fake.requests)
        frame = read(fake, tmp_path, said, until=NOW + DAY)
        days = {float(r.params["end"]) for r in measures(fake.requests[asked:])}
    assert days == {NOW + DAY}  # the day before was kept
    assert sorted(frame.gpus["gpu_uuid"]) == ["GPU-a", "GPU-a2"]
    assert not [one for one in said if "another server" in one]


def test_without_a_cache_every_answer_is_asked_for_and_none_is_kept(tmp_path: Path) -> None:
    with FakePrometheus(DcgmServer()).running() as fake:
        for _ in range(2):
            before = len(fake.requests)
            read(fake, tmp_path, [], cached=False)
            assert measures(fake.requests[before:])
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("command", ["advise", "explain", "tui", "report"])
def test_every_command_that_reads_a_source_can_do_without_the_cache(command: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0 and "--no-cache" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reply", "labels"),
    [
        (success({"yaml": "global:\n  external_labels:\n    cluster: eu\n    replica: 0\nscrape_configs: [{}]\n"}),
         {"cluster": "eu", "replica": "0"}),
        (success({"yaml": "global:\n  external_labels: [a, b]\n"}), {}),
        (success({"yaml": "global: {scrape_interval: 1m}\n"}), {}),
        (success({"yaml": "global:\n  a: &a [*a, *b]\n"}), {}),
        (success({"yaml": 7}), {}),
        (success([]), {}),
        (error(403, "no"), {}),
        (error(404, "no"), {}),
    ],
)  # fmt: skip
def test_external_labels_are_read_where_the_server_tells_them(tmp_path: Path, reply: Reply, labels) -> None:
    server = DcgmServer()

    def answer(request: Request) -> Reply:
        return reply if request.path.endswith("status/config") else server(request)

    with FakePrometheus(answer).running() as fake:
        frame = read(fake, tmp_path, [])
    assert frame.external_labels == labels
    assert fleet_of(frame).labels == {name: value for name, value in labels.items() if name != "replica"}


def test_where_the_past_cannot_be_asked_for_nothing_is_kept_and_that_is_told(tmp_path: Path) -> None:
    server = DcgmServer(by_query={"max by (__name__": lambda _: error(422, "no")})
    with FakePrometheus(server).running() as fake:
        frame = read(fake, tmp_path, [])
        before = len(fake.requests)
        read(fake, tmp_path, [])
        assert measures(fake.requests[before:])
    assert [note for note in frame.notes if note.code == "answers-not-cached"]


# ---- ledgers


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
    simulate("founding", path, days=2, seed=4, until=UNTIL, minutes_seconds=3600)
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


def test_an_id_of_one_fleet_is_found_in_its_ledger(run, simulated: Path, tmp_path: Path) -> None:
    real = as_if_real(simulated, tmp_path / "real.db", "eu")
    run("advise", "--db", real)
    other = tmp_path / "state/skuwise/ledgers/other.db"
    Ledger(other).propose((), 0.0)
    id_ = Ledger(files(tmp_path)[0]).entries()[0].proposal.id
    run("ledger", "accept", id_)
    assert id_ in run("ledger", "show", id_)[0]
    other.write_text("not a ledger " * 99)
    out, said = run("ledger", "list")
    assert id_ in out and said.startswith("left out: The ledger")


@pytest.mark.slow
def test_the_screens_and_the_report_tell_of_their_fleet_alone(run, simulated: Path, tmp_path: Path) -> None:
    real = as_if_real(simulated, tmp_path / "real.db")
    home = tmp_path / "state/skuwise/ledgers"
    run("advise", "--db", simulated)
    move = Ledger(files(tmp_path)[0]).entries()[0].proposal.id
    run("ledger", "accept", move, "--why", "only a rehearsal")

    def shown(database: Path) -> dict[str, str]:
        loader = SourceLoader(Databases((database,)), ledger=None, ledger_home=home, clock=lambda: UNTIL)
        loaded = loader.load(FINDINGS_WINDOW, None, lambda _: None)
        return {r.id: r.decision.state for r in loaded.advice.recommendations if r.decision is not None}

    assert shown(simulated) == {move: "accepted"} and shown(real) == {}
    for name, database in (("theirs", simulated), ("mine", real)):
        run("report", "--db", database, "--preview", tmp_path / name, "--week", "2026-03-02")
    letters = {name: next((tmp_path / name).glob("*.html")).read_text() for name in ("theirs", "mine")}
    assert move in letters["theirs"] and f"ledger show {move}" not in letters["mine"]

    loader = SourceLoader(Databases((real,)), ledger=None, ledger_home=home, clock=lambda: UNTIL)
    told = loader.load(FINDINGS_WINDOW, None, lambda _: None).advice
    loader.decide(told, told.recommendations[0].id, "dismissed", None, "a standby")
    assert shown(real) == {told.recommendations[0].id: "dismissed"} and shown(simulated) == {move: "accepted"}


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


def test_shards_of_one_server_may_share_a_ledger_that_is_named(tmp_path: Path) -> None:
    def fleet(uuid: str, match: Sequence[str], url: str = "http://mimir") -> Fleet:
        with FakePrometheus(DcgmServer(series=[{**GPU, "UUID": uuid}])).running() as fake:
            frame = read(fake, tmp_path / uuid, [])
        source = {"kind": "prometheus", "url": url, "match": list(match)}
        return fleet_of(replace(frame, source=source))

    path = tmp_path / "shared.db"
    Ledger(path).begin(fleet("GPU-1", ['rack=~"r1"']))
    beside = LedgerSync(path, True, lambda _: None)
    assert beside.of(fleet("GPU-9", ["pool='x'"])).path == path  # nothing stands in it yet
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "INSERT INTO recommendations VALUES ('r-1', 'release', 'n1', '-', '-', 1.0, 0.0, 'cash-now', 'low', 0, "
            "'t', 's', 1.0, 1.0, NULL)"
        )
    beside.of(fleet("GPU-2", ['rack=~"r2"']))
    elsewhere = fleet("GPU-3", ['rack=~"r2"'], "http://elsewhere")
    for stranger in (elsewhere, fleet("GPU-3", ['pool="x"']), fleet("GPU-3", [])):
        with pytest.raises(UsageError, match="belongs to another fleet"):
            beside.of(stranger)


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


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE fleets SET match = 'nonsense'",
        "UPDATE fleets SET clusters = '[1]'",
        "UPDATE fleets SET labels = '[]'",
        "UPDATE fleets SET last_seen = 'yesterday'",
        "UPDATE fleet_members SET node = x'ff'",
    ],
)
def test_a_ledger_whose_identity_is_damaged_is_left_out_untouched(run, simulated: Path, tmp_path: Path, spoil) -> None:
    run("advise", "--db", simulated)
    (own,) = files(tmp_path)
    with closing(sqlite3.connect(own)) as db, db:
        db.execute(spoil)
    before = own.read_bytes()
    said = run("advise", "--db", simulated)[1]
    assert "ignored ledger of an unknown fleet" in said
    assert own.read_bytes() == before and len(files(tmp_path)) == 2
    said = run("advise", "--db", simulated, "--ledger", own, status=1)[1]
    assert f"The ledger {own} cannot be read: " in said and "Use another file with --ledger" in said
