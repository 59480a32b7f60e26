"""`explain --query`: each number with the plain query that reads its series, and nothing from outside that escapes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.cli.explain import queries_of
from skuwise.advisor.core.advice_types import Advice, Evidence, Finding
from skuwise.advisor.provenance import literals
from skuwise.advisor.provenance.queries import SERIES, numbers_of_finding, render_queries
from skuwise.agent.store.file.database import open_for_writing
from skuwise.agent.store.reading.reader import open_reader
from skuwise.rules.base.errors import UsageError
from skuwise.rules.policy.features import FEATURES
from skuwise.tests.support.moves_builders import advice_of, bare, founding, node, verdicts

HOSTILE = "x'); DROP TABLE nodes; --\x1b[31m\u202e\n\"{node}\udcff"
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
    evidence = tuple(Evidence(metric, HOSTILE, 0, HOSTILE) for metric in metrics)
    return replace(finding, evidence=evidence, text=HOSTILE, nodes=(HOSTILE, "n1"), gpus=(HOSTILE,))


def plain(script: str, mark: str) -> list[str]:
    """The queries of a script, after whatever could fool a terminal was looked for."""
    assert not {"\x1b", "\u202e", "\udcff"} & set(script)
    return [line for line in script.splitlines() if line and not line.startswith(mark)]


def test_every_number_stands_above_the_select_that_reads_its_series() -> None:
    advice = idle_advice(kind="sqlite", databases=["it's.db"])
    finding = advice.findings[0]
    lines = queries_of(advice, finding, width=100).splitlines()
    assert lines[0] == "-- Each SELECT runs with sqlite3 -readonly on it's.db"
    for evidence in finding.evidence:
        query = lines[lines.index(f"-- {evidence.metric} = {evidence.value} {evidence.unit}") + 1]
        assert query.startswith("SELECT ts, interval_seconds, node, gpu_uuid, ")
        assert f"FROM gpu_hours WHERE node IN ('n1') AND gpu_uuid IN ('{finding.gpus[0]}', " in query
        assert f"ts > {advice.start!r} AND ts <= {advice.end!r};" in query
    assert any(line.startswith("-- cost_usd = ") and line.endswith("price of their node") for line in lines)


def test_a_recommendation_tells_its_own_numbers_and_those_of_its_findings() -> None:
    advice = replace(advice_of(founding()), source={"kind": "sqlite", "databases": ["a.db", "b.db"]})
    move = next(r for r in advice.recommendations if r.time_ratio and r.saving_usd_per_month)
    text = queries_of(advice, move, width=100)
    assert f"-- time_ratio = {move.time_ratio.p50} ratio\nSELECT ts," in text  # type: ignore[union-attr]
    assert "-- saving_usd_per_month = " in text and "from the prices of the nodes" in text
    assert all(f"-- Finding {found}, " in text for found in move.findings)
    about = next(w for w in advice.workloads if w.id == move.workload)
    assert all(f"'{gpu}'" in text for gpu in about.gpus)


def test_every_feature_of_rules_of_ones_own_has_a_series() -> None:
    assert set(FEATURES) <= set(SERIES)


def test_every_select_runs_on_the_views_and_holds_no_outside_text(tmp_path: Path) -> None:
    connection, _ = open_for_writing(tmp_path / "empty.db", lambda: 0.0)
    connection.close()
    advice = idle_advice(kind="sqlite", databases=[HOSTILE, "b.db"])
    script = render_queries(advice, [numbers_of_finding(hostile(advice.findings[0], *SERIES))])
    queries = plain(script, "--")
    assert len(queries) == len(SERIES)
    with open_reader(tmp_path / "empty.db") as reader:
        assert not any(reader.fetch(sql.rstrip(";")) for sql in set(queries))


def test_a_server_is_asked_for_the_samples_of_the_series_that_it_has() -> None:
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
    assert [one.partition(",UUID=")[2].partition(",cluster=")[0] for one in queries] == [
        r'''~"x'\\); DROP TABLE nodes; --\u001b\\[31m\u202e\u000a\"\\{node\\}?"'''
    ] * 2


@pytest.mark.parametrize("value", ["plain", "it's", HOSTILE, "", "a\x00b", "ümlaut", "'); --"])
def test_a_literal_is_the_text_again_and_nothing_else(value: str) -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        told = db.execute(f"SELECT {literals.sql_text(value)}").fetchall()
    assert told == [(value.encode("utf-8", "replace").decode(),)]
    assert literals.sql_text(value).isprintable()
    assert literals.promql_text(value).isprintable()


def test_a_source_without_series_is_refused_with_the_way_out() -> None:
    advice = idle_advice(kind="recorded")
    with pytest.raises(UsageError, match=r"A source of kind 'recorded' has no series to query\."):
        queries_of(advice, advice.findings[0], width=100)
