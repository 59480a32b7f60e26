# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""The map of the fleet and a node's devices, without a screen: what each did, how it is grouped, scaled and drawn."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from skuwise.advisor.views.device_series import in_frame
from skuwise.advisor.views.fleet_map import NO_PORTS, nodes_with_gpus
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.fleet_on_screen import NOW, fleet
from skuwise.tests.support.frame_builder import DECODE, GIB, HOUR, START, TRAINING, FrameBuilder
from skuwise.tui.content.fleet_measures import (
    MEASURES,
    NO_OWNER,
    NO_WORKLOAD,
    Spot,
    fleet_map,
    nice,
    spots,
    value_words,
)
from skuwise.tui.data.time_window import next_window, parse_window
from skuwise.tui.state import FINDINGS_WINDOW, WINDOWS

SM, FABRIC, MEMORY, POWER = (MEASURES[n] for n in (0, 4, 5, 6))


def small():
    """Two nodes with a silent and a used fabric, and one of which nothing but its name and its count is known."""
    b = FrameBuilder(hours=4)
    b.node("n1", 2)
    b.node("n2", 1)
    b.nodes.append({"node": "n3", "gpu_count": 4, "first_seen": START, "last_seen": START})
    b.use(DECODE | {"sm_active": 0.2}, "n1", "GPU-n1-0", end=2)
    b.use(DECODE | {"sm_active": 0.8}, "n1", "GPU-n1-0", start=2, observed=0.5)
    b.use(TRAINING, "n2", "GPU-n2-0")
    b.port(0.5, "n2", "mlx5_0")
    b.port(0.1, "n2", "mlx5_1")
    b.port(0.9, "n2", "mlx5_9", role="storage")
    b.work("w-short", [("n1", "GPU-n1-0")], end=1, name="short")
    b.work("w-long", [("n1", "GPU-n1-0")], start=1, name="long")
    return b.frame()


def test_a_gpu_is_told_by_means_weighted_by_what_was_observed_and_by_what_held_it_longest() -> None:
    n1, n2, n3 = nodes_with_gpus(small())
    first, second = n1.gpus
    assert first.values["sm_active"] == pytest.approx((0.2 * 2 + 0.8 * 1) / 3)
    assert (first.workload, second.workload) == ("w-long", None)
    assert second.values == {}
    assert n2.gpus[0].values["fabric_util"] == pytest.approx(0.3)
    assert (n1.fabric, n2.fabric) == (NO_PORTS, "2 x 400 Gb/s InfiniBand")
    assert (n3.gpus, n3.gpu_count) == ((), 4)


def test_the_instances_of_a_split_gpu_stand_for_it() -> None:
    b = FrameBuilder(hours=1)
    b.node("n1", 1)
    b.gpus += [
        b.gpus[0] | {"gpu_uuid": f"MIG-{n}", "kind": "mig", "parent_uuid": "GPU-n1-0", "mig_profile": "3g.40gb"}
        for n in (1, 2)
    ]
    b.use(DECODE, "n1", "MIG-1")
    (node,) = nodes_with_gpus(b.frame())
    assert [(gpu.gpu_uuid, gpu.mig_profile) for gpu in node.gpus] == [("MIG-1", "3g.40gb"), ("MIG-2", "3g.40gb")]


def test_a_measure_has_a_unit_a_scale_and_a_word_for_what_is_missing() -> None:
    found = fleet_map(nodes_with_gpus(small()), fleet().advice)
    first, second = spots(found.nodes[0])
    (lost, *others) = spots(found.nodes[2])
    assert len(others) == 3
    assert value_words(found.value(first, SM), SM) == "40 %"
    assert value_words(found.value(first, MEMORY), MEMORY) == "92 %"
    assert value_words(found.value(first, POWER), POWER) == "280 W"
    for spot, measure in ((second, SM), (lost, SM), (first, FABRIC)):
        assert value_words(found.value(spot, measure), measure) == "not measured"
    assert (found.top(SM), found.top(POWER)) == (100.0, 1000.0)
    assert [nice(v) for v in (0.0, 0.03, 1.0, 1.2, 7.0, 201.0, math.nan)] == [1.0, 0.05, 1.0, 2.0, 10.0, 500.0, 1.0]


