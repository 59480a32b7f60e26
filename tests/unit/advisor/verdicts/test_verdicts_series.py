"""Runs of one series taken together, and what the fleet's records get wrong about them."""

from __future__ import annotations

import pytest
from skuwise.advisor.moves.base.workload_groups import groups_of
from skuwise.advisor.verdicts.judge import Verdicts, judge
from skuwise.agent.inventory.identity.ids import series_id
from skuwise.rules.catalog.loader import Catalog, load_catalog
from skuwise.tests.support.frame_builder import DECODE, HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook

# An hour of this could be anything.
_VAGUE = {**DECODE, "tensor_active": 0.3, "dram_active": 0.3, "mem_used_bytes": 4e10}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def _crash_looping(catalog: Catalog) -> Verdicts:
    """A service without a telling name that lives for an hour at a time, now on one node, now on the other."""
    b = FrameBuilder(hours=80)
    gpus = [("n1", b.node("n1")[0]), ("n2", b.node("n2")[0])]
    for node, uuid in gpus:
        b.use(DECODE, node, uuid, interval=1800.0, wave="tensor_active")
    for n in range(80):
        b.work(f"pod-{n:02}", [gpus[n % 2]], start=n, end=n + 0.95, name="svc", series="s")
    return judge(b.frame(), rulebook(catalog))


@pytest.mark.slow
def test_a_service_that_crashes_again_and_again_is_one_thing(catalog: Catalog) -> None:
    verdicts = _crash_looping(catalog)
    assert len(verdicts.workloads) == 80
    assert {round(w.features["chain_hours"]) for w in verdicts.workloads} == {80}
    assert {w.kind.label for w in verdicts.workloads} == {"online-inference"}
    together = [w for w in verdicts.workloads if w.kind.evidence[0].code == "judged-with-its-series"]
    assert len(together) > 70  # the others told it by themselves
    # No run has the thirty hours that a verdict on waste needs, the series has.
    assert all(verdicts.waste_ready.values())
    (group,) = groups_of(verdicts)
    assert {node.node for node in group.nodes} <= {"n1", "n2"}
    assert group.kind_shares == {"online-inference": pytest.approx(1)}


def test_a_pod_that_has_just_moved_is_what_its_service_was(catalog: Catalog) -> None:
    b = FrameBuilder(hours=96)
    old, new = b.node("n1")[0], b.node("n2")[0]
    b.use(DECODE, "n1", old, end=94, wave="tensor_active")
    b.use(_VAGUE, "n2", new, start=95)
    b.work("a", [("n1", old)], end=94, name="svc")
    b.work("b", [("n2", new)], start=95, name="svc")
    verdicts = judge(b.frame(), rulebook(catalog))
    moved = next(w for w in verdicts.workloads if w.id == "b")
    assert moved.kind.label == "online-inference"
    assert "1 other run of the same series" in moved.kind.evidence[0].text
    assert moved.phases[0].kind == "online-inference"
    assert moved.kind.confidence < next(w for w in verdicts.workloads if w.id == "a").kind.confidence
    assert verdicts.waste_ready == {"a": True, "b": True}


def test_runs_that_disagree_say_nothing_of_a_short_one(catalog: Catalog) -> None:
    b = FrameBuilder(hours=120)
    (uuid,) = b.node()
    b.use(DECODE, end=59, wave="tensor_active")
    b.use(TRAINING, start=59, end=118)
    b.use(_VAGUE, start=118)
    b.work("a", [("n1", uuid)], end=59)
    b.work("b", [("n1", uuid)], start=59, end=118, command="torchrun train.py")
    b.work("c", [("n1", uuid)], start=119)
    verdicts = {w.id: w for w in judge(b.frame(), rulebook(catalog)).workloads}
    assert {verdicts["a"].kind.label, verdicts["b"].kind.label} == {"online-inference", "training"}
    assert not any("same series" in sentence.text for sentence in verdicts["c"].kind.evidence)


def test_replicas_side_by_side_do_not_add_up_to_the_floor(catalog: Catalog) -> None:
    b = FrameBuilder(hours=20)
    uuids = b.node(gpus=4)
    for n, uuid in enumerate(uuids):
        b.use(DECODE, uuid=uuid)
        b.work(f"r{n}", [("n1", uuid)], series="s")
    assert not any(judge(b.frame(), rulebook(catalog)).waste_ready.values())


