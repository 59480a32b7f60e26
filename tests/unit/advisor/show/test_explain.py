# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""`explain`: what an id means, everything that is told of it, and the roofline that it draws."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.cli.explain import queries_of
from skuwise.advisor.core.advice_types import Advice, Evidence, Finding, Recommendation
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.naming import AmbiguousError
from skuwise.advisor.core.verdict_types import Alternative, BottleneckVerdict, Coverage, KindVerdict, Owner, Phase
from skuwise.advisor.provenance import SERIES, numbers_of_finding, promql_text, render_queries, sql_text
from skuwise.advisor.show.pages.explain import explain_sections
from skuwise.advisor.show.series.roofline import Roofline, roof_of, roofline
from skuwise.advisor.show.subjects import find, recommended
from skuwise.advisor.show.writers.text import sections_text
from skuwise.agent.store.reader import open_reader
from skuwise.agent.store.writer import Writer
from skuwise.rules.base.errors import UsageError
from skuwise.rules.policy.custom import load_features
from skuwise.rules.policy.thresholds import load_waste_rules
from skuwise.tests.support.golden_files import golden
from skuwise.tests.support.moves_builders import (
    START,
    advice_of,
    bare,
    catalog,
    founding,
    node,
    verdicts,
    workload,
)

HOSTILE = "\x1b[31m[red]\u202e<b>\ud800\nnext"


def test_an_id_its_beginning_and_a_name_that_is_one_workloads_are_found() -> None:
    advice = advice_of(founding())
    finding, move = advice.findings[0], advice.recommendations[0]
    assert find(advice, finding.id) is finding and find(advice, move.id) is move
    assert find(advice, move.id[:8]) is move
    assert find(advice, "w-chat").id == "w-chat"  # the whole id, though another begins with it
    alone = advice_of(verdicts([node()], [workload("alone")]))
    assert find(alone, "alone").id == "w-alone"


@pytest.mark.parametrize(
    ("asked", "said"),
    [("chat", "w-chat .*w-chat-2"), ("w-ch", "matches 2 items"), ("f-0", "No match"), ("", "No match"),
     ("w-chat-3", "Did you mean w-chat-2")],
)  # fmt: skip
def test_what_is_not_one_thing_is_refused_with_what_there_is(asked, said) -> None:
    with pytest.raises(UsageError, match=f"(?s){said}"):
        find(advice_of(founding()), asked)


def test_a_name_of_several_lists_them_with_a_command_for_each_that_names_one() -> None:
    advice = advice_of(founding())
    with pytest.raises(AmbiguousError) as caught:
        find(advice, "chat", "skuwise explain --db 'a b.db' {}".format)
    error = caught.value
    assert error.message == "'chat' matches 2 items." and error.remedy.startswith("Choose one:\n\nID ")
    lines = [line for line in error.remedy.splitlines() if line.startswith("  skuwise explain --db 'a b.db' ")]
    found = [find(advice, line.split()[-1]) for line in lines]
    assert {one.id for one in found} == {one.id for one in advice.workloads if one.name == "chat"}
    assert error.brief == "'chat' matches 2 items. Use one of these IDs: w-chat, w-chat-2."


def a_job() -> Advice:
    phases = (Phase(START, START + 86400, "training", "network"), Phase(START + 86400, START + 172_800, "idle", "idle"))
    step, other = CodedText("said", "It repeats a step."), Alternative("fine-tuning", 0.11)
    shares = {"network": 0.75, "idle": 0.25}
    told = workload(
        "job", owner=Owner(team="blue", user="ann"), phases=phases,
        kind=KindVerdict("training", 0.83, (step,), (other,)),
        bottleneck=BottleneckVerdict("network", 0.7, shares, (CodedText("said", "The network limits it."),)),
        coverage=Coverage(0.91, 30.0, {"sm_active": "dcgm-exporter does not export it."}),
        features={"tensor_per_engine": 0.4, "hbm_per_engine": 0.3, "period_seconds": 7.5},
    )  # fmt: skip
    return advice_of(verdicts([node()], [told]))


