"""Every GPU of a window is counted, whole or divided; judged together all get the verdicts of each alone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.classify.accounting.energy import hours_by_use, occupancy, placed_rows
from skuwise.advisor.classify.judge import judge, judge_groups
from skuwise.advisor.classify.workloads.attribution import attribute
from skuwise.advisor.classify.workloads.inventory import Inventory, inventory_of
from skuwise.advisor.classify.workloads.sku_lookup import index_gpus, row_parts
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.frame import Frame, blind_nodes, parts_of
from skuwise.advisor.recommend.groups import groups_of
from skuwise.agent.jobs.ids import series_id
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.frame_builder import DECODE, FREE, HELD, HOUR, START, TRAINING, FrameBuilder, at_work
from skuwise.tests.support.rulebooks import rulebook


def _occupied(builder: FrameBuilder) -> dict[str, float]:
    """Where the GPU-hours of a fleet that never rests went, and their sum (``total``)."""
    frame = builder.frame()
    idle = pd.Series(False, index=frame.gpu.index)
    inventory = inventory_of(frame, lambda _: None, blind_nodes(frame.absences))
    places = placed_rows(frame, attribute(frame), idle, np.ones(len(frame.gpu)))
    table = occupancy(places, frame, inventory)
    assert table.loc[table["class"] == "shared", "workload_id"].isna().all()
    return {name: hours for name, hours in asdict(hours_by_use(table)).items() if hours}


def test_rows_that_a_use_cuts_are_shared_out_but_are_not_its_shape() -> None:
    b = at_work(TRAINING, hours=4, work={"start": 0.5, "end": 3})
    of_job = attribute(b.frame()).workload_rows
    assert of_job["seconds"].tolist() == pytest.approx([1800, 3600, 3600])
    assert of_job["whole"].tolist() == [False, True, True]


def test_two_workloads_at_the_same_time_are_shared_and_belong_to_neither() -> None:
    b = FrameBuilder(hours=10)
    (uuid,) = b.node()
    b.use(TRAINING)
    b.work("a", [("n1", uuid)], start=0, end=6)
    b.work("b", [("n1", uuid)], start=4, end=10)
    attribution = attribute(b.frame())
    assert _occupied(b) == pytest.approx({"shared": 2, "workloads": 8, "total": 10})
    assert all(session.shared for session in attribution.sessions)
    # Together the hours are no more than the GPU's: by the shares of its use where they are known, else in equal parts.
    cases = ((), (5, 5)), ((0.75, 0.25), (5.5, 4.5)), ((0.6, 0), (6, 4)), ((0, 0), (5, 5)), ((1, np.nan), (5, 5))
    for shares, hours in cases:
        frame = b.frame()
        uses = frame.uses.assign(share=shares) if shares else frame.uses
        result = {w.id: w.gpu_hours for w in judge(replace(frame, uses=uses), rulebook()).workloads}
        assert result == pytest.approx(dict(zip("ab", hours, strict=True)))


@pytest.mark.parametrize("gpu_count", [2, 3])
def test_occupancy_sums_to_gpu_count_times_window(gpu_count: int) -> None:
    b = FrameBuilder(hours=20)
    uuids = b.node(gpus=2, gpu_count=gpu_count)
    b.use(TRAINING, uuid=uuids[0])
    b.use(FREE, uuid=uuids[1], end=5, observed=0.5)
    b.work("a", [("n1", uuids[0])], start=2.25, end=11)
    hours = {"workloads": 8.75, "unallocated": 20 - 8.75 + 2.5, "unobserved": 17.5 + 20 * (gpu_count - 2)}
    assert _occupied(b) == pytest.approx({**hours, "total": gpu_count * 20})


def test_hours_before_a_node_existed_are_no_money() -> None:
    b = FrameBuilder(hours=20)
    (uuid,) = b.node(first_seen=START + 5.5 * HOUR)
    b.use(TRAINING, start=6)
    b.work("a", [("n1", uuid)], start=6)
    assert _occupied(b) == pytest.approx({"workloads": 14, "unobserved": 0.5, "total": 14.5})


def test_restarts_of_a_run_make_one_chain_and_other_numbers_do_not() -> None:
    b = FrameBuilder(hours=48)
    (uuid,) = b.node()
    b.use(TRAINING)
    for start, end in ((0, 19.9), (20, 39.9), (39.9, 48)):
        b.work(f"from {start}", [("n1", uuid)], start=start, end=end, name="pretrain", series="p")
    assert [s.chain_hours for s in attribute(b.frame()).sessions] == pytest.approx([48] * 3)
    b.uses, b.workloads = [], []
    b.work("r1", [("n1", uuid)], end=10, name="run-1", series="r")
    b.work("r2", [("n1", uuid)], start=10.1, end=20, name="run-2", series="r")
    assert {round(s.chain_hours, 1) for s in attribute(b.frame()).sessions} == {10.0, 9.9}


def test_hours_of_a_drained_node_are_drained_where_nobody_worked_and_still_sum_up() -> None:
    b = FrameBuilder(hours=20)
    uuids = b.node(gpus=2)
    b.use(TRAINING, uuid=uuids[0])
    b.use(FREE, uuid=uuids[1], end=15)
    b.work("a", [("n1", uuids[0])], start=0, end=6.5)
    out = {"node": "n1", "device": "node", "scope": "source", "metric": "*", "reason": "drained"}
    for since, until in ((5, 8), (7.5, 10.25)):
        b.absences.append({**out, "since": START + since * HOUR, "until": START + until * HOUR})
    b.absences.append({**out, "since": START + 18 * HOUR, "until": None})
    drained = (10.25 - 6.5) + (10.25 - 5) + 2
    hours = {"workloads": 6.5, "drained": drained, "unallocated": 40 - 6.5 - drained - 5, "unobserved": 5}
    assert _occupied(b) == pytest.approx({**hours, "total": 40})


CATALOG = load_catalog()


def counted(frame: Frame) -> Inventory:
    return inventory_of(
        frame, {name: sku.gpu_count for name, sku in CATALOG.nodes.items()}.get, blind_nodes(frame.absences)
    )


@pytest.mark.parametrize(
    ("sku", "used", "count", "gap", "code", "words"),
    [
        ("azure/Standard_ND96isr_H100_v5", 2, 8, tuple(f"unnamed-{n}" for n in range(1, 7)), "not-named", "8 GPUs"),
        (None, 1, 2, ("GPU-n1-1",), "no-samples", "no metric of it"),
    ],
)
def test_gpus_that_exist_and_tell_nothing_are_unobserved(sku, used, count, gap, code, words) -> None:
    b = FrameBuilder(hours=40)
    uuids = b.node(gpus=2)
    b.nodes[-1]["node_sku"] = sku
    for uuid in uuids[:used]:
        b.use(DECODE, uuid=uuid)
    inventory = counted(b.frame())
    (unobserved,) = inventory.unobserved
    assert (inventory.gpu_count, inventory.observed_hours) == (count, pytest.approx(40))
    assert (unobserved.node, unobserved.gpus, unobserved.code) == ("n1", gap, code) and words in unobserved.reason


def asked(b: FrameBuilder, node: str, *requests: tuple[str, str, float, float, float]) -> Frame:
    """A frame with requests of pods: (pod, resource, GPUs, from and until which hour)."""
    rows = [
        {"node": node, "namespace": "ml", "pod": pod, "container": "c", "resource": resource, "count": count,
         "ts_start": START + start * HOUR, "ts_end": START + end * HOUR}
        for pod, resource, count, start, end in requests
    ]  # fmt: skip
    return replace(b.frame(), requests=pd.DataFrame(rows))


def test_a_node_that_pods_alone_tell_of_is_counted_by_what_they_requested() -> None:
    b = FrameBuilder(hours=4)
    b.nodes.append({"node": "dark", "first_seen": START, "last_seen": START + 4 * HOUR})
    spans = [("p", "nvidia_com_gpu", 4.0, 0, 2), ("q", "nvidia_com_gpu", 2.0, 1, 4), ("r", "nvidia_com_gpu", 1.0, 3, 4)]
    inventory = counted(asked(b, "dark", *spans))
    at = inventory.nodes["dark"]
    assert (at.gpu_count, at.unobserved_count, inventory.unobserved[0].code) == (6, 6, "not-named")


def test_rows_of_instances_count_for_the_gpu_that_they_are_a_part_of() -> None:
    b = FrameBuilder(hours=10)
    (parent,) = b.node()
    for n in range(2):
        b.gpus.append({**b.gpus[0], "gpu_uuid": f"MIG-n1-{n}", "kind": "mig", "parent_uuid": parent})
        b.use(DECODE, uuid=f"MIG-n1-{n}")
    inventory = counted(b.frame())
    (gpu,) = inventory.nodes["n1"].gpus
    assert (inventory.gpu_count, gpu.gpu_uuid, gpu.sliced) == (1, parent, True) and gpu.hours == pytest.approx(10)
    assert gpu.measured["dram_active"] == pytest.approx(10) and not inventory.unobserved


def test_a_node_that_was_renamed_counts_its_gpus_once_and_ends_where_the_other_name_begins() -> None:
    b = FrameBuilder(hours=40)
    old = b.node("old", gpus=2)
    b.node("new", gpus=2, first_seen=START + 24 * HOUR)
    for gpu, uuid in zip(b.gpus, [*old, *old], strict=True):
        gpu["gpu_uuid"] = uuid
    for uuid in old:
        b.use(DECODE, node="old", uuid=uuid, end=24)
        b.use(DECODE, node="new", uuid=uuid, start=24)
    inventory = counted(b.frame())
    old_node = inventory.nodes["old"]
    assert (inventory.gpu_count, old_node.moved_to, old_node.end) == (2, "new", START + 24 * HOUR)
    assert {bare_gpu.node for bare_gpu in b.judged().bare} == {"old", "new"}


def test_a_node_that_left_counts_until_it_was_last_seen() -> None:
    b = FrameBuilder(hours=240)
    for name, hours in (("left", 8), ("late", 239), ("stays", 240)):
        (uuid,) = b.node(name)
        b.nodes[-1]["last_seen"] = START + hours * HOUR
        b.use(DECODE, name, uuid, end=hours)
    inventory = counted(b.frame())
    spans = {name: (node.span_hours, node.end) for name, node in inventory.nodes.items()}
    assert spans == {"left": (8.0, START + 8 * HOUR), "late": (240.0, None), "stays": (240.0, None)}
    assert inventory.gpu_count == 3


def test_pods_that_share_listed_devices_add_none() -> None:
    b = FrameBuilder(hours=40)
    uuids = b.node(gpus=2)
    b.nodes[-1] |= {"gpu_count": None, "node_sku": None}
    for uuid in uuids:
        b.use(FREE, uuid=uuid)
    resources = ["nvidia_com_gpu"] * 4 + ["nvidia_com_gpu_shared"] * 4
    requests = [(f"asr-{n}", resource, 1.0, 0, 40) for n, resource in enumerate(resources)]
    node = counted(asked(b, "n1", *requests)).nodes["n1"]
    assert (node.gpu_count, node.unobserved) == (2, ())
    assert node.unaccounted_pods == tuple(f"ml/asr-{n}" for n in range(8))


PARENT = "GPU-n1-0"
_PARENT_READS = {name: value for name, value in FREE.items() if name != "gpu_util"}
_INSTANCE_READS = ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "mem_used_bytes")


def divided(cut: list[str], reads: Sequence[Mapping[str, float]], hours: int = 48) -> FrameBuilder:
    """One GPU, whose own counters say idle all along, and instances of it by profile."""
    b = FrameBuilder(hours=hours)
    b.node()
    b.use(_PARENT_READS)
    for number, (profile, holding) in enumerate(zip(cut, reads, strict=True), start=1):
        uuid = f"MIG-n1-{number}"
        b.gpus.append(b.gpus[0] | {"gpu_uuid": uuid, "kind": "mig", "parent_uuid": PARENT, "mig_profile": profile,
                                   "name": f"NVIDIA H100 80GB HBM3 MIG {profile}", "power_limit_watts": None,
                                   "nvlink_bytes_per_second": None})  # fmt: skip
        b.use({name: holding[name] for name in _INSTANCE_READS}, uuid=uuid)
    return b


def test_instances_cost_and_rest_for_their_parts_of_the_gpu_and_every_hour_counts_once() -> None:
    b = divided(["3g.40gb", "3g.40gb"], [DECODE, FREE])
    b.work("served", [("n1", "MIG-n1-1")], start=0, end=30)
    verdicts = b.judged()
    hours = verdicts.occupancy.groupby("class")["gpu_hours"].sum().to_dict()
    assert hours == {"workload": pytest.approx(15), "unallocated": pytest.approx(33)}
    assert set(verdicts.occupancy["gpu_uuid"]) == {PARENT}
    (node,) = verdicts.nodes
    assert (node.gpu_count, node.gpu_sku) == (1, "H100-SXM5") and node.hours_observed == pytest.approx(48)
    free = {bare_gpu.gpu_uuid: bare_gpu for bare_gpu in verdicts.bare}["MIG-n1-2"]
    assert (free.parent_uuid, free.profile, free.part) == (PARENT, "3g.40gb", 0.5)
    assert (free.hours, free.idle_hours) == (pytest.approx(24), pytest.approx(24))


def test_work_on_an_instance_has_its_own_rows_and_is_shared_with_nobody() -> None:
    b = divided(["3g.40gb", "3g.40gb"], [DECODE, FREE])
    b.work("served", [("n1", "MIG-n1-1")], end=30)
    b.work("other", [("n1", "MIG-n1-2")], end=30)
    served, other = attribute(b.frame()).sessions
    assert not served.shared and not other.shared and served.held_seconds == pytest.approx(30 * HOUR)
    workload = next(w for w in b.judged().workloads if w.gpus == ("MIG-n1-1",))
    assert (workload.features["hours"], workload.gpu_hours, workload.gpu_part) == pytest.approx((30, 15, 0.5))


@pytest.mark.parametrize(
    ("cut", "parts"),
    [
        (["3g.40gb", "3g.40gb"], [0.5, 0.5]), (["1g.10gb"] * 7, [1 / 7] * 7), (["2g.20gb", "2g.20gb"], [2 / 7, 2 / 7]),
        (["4g.40gb", "3g.40gb"], [8 / 15, 7 / 15]), (["1g.20gb"], [0.25]), (["what"], [1.0]),
        (["3g.40gb", "what"], [0.5, 0.5]), (["7g.80gb"], [1.0]),
    ],
)  # fmt: skip
def test_instances_that_divide_a_gpu_wholly_are_all_of_it(cut: list[str], parts: list[float]) -> None:
    frame = divided(cut, [FREE] * len(cut), hours=4).frame()
    rows = dict(zip(frame.gpu["gpu_uuid"], row_parts(frame, index_gpus(frame, CATALOG)), strict=True))
    assert [rows[f"MIG-n1-{n + 1}"] for n in range(len(cut))] == pytest.approx(parts)
    assert rows[PARENT] == pytest.approx(1 - sum(parts), abs=1e-9)


NOTE = CodedText("some-note", "A note on the whole source.", {})


def fleet() -> Frame:
    """Six nodes of two GPUs: one job over two of them, a service with replicas on two others, one held, one free from
    the second day on."""
    built = FrameBuilder(hours=48)
    of: dict[str, list[tuple[str, str]]] = {}
    for n, reads in enumerate((TRAINING, TRAINING, DECODE, DECODE, HELD, FREE), start=1):
        node, start = f"n{n}", 24 if reads is FREE else 0
        of[node] = [(node, uuid) for uuid in built.node(node, gpus=2, first_seen=START + start * HOUR)]
        for gpu in of[node]:
            built.use(reads, *gpu, start=start)
    built.work("w-job", [*of["n1"], *of["n2"]], series="s-job", name="pretrain")
    for node in ("n3", "n4"):
        built.work(f"w-{node}", of[node], series="s-serve", name="serve")
    built.work("w-held", of["n5"], series="s-held", name="notebook")
    return replace(built.frame(), notes=(NOTE,))


@pytest.mark.parametrize("rows_at_once", [1, 200])
def test_groups_give_the_verdicts_of_the_whole(rows_at_once: int) -> None:
    frame, book = fleet(), rulebook()
    parts = list(parts_of(frame, rows_at_once))
    assert len(parts) > 1 and sum(len(part.gpu) for part in parts) == len(frame.gpu)
    whole, grouped = judge(frame, book), judge_groups(parts, book)
    for w, same in zip(whole.workloads, grouped.workloads, strict=True):
        assert (same.id, same.kind.label, same.bottleneck.label) == (w.id, w.kind.label, w.bottleneck.label)
        assert same.gpu_hours == pytest.approx(w.gpu_hours)
    for table, same in ((whole.occupancy, grouped.occupancy), (whole.energy, grouped.energy)):
        hours, again = (t.groupby("node")["gpu_hours"].sum() for t in (table, same))
        pd.testing.assert_series_equal(hours, again)
    sums = [
        [v.inventory.hours, v.inventory.observed_hours, *(n.span_hours for _, n in sorted(v.inventory.nodes.items())),
         len(v.usage), v.used([w.id for w in whole.workloads])["sm"].sum()]
        for v in (whole, grouped)
    ]  # fmt: skip
    assert sums[0] == pytest.approx(sums[1]) and grouped.nodes == whole.nodes
    assert grouped.waste_ready == whole.waste_ready and NOTE in grouped.notes


def test_a_pod_that_has_just_moved_is_what_its_service_was() -> None:
    b = FrameBuilder(hours=96)
    (old,), (new,) = b.node("n1"), b.node("n2")
    b.use(DECODE, "n1", old, end=94, wave="tensor_active")
    # An hour of this could be anything.
    b.use({**DECODE, "tensor_active": 0.3, "dram_active": 0.3, "mem_used_bytes": 4e10}, "n2", new, start=95)
    b.work("a", [("n1", old)], end=94, name="svc")
    b.work("b", [("n2", new)], start=95, name="svc")
    verdicts = b.judged()
    stayed, moved = sorted(verdicts.workloads, key=lambda w: w.id)
    assert moved.kind.label == "online-inference" and "1 other run of the same series" in moved.kind.evidence[0].text
    assert moved.phases[0].kind == "online-inference" and moved.kind.confidence < stayed.kind.confidence
    assert verdicts.waste_ready == {"a": True, "b": True}


def test_replicas_side_by_side_do_not_add_up_to_the_floor() -> None:
    b = FrameBuilder(hours=20)
    uuids = b.node(gpus=4)
    for n, uuid in enumerate(uuids):
        b.use(DECODE, uuid=uuid)
        b.work(f"r{n}", [("n1", uuid)], series="s")
    assert not any(b.judged().waste_ready.values())


def test_services_of_one_name_in_two_namespaces_are_two() -> None:
    b = FrameBuilder(hours=48)
    entry, two = b.node(gpus=2)
    for uuid, namespace in ((entry, "red"), (two, "blue")):
        b.use(DECODE, uuid=uuid)
        b.work(namespace, [("n1", uuid)], name="chat", namespace=namespace,
               series=series_id("c", namespace, None, "chat"))  # fmt: skip
    assert sorted([w.id for w in group.workloads] for group in groups_of(b.judged())) == [["blue"], ["red"]]
