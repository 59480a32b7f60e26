# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""Advice of shards joined into one: what adds up, what is said once, what is refused."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import fields, replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skuwise.__main__ import main
from skuwise.advisor.core.advice_types import (
    Advice,
    Configuration,
    Decision,
    Evidence,
    Finding,
    Interval,
    Recommendation,
    Reconciliation,
    Summary,
)
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.verdict_types import (
    Alternative,
    BottleneckVerdict,
    Coverage,
    KindVerdict,
    Latency,
    LatencyFigures,
    Phase,
    Scheduled,
)
from skuwise.advisor.pipeline import AdviseOptions, advise
from skuwise.advisor.render import format_names, render
from skuwise.advisor.render.json import load_schema
from skuwise.advisor.shards.advice_parser import MAX_BYTES, Allowance, parse_advice
from skuwise.advisor.shards.merge import merge_advice
from skuwise.advisor.shards.merge_items import one_workload
from skuwise.rules.base.errors import UsageError
from skuwise.rules.catalog.types import Price
from skuwise.tests.support.frame_builder import DECODE, FREE, TRAINING, FrameBuilder
from skuwise.tests.support.moves_builders import (
    END,
    PLAIN,
    START,
    advice_of,
    bare,
    catalog,
    node,
    usage,
    verdicts,
    workload,
)
from skuwise.tests.support.rulebooks import rulebook
from skuwise.tests.support.seeds import examples

GOLDEN = Path(__file__).parents[3] / "golden/advice_founding.json"
DOMINANT = 0.4
PARTS = ("workloads", "shared", "allocated_idle", "unallocated", "drained", "unobserved")


def joined(*parts: Advice) -> Advice:
    """Merged as files are: through JSON, under names in the order given."""
    read = {f"{n}.json": parse_advice(render(a, "json").encode(), f"{n}.json") for n, a in enumerate(parts)}
    return merge_advice(read, DOMINANT)


def data_of(advice: Advice) -> dict:
    return json.loads(render(advice, "json"))


def cut(fleet, names):
    """The part of a fleet (nodes, workloads, bare GPUs) that a shard of these nodes sees."""
    nodes, workloads, bares = fleet
    own = []
    for w in workloads:
        gpus = tuple(g for g in w.gpus if any(g.startswith(f"GPU-{n}-") for n in names))
        if gpus:
            hours = w.gpu_hours * len(gpus) / len(w.gpus)
            own.append(replace(w, nodes=tuple(n for n in w.nodes if n in names), gpus=gpus, gpu_hours=hours))
    return verdicts(
        [n for n in nodes if n.node in names], own, bare_gpus=[b for b in bares if b.node in names],
        uses=[usage(w, u_n=0.2) for w in own],
    )  # fmt: skip


def fleet():
    """A service of two replicas, a training over two nodes, a bare node, and one without a price."""
    nodes = [node(f"n{i}") for i in range(1, 6)] + [node("odd", None)]
    workloads = [
        workload("chat", ("n1",)), workload("chat", ("n2",), id="w-chat-2"),
        workload("train", ("n3", "n4"), kind="training"), workload("odd", ("odd",), node_sku=None),
    ]  # fmt: skip
    return nodes, workloads, [bare("n5", i) for i in range(8)]


ALL = ("n1", "n2", "n3", "n4", "n5", "odd")


@pytest.fixture(scope="module")
def whole() -> Advice:
    return advice_of(cut(fleet(), ALL))


@pytest.fixture(scope="module")
def shards() -> list[Advice]:
    """Cut so that the service's replicas and the training's nodes are parted."""
    return [advice_of(cut(fleet(), names)) for names in (("n1", "n3"), ("n2", "n4", "n5"), ("odd",))]


def test_one_file_is_itself(capsys):
    assert main(["merge", str(GOLDEN)]) == 0
    assert capsys.readouterr().out == GOLDEN.read_text()


