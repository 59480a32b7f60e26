# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportAttributeAccessIssue=false
"""`explain`: what an id means, what is claimed of it and why, and the queries behind its numbers."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.cli.explain import queries_of
from skuwise.advisor.core.advice_types import Advice, Evidence, Finding
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.ids import AmbiguousError
from skuwise.advisor.core.verdict_types import Alternative, BottleneckVerdict, Coverage, KindVerdict, Owner, Phase
from skuwise.advisor.provenance import SERIES, promql_text, render_queries, sql_text
from skuwise.advisor.show.pages.explain import explain_page
from skuwise.advisor.show.reader_links import ReaderCommands
from skuwise.advisor.show.subjects import Subject, find
from skuwise.advisor.show.writers.text import document_text
from skuwise.agent.store.reader import open_reader
from skuwise.agent.store.writer import Writer
from skuwise.rules.base.errors import UsageError
from skuwise.rules.policy.thresholds import load_features, load_waste_rules
from skuwise.tests.support.golden_files import golden
from skuwise.tests.support.moves_builders import START, advice_of, bare, catalog, founding, node, verdicts, workload

HOSTILE = "\x1b[31m[red]\u202e<b>\ud800\nnext"
LINES_MAX, WIDTH = 45, 100
AGAIN = ReaderCommands("skuwise", "--db fleet.db")


def explained(advice: Advice, subject: Subject, verbose: bool = False) -> str:
    page = explain_page(advice, subject, catalog(), load_waste_rules(), verbose=verbose, again=AGAIN)
    return document_text(page, width=WIDTH)


def test_an_id_its_beginning_and_a_unique_name_are_found() -> None:
    advice = advice_of(founding())
    finding, move = advice.findings[0], advice.recommendations[0]
    assert find(advice, finding.id) is finding and find(advice, move.id) is move
    assert find(advice, move.id[:8]) is move
    assert find(advice, "w-chat").id == "w-chat"  # a whole id, though another begins with it
    alone = advice_of(verdicts([node()], [workload("alone")]))
    assert find(alone, "alone").id == "w-alone"


@pytest.mark.parametrize(
    ("asked", "message"),
    [("chat", "w-chat .*w-chat-2"), ("w-ch", "matches 2 items"), ("f-0", "No match"), ("", "No match"),
     ("w-chat-3", "Did you mean w-chat-2")],
)  # fmt: skip
def test_ambiguous_and_unknown_names_are_refused_with_candidates(asked: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){message}"):
        find(advice_of(founding()), asked)


def test_a_name_of_several_lists_them_with_a_command_for_each() -> None:
    advice = advice_of(founding())
    with pytest.raises(AmbiguousError) as caught:
        find(advice, "chat", "skuwise explain --db 'a b.db' {}".format)
    error = caught.value
    assert error.message == "'chat' matches 2 items." and error.remedy.startswith("Choose one:\n\nID ")
    lines = [line for line in error.remedy.splitlines() if line.startswith("  skuwise explain --db 'a b.db' ")]
    ids = {find(advice, line.split()[-1]).id for line in lines}
    assert ids == {w.id for w in advice.workloads if w.name == "chat"}


def a_job() -> Advice:
    phases = (Phase(START, START + 86400, "training", "network"), Phase(START + 86400, START + 172_800, "idle", "idle"))
    step, other = CodedText("said", "It repeats a step."), Alternative("fine-tuning", 0.11)
    shares = {"network": 0.75, "idle": 0.25}
    job = workload(
        "job", owner=Owner(team="blue", user="ann"), phases=phases,
        kind=KindVerdict("training", 0.83, (step,), (other,)),
        bottleneck=BottleneckVerdict("network", 0.7, shares, (CodedText("said", "The network limits it."),)),
        coverage=Coverage(0.91, 30.0, {"sm_active": "dcgm-exporter does not export it."}),
        features={"tensor_per_engine": 0.4, "hbm_per_engine": 0.3, "period_seconds": 7.5},
    )  # fmt: skip
    return advice_of(verdicts([node()], [job]))


def idle() -> Advice:
    return advice_of(verdicts([node()], [], bare_gpus=[bare("n1", i) for i in range(8)]))


CASES: dict[str, tuple[Callable[[], Advice], Callable[[Advice], Subject]]] = {
    "workload": (a_job, lambda advice: find(advice, "w-job")),
    "finding": (lambda: advice_of(founding()), lambda advice: advice.findings[0]),
    "recommendation": (lambda: advice_of(founding()), lambda a: next(r for r in a.recommendations if r.rejected)),
    "idle-node": (idle, lambda advice: advice.findings[0]),
}


@pytest.mark.parametrize("verbose", [False, True], ids=["short", "verbose"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_explained_reads_as_it_did(name: str, verbose: bool) -> None:
    advice = CASES[name][0]()
    text = explained(advice, CASES[name][1](advice), verbose)
    assert text == golden(f"explain/{name}{'-verbose' if verbose else ''}.txt", text)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert verbose or text.count("\n") <= LINES_MAX


def test_a_claim_on_several_replicas_names_all_of_them() -> None:
    advice = advice_of(founding())
    move = next(r for r in advice.recommendations if r.shown)
    for subject in (move, advice.findings[0], advice.workloads[0]):
        assert "2 replicas of chat: w-chat, w-chat-2." in explained(advice, subject)
    alone = a_job()
    assert "replicas" not in explained(alone, alone.workloads[0])


def test_a_short_explanation_has_five_facts_with_thresholds_first() -> None:
    advice = advice_of(founding())
    finding = advice.findings[0]
    evidence = tuple(Evidence(f"m{n}", 0.5, None if n < 4 else 0.1, "ratio") for n in range(9))
    advice = replace(advice, findings=(replace(finding, evidence=evidence),))
    (table,) = explain_page(advice, advice.findings[0]).sections[0].blocks
    assert [row[0] for row in table.rows] == ["m4", "m5", "m6", "m7", "m8"]
    (table,) = explain_page(advice, advice.findings[0], verbose=True).sections[0].blocks
    assert len(table.rows) == 9


def test_outside_text_cannot_reach_the_terminal() -> None:
    odd = workload(
        "odd", kind=KindVerdict("idle", 0.9, (CodedText("said", HOSTILE),)), framework=HOSTILE, node_sku=HOSTILE
    )
    odd = replace(odd, name=HOSTILE, owner=Owner(user=HOSTILE), coverage=Coverage(1.0, 1.0, {HOSTILE: HOSTILE}),
                  features={HOSTILE: 1.0})  # fmt: skip
    advice = replace(advice_of(founding()), workloads=(odd,), findings=(), recommendations=())
    text = explained(advice, odd, verbose=True)
    assert not {"\x1b", "\u202e", "\ud800"} & set(text)
    text.encode()


HOSTILE_QUERIES = "x'); DROP TABLE nodes; --\x1b[31m\u202e\n\"{node}\udcff"
ASKED = {
    "sm_active_mean": ["avg_over_time(DCGM_FI_PROF_SM_ACTIVE[3600s])"],
    "engine_mean": ["avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE[3600s])"],
    "observed": ["increase(skuwise_gpu_observed_seconds_total[3600s])"],
    "fabric tx_mean": ["rate(node_infiniband_port_data_transmitted_bytes_total[3600s])"],
    "fabric util": ['increase(skuwise_fabric_util_distribution_ratio_bucket{cluster="eu"}[3600s])'],
}
PROMETHEUS = {"kind": "prometheus", "url": "http://prom:9090", "match": ['cluster="eu"'], "asked": ASKED}


def idle_advice(**source: object) -> Advice:
    advice = advice_of(verdicts([node()], [], bare_gpus=[bare("n1", i) for i in range(8)]))
    return replace(advice, source=source)


def hostile(finding: Finding, *metrics: str) -> Finding:
    evidence = tuple(Evidence(metric, HOSTILE_QUERIES, 0, HOSTILE_QUERIES) for metric in metrics)
    return replace(
        finding, evidence=evidence, text=HOSTILE_QUERIES, nodes=(HOSTILE_QUERIES, "n1"), gpus=(HOSTILE_QUERIES,)
    )


def plain(script: str, mark: str) -> list[str]:
    """The queries of a script without characters that could fool a terminal."""
    assert not {"\x1b", "\u202e", "\udcff"} & set(script)
    return [line for line in script.splitlines() if line and not line.startswith(mark)]


def test_every_number_is_above_the_select_that_reads_its_series() -> None:
    advice = idle_advice(kind="sqlite", databases=["it's.db"])
    finding = advice.findings[0]
    lines = queries_of(advice, finding, width=100).splitlines()
    assert lines[0] == "-- Each SELECT runs with sqlite3 -readonly on it's.db"
    for evidence in finding.evidence:
        query = lines[lines.index(f"-- {evidence.metric} = {evidence.value} {evidence.unit}") + 1]
        assert query.startswith("SELECT ts, interval_seconds, node, gpu_uuid, ")
        assert f"FROM gpu_hours WHERE node IN ('n1') AND gpu_uuid IN ('{finding.gpus[0]}', " in query
        assert f"ts > {advice.start!r} AND ts <= {advice.end!r};" in query
    assert any(line.startswith("-- cost_usd = ") and line.endswith("prices of the nodes") for line in lines)


def test_every_feature_of_custom_rules_has_a_series() -> None:
    assert set(load_features()) <= set(SERIES)


def test_every_select_runs_on_the_views_and_holds_no_outside_text(tmp_path: Path) -> None:
    Writer.open(tmp_path / "empty.db").close()
    advice = idle_advice(kind="sqlite", databases=[HOSTILE_QUERIES, "b.db"])
    script = render_queries(advice, [hostile(advice.findings[0], *SERIES)])
    queries = plain(script, "--")
    assert len(queries) == len(SERIES)
    with open_reader(tmp_path / "empty.db") as reader:
        assert not any(reader.fetch(sql.rstrip(";")) for sql in set(queries))


def test_queries_of_a_server_name_the_series_that_it_has() -> None:
    advice = idle_advice(**PROMETHEUS)
    metrics = ("engine_active", "hours", "fabric_util_p995", "duty")
    evidence = tuple(Evidence(name, 0.1, None, "ratio") for name in metrics)
    finding = replace(advice.findings[0], gpus=("GPU-1", "GPU-2/gi3"), nodes=("a.b",), evidence=evidence)
    window = f"[{advice.end - advice.start:.0f}s] @ {advice.end:.0f}"
    script = queries_of(advice, finding, width=100)
    assert script.startswith("# Each query runs on http://prom:9090/api/v1/query\n")
    assert "# duty = 0.1 ratio: this server has no series of it" in script
    names = "DCGM_FI_PROF_GR_ENGINE_ACTIVE|DCGM_FI_PROF_SM_ACTIVE"
    engine = f'{{__name__=~"{names}",UUID=~"GPU-1|GPU-2",cluster="eu"}}{window}'
    transmitted = "node_infiniband_port_data_transmitted_bytes_total"
    assert plain(script, "#") == [
        engine,
        f'skuwise_gpu_observed_seconds_total{{gpu_uuid=~"GPU-1|GPU-2/gi3",cluster="eu"}}{window}',
        f'skuwise_fabric_util_distribution_ratio_bucket{{node=~"a\\\\.b",cluster="eu"}}{window}',
        f'{transmitted}{{instance=~"(a\\\\.b)([.:].*)?",cluster="eu"}}{window}',
        engine,  # of the GPU-hours
    ]


def test_a_selector_holds_no_outside_text() -> None:
    advice = idle_advice(**PROMETHEUS)
    queries = plain(queries_of(advice, hostile(advice.findings[0], "engine_active"), width=100), "#")
    assert [query.partition(",UUID=")[2].partition(",cluster=")[0] for query in queries] == [
        r'''~"x'\\); DROP TABLE nodes; --\U0000001b\\[31m\U0000202e\U0000000a\"\\{node\\}?"'''
    ] * 2


@pytest.mark.parametrize("value", ["plain", "it's", HOSTILE_QUERIES, "", "a\x00b", "ümlaut", "'); --"])
def test_a_literal_is_the_text_again_and_nothing_else(value: str) -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        rows = db.execute(f"SELECT {sql_text(value)}").fetchall()
    assert rows == [(value.encode("utf-8", "replace").decode(),)] and sql_text(value).isprintable()
    assert promql_text(value).isprintable()


def test_a_source_without_series_is_refused_with_a_remedy() -> None:
    advice = idle_advice(kind="recorded")
    with pytest.raises(UsageError, match=r"A source of kind 'recorded' has no series to query\."):
        queries_of(advice, advice.findings[0], width=100)
