# pyright: reportArgumentType=false, reportOperatorIssue=false, reportOptionalMemberAccess=false, reportOptionalOperand=false
"""What the pages say about workloads, nodes, GPUs, prices and SKUs, without a screen."""

import math
from dataclasses import replace

import pytest
from skuwise.advisor.show.series.device_series import in_frame
from skuwise.advisor.show.series.fleet_map import NO_PORTS, nodes_with_gpus
from skuwise.advisor.show.series.workload_timeline import history_of
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.fleet_on_screen import NOW, HandLoader, fleet
from skuwise.tests.support.frame_builder import DECODE, GIB, HOUR, START, TRAINING, FrameBuilder
from skuwise.tui.cell_text import nice
from skuwise.tui.content.fleet_measures import (
    MEASURES,
    NO_OWNER,
    NO_WORKLOAD,
    Spot,
    fleet_map,
    spots,
    value_words,
)
from skuwise.tui.content.sku_comparison import compared
from skuwise.tui.content.whatif_text import answer_words, cost_change, knob_words, whatif_pairs
from skuwise.tui.screens.whatif import price_of

SM, FABRIC, MEMORY, POWER = (MEASURES[n] for n in (0, 4, 5, 6))


def test_history_is_a_mean_weighted_by_what_was_observed_and_keeps_its_gaps() -> None:
    b = FrameBuilder(hours=3)
    b.node("n1", 2)
    b.use(TRAINING | {"sm_active": 0.2}, "n1", "GPU-n1-0", observed=1.0)
    b.use(TRAINING | {"sm_active": 0.8}, "n1", "GPU-n1-1", observed=0.5)
    b.use(TRAINING, "n1", "GPU-n1-0", start=0, end=0)
    for row in b.gpu_rows:
        if row["ts"] == START + 2 * HOUR:
            row["sm_active_mean"] = float("nan")
    b.work("w", [("n1", "GPU-n1-0"), ("n1", "GPU-n1-1")])
    history = history_of(b.frame(), "w")
    assert history.ends == tuple(START + n * HOUR for n in (1, 2, 3))
    (sm,) = [one for one in history.lines if one.name == "SM active"]
    assert sm.unit == "%" and sm.values == (pytest.approx(40.0), None, pytest.approx(40.0))
    assert "fabric sent" not in {one.name for one in history.lines} and history_of(b.frame(), "nobody").lines == ()


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
    assert (first.workload, second.workload) == ("w-long", None) and second.values == {}
    assert n2.gpus[0].values["fabric_util"] == pytest.approx(0.3)
    assert (n1.fabric, n2.fabric) == (NO_PORTS, "2 x 400 Gb/s InfiniBand") and (n3.gpus, n3.gpu_count) == ((), 4)


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
    assert len(others) == 3 and value_words(found.value(first, SM), SM) == "40 %"
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
    assert series.of("host")[0].gauge("CPU").last is None and in_frame(fleet().frame, "nobody").ends == ()


@pytest.mark.parametrize(("text", "value"), [("98.32", 98.32), (" $1,000 ", 1000.0), ("", None), ("0", 0.0)])
def test_a_price_is_read_as_people_write_it(text: str, value: float | None) -> None:
    assert price_of(text) == (value,)


@pytest.mark.parametrize("text", ["x", "-1", "1e9", "nan", "inf", "1 2"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Invalid price"):
        price_of(text)


def test_an_answer_names_the_source_and_the_date_of_every_dollar_and_what_is_missing() -> None:
    bench = HandLoader().bench(fleet(), "w-serve", lambda _: None)
    first = bench.targets[0]
    told = answer_words(first, None).plain
    assert "Saves $7,177/month in cash, at list price, 2026-09-19" in told
    for price in first.prices:
        assert price.source in told and price.as_of in told
    pairs = {pair.name: (pair.first, pair.second) for pair in whatif_pairs(bench, first)}
    assert pairs["price/node-hour"] == ("$98.32 eastus", "$88.49 eastus")
    assert pairs["GPUs"] == ("8 x H100-SXM5", "8 x H100-SXM5") and cost_change(first) == "-$7,177"
    assert "8, by demand" in knob_words(bench, first).plain
    unknown = next(o for o in bench.targets if o.missing and o.then is None)
    assert f"Unknown: {unknown.missing[0]}." in answer_words(unknown, None).plain and whatif_pairs(bench, unknown) == ()
    dearer = replace(first, saving_usd_per_month=replace(first.saving_usd_per_month, p10=-3e3, p50=-2e3, p90=-1e3))
    assert "Costs $2,000/month more" in answer_words(dearer, None).plain


def test_two_skus_are_told_with_the_times_of_the_command_and_the_sources_of_their_prices() -> None:
    catalog = HandLoader().rulebook().catalog
    told = compared(catalog.gpus["H100-SXM5"], catalog.gpus["H200-SXM"], catalog)
    assert {p.name: (p.first, p.second) for p in told.pairs}["memory"] == ("80 GiB", "141 GiB")
    assert [time.partition(":")[0] for time in told.times] == ["training", "prefill", "decode", "mixed"]
    assert any("list price" in note and "20" in note for note in told.notes)
    ib, plain = (catalog.nodes[f"azure/Standard_ND96{kind}_H100_v5"] for kind in ("isr", "is"))
    nodes = compared(ib, plain, catalog)
    assert nodes.heads == (ib.name, plain.name) and all("same time" in time for time in nodes.times)
    assert {p.name for p in nodes.pairs if p.first != p.second} >= {"price/node-hour", "fabric"}