def test_shards_that_part_nothing_add_up_to_the_advice_of_the_whole(whole):
    parts = [advice_of(cut(fleet(), names)) for names in (("n1", "n2"), ("n3", "n4"), ("n5", "odd"))]
    told, expected = data_of(joined(*parts)), data_of(whole)
    for name in ("window", "generated_at", "nodes", "prices", "fabrics"):
        assert told[name] == expected[name]
    for name in ("gpu_count", "gpu_hours", "cost_usd", "wasted_usd", "reconciliation"):
        assert told["summary"][name] == pytest.approx(expected["summary"][name])
    by_id, known = ({w["id"]: w for w in one["workloads"]} for one in (told, expected))
    assert by_id == known
    for name in ("findings", "recommendations"):
        assert {one["id"] for one in told[name]} == {one["id"] for one in expected[name]}
    assert {f["id"]: f["cost_usd"] for f in told["findings"]} == pytest.approx(
        {f["id"]: f["cost_usd"] for f in expected["findings"]}
    )


def test_work_that_lies_in_several_shards_is_one(whole, shards):
    told, expected = data_of(joined(*shards)), data_of(whole)
    assert told["source"]["spanning"] == {"workloads": ["w-train"], "series": ["s-chat", "s-train"]}
    by_id, known = ({w["id"]: w for w in one["workloads"]} for one in (told, expected))
    assert by_id.keys() == known.keys()
    assert by_id["w-train"] == known["w-train"] | {"gpus": sorted(known["w-train"]["gpus"])}
    assert {f["id"] for f in told["findings"]} == {f["id"] for f in expected["findings"]}
    (mine,), (ours,) = ([f for f in one["findings"] if f["rule"] == "idle-fabric" and f["workload"] == "w-chat-2"]
                        for one in (told, expected))  # fmt: skip
    for name in ("id", "workload", "nodes", "gpus", "gpu_hours", "cost_usd", "price", "severity"):
        assert mine[name] == ours[name], name
    assert "2 nodes" in mine["text"] and "$6,607" in mine["text"]
    moves = ([r for r in one["recommendations"] if r["to"]["node_sku"] == PLAIN] for one in (told, expected))
    move, same = (next(r for r in of if r["workload"] == "w-chat-2") for of in moves)
    assert move["id"] == same["id"] and move["from"] == same["from"] and move["to"] == same["to"]
    assert move["saving_usd_per_month"] == pytest.approx(same["saving_usd_per_month"])
    assert told["summary"]["recoverable_usd_per_month"] == pytest.approx(
        sum(a.summary.recoverable_usd_per_month or 0 for a in shards)
    )


def test_every_dollar_is_still_accounted_for(shards):
    told = joined(*shards).summary
    money = told.reconciliation
    assert sum(getattr(money, name) for name in PARTS) == pytest.approx(money.total, rel=1e-3)
    assert told.cost_usd == money.total == pytest.approx(5 * 98.32 * 336)


def test_the_order_of_files_leaves_no_trace(shards):
    first, *others = (render(joined(*order), "json") for order in itertools.permutations(shards))
    assert all(other == first for other in others)


def test_merged_advice_keeps_the_schema_and_reads_in_every_format(shards, tmp_path, capsys):
    told = joined(*shards)
    validator = jsonschema.Draft202012Validator(load_schema(), format_checker=jsonschema.FormatChecker())
    assert list(validator.iter_errors(data_of(told))) == []
    paths = [tmp_path / f"{n}.json" for n in range(3)]
    for path, one in zip(paths, shards, strict=True):
        path.write_text(render(one, "json"))
    for form in format_names():
        assert main(["merge", *map(str, reversed(paths)), "--format", form]) == 0
        shown = capsys.readouterr().out
        assert "idle-fabric" in shown
        if form == "json":
            assert shown == render(told, "json")
    assert main(["merge", *map(str, paths), "--output", str(tmp_path / "all.json")]) == 0
    assert (tmp_path / "all.json").read_text() == render(told, "json")
    assert main(["merge", str(tmp_path / "all.json")]) == 0
    assert capsys.readouterr().out == render(told, "json")


@pytest.mark.parametrize("path", ["findings.0.id", "findings.0.rule", "recommendations.0.id"])
@pytest.mark.parametrize("odd", ["\x1b[31m`<b>", "two\n# lines", "\u202ex"])
def test_names_in_a_file_do_nothing_in_any_format(path, odd):
    advice = parse_advice(changed(path, odd).encode(), "shard.json")
    for form in format_names():
        shown = render(advice, form)
        assert not {"\x1b", "\u202e"} & set(shown), form
        assert "\n# lines" not in shown
        assert form != "markdown" or "<b>" not in shown


