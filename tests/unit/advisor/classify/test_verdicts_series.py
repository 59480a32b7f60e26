"""Runs of one series taken together, and what the fleet's records get wrong about them."""

from __future__ import annotations

from skuwise.advisor.classify.judge import judge
from skuwise.advisor.recommend.groups import groups_of
from skuwise.agent.inventory.identity.ids import series_id
from skuwise.tests.support.frame_builder import DECODE, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook

# An hour of this could be anything.
_VAGUE = {**DECODE, "tensor_active": 0.3, "dram_active": 0.3, "mem_used_bytes": 4e10}


def test_a_pod_that_has_just_moved_is_what_its_service_was() -> None:
    b = FrameBuilder(hours=96)
    old, new = b.node("n1")[0], b.node("n2")[0]
    b.use(DECODE, "n1", old, end=94, wave="tensor_active")
    b.use(_VAGUE, "n2", new, start=95)
    b.work("a", [("n1", old)], end=94, name="svc")
    b.work("b", [("n2", new)], start=95, name="svc")
    verdicts = judge(b.frame(), rulebook())
    moved = next(w for w in verdicts.workloads if w.id == "b")
    assert moved.kind.label == "online-inference"
    assert "1 other run of the same series" in moved.kind.evidence[0].text
    assert moved.phases[0].kind == "online-inference"
    assert moved.kind.confidence < next(w for w in verdicts.workloads if w.id == "a").kind.confidence
    assert verdicts.waste_ready == {"a": True, "b": True}


def test_replicas_side_by_side_do_not_add_up_to_the_floor() -> None:
    b = FrameBuilder(hours=20)
    uuids = b.node(gpus=4)
    for n, uuid in enumerate(uuids):
        b.use(DECODE, uuid=uuid)
        b.work(f"r{n}", [("n1", uuid)], series="s")
    assert not any(judge(b.frame(), rulebook()).waste_ready.values())


def test_services_of_one_name_in_two_namespaces_are_two() -> None:
    b = FrameBuilder(hours=48)
    one, two = b.node(gpus=2)
    for uuid, namespace in ((one, "red"), (two, "blue")):
        b.use(DECODE, uuid=uuid)
        b.work(namespace, [("n1", uuid)], name="chat", namespace=namespace,
               series=series_id("c", namespace, None, "chat"))  # fmt: skip
    groups = groups_of(judge(b.frame(), rulebook()))
    assert sorted(w.id for g in groups for w in g.workloads) == ["blue", "red"]
    assert len(groups) == 2
