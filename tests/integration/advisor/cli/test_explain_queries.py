"""Every query of every finding, run with SQLite alone on simulated fleets, gives the number that the advice claims."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from skuwise.__main__ import main
from skuwise.advisor.advise import read_and_advise
from skuwise.advisor.cli.explain import queries_of
from skuwise.advisor.core.advice_types import Advice, Evidence, Finding
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.moves.base.workload_groups import Group, groups_of
from skuwise.advisor.moves.waste.too_many_gpus import peak_use
from skuwise.advisor.pipeline import AdviseOptions, advise_on
from skuwise.advisor.provenance.features import FEATURES
from skuwise.advisor.provenance.judged_rows import TABLES, judged_tables, write_rows
from skuwise.advisor.provenance.query_builder import FindingQueries, how_to_run, queries_for
from skuwise.advisor.provenance.subject import subject_of
from skuwise.advisor.telemetry.job_table import with_jobs
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.verdicts.judge import judge
from skuwise.agent.base.slurm_job import SlurmJob
from skuwise.agent.store.reading.reader import open_reader
from skuwise.benchmarks.generators.first import simulate
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.rulebooks import rulebook

CATALOG = load_catalog()
# An end at which an instance of the MIG fleet is held and idle: at other hours it is not, and nothing is asked.
END = "2026-11-22T15:00:00Z"
LATER = 4e9  # a clock ahead of all data
# Sums in another order, and bins kept as 32-bit floats.
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("fleets")

    def made(scenario: str, days: int = 3) -> Path:
        path = folder / f"{scenario}-{days}.db"
        if not path.exists():
            simulate(scenario, path, days=days, seed=4, until=parse_moment(END))
        return path

    return made


def rows_file(frame: Frame, path: Path) -> Path:
    """The judged rows of a frame as a file."""
    write_rows(judged_tables(frame, rulebook(CATALOG)), path)
    return path


def answer_of(advice: Advice, finding: Finding) -> FindingQueries:
    return queries_for(subject_of(advice, finding))


def near(claimed: float | str | None, given: object) -> bool:
    if isinstance(claimed, str) and isinstance(given, str):
        return claimed == given
    if isinstance(claimed, (int, float)) and isinstance(given, (int, float)):
        return given == pytest.approx(claimed, rel=TOLERANCE, abs=1e-9)
    return claimed is None and given is None


def differing(rows: Path, answer: FindingQueries) -> list[tuple[str, object, object]]:
    """The numbers that the query does not give, with what is claimed and what is given."""
    if answer.statement is None:
        return []
    with closing(sqlite3.connect(f"file:{rows}?mode=ro", uri=True)) as plain:
        (row,) = plain.execute(answer.statement).fetchall()
    pairs = zip(answer.numbers, row, strict=True)
    return [(e.metric, e.value, given) for e, given in pairs if not near(e.value, given)]


def check(advice: Advice, rows: Path) -> set[str]:
    """Every finding's numbers hold; gives the rules that there were findings of."""
    for finding in advice.findings:
        answer = answer_of(advice, finding)
        told = {e.metric for e in answer.numbers} | {e.metric for e, *_ in (*answer.outside, *answer.reckoned)}
        assert {e.metric for e in finding.evidence} <= told
        assert differing(rows, answer) == [], finding.text
        for _, _, start in answer.reckoned[:1]:
            with closing(sqlite3.connect(f"file:{rows}?mode=ro", uri=True)) as plain:
                assert plain.execute(start).fetchone() is not None
    return {finding.rule for finding in advice.findings}


@pytest.fixture(scope="module")
def idle(fleets, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Advice, Path]:
    """A database, the advice on it, and the rows that it judged."""
    database = fleets("idle", 2)
    frame, advice = read_and_advise([database], rulebook(), now=LATER)
    return database, advice, rows_file(frame, tmp_path_factory.mktemp("rows") / "rows.db")


def test_the_queries_of_idle_gpus_give_their_numbers(idle) -> None:
    _, advice, rows = idle
    assert check(advice, rows) >= {"idle", "held-idle"}


def test_what_rows_were_made_of_is_read_from_the_public_views(idle) -> None:
    """As many seconds of its GPUs as the advice judged, but for the minutes after the last hour."""
    database, advice, rows = idle
    finding = next(f for f in advice.findings if f.rule == "idle")
    hours, minutes, _, uses = answer_of(advice, finding).origin
    with open_reader(database) as reader:
        seen = {row[:3] for row in (*reader.query(hours), *reader.query(minutes))}
        assert reader.query(uses) is not None
    with closing(sqlite3.connect(rows)) as plain:
        judged = plain.execute(
            f"SELECT node, gpu_uuid, ts FROM judged_rows WHERE node = '{finding.nodes[0]}' AND ts <= {advice.end}"
        ).fetchall()
    assert judged and set(judged) <= seen


def test_the_file_of_rows_holds_the_tables_that_are_documented(idle) -> None:
    with closing(sqlite3.connect(idle[2])) as plain:
        found = {name for (name,) in plain.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert found == set(TABLES)
        for name in found:
            assert plain.execute(f"SELECT count(*) FROM {name}").fetchone()[0] or name in (
                "compute_ports",
                "port_history",
            )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "days", "rules"),
    [
        ("small", 4, {"idle", "held-idle", "idle-fabric", "under-tier"}),
        ("telemetry-fault", 3, {"telemetry-fault"}),
        ("throttled", 3, {"fix-first"}),
        ("standby", 4, {"held-idle"}),
        ("notebooks", 4, {"memory-unused"}),
        ("light", 4, {"idle-fabric"}),
        ("founding", 3, {"idle-fabric"}),
        ("mig", 3, set()),
    ],
)
def test_the_queries_of_every_finding_give_their_numbers(
    fleets, scenario: str, days: int, rules: set[str], tmp_path: Path
) -> None:
    frame, advice = read_and_advise([fleets(scenario, days)], rulebook(), now=LATER)
    assert check(advice, rows_file(frame, tmp_path / "rows.db")) >= rules