def test_telemetry_cut_by_nodes_gives_the_same_workloads_and_money():
    """The whole way, from telemetry: a training over two nodes of two shards, a service, and a node nobody uses."""
    made = FrameBuilder(hours=32)
    for name, load in (("n1", TRAINING), ("n2", TRAINING), ("n3", DECODE), ("n4", FREE)):
        (uuid,) = made.node(name)
        made.nodes[-1] |= {"provider": "azure", "region": "eastus", "node_sku": "azure/Standard_ND96isr_H100_v5"}
        made.use(load, name, uuid)
        made.port(0.3 if load is TRAINING else 0.0, name)
    made.work("w-train", [("n1", "GPU-n1-0"), ("n2", "GPU-n2-0")], name="train", series="s-train")
    made.work("w-serve", [("n3", "GPU-n3-0")], name="vllm", series="s-serve")
    frame = made.frame()

    def advised(*names: str) -> Advice:
        seen = {f.name: getattr(frame, f.name) for f in fields(frame)}
        by_node = {name: table for name, table in seen.items() if "node" in getattr(table, "columns", ())}
        own = {name: table[table["node"].isin(names)].reset_index(drop=True) for name, table in by_node.items()}
        known = frame.workloads[frame.workloads["workload_id"].isin(own["uses"]["workload_id"])]
        part = replace(frame, **own, workloads=known.reset_index(drop=True))
        return advise(part, rulebook(catalog()), AdviseOptions(END), np.random.default_rng(1))

    whole, told = advised("n1", "n2", "n3", "n4"), joined(advised("n1", "n3"), advised("n2", "n4"))
    assert told.summary.reconciliation.total == pytest.approx(4 * 98.32 * 32)
    for name in (*PARTS, "total"):
        assert getattr(told.summary.reconciliation, name) == pytest.approx(getattr(whole.summary.reconciliation, name))
    for one, other in zip(whole.workloads, told.workloads, strict=True):
        assert (one.id, one.kind.label, one.bottleneck.label) == (other.id, other.kind.label, other.bottleneck.label)
        assert (one.gpu_hours, one.cost_usd) == pytest.approx((other.gpu_hours, other.cost_usd))
        assert (one.nodes, one.gpus, one.coverage.fraction) == (other.nodes, other.gpus, other.coverage.fraction)
    parted = {"w-train"}  # a rule may say of the whole what it says of no part
    for mine, ours in ((told.findings, whole.findings), (told.recommendations, whole.recommendations)):
        assert {x.id for x in mine if x.workload not in parted} == {x.id for x in ours if x.workload not in parted}


# Made by hand: one shard of one node, with what a test is about.


def money(total):
    return Reconciliation(*([None] * 7)) if total is None else Reconciliation(total, 0.0, 0.0, 0.0, 0.0, 0.0, total)


def shard(name: str, *, cost=100.0, cash=0.0, spread=None, **changes) -> Advice:
    summary = Summary(8, 80.0, cost, cost and 10.0, None if cost is None else cash, money(cost),
                      recoverable_interval_usd_per_month=spread)  # fmt: skip
    values = {
        "generated_at": END, "start": START, "end": END, "source": {"kind": "sqlite", "databases": [f"{name}.db"]},
        "summary": summary, "prices": (), "workloads": (), "findings": (), "recommendations": (), "nodes": (name,),
    }  # fmt: skip
    return Advice(**{**values, **changes})


def way(**changes) -> Recommendation:
    values = {
        "id": "r-1", "findings": ("f-1",), "workload": "w", "action": "move-sku",
        "source": Configuration("H100-SXM5", "a/x", 8), "target": Configuration("L40S", "a/y", 8),
        "time_ratio": Interval(0.9, 1.0, 1.2), "saving_usd_per_month": Interval(50.0, 100.0, 150.0),
        "freed_gpu_hours_per_month": 0.0, "realisation": "cash-now", "risk": "low", "blocked_by": (), "rejected": (),
        "would_change_if": (), "prices": ("p",), "text": "It saves.",
    }  # fmt: skip
    return Recommendation(**{**values, **changes})