def idle() -> Advice:
    return advice_of(verdicts([node()], [], bare_gpus=[bare("n1", i) for i in range(8)]))


def rejecting(advice: Advice) -> Recommendation:
    return next(move for move in advice.recommendations if move.rejected)


@pytest.mark.parametrize(
    ("name", "made", "chosen"),
    [
        ("workload", a_job, lambda advice: find(advice, "w-job")),
        ("finding", lambda: advice_of(founding()), lambda advice: advice.findings[0]),
        (
            "recommendation",
            lambda: advice_of(founding()),
            lambda advice: next(r for r in advice.recommendations if r.rejected),
        ),
        ("idle-node", idle, lambda advice: advice.findings[0]),
    ],
)
def test_what_is_explained_reads_as_it_did(name, made, chosen) -> None:
    advice = made()
    one = chosen(advice)
    drawn = roofline(one, catalog().gpu("H100-SXM5")) if name == "workload" else None
    text = sections_text(explain_sections(advice, one, catalog(), load_waste_rules(), drawn), 100)
    assert text == golden(f"explain/{name}.txt", text) and max(map(len, text.splitlines())) <= 100


def test_outside_text_cannot_reach_the_terminal() -> None:
    odd = workload(
        "odd", kind=KindVerdict("idle", 0.9, (CodedText("said", HOSTILE),)), framework=HOSTILE, node_sku=HOSTILE
    )
    odd = replace(odd, name=HOSTILE, owner=Owner(user=HOSTILE), coverage=Coverage(1.0, 1.0, {HOSTILE: HOSTILE}),
                  features={HOSTILE: 1.0})  # fmt: skip
    advice = replace(advice_of(founding()), workloads=(odd,), findings=(), recommendations=())
    text = sections_text(explain_sections(advice, odd, drawn=roofline(odd, None)), 100)
    assert not {"\x1b", "\u202e", "\ud800"} & set(text)
    text.encode()


def test_the_roofline_is_held_against_what_is_recommended() -> None:
    advice = advice_of(founding())
    target = replace(advice.recommendations[0].target, gpu_sku="H200-SXM")
    moved = replace(advice.recommendations[0], target=target)
    advice = replace(advice, recommendations=(moved, moved, *advice.recommendations[1:]))
    chat = next(w for w in advice.workloads if w.id == moved.workload)
    assert [sku.name for sku in recommended(advice, chat, catalog())] == ["H200-SXM"]


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


def test_every_feature_of_rules_of_ones_own_has_a_series() -> None:
    assert set(load_features()) <= set(SERIES)


def test_every_select_runs_on_the_views_and_holds_no_outside_text(tmp_path: Path) -> None:
    Writer.open(tmp_path / "empty.db").close()
    advice = idle_advice(kind="sqlite", databases=[HOSTILE_QUERIES, "b.db"])
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
    assert [query.partition(",UUID=")[2].partition(",cluster=")[0] for query in queries] == [
        r'''~"x'\\); DROP TABLE nodes; --\u001b\\[31m\u202e\u000a\"\\{node\\}?"'''
    ] * 2


@pytest.mark.parametrize("value", ["plain", "it's", HOSTILE_QUERIES, "", "a\x00b", "ümlaut", "'); --"])
def test_a_literal_is_the_text_again_and_nothing_else(value: str) -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        told = db.execute(f"SELECT {sql_text(value)}").fetchall()
    assert told == [(value.encode("utf-8", "replace").decode(),)] and sql_text(value).isprintable()
    assert promql_text(value).isprintable()


def test_a_source_without_series_is_refused_with_the_way_out() -> None:
    advice = idle_advice(kind="recorded")
    with pytest.raises(UsageError, match=r"A source of kind 'recorded' has no series to query\."):
        queries_of(advice, advice.findings[0], width=100)


