"""The queries behind findings: every metric has a source, every query is one SELECT that SQLite 3.26 takes."""

from __future__ import annotations

import ast
import inspect
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from skuwise.advisor.core.advice_types import Advice, Evidence, Finding
from skuwise.advisor.core.number_sources import Outside, Reckoned, Sql
from skuwise.advisor.moves.waste_rules import RULES
from skuwise.advisor.provenance import literals
from skuwise.advisor.provenance.features import FEATURES
from skuwise.advisor.provenance.judged_rows import TABLES, write_rows
from skuwise.advisor.provenance.metric_sources import source_of
from skuwise.advisor.provenance.query_builder import how_to_run, queries_for
from skuwise.advisor.provenance.query_script import render_queries
from skuwise.advisor.provenance.row_queries import BLOCKS
from skuwise.advisor.provenance.subject import Subject, subject_of
from skuwise.agent.store.file.database import open_for_writing
from skuwise.agent.store.reading.reader import open_reader
from skuwise.rules.base.errors import UsageError
from skuwise.rules.policy.features import FEATURES as MEANINGS
from skuwise.rules.policy.thresholds import load_waste_rules
from skuwise.tests.support.moves_builders import advice_of, bare, founding, node, verdicts

HOSTILE = "x'); DROP TABLE nodes; --\x1b[31m\u202e\n{node}\udcff"
# Present in SQLite 3.26 as built by default, with JSON1 (https://www.sqlite.org/changes.html).
FUNCTIONS = {
    "avg", "coalesce", "count", "json_each", "lag", "lead", "max", "min", "nullif", "row_number", "strftime", "sum",
}  # fmt: skip
# What may stand before a parenthesis and is no function.
WORDS = {
    "and", "as", "by", "case", "cast", "else", "exists", "from", "in", "join", "not", "on", "or", "over", "select",
    "then", "values", "when", "where",
}  # fmt: skip


def metrics_named_in(function: object) -> set[str]:
    """The metrics that the module of a waste rule puts into evidence."""
    source = inspect.getsourcefile(function)  # type: ignore[arg-type]
    assert source is not None
    calls = (n for n in ast.walk(ast.parse(Path(source).read_text())) if isinstance(n, ast.Call))
    named = [c.args[0] for c in calls if isinstance(c.func, ast.Name) and c.func.id == "Evidence"]
    assert all(isinstance(n, ast.Constant) for n in named), "name the metric where the evidence is made"
    return {str(n.value) for n in named if isinstance(n, ast.Constant)}


def test_every_rule_that_there_is_has_its_queries() -> None:
    assert set(RULES) == set(load_waste_rules())


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_metric_of_a_rule_has_a_source(rule: str) -> None:
    named = metrics_named_in(RULES[rule].judge)
    assert named
    assert named <= set(RULES[rule].metrics)
    assert set(RULES[rule].metrics) - named <= {"gpu_hours", "cost_usd"}


def test_every_feature_that_a_custom_rule_may_ask_for_has_a_source() -> None:
    assert set(FEATURES) == set(MEANINGS)


def test_few_numbers_are_given_by_no_query() -> None:
    """A rule that adds one says so here, and why: labels are the judge's, the energy's a model's."""
    reckoned = {
        f"{rule} {name}" for rule in RULES for name, s in RULES[rule].metrics.items() if isinstance(s, Reckoned)
    }
    assert reckoned == {
        "over-tier bound_by_memory", "under-tier bound_by_link", "fix-first held_back", "fix-first lost_at_most",
        "fix-first bottleneck", "energy power_after", "energy energy_saved", "energy energy_saved_per_month",
        "energy slowdown_expected",
    }  # fmt: skip


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("queries") / "empty.db"
    write_rows({name: pd.DataFrame(columns=[c.split()[0] for c in columns]) for name, columns in TABLES.items()}, path)
    return path


def about(rule: str, metrics: list[str]) -> Subject:
    """A subject whose every name is hostile."""
    advice = advice_of(founding())
    evidence = tuple(Evidence(metric, 0.5, 0.4, "ratio") for metric in metrics)
    finding = replace(advice.findings[0], rule=rule, evidence=evidence, nodes=(HOSTILE, "n1"), gpus=(HOSTILE,))
    odd = tuple(replace(w, id=f"{HOSTILE}{w.id}", nodes=(HOSTILE,)) for w in advice.workloads)
    return replace(subject_of(advice, finding), workloads=odd, now=odd)


STATEMENTS = [pytest.param(rule, list(described.metrics), id=rule) for rule, described in RULES.items()]
STATEMENTS.append(pytest.param("my-own-rule", list(FEATURES), id="features"))


@pytest.mark.parametrize(("rule", "metrics"), STATEMENTS)
def test_every_query_is_one_select_that_old_sqlite_takes(rule: str, metrics: list[str], empty: Path) -> None:
    answer = queries_for(about(rule, metrics))
    for sql in {sql for sql in (answer.statement, *(rows for _, _, rows in answer.reckoned)) if sql}:
        with closing(sqlite3.connect(f"file:{empty}?mode=ro", uri=True)) as plain:
            rows = plain.execute(sql).fetchall()  # refuses more than one statement
        if sql == answer.statement:
            assert [len(row) for row in rows] == [len(answer.numbers)]
        code = re.sub(r"--[^\n]*|'[^']*'", "", sql).lower()
        called = set(re.findall(r"(\w+)\s*\(", code))
        assert called <= FUNCTIONS | WORDS
        for newer in (r"\bfilter\s*\(", r"\bnulls\s+(first|last)\b", r"\bmaterialized\b", r"->", r"\breturning\b"):
            assert not re.search(newer, code)
        assert not {"\x1b", "\u202e", "\udcff"} & set(sql)


