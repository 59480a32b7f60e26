# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
from dataclasses import replace

import pytest
from skuwise.advisor.core.frame import Window
from skuwise.advisor.core.timestamps import minute, rfc3339
from skuwise.advisor.core.verdict_types import Alternative, BottleneckVerdict, KindVerdict, Phase
from skuwise.tests.support.moves_builders import (
    END,
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


def test_the_last_use_is_told_by_its_date():
    given = founding()
    nodes = tuple(replace(n, fabric=fabric(last_active_ts=START - 40 * 86400)) for n in given.nodes)
    assert "2026-" in one(advice_of(replace(given, nodes=nodes)), "idle-fabric").text.split("Last traffic:")[1][:20]


@pytest.mark.parametrize("kind", ["training", "fine-tuning", "unknown"])
def test_never_on_training_nor_on_what_nobody_could_tell(kind):
    w = workload("job", ("n1",), kind=kind)
    assert "idle-fabric" not in rules(advice_of(verdicts([node()], [w])))


@pytest.mark.parametrize(("training", "flagged"), [(0.05, True), (0.2, False)])
def test_what_may_well_be_training_is_not_flagged(training, flagged):
    kind = KindVerdict("batch-inference", 0.75, (), (Alternative("fine-tuning", training), Alternative("idle", 0.02)))
    advice = advice_of(verdicts([node()], [workload("job", kind=kind)]))
    assert ("idle-fabric" in rules(advice)) is flagged


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


def test_what_only_reads_memory_is_half_as_doubtful():
    kind = KindVerdict("batch-inference", 0.7, (), (Alternative("training", 0.16),))
    reads = workload("job", kind=kind, features={"tensor_of_sustained_p95": 0.1})
    computes = workload("job", kind=kind, features={"tensor_of_sustained_p95": 0.4})
    assert "idle-fabric" in rules(advice_of(verdicts([node()], [reads])))
    assert "idle-fabric" not in rules(advice_of(verdicts([node()], [computes])))


def test_a_standby_neither_makes_a_fabric_waste_nor_hides_that_it_is():
    idle = BottleneckVerdict("idle", 0.9, {"idle": 0.97, "hbm-bandwidth": 0.03})
    spare = workload("spare", ("n1",), bottleneck=idle, gpus=gpus_of("n1", 4))
    assert "idle-fabric" not in rules(advice_of(verdicts([node()], [spare])))
    probed = workload("probed", ("n1",), features={"engine_active": 0.004})
    assert "idle-fabric" not in rules(advice_of(verdicts([node()], [probed])))
    light = workload("light", ("n1",), features={"engine_active": 0.1})
    assert "idle-fabric" in rules(advice_of(verdicts([node()], [light])))
    chat = workload("chat", ("n1",), gpus=gpus_of("n1")[4:])
    assert "idle-fabric" in rules(advice_of(verdicts([node()], [spare, chat])))


def test_training_beside_a_service_keeps_the_fabric():
    chat = workload("chat", ("n1",), gpus=gpus_of("n1", 4))
    job = workload("job", ("n1", "n2"), kind="training", gpus=(*gpus_of("n1")[4:], *gpus_of("n2")))
    assert "idle-fabric" not in rules(advice_of(verdicts([node("n1"), node("n2")], [chat, job])))


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


def test_traffic_above_one_per_cent_clears_the_fabric():
    assert "idle-fabric" not in rules(advice_of(verdicts([node(fabric=fabric(util_p995=0.02))], [workload()])))
    assert "idle-fabric" in rules(advice_of(verdicts([node(fabric=fabric(util_p995=0.01))], [workload()])))


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


def test_too_little_data_gives_no_waste_but_a_date():
    young = node(first_seen=END - 5 * 3600, hours_observed=5.0, span_hours=5.0, fabric=None)
    idle = [bare("n1", i, hours=5.0, idle_hours=5.0, first_ts=END - 5 * 3600) for i in range(8)]
    advice = advice_of(verdicts([young], [], bare_gpus=idle))
    assert rules(advice) == []
    assert any("possible from" in n.text for n in advice.notes)


def test_the_date_of_a_verdict_counts_the_hours_that_are_missing():
    """Ten of a hundred hours were sampled: the other twenty are still to come, whenever the node was first seen."""
    gappy = node(first_seen=END - 100 * 3600, hours_observed=10.0, span_hours=100.0, fabric=None)
    notes = advice_of(verdicts([gappy], [])).notes
    assert any(f"possible from {rfc3339(END + 20 * 3600)} if" in n.text for n in notes)
    assert any(n.code == "telemetry-begins-late" for n in notes)


def test_a_short_window_over_long_data_asks_for_a_longer_one():
    short = replace(
        verdicts([node(hours_observed=6.0, span_hours=6.0, fabric=None)]), window=Window(END - 6 * 3600, END)
    )
    notes = advice_of(short).notes
    assert any("--since 30h" in n.text for n in notes)
    assert not any("possible from" in n.text for n in notes)


def test_data_later_than_the_window_is_pointed_to():
    early = node(hours_observed=6.0, span_hours=6.0, fabric=None, last_seen=END + 86400)
    assert any("--until" in n.text for n in advice_of(verdicts([early])).notes)


def test_a_node_without_data_is_told_once_and_its_fabric_not_again():
    young = [node(n, hours_observed=2.0, fabric=fabric(hours=2.0)) for n in ("n1", "n2")]
    told = [n for n in advice_of(verdicts(young, [workload("chat", ("n1",))])).notes if "verdict" in n.text.lower()]
    assert len(told) == 1
    assert "n1 and n2" in told[0].text


def test_no_percentile_is_above_the_highest_second():
    quiet = advice_of(verdicts([node(fabric=fabric(util_p995=0.0005, util_max=0.0002))], [workload()]))
    evidence = {e.metric: e.value for e in one(quiet, "idle-fabric").evidence}
    assert evidence["fabric_util_p995"] == evidence["fabric_util_max"] == 0.0002


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


def test_a_service_that_waits_for_requests_is_not_held_idle():
    chat = workload()
    advice = advice_of(verdicts([node(fabric=None)], [chat], idle_hours={"w-chat": 8 * 150.0}))
    assert "held-idle" not in rules(advice)


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


@pytest.mark.parametrize(("kind", "said"), [("online-inference", True), ("interactive", False)])
def test_nobodys_session_is_given_up_for_another(kind, said):
    """Four GPUs at a twentieth of their use: replicas of a service are too many, four people's notebooks are not."""
    pods = [workload("api", ("n1",), kind=kind, id=f"w-{i}", gpus=(f"GPU-n1-{i}",)) for i in range(4)]
    uses = [usage(w, u_c=0.05, u_m=0.05, g=0.9) for w in pods]
    advice = advice_of(verdicts([node(fabric=None)], pods, uses=uses))
    assert ("too-many-gpus" in rules(advice)) is said


def test_what_is_given_back_altogether_is_not_told_to_be_too_many():
    pods = [workload("api", ("n1",), id=f"w-{i}", gpus=(f"GPU-n1-{i}",)) for i in range(4)]
    uses = []
    for w in pods:
        rows = usage(w, u_c=0.05, u_m=0.05, g=0.9)
        left = rows["ts"] > rows["ts"].max() - 7 * 86_400
        for name in ("u_c", "u_m", "u_n", "c", "m", "n", "g"):
            rows.loc[left, name] = 0.0
        rows.loc[left, "bottleneck"] = "idle"
        uses.append(rows)
    idle = {w.id: 7 * 24.0 for w in pods}
    found = rules(advice_of(verdicts([node(fabric=None)], pods, uses=uses, idle_hours=idle)))
    assert "held-idle" in found
    assert "too-many-gpus" not in found


def test_confidence_falls_with_coverage_sampling_and_doubt():
    def confidence(**changes):
        w = workload(**changes)
        return one(advice_of(verdicts([node()], [w])), "idle-fabric").confidence

    full = confidence()
    assert confidence(coverage=replace(workload().coverage, fraction=0.5)) < full
    assert confidence(coverage=replace(workload().coverage, resolution_seconds=60.0)) < full
    assert confidence(kind=KindVerdict("online-inference", 0.65)) < full


def test_ids_stay_the_same_from_run_to_run():
    first, second = advice_of(founding(), seed=1), advice_of(founding(), seed=2)
    assert [f.id for f in first.findings] == [f.id for f in second.findings]
    assert {r.id for r in first.recommendations} == {r.id for r in second.recommendations}


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


def test_one_short_run_that_nobody_could_tell_does_not_silence_a_series():
    known = workload("chat", start=START, end=END - 2 * 3600)
    short = workload("chat", id="w-chat-2", start=END - 2 * 3600, end=END, kind=KindVerdict("unknown", 0.5))
    assert "idle-fabric" in {f.rule for f in advice_of(verdicts([node()], [known, short])).findings}


def test_held_idle_says_since_when():
    w = workload("left", kind="training")
    used = usage(w, label="compute")
    last = START + 100 * 3600
    used.loc[used["ts"] > last, "bottleneck"] = "idle"
    advice = advice_of(verdicts([node()], [w], uses=[used], idle_hours={w.id: 8 * 236.0}))
    (finding,) = [f for f in advice.findings if f.rule == "held-idle"]
    assert finding.gpu_hours == pytest.approx(8 * 236)
    assert f"Last activity: {minute(last)}." in finding.text
    assert {e.metric: e.value for e in finding.evidence}["last_worked"] == rfc3339(last)
