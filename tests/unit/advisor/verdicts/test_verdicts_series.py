"""Runs of one series taken together, and what the fleet's records get wrong about them."""

from __future__ import annotations

import pytest
from skuwise.advisor.moves.base.workload_groups import groups_of
from skuwise.advisor.verdicts.judge import Verdicts, judge
from skuwise.agent.inventory.identity.ids import series_id
from skuwise.rules.catalog.loader import Catalog, load_catalog
from skuwise.tests.support.frame_builder import DECODE, FrameBuilder
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