def test_what_rows_are_made_of_asks_the_public_views_alone(tmp_path: Path) -> None:
    connection, _ = open_for_writing(tmp_path / "empty.db", lambda: 0.0)
    connection.close()
    origin = queries_for(about("idle", ["idle_hours"])).origin
    with open_reader(tmp_path / "empty.db") as reader:
        assert origin and not any(reader.query(sql) for sql in origin)  # refuses whatever is no SELECT on the views


def test_every_block_is_used_and_stands_on_blocks_there_are() -> None:
    known = BLOCKS
    needed = {name for block in known.values() for name in block.needs}
    every = (*(described.metrics for described in RULES.values()), FEATURES)
    sources = [s for metrics in every for s in metrics.values() if not isinstance(s, Outside)]
    needed |= {name for source in sources for name in source.blocks}
    assert needed == set(known)


@pytest.mark.parametrize("value", ["plain", "it's", HOSTILE, "", "a\x00b", "ümlaut", "'); --"])
def test_a_literal_is_the_text_again_and_nothing_else(value: str) -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        told = db.execute(f"SELECT {literals.text_literal(value)}").fetchall()
    assert told == [(value.encode("utf-8", "replace").decode(),)]
    assert literals.text_literal(value).isprintable()


def test_a_literal_number_keeps_its_last_bit() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        for value in (0.1, 1 / 3, 1e300, -5.0):
            assert db.execute(f"SELECT {literals.number_literal(value)}").fetchone() == (value,)
        for missing in (None, float("nan"), float("inf")):
            assert db.execute(f"SELECT {literals.number_literal(missing)}").fetchone() == (None,)


def script(advice: Advice, finding: Finding) -> str:
    return render_queries([(finding, queries_for(subject_of(advice, finding)))], how_to_run(advice), width=100)


def test_what_is_printed_is_comments_and_statements_with_the_numbers_they_give() -> None:
    advice = advice_of(verdicts([node()], [], bare_gpus=[bare("n1", i) for i in range(8)]))
    advice = replace(advice, source={"kind": "sqlite", "databases": ["it's.db"]})
    text = script(advice, advice.findings[0])
    assert text.splitlines()[0].endswith(" 'it'\"'\"'s.db'")
    assert "sqlite3 -readonly -line rows.db < query.sql" in text
    for evidence in advice.findings[0].evidence:
        assert f"--   {evidence.metric} = {evidence.value!r}" in text
        assert f") AS {evidence.metric}" in text
    statement = [line for line in text.splitlines() if not line.startswith("--")]
    assert sqlite3.complete_statement("\n".join(statement))


def test_a_file_that_begins_with_a_dash_is_no_option_of_a_shell_line() -> None:
    advice = replace(
        advice_of(verdicts([node()], [])), source={"kind": "sqlite", "databases": ["-init $(id).db", "b.db"]}
    )
    assert how_to_run(advice)[0].endswith(" './-init $(id).db' b.db")


def test_outside_text_stays_within_its_comment() -> None:
    advice = advice_of(founding())
    finding = replace(
        advice.findings[0], text=HOSTILE, rule="my-own-rule", evidence=(Evidence("sync", HOSTILE, 0, HOSTILE),)
    )
    text = script(replace(advice, source={"kind": "sqlite", "databases": [HOSTILE, "b.db"]}), finding)
    assert not {"\x1b", "\u202e", "\udcff"} & set(text)
    assert not [line for line in text.splitlines() if line.startswith(("[31m", "{node}"))]


def test_numbers_that_no_query_gives_are_told_with_their_formula() -> None:
    advice = advice_of(founding())
    evidence = (Evidence("held_back", 0.3, 0.2, "ratio"), Evidence("fabric_premium", 9.0, None, "USD"))
    text = script(advice, replace(advice.findings[0], rule="fix-first", evidence=evidence))
    assert "Computed from the rows below" in text
    assert "held_back: each row has the label" in " ".join(text.replace("-- ", "").split())
    assert isinstance(source_of(replace(advice.findings[0], rule="idle-fabric"), "fabric_premium"), Outside)
    assert source_of(advice.findings[0], "no-such-metric") is None
    assert isinstance(RULES["idle"].metrics["idle_hours"], Sql)


@pytest.mark.parametrize("kind", ["merged", "recorded"])
def test_a_source_without_queries_is_refused_with_the_way_out(kind: str) -> None:
    advice = replace(advice_of(founding()), source={"kind": kind})
    with pytest.raises(UsageError, match=rf"no queries for a source of kind '{kind}' yet\."):
        how_to_run(advice)
    with pytest.raises(UsageError):
        queries_for(subject_of(advice, advice.findings[0]))