def one_way(*ways: Recommendation) -> Recommendation:
    told = joined(*(shard(f"n{n}", recommendations=(r,)) for n, r in enumerate(ways)))
    (found,) = told.recommendations
    return found


def test_percentiles_are_never_added_silently():
    told = joined(
        shard("a", cash=100.0, spread=Interval(70.0, 100.0, 130.0)),
        shard("b", cash=200.0, spread=Interval(160.0, 200.0, 240.0)), shard("c"),
    )  # fmt: skip
    assert told.summary.recoverable_usd_per_month == 300.0
    assert told.summary.recoverable_interval_usd_per_month == Interval(230.0, 300.0, 370.0)
    (note,) = (n for n in told.notes if n.code == "medians-summed")
    # Independent: 300 less and more the root of 30 x 30 + 40 x 40.
    assert note.fields["shards"] == 2 and "$250 to $350" in note.text
    # Merged once more, the note speaks of all shards and stands once.
    (again,) = (
        n
        for n in joined(told, shard("d", cash=1.0, spread=Interval(1.0, 1.0, 1.0))).notes
        if n.code == "medians-summed"
    )
    assert again.fields["shards"] == 3


def test_what_no_shard_has_a_price_for_stays_unknown():
    told = joined(shard("a", cost=None), shard("b", cost=None)).summary
    assert (told.cost_usd, told.wasted_usd, told.recoverable_usd_per_month) == (None, None, None)
    assert told.reconciliation == money(None)
    assert joined(shard("a", cost=None), shard("b")).summary.cost_usd == 100.0


def test_a_kind_is_what_most_gpu_hours_speak_for():
    def said(label, hours, confidence=0.9):
        return workload(
            "w", (label,), kind=KindVerdict(label, confidence, (CodedText("said", f"said {label}"),)), gpu_hours=hours
        )

    parts = [said("training", 300.0), said("online-inference", 100.0), said("idle", 250.0)]
    told = joined(*(shard(w.nodes[0], workloads=(w,)) for w in parts)).workloads[0].kind
    assert told.label == "training" and told.confidence == pytest.approx(0.9 * 300 / 650, abs=1e-6)
    assert [a.label for a in told.alternatives] == ["idle", "online-inference"]
    assert [one.text for one in told.evidence] == ["said idle", "said online-inference", "said training"]


def test_a_bottleneck_follows_from_the_time_in_all_parts():
    def part(name, label, shares):
        held_back = BottleneckVerdict(label, 0.8, shares)
        return workload("w", (name,), bottleneck=held_back, gpu_hours=10.0, coverage=Coverage(0.5, 60.0, {"m": name}))

    parts = [
        part("a", "network", {"network": 0.9, "idle": 0.1}), part("b", "compute", {"compute": 0.5, "network": 0.5}),
    ]  # fmt: skip
    told = joined(*(shard(w.nodes[0], workloads=(w,)) for w in parts)).workloads[0]
    assert told.bottleneck.label == "network"
    assert told.bottleneck.time_shares == pytest.approx({"network": 0.7, "compute": 0.25, "idle": 0.05})
    assert told.coverage == Coverage(0.5, 60.0, {"m": "a"})


def test_a_workload_of_several_shards_is_judged_by_the_thresholds_that_the_shards_were_judged_by():
    parts = [
        workload("w", (name,), kind=KindVerdict("training", 0.9), gpu_hours=10.0,
                 bottleneck=BottleneckVerdict(label, 0.8, shares))
        for name, label, shares in (
            ("a", "network", {"network": 0.6, "compute": 0.4}), ("b", "mixed", {"compute": 0.5, "network": 0.5}),
        )
    ]  # fmt: skip

    def label(*told: dict[str, float]) -> str:
        return joined(*(shard(w.nodes[0], workloads=(w,), thresholds=t)
                        for w, t in zip(parts, told, strict=True))).workloads[0].bottleneck.label  # fmt: skip

    strict = {"dominant_share_min": 0.6}
    assert label(strict, strict) == "mixed"
    assert label({}, {}) == "network"  # advice of before tells none: by those that ship
    assert label({"dominant_share_min": DOMINANT}, {}) == "network"
    with pytest.raises(UsageError, match=r"dominant_share_min is 0.6 in 0.json and 0.4 in 1.json.*same --rules"):
        label(strict, {})
    (one, other) = (shard(name, thresholds=strict) for name in "ab")
    assert joined(one, other).thresholds == strict