def evidence_of(group: Group) -> Iterator[tuple[str, tuple[Evidence, ...]]]:
    """What rules would say of a group, whether or not they do."""
    told = [(name, group.feature(name)) for name in FEATURES]
    # Above its threshold a custom rule looks at the lowest of several workloads, below at the highest.
    yield "a-custom-rule", tuple(Evidence(name, value, 1e18, "") for name, value in told if value is not None)
    if group.demand_p95 is not None:
        yield (
            "too-many-gpus",
            (
                Evidence("use_p99", peak_use(group)[1], None, "ratio"),
                Evidence("demand_p95", group.demand_p95, None, "ratio"),
                Evidence("gpus_held", float(group.gpu_count), None, "GPUs"),
            ),
        )
    if (compute := group.feature("tensor_of_sustained_p95")) is not None:
        yield "over-tier", (Evidence("compute_use_p95", compute, None, "ratio"),)


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "days"), [("fine-tuning", 3), ("notebooks", 4), ("decode", 3)])
def test_what_rules_measure_of_any_work_is_given_by_their_queries(
    fleets, scenario: str, days: int, tmp_path: Path
) -> None:
    frame = read_frame([fleets(scenario, days)])
    rows = rows_file(frame, tmp_path / "rows.db")
    verdicts = judge(frame, rulebook(CATALOG))
    advice = advise_on(
        verdicts, rulebook(), AdviseOptions(verdicts.window.end), np.random.default_rng(1), source=frame.source,
    )  # fmt: skip
    compared = 0
    for group in groups_of(verdicts)[:3]:
        for rule, evidence in evidence_of(group):
            finding = Finding(
                "f-x", rule, "low", group.lead.id, None, group.gpus, evidence, group.gpu_hours, None, None, 0.5, (), "",
                nodes=tuple(n.node for n in group.nodes),
            )  # fmt: skip
            answer = answer_of(advice, finding)
            assert differing(rows, answer) == []
            compared += len(answer.numbers)
    assert compared > 20


def test_the_printed_script_runs_as_it_is_on_the_rows_that_are_written(idle, tmp_path: Path, capsys) -> None:
    database, advice, _ = idle
    finding = next(f for f in advice.findings if f.rule == "idle")
    rows = tmp_path / "rows.db"
    asked = ["explain", "--db", str(database), "--no-ledger", "--query", "--rows", str(rows), finding.id]
    assert main(asked) == 0
    script = capsys.readouterr().out
    with closing(sqlite3.connect(f"file:{rows}?mode=ro", uri=True)) as plain:
        row = plain.execute(script).fetchone()
    assert near(finding.gpu_hours, row[[e.metric for e in answer_of(advice, finding).numbers].index("gpu_hours")])
    assert main(asked) == 2


def test_a_recommendation_has_the_queries_of_its_findings(idle) -> None:
    advice = idle[1]
    finding = next(f for f in advice.findings if f.rule == "idle")
    move = next(r for r in advice.recommendations if finding.id in r.findings)
    assert f"Finding {finding.id}, idle" in queries_of(advice, move, width=100)


@pytest.mark.slow
def test_numbers_of_several_databases_come_from_the_rows_of_all(fleets, tmp_path: Path) -> None:
    frame, advice = read_and_advise([fleets("idle"), fleets("founding")], rulebook(), now=LATER)
    assert check(advice, rows_file(frame, tmp_path / "rows.db")) >= {"idle", "held-idle", "idle-fabric"}


def test_a_wrong_number_would_be_noticed(idle) -> None:
    _, advice, rows = idle
    finding = advice.findings[0]
    wrong = tuple(replace(e, value=e.value * 1.05 + 1.0) for e in finding.evidence if isinstance(e.value, float))
    answer = answer_of(advice, replace(finding, evidence=wrong, gpu_hours=finding.gpu_hours * 1.01))
    assert {metric for metric, *_ in differing(rows, answer)} >= {e.metric for e in wrong} | {"gpu_hours"}


@pytest.mark.slow
def test_the_queries_run_on_rows_that_slurms_job_table_cut(fleets, tmp_path: Path) -> None:
    """Each Slurm job of the fleet requeued in its middle, and started two minutes before it was observed."""
    bare = read_frame([fleets("small", 4)], now=LATER)
    slurm = bare.workloads[(bare.workloads["scheduler"] == "slurm") & bare.workloads["job_id"].notna()]
    table = []
    for job, first, last in zip(slurm["job_id"], slurm["first_seen"], slurm["last_seen"], strict=True):
        middle = round((first + last) / 2)
        table += [
            SlurmJob(job, round(first) - 100, middle, name="a"),
            SlurmJob(job, middle + 90, round(last), name="a"),
        ]
    assert table
    frame = with_jobs(bare, table)
    assert len(frame.workloads) == len(bare.workloads) + len(slurm)
    advice = advise_on(
        judge(frame, rulebook()), rulebook(), AdviseOptions(LATER), np.random.default_rng(1), source=frame.source,
    )  # fmt: skip
    assert check(advice, rows_file(frame, tmp_path / "rows.db"))
    assert "--rows" in "\n".join(how_to_run(advice))
