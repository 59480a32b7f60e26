# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""`explain`: what an id means, and everything that is told of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.naming import AmbiguousError
from skuwise.advisor.core.verdict_types import Alternative, BottleneckVerdict, Coverage, KindVerdict, Owner, Phase
from skuwise.advisor.render.explain import render_explained
from skuwise.advisor.views.roofline import roofline
from skuwise.advisor.views.subjects import find, recommended
from skuwise.rules.base.errors import UsageError
from skuwise.rules.policy.thresholds import load_waste_rules
from skuwise.tests.support.moves_builders import (
    END,
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
    assert find(advice, finding.id) is finding
    assert find(advice, move.id) is move
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
    assert error.message == "'chat' matches 2 items."
    assert error.remedy.startswith("Choose one:\n\nID ")
    lines = [line for line in error.remedy.splitlines() if line.startswith("  skuwise explain --db 'a b.db' ")]
    found = [find(advice, line.split()[-1]) for line in lines]
    assert {one.id for one in found} == {one.id for one in advice.workloads if one.name == "chat"}
    assert error.brief == "'chat' matches 2 items. Use one of these IDs: w-chat, w-chat-2."


def test_a_workload_is_told_with_all_its_evidence() -> None:
    phases = (Phase(START, START + 86400, "training", "network"), Phase(START + 86400, END, "idle", "idle"))
    told = workload(
        "job", owner=Owner(team="blue", user="ann"), phases=phases,
        kind=KindVerdict(
            "training", 0.83, (CodedText("said", "It repeats a step."),), (Alternative("fine-tuning", 0.11),)
        ),
        bottleneck=BottleneckVerdict("network", 0.7, {"network": 0.75, "idle": 0.25},
            (CodedText("said", "The network limits it."),)),
        coverage=Coverage(0.91, 30.0, {"sm_active": "dcgm-exporter does not export it."}),
        features={"tensor_per_engine": 0.4, "hbm_per_engine": 0.3, "period_seconds": 7.5},
    )  # fmt: skip
    advice = advice_of(verdicts([node()], [told]))
    drawn = roofline(told, catalog().gpu("H100-SXM5"))
    text = render_explained(advice, find(advice, "w-job"), drawn, width=100)
    for part in (
        "Workload job", "team blue, user ann", "Kind: training, confidence 83 %", "It repeats a step.",
        "fine-tuning 11 %", "Bottleneck: network, confidence 70 %", "75 %  network", "The network limits it.",
        "91 % of its GPU time was observed, a sample every 30 s", "sm_active is missing: dcgm-exporter does not",
        "period_seconds", "7.5  seconds", "Roofline", "FLOP per byte",
    ):  # fmt: skip
        assert part in text
    assert text.count("training  network") + text.count("idle      idle") == 2
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_finding_has_its_numbers_its_recommendations_and_what_would_change_it() -> None:
    advice = advice_of(founding())
    found = advice.findings[0]
    text = render_explained(advice, found, None)
    assert "rule idle-fabric," in text
    for evidence in found.evidence:
        assert evidence.metric in text
    assert "This would change if" in text
    for way in (r for r in advice.recommendations if found.id in r.findings):
        assert way.id in text
    assert "list price" in text
    assert "Bottleneck: hbm-bandwidth" in text


def test_a_recommendation_is_told_with_every_rejected_way_and_its_finding() -> None:
    advice = advice_of(founding())
    move = next(r for r in advice.recommendations if r.rejected)
    text = " ".join(render_explained(advice, move, None).split())
    for rejected in move.rejected:
        assert rejected.sku in text
    for condition in move.would_change_if:
        assert condition.text in text
    assert advice.findings[0].id in text
    assert "x H100-SXM5 on azure/Standard_ND96isr_H100_v5" in text


def test_a_finding_about_a_bare_node_is_told_without_a_workload() -> None:
    advice = advice_of(verdicts([node()], [], bare_gpus=[bare("n1", i) for i in range(8)]))
    text = render_explained(advice, advice.findings[0], None)
    assert "rule idle," in text
    assert "Workload" not in text


def test_outside_text_cannot_reach_the_terminal() -> None:
    odd = workload(
        "odd", kind=KindVerdict("idle", 0.9, (CodedText("said", HOSTILE),)), framework=HOSTILE, node_sku=HOSTILE
    )
    odd = replace(odd, name=HOSTILE, owner=Owner(user=HOSTILE), coverage=Coverage(1.0, 1.0, {HOSTILE: HOSTILE}),
                  features={HOSTILE: 1.0})  # fmt: skip
    advice = replace(advice_of(founding()), workloads=(odd,), findings=(), recommendations=())
    text = render_explained(advice, odd, roofline(odd, None))
    assert not {"\x1b", "\u202e", "\ud800"} & set(text)
    text.encode()


def test_the_roofline_is_held_against_what_is_recommended() -> None:
    advice = advice_of(founding())
    target = replace(advice.recommendations[0].target, gpu_sku="H200-SXM")
    moved = replace(advice.recommendations[0], target=target)
    advice = replace(advice, recommendations=(moved, moved, *advice.recommendations[1:]))
    chat = next(w for w in advice.workloads if w.id == moved.workload)
    assert [sku.name for sku in recommended(advice, chat, catalog())] == ["H200-SXM"]


def test_a_finding_is_told_with_the_reason_for_every_threshold_and_the_arithmetic_of_its_cost() -> None:
    advice = advice_of(verdicts([node()], [], bare_gpus=[bare("n1", i) for i in range(8)]))
    rules = load_waste_rules()
    found = advice.findings[0]
    text = " ".join(render_explained(advice, found, None, catalog=catalog(), rules=rules).split())
    for name, threshold in rules["idle"].thresholds.items():
        assert name in text
        assert threshold.source[:20] in text
    assert "2,688 GPU-hours x $98.32 a node-hour / 8 GPUs a node = $33,036 in the window" in text


def test_the_cost_of_a_fabric_and_the_months_of_a_move_are_reckoned() -> None:
    advice = advice_of(founding())
    found = next(f for f in advice.findings if f.rule == "idle-fabric")
    assert "672.0 node-hours observed x" in " ".join(render_explained(advice, found, None, catalog=catalog()).split())
    move = next(r for r in advice.recommendations if r.action == "move-sku" and r.target.node_sku)
    text = " ".join(render_explained(advice, move, None, catalog=catalog()).split())
    assert "Now: 2 x azure/Standard_ND96isr_H100_v5 for 16 GPUs x $98.32 a node-hour x 730 h" in text
    assert "(median; 10th percentile" in text