def test_whose_work_it_is_and_how_that_is_known_survives_the_file():
    known = Scheduled(name="slurm", job_id="7")
    kind, limit = KindVerdict("training", 0.9), BottleneckVerdict("network", 0.8, {"network": 1.0})
    alike = [
        workload("w", (n,), basis="allocation", shared=n == "b", scheduled=known, kind=kind, bottleneck=limit)
        for n in "ab"
    ]
    (told,) = joined(*(shard(w.nodes[0], workloads=(w,)) for w in alike)).workloads
    assert (told.basis, told.shared, told.scheduled) == ("allocation", True, known)
    odd = [alike[0], replace(alike[1], basis="activity", scheduled=Scheduled(name="slurm", job_id="8"))]
    (told,) = joined(*(shard(w.nodes[0], workloads=(w,)) for w in odd)).workloads
    assert (told.basis, told.scheduled) == ("process", Scheduled())


def test_phases_of_all_parts_are_told_and_the_same_one_once():
    night = Phase(START, START + 3600, "training", "idle", (CodedText("still", "still"),))
    late = Phase(START + 1800, START + 7200, "training", "idle", (CodedText("quiet", "quiet"),))
    other = Phase(START, START + 7200, "training", "compute")
    parts = [workload("w", ("a",), phases=(night, other)), workload("w", ("b",), phases=(late,))]
    told = joined(*(shard(w.nodes[0], workloads=(w,)) for w in parts)).workloads[0].phases
    assert told == (Phase(START, START + 7200, "training", "compute"),
                    Phase(START, START + 7200, "training", "idle", (*late.evidence, *night.evidence)))  # fmt: skip


def test_a_way_out_sums_its_parts_and_spans_their_times():
    told = one_way(way(), way(time_ratio=Interval(0.8, 1.2, 1.4), risk="medium", excludes=("r-2",)))
    assert (told.source.gpu_count, told.target.gpu_count) == (16, 16)
    assert told.saving_usd_per_month == Interval(100.0, 200.0, 300.0)
    assert told.time_ratio == Interval(0.8, 1.1, 1.4)
    assert (told.risk, told.excludes) == ("medium", ("r-2",))
    assert one_way(way(), way(time_ratio=None)).time_ratio is None


def test_a_part_where_a_way_out_is_blocked_brings_nothing():
    told = one_way(way(), way(blocked_by=(CodedText("no-room", "no room"),), freed_gpu_hours_per_month=5.0))
    assert told == replace(told, blocked_by=(), freed_gpu_hours_per_month=0.0, source=way().source)
    assert told.saving_usd_per_month == way().saving_usd_per_month
    ways = (way(blocked_by=(CodedText("said", w),)) for w in "ba")
    assert [why.text for why in one_way(*ways).blocked_by] == ["a", "b"]


def test_cash_at_a_date_and_capacity_are_not_called_cash_now():
    later = way(realisation="cash-at", available_from="2027-01-01")
    told = one_way(way(), later, way(realisation="capacity-freed", saving_usd_per_month=None))
    assert (told.realisation, told.available_from) == ("cash-at", "2027-01-01")
    assert told.saving_usd_per_month.p50 == 200.0


def test_the_newest_decision_holds():
    old = Decision("accepted", START, "ann")
    assert one_way(way(decision=old), way(decision=replace(old, state="dismissed", since=END))).set_aside


# Associativity, on whatever advice there may be.