def test_services_of_one_name_in_two_namespaces_are_two(catalog: Catalog) -> None:
    b = FrameBuilder(hours=48)
    one, two = b.node(gpus=2)
    for uuid, namespace in ((one, "red"), (two, "blue")):
        b.use(DECODE, uuid=uuid)
        b.work(namespace, [("n1", uuid)], name="chat", namespace=namespace,
               series=series_id("c", namespace, None, "chat"))  # fmt: skip
    groups = groups_of(judge(b.frame(), rulebook(catalog)))
    assert sorted(w.id for g in groups for w in g.workloads) == ["blue", "red"]
    assert len(groups) == 2


@pytest.mark.slow
def test_a_job_on_nodes_whose_clocks_differ_is_one_and_in_step(catalog: Catalog) -> None:
    def judged(skew: float) -> Verdicts:
        b = FrameBuilder(hours=48)
        gpus = [(n, u) for n in ("n1", "n2") for u in b.node(n, 1)]
        for node, uuid in gpus:
            b.use(TRAINING, node, uuid, wave="tensor_active")
        b.work("w", gpus[:1])
        b.work("w", gpus[1:])
        b.uses[1]["ts_start"], b.uses[1]["ts_end"] = START + skew, START + 48 * HOUR + skew
        b.nodes[1]["last_seen"] = START + 48 * HOUR + skew
        return judge(b.frame(), rulebook(catalog))

    (even,), (skewed,) = judged(0).workloads, judged(240).workloads
    assert skewed.nodes == ("n1", "n2")
    assert skewed.features["sync"] == pytest.approx(even.features["sync"], abs=0.02)
    assert (skewed.kind.label, skewed.bottleneck.label) == (even.kind.label, even.bottleneck.label)
    assert len(skewed.phases) == len(even.phases) == 1
    assert skewed.gpu_hours == pytest.approx(even.gpu_hours, abs=0.1)
    assert skewed.end <= START + 48 * HOUR


def test_a_restart_on_a_node_whose_clock_is_ahead_goes_on_with_the_run(catalog: Catalog) -> None:
    b = FrameBuilder(hours=48)
    one, two = b.node("n1")[0], b.node("n2")[0]
    b.use(TRAINING, "n1", one, end=20)
    b.use(TRAINING, "n2", two, start=20)
    b.work("a", [("n1", one)], end=20, name="run", series="r")
    b.work("b", [("n2", two)], start=20 + 13 / 60, name="run", series="r")
    assert {round(w.features["chain_hours"]) for w in judge(b.frame(), rulebook(catalog)).workloads} == {48}


def _as_recorded(catalog: Catalog, spans: list[tuple[float, float]]) -> Verdicts:
    b = FrameBuilder(hours=48)
    (uuid,) = b.node()
    b.use(TRAINING)
    for start, end in spans:
        b.work("w", [("n1", uuid)], start=start, end=end)
    return judge(b.frame(), rulebook(catalog))


@pytest.mark.parametrize(
    "spans",
    [
        [(0, 48), (0, 48)],  # a row twice
        [(-100, 500)],  # begins and ends beyond the window
        [(0, 30), (20, 48)],  # uses that overlap
        [(0, 48), (30, 10)],  # one that ends before it starts
        [(0, 24), (24, 48)],  # one after the other
    ],
)
def test_uses_recorded_badly_change_nothing(catalog: Catalog, spans: list[tuple[float, float]]) -> None:
    told, right = _as_recorded(catalog, spans), _as_recorded(catalog, [(0, 48)])
    (verdict,), (expected,) = told.workloads, right.workloads
    assert verdict.gpu_hours == pytest.approx(expected.gpu_hours)
    assert verdict.kind.label == expected.kind.label
    assert verdict.bottleneck == expected.bottleneck
    assert [(p.start, p.end, p.bottleneck) for p in verdict.phases] == [
        (p.start, p.end, p.bottleneck) for p in expected.phases
    ]
    assert not verdict.shared
    assert float(told.occupancy["gpu_hours"].sum()) == pytest.approx(48)
