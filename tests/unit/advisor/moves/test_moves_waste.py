# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false

import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.verdict_types import Alternative, BottleneckVerdict, KindVerdict, Phase
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.frame_builder import FREE, HOUR, FrameBuilder
from skuwise.tests.support.frame_builder import START as H_START
from skuwise.tests.support.moves_builders import (
    START,
    advice_of,
    bare,
    fabric,
    founding,
    gpus_of,
    node,
    usage,
    verdicts,
    workload,
)
from skuwise.tests.support.rulebooks import rulebook

CATALOG = load_catalog()


def rules(advice):
    return sorted(f.rule for f in advice.findings)


def one(advice, rule):
    return next(f for f in advice.findings if f.rule == rule)


def test_a_service_on_a_silent_fabric_is_found_once_with_all_its_nodes():
    advice = advice_of(founding())
    found = one(advice, "idle-fabric")
    assert rules(advice) == ["idle-fabric"]
    assert found.nodes == ("n1", "n2")
    assert found.workload in {"w-chat", "w-chat-2"}
    assert "Last traffic: none in 14 days of history" in found.text
    assert found.cost_usd == pytest.approx(9.832 * 336 * 2)
    assert "list price" in found.text
    assert found.would_change_if
    assert {e.metric for e in found.evidence} >= {"fabric_util_p995", "fabric_hours"}


@pytest.mark.parametrize("kind", ["training", "fine-tuning", "unknown"])
def test_never_on_training_nor_on_what_nobody_could_tell(kind):
    w = workload("job", ("n1",), kind=kind)
    assert "idle-fabric" not in rules(advice_of(verdicts([node()], [w])))


@pytest.mark.parametrize(
    ("doubtful", "doubt", "flagged"), [(1, 0.2, True), (3, 0.2, True), (6, 0.2, False), (1, 0.25, False)]
)
def test_the_doubt_that_work_trains_is_weighed_by_its_share_of_the_nodes_hours(doubtful, doubt, flagged):
    kind = KindVerdict("batch-inference", 0.7, (), (Alternative("training", doubt),))
    gpus, compute = gpus_of("n1"), BottleneckVerdict("compute", 0.9, {"compute": 1.0})
    job = workload("job", kind=kind, gpus=gpus[:doubtful], bottleneck=compute)
    chat = workload("chat", gpus=gpus[doubtful:])
    advice = advice_of(verdicts([node()], [job, chat]))
    assert ("idle-fabric" in rules(advice)) is flagged


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"readable": False, "reason": "port mlx5_0/1 is DOWN", "util_p995": None}, "port mlx5_0/1 is DOWN"),
        ({"hours": 12.0}, "possible from"),
    ],
)
def test_no_verdict_where_the_fabric_cannot_be_judged_and_the_reason_is_told(changes, said):
    advice = advice_of(verdicts([node(fabric=fabric(**changes))], [workload()]))
    assert "idle-fabric" not in rules(advice)
    assert any(said in n.text for n in advice.notes)


def test_a_node_that_runs_nothing_is_idle_and_its_fabric_is_not_counted_again():
    advice = advice_of(verdicts([node()], [], bare_gpus=[bare("n1", i) for i in range(8)]))
    assert rules(advice) == ["idle"]
    found = one(advice, "idle")
    assert found.workload is None
    assert found.cost_usd == pytest.approx(98.32 * 336)
    assert advice.summary.wasted_usd == pytest.approx(found.cost_usd)


def test_a_telemetry_fault_is_told_as_one_and_is_no_waste():
    faulty = [bare("n1", i, telemetry_fault="power is high while every counter is zero") for i in range(8)]
    advice = advice_of(verdicts([node()], [], bare_gpus=faulty))
    assert rules(advice) == ["telemetry-fault"]
    assert one(advice, "telemetry-fault").cost_usd is None
    assert any("power is high" in n.text for n in advice.notes)
    held = workload("held", kind="idle", features={"fault_share": 0.4})
    advice = advice_of(verdicts([node()], [held], idle_hours={"w-held": 8 * 336.0}))
    assert rules(advice) == ["telemetry-fault"]
    assert advice.summary.wasted_usd == 0
    assert any(n.code == "signals-contradict" for n in advice.notes)


def test_what_never_worked_is_held_idle_and_released_whole():
    held = workload("held", kind="idle")
    given = verdicts([node(fabric=None)], [held], uses=[usage(held, u_c=0, u_m=0, g=0, label="idle")],
                     idle_hours={"w-held": 8 * 336.0})  # fmt: skip
    advice = advice_of(given)
    found = one(advice, "held-idle")
    released = next(r for r in advice.recommendations if r.action == "release")
    assert found.gpu_hours == pytest.approx(8 * 336)
    assert released.realisation == "cash-now"
    assert released.saving_usd_per_month.p50 == pytest.approx(98.32 * 730)