H100, H200, L40S, L4, T4 = (catalog().gpus[name] for name in ("H100-SXM5", "H200-SXM", "L40S", "L4", "T4"))
DECODE = {"tensor_per_engine": 0.05, "hbm_per_engine": 0.7, "tensor_utilization": 0.04, "hbm_utilization": 0.56}


def drawn(features=DECODE, sku=H100, targets=(), **changes) -> Roofline:
    return roofline(workload("chat", features=features, **changes), sku, targets)


def test_the_place_is_the_shares_of_the_printed_peaks_while_the_engine_was_active() -> None:
    found = drawn()
    assert found.place.busy and found.place.flop_per_second == pytest.approx(0.05 * H100.dense_flops["bf16"])
    assert found.place.bytes_per_second == pytest.approx(0.7 * H100.mem_bandwidth_bytes_per_second)
    assert found.place.intensity_flop_per_byte == pytest.approx(
        found.place.flop_per_second / found.place.bytes_per_second
    )
    # Left of the ridge the sustained roof is the memory's, so the place stands at m / eta of it.
    assert found.use_of_sustained == pytest.approx(0.7 / H100.achieved.mem) and found.missing == ()


def test_compute_bound_work_is_held_against_the_compute_roof() -> None:
    found = drawn({"tensor_per_engine": 0.6, "hbm_per_engine": 0.3})
    assert found.use_of_sustained == pytest.approx(0.6 / H100.achieved.bf16_gemm)
    assert "of the compute roof" in " ".join(found.sentences())


def test_a_target_moves_the_roof_by_its_sustained_bandwidth_left_of_the_ridge() -> None:
    found = drawn(targets=[H200, H100])
    assert [roof.sku for roof in found.targets] == ["H200-SXM"]  # its own SKU is no target
    expected = (H200.mem_bandwidth_bytes_per_second * H200.achieved.mem) / (
        H100.mem_bandwidth_bytes_per_second * H100.achieved.mem
    )
    assert found.bound_on(found.targets[0]) == pytest.approx(expected)


def test_what_nobody_measured_has_no_sustained_roof_and_says_so() -> None:
    roof = roof_of(replace(L4, achieved=replace(L4.achieved, bf16_gemm=None)))
    assert roof.sustained_flop_per_second is None and roof.sustained_at(100.0) is None
    found = drawn(targets=[replace(L4, achieved=replace(L4.achieved, bf16_gemm=None))])
    assert found.bound_on(found.targets[0]) is None
    assert any("No published matrix rate that L4 sustains" in sentence for sentence in found.missing)


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ({"hbm_per_engine": 0.5}, "Tensor activity is unknown: not on this GPU."),
        ({"tensor_per_engine": 0.5}, "DRAM activity is unknown"),
        ({"tensor_per_engine": 0.0, "hbm_per_engine": 0.5}, "Tensor activity is zero"),
        ({"tensor_per_engine": float("nan"), "hbm_per_engine": float("inf")}, "Tensor activity is unknown"),
        ({"tensor_per_engine": 0.5, "hbm_utilization": 0.5}, "unknown over the same time"),
        ({}, "Tensor activity is unknown"),
    ],
)
def test_without_a_place_the_reason_is_told(features, said) -> None:
    coverage = Coverage(1.0, 30.0, {"tensor_active": "not on this GPU."})
    found = drawn(features, coverage=coverage)
    assert found.place is None and any(said in sentence for sentence in found.missing)
    assert said.split(":")[0] in " ".join(found.sentences())


def test_no_roof_for_unknown_skus_and_for_instances() -> None:
    assert "not one SKU" in drawn(sku=None).missing[0]
    sliced = drawn(gpus=("MIG-1234",))
    assert sliced.source is None and "MIG instances" in sliced.missing[0]
    no_tensor = replace(H100, dense_flops={"fp32": 1e13})
    assert "no 16-bit tensor rate" in drawn(sku=no_tensor).missing[0]


def test_vector_work_that_is_not_counted_is_said() -> None:
    assert drawn().limits == ()
    assert any("vector pipes" in sentence for sentence in drawn({**DECODE, "vector_utilization": 0.4}).limits)