LABELS = st.sampled_from(["training", "online-inference", "idle", "unknown"])
LIMITS = st.sampled_from(["compute", "network", "idle", "unknown"])
HOURS = st.integers(0, 40)
SHARE = st.integers(0, 20).map(lambda n: n / 20)
NAMED = st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True).map(tuple)
FIELDS = st.dictionaries(st.sampled_from(["hours", "node"]), st.integers(0, 2), max_size=1)
WORDS = st.lists(
    st.builds(CodedText, st.just("said"), st.sampled_from(["a", "b", "c"]), FIELDS), max_size=2, unique=True
).map(tuple)


@st.composite
def workloads_on(draw, name):
    out = []
    for key in draw(st.lists(st.sampled_from("xyz"), unique=True, max_size=3)):
        limit = draw(LIMITS)
        begin = START + 3600 * draw(HOURS)
        phase = Phase(begin, begin + 7200, draw(LABELS), draw(LIMITS), draw(WORDS))
        out.append(workload(
            key, (name,), gpus=(f"GPU-{name}-{key}",), gpu_hours=float(draw(HOURS)), start=begin, end=END,
            cost_usd=draw(st.none() | HOURS.map(float)), phases=(phase,) if draw(st.booleans()) else (),
            kind=KindVerdict(draw(LABELS), draw(SHARE), draw(WORDS), (Alternative("batch-inference", draw(SHARE)),)),
            bottleneck=BottleneckVerdict(limit, draw(SHARE), {limit: 1.0}, draw(WORDS)),
            coverage=Coverage(draw(SHARE), float(draw(HOURS)), dict.fromkeys(draw(NAMED), name)), levers=draw(WORDS),
            levers_unknown=draw(st.none() | st.just(CodedText("model-not-named", "no name"))),
        ))  # fmt: skip
    return tuple(out)


@st.composite
def shards_of(draw, name):
    own = draw(workloads_on(name))
    findings, ways = [], []
    for w in own:
        cost = draw(st.none() | HOURS.map(float))
        evidence = (Evidence("m", float(draw(HOURS)), 1.0, "ratio"),)
        findings.append(Finding(
            f"f-{w.id}", "idle-fabric", draw(st.sampled_from(["low", "high"])), w.id, name, w.gpus, evidence,
            w.gpu_hours, cost, draw(st.sampled_from([None, "p", "q"])), draw(SHARE), draw(WORDS), "text", nodes=(name,),
        ))  # fmt: skip
        middle = float(draw(HOURS))
        saving = Interval(middle - draw(HOURS), middle, middle + draw(HOURS))
        ways.append(way(
            id=f"r-{w.id}", workload=w.id, findings=(f"f-{w.id}",), blocked_by=draw(WORDS),
            source=Configuration(draw(st.sampled_from([None, "H100-SXM5"])), "a/x", draw(st.integers(0, 9))),
            saving_usd_per_month=draw(st.none() | st.just(saving)), break_even=draw(st.none() | st.just("never")),
            time_ratio=draw(st.none() | st.just(Interval(0.5, 1.0, 1.0 + draw(SHARE)))),
            realisation=draw(st.sampled_from(["cash-now", "cash-at", "energy", "capacity-freed"])),
            available_from=draw(st.sampled_from([None, "2027-01-01", "2027-02-01"])), prices=draw(NAMED),
            decision=draw(st.none() | st.builds(Decision, st.just("accepted"), HOURS.map(lambda n: START + n))),
            energy_saving_kwh_per_month=draw(st.none() | st.just(saving)), levers=draw(WORDS),
        ))  # fmt: skip
    spread = draw(st.none() | st.builds(lambda m, d, u: Interval(m - d, m, m + u), *([HOURS.map(float)] * 3)))
    cost = draw(st.none() | HOURS.map(float))
    return shard(
        name, cost=cost, cash=spread.p50 if spread else 0.0, spread=spread if cost is not None else None,
        workloads=own, findings=tuple(findings), recommendations=tuple(ways), notes=draw(WORDS),
        market=draw(st.none() | st.just(tuple(ways[:1]))),
        prices=tuple(Price(p, "a/x", "global", 1.0, "list", "s", "2026-01-01") for p in draw(NAMED)),
    )  # fmt: skip