@pytest.mark.parametrize(
    ("life", "renamed", "released"),
    [(36, False, ["node-3"]), (20, False, []), (144, False, ["node-0"]), (36, True, ["node-3"]), (20, True, [])],
)
def test_a_pool_whose_nodes_are_replaced_is_judged_as_one_node_that_stays(life, renamed, released):
    """One node after another, all of them idle: the floor of 30 h is the pool's, a release needs it of its node.
    `renamed`: it is one machine with other names."""
    b = FrameBuilder(hours=144)
    for n, begin in enumerate(range(0, 144, life)):
        uuids = b.node(f"node-{n}", gpus=8, first_seen=H_START + begin * HOUR)
        if renamed:
            uuids = [f"GPU-node-0-{gpu}" for gpu in range(8)]
            for gpu, uuid in zip(b.gpus[-8:], uuids, strict=True):
                gpu["gpu_uuid"] = uuid
        end = min(begin + life, 144)
        b.nodes[-1]["last_seen"] = H_START + end * HOUR
        for uuid in uuids:
            b.use(FREE, f"node-{n}", uuid, start=begin, end=end)
    advice = advice_of(judge(b.frame(), rulebook(CATALOG)))
    summary = advice.summary
    assert (summary.gpu_count, summary.judged_gpu_count, summary.gpu_hours) == (8, 8, pytest.approx(144 * 8))
    assert summary.cost_usd is not None and summary.cost_usd > 0
    assert summary.wasted_usd == pytest.approx(summary.cost_usd)
    assert [r.yardstick.nodes[0] for r in advice.recommendations if not r.blocked_by] == released
    assert not {n.code for n in advice.notes} & {"too-little-data", "idle-seen-too-short"}


def test_idle_gpus_that_half_a_day_is_missing_of_are_named_without_a_verdict():
    b = FrameBuilder(hours=54)
    for uuid in b.node("spare", gpus=8):
        for begin, end in ((0, 20), (32, 54)):
            b.use(FREE, "spare", uuid, start=begin, end=end)
    advice = advice_of(judge(b.frame(), rulebook(CATALOG)))
    (note,) = [n for n in advice.notes if n.code == "idle-partly-observed"]
    assert (rules(advice), note.fields) == ([], {"gpus": 8, "node": "spare", "unobserved_hours": 12.0})


@pytest.mark.parametrize("idle", ["a", "z"])
def test_an_idle_replica_is_released_without_those_that_serve(idle):
    """Whichever of the replicas names the series."""
    pods = [
        workload("api", (f"n{n}",), id=f"w-{name}", kind="idle" if name == idle else "online-inference")
        for n, name in enumerate("amz")
    ]  # fmt: skip
    uses = [usage(w, **({"u_c": 0, "u_m": 0, "g": 0, "label": "idle"} if w.id == f"w-{idle}" else {})) for w in pods]
    nodes = [node(w.nodes[0], fabric=None) for w in pods]
    advice = advice_of(verdicts(nodes, pods, uses=uses, idle_hours={f"w-{idle}": 8 * 336.0}))
    where = next(w.nodes[0] for w in pods if w.id == f"w-{idle}")
    found = one(advice, "held-idle")
    assert (found.node, found.gpus, found.gpu_hours) == (where, gpus_of(where), pytest.approx(8 * 336))
    (released,) = [r for r in advice.recommendations if r.action == "release"]
    assert (released.source.gpu_count, released.yardstick.nodes) == (8, (where,))
    assert released.saving_usd_per_month.p50 == pytest.approx(98.32 * 730)


def test_too_many_gpus_says_how_many_would_do():
    pods = [workload("api", (n,), id=f"w-api-{n}") for n in ("n1", "n2", "n3", "n4")]
    nodes = [node(w.nodes[0], fabric=fabric(util_p995=0.5)) for w in pods]
    uses = [usage(w, u_c=0.05, u_m=0.15, u_n=0.3) for w in pods]
    advice = advice_of(verdicts(nodes, pods, uses=[u.assign(u_n=0.2) for u in uses]))
    found = one(advice, "too-many-gpus")
    assert {e.metric: e.threshold for e in found.evidence}["gpus_held"] == 16.0
    assert found.cost_usd == pytest.approx(2 * 98.32 * 336)
    fewer = next(r for r in advice.recommendations if r.action == "reduce-gpus")
    assert fewer.target.gpu_count == 16
    assert fewer.realisation == "cash-now"
    assert fewer.saving_usd_per_month.p50 == pytest.approx(2 * 98.32 * 730)
    assert "x the current peak demand" in fewer.break_even


def _changing(*phases: tuple[float, float, str]):
    spans = tuple(Phase(START + a * 3600, START + z * 3600, kind, "hbm-bandwidth") for a, z, kind in phases)
    return workload("chat", phases=spans)


@pytest.mark.parametrize(
    ("other", "hours", "flagged"),
    [("training", 80, False), ("unknown", 80, False), ("training", 4, True), ("batch-inference", 80, True)],
)
def test_hours_in_which_it_trained_keep_the_fabric(other, hours, flagged):
    changing = _changing((0, 336 - hours, "online-inference"), (336 - hours, 336, other))
    advice = advice_of(verdicts([node()], [changing]))
    assert ("idle-fabric" in {f.rule for f in advice.findings}) is flagged