def test_nodes_are_grouped_by_sku_by_fabric_and_by_the_team_that_holds_most_of_them() -> None:
    advice = fleet().advice
    chat = next(w for w in advice.workloads if w.id == "w-serve")
    owned = replace(chat, owner=replace(chat.owner, team="search"))
    found = fleet_map(nodes_with_gpus(fleet().frame), replace(advice, workloads=(owned,)))
    assert [(name, len(nodes)) for name, nodes in found.grouped("SKU")] == [("azure/Standard_ND96isr_H100_v5", 2)]
    assert [name for name, _ in found.grouped("fabric")] == ["1 x 400 Gb/s InfiniBand"]
    assert {name: nodes[0].node for name, nodes in found.grouped("team")} == {"search": "n1", NO_OWNER: "n2"}
    bare = fleet_map(nodes_with_gpus(small()), replace(advice, workloads=()))
    assert [node.node for node in dict(bare.grouped("team"))[NO_WORKLOAD]] == ["n2", "n3"]
    assert bare.verdict(Spot(bare.nodes[0], None)) is None


def test_a_node_is_told_by_the_newest_rows_of_the_frame_with_what_its_devices_can_do() -> None:
    series = in_frame(fleet().frame, "n1")
    assert (series.ends[-1], series.interval_seconds) == (NOW, HOUR)
    gpu, port = series.of("gpu")[0], series.of("port")[0]
    memory, sent = gpu.gauge("memory used"), port.gauge("sent")
    assert (gpu.name, gpu.about, gpu.work) == ("GPU 0", "H100-SXM5", (("w-serve", "chat"),))
    assert (memory.unit, memory.last, memory.top) == ("GiB", pytest.approx(DECODE["mem_used_bytes"] / GIB), 80.0)
    assert (sent.unit, sent.last, sent.top) == ("GB/s", pytest.approx(0.01), 50.0)
    assert series.of("host")[0].gauge("CPU").last is None
    assert in_frame(fleet().frame, "nobody").ends == ()


@pytest.mark.parametrize(
    ("text", "name", "seconds", "until"),
    [
        ("3d", "3d", 3 * 86400.0, None),
        (" 36h ", "36h", 36 * 3600.0, None),
        ("24h", "24h", 86400.0, None),
        ("1d", "24h", 86400.0, None),
        ("2026-08-01 to 2026-08-03", "2026-08-01 to 2026-08-03", 2 * 86400.0, 1_785_715_200.0),
        ("2026-08-01T00:00:00Z..2026-08-01T06:00:00Z", "2026-08-01 00:00 to 2026-08-01 06:00", 21600.0,
         1_785_564_000.0),
    ],
)  # fmt: skip
def test_a_window_is_a_length_or_two_times(text: str, name: str, seconds: float, until: float | None) -> None:
    window = parse_window(text, NOW)
    assert (window.name, window.seconds, window.until) == (name, seconds, until)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a span"), ("[red]", "not a span"), ("0h", "not a span"), ("1s", "one minute"),
        ("9999d", "three years"), ("2026-08-03 to 2026-08-01", "not after"), ("2026-08-01 to soon", "Invalid time"),
        ("2999-01-01 to 2999-01-02", "in the future"),
    ],
)  # fmt: skip
def test_what_is_no_window_is_said(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_window(text, NOW)


def test_from_a_window_of_ones_own_the_next_on_the_key_is_the_next_longer_or_shorter() -> None:
    own = parse_window("3d", NOW)
    assert (next_window(own, 1).name, next_window(own, -1).name) == ("7d", "24h")
    assert next_window(parse_window("90d", NOW), 1) == WINDOWS[0]
    assert (next_window(FINDINGS_WINDOW, 1), next_window(WINDOWS[0], -1)) == (WINDOWS[0], FINDINGS_WINDOW)