def rounded(value):
    """Means may differ in their last digit, for they are rounded at every step."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return pytest.approx(value, abs=1e-5) if isinstance(value, float) else value


@pytest.mark.slow
@given(shards_of("a"), shards_of("b"), shards_of("c"))
@settings(max_examples=examples(12), deadline=None)
def test_shards_may_be_merged_in_steps(a, b, c):
    at_once = data_of(joined(a, b, c))
    for steps in (joined(joined(a, b), c), joined(a, joined(c, b))):
        assert data_of(steps) == rounded(at_once)


# What is refused.


def refused(tmp_path, capsys, *texts: str | bytes) -> str:
    paths = []
    for n, text in enumerate(texts):
        paths.append(tmp_path / f"shard{n}.json")
        paths[-1].write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["merge", *map(str, paths)]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and "Traceback" not in shown.err
    assert shown.err.startswith("skuwise: ") and "shard0.json" in shown.err
    assert len(shown.err) < 600
    return shown.err


def test_nodes_in_two_shards_would_count_twice(tmp_path, capsys):
    texts = [render(shard(name, nodes=("n1", "n2", name)), "json") for name in "ab"]
    told = refused(tmp_path, capsys, *texts)
    assert "2 nodes" in told and "n1 and n2" in told and "shard1.json" in told
    # Also where they are not listed, but work on them is.
    unlisted = [shard(n, nodes=(), workloads=(workload(n, ("n7",)),)) for n in "ab"]
    assert "n7" in refused(tmp_path, capsys, *(render(one, "json") for one in unlisted))


def test_windows_and_prices_that_differ_do_not_add_up(tmp_path, capsys):
    texts = [render(shard(name, start=START + 3600 * n), "json") for n, name in enumerate("ab")]
    assert "--until" in refused(tmp_path, capsys, *texts)
    prices = [(Price("p", "a/x", "global", float(n), "list", "s", "2026-01-01"),) for n in (1, 2)]
    texts = [render(shard(name, prices=p), "json") for name, p in zip("ab", prices, strict=True)]
    assert "--prices" in refused(tmp_path, capsys, *texts)


def changed(path: str, value: object) -> str:
    data = json.loads(GOLDEN.read_text())
    *way_there, last = path.split(".")
    at = data
    for key in way_there:
        at = at[int(key) if key.isdigit() else key]
    at[int(last) if last.isdigit() else last] = value
    return json.dumps(data)


@pytest.mark.parametrize(("text", "said"), [
    ("", "not valid JSON"),
    (GOLDEN.read_text()[:2000], "truncated"),
    ("[]", "is not skuwise advice"),
    ("{}", "is not skuwise advice"),
    ('{"schema": 1}', "is not skuwise advice"),
    ('{"schema": "skuwise.advice/2"}', "Update skuwise"),
    ('{"schema": "skuwise.ledger/1"}', "skuwise.ledger/1"),
    ('{"schema": "skuwise.advice/1"}', "window is missing"),
    (b"\xff\xfe\x00", "not valid JSON"),
    ("[" * 100_000, "not valid JSON"),
    (GOLDEN.read_text().replace("5376.0", "NaN"), "not valid JSON"),
    (GOLDEN.read_text().replace("5376.0", "1e999"), "not valid JSON"),
    (GOLDEN.read_text().replace("5376.0", "9" * 5000), "not valid JSON"),
    (changed("summary.gpu_hours", 1e300), "summary.gpu_hours is not between"),
    (changed("summary.gpu_hours", True), "summary.gpu_hours is not a number"),
    (changed("summary.gpu_count", -1), "summary.gpu_count is not between"),
    (changed("summary.gpu_count", 1.5), "not a whole number"),
    (changed("summary.reconciliation.total", 1.0), "does not add up"),
    (changed("summary.reconciliation.shared", None), "is incomplete"),
    (changed("window.end", "2026-99-01T00:00:00Z"), "window.end is not an RFC 3339 time"),
    (changed("window.end", "2020-01-01T00:00:00Z"), "ends before it begins"),
    (changed("workloads.1.kind.label", "mining"), "workloads[1].kind.label is not one of"),
    (changed("workloads.1.kind.confidence", 1.1), "workloads[1].kind.confidence"),
    (changed("workloads.1.id", "w-chat"), "has the id w-chat twice"),
    (changed("workloads.0.nodes", "n1"), "workloads[0].nodes is not a list"),
    (changed("workloads.0.bottleneck.time_shares", {"luck": 1.0}), "unknown bottleneck label"),
    (changed("workloads.0.coverage.missing", {"two\nlines": 1}), r"missing.two\x0alines is not text"),
    ('{"schema": "two\\nlines"}', r"two\x0alines"),
    (changed("findings.0.severity", "\x1b[31m"), "findings[0].severity is not one of"),
    (changed("recommendations.0.from", None), "recommendations[0].from is not a mapping"),
    (changed("source", {"kind": "merged"}), "source.shards is missing"),
    (changed("source", json.loads("[" * 20 + "]" * 20)), "nested too deep"),
    (changed("notes", [1]), "notes[0] is not a mapping"),
])  # fmt: skip
def test_what_is_no_advice_is_refused_in_a_sentence(tmp_path, capsys, text, said):
    assert said in refused(tmp_path, capsys, text)


def test_what_is_far_too_large_is_not_even_read(tmp_path, capsys):
    (tmp_path / "shard0.json").touch()
    os.truncate(tmp_path / "shard0.json", MAX_BYTES + 1)
    assert main(["merge", str(tmp_path / "shard0.json")]) == 2
    assert "larger than 48 MiB" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["[],", '{"a":1},', '"",'])
def test_what_is_made_of_too_many_parts_is_not_parsed(tmp_path, capsys, part):
    hostile = "[" + part * (12_000_000 // len(part)) + "[]]"
    assert "more elements" in refused(tmp_path, capsys, changed("notes", "@").replace('"@"', hostile))


def test_all_shards_together_have_a_limit():
    allowance = Allowance()
    text = b'"' + b"x" * (MAX_BYTES - 2) + b'"'
    allowance.take(text, "a")
    allowance.take(text, "b")
    with pytest.raises(UsageError, match=r"with c the files exceed 96 MiB.*Merge fewer"):
        allowance.take(b"7", "c")


@pytest.mark.parametrize("arguments", [[], ["none.json"], ["."], [str(GOLDEN), str(GOLDEN)]])
def test_files_that_cannot_be_used_are_a_wrong_usage(arguments, capsys):
    try:
        status = main(["merge", *arguments])
    except SystemExit as stop:
        status = stop.code
    assert status == 2
    assert "Traceback" not in capsys.readouterr().err


def test_keys_of_the_first_contract_are_enough():
    data = json.loads(GOLDEN.read_text())
    for key in ("nodes", "notes", "fabrics"):
        del data[key]
    del data["summary"]["recoverable_interval_usd_per_month"]
    for finding in data["findings"]:
        del finding["nodes"]
    for one in data["recommendations"]:
        for key in ("break_even", "excludes", "available_from", "decision", "levers", "energy_saving_kwh_per_month"):
            del one[key]
    told = merge_advice({"a": parse_advice(json.dumps(data | {"unknown": 1}).encode(), "a"), "b": shard("b")}, DOMINANT)
    assert told.nodes == ("b", "n1", "n2")
    with pytest.raises(UsageError, match="a cannot be merged: prices"):
        parse_advice(json.dumps(data | {"prices": 1}).encode(), "a")


def test_of_a_services_latencies_the_slowest_shards_are_told_whatever_the_order():
    def told(p90: float) -> Latency:
        return Latency("documents", "measured", {}, LatencyFigures(2000.0, p90 / 2, p90, p90, None), busy_hours=3.0)

    parts = [workload("chat", (name,), latency=told(p90)) for name, p90 in (("n1", 0.2), ("n2", 0.4))]
    silent = workload("chat", ("n3",))
    for order in ([*parts, silent], [silent, *reversed(parts)]):
        assert one_workload(order, [False] * 3, 0.5).latency == told(0.4)
    assert one_workload([silent, silent], [False] * 2, 0.5).latency is None


def test_advice_of_before_there_were_latencies_is_read():
    values = json.loads(GOLDEN.read_text())
    for one in values["workloads"]:
        del one["latency"]
    assert {w.latency for w in parse_advice(json.dumps(values).encode(), "old").workloads} == {None}
