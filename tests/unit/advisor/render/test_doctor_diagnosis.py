"""From what a source tells to what is expected, observed and missing, and how it is shown."""

from __future__ import annotations

import json
import math
import unicodedata
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.cli.doctor import nothing_observed
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.frame import Window
from skuwise.advisor.doctor.diagnose import at_once, diagnose
from skuwise.advisor.doctor.facts import (
    GPU_MEASURES,
    NODE_MEASURES,
    Absent,
    ExpectedGpu,
    NodeCoverage,
    SeenExporter,
    SourceCoverage,
)
from skuwise.advisor.doctor.json import load_diagnosis_schema, render_diagnosis_json
from skuwise.advisor.doctor.presence import BUSY, Spelling, dcgm_looks
from skuwise.advisor.doctor.prometheus import _Device, _one_home_each, _Seen
from skuwise.advisor.doctor.text import render_diagnosis_text
from skuwise.advisor.doctor.types import Diagnosis
from skuwise.advisor.moves.base.price_book import PriceBook
from skuwise.rules.base.sanitize import INVISIBLE
from skuwise.rules.catalog.hour_prices import HourPrices
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.catalog.types import Price

CATALOG = load_catalog()
nan = float("nan")
NOW, HOUR = 1_790_000_000.0, 3600.0
AZURE = "azure/Standard_ND96isr_H100_v5"
ALL = dict.fromkeys(GPU_MEASURES, 48.0)


def gpu(name: str = "g0", **changed: object) -> ExpectedGpu:
    whole = ExpectedGpu(name, "H100-SXM5", 48.0, NOW - 48 * HOUR, NOW, ALL, 40.0, 40.0)
    return replace(whole, **changed)  # type: ignore[arg-type]


def silent(name: str) -> ExpectedGpu:
    return gpu(name, hours=0.0, first_ts=math.nan, last_ts=math.nan, known={}, busy_hours=0.0, labeled_hours=0.0)


def node(name: str = "n1", gpus: int = 8, **changed: object) -> NodeCoverage:
    whole = NodeCoverage(
        name, tuple(gpu(f"{name}-{i}") for i in range(gpus)), node_sku=AZURE, region="eastus",
        known=dict.fromkeys(NODE_MEASURES, 48.0), fabric_ports=8,
    )  # fmt: skip
    return replace(whole, **changed)  # type: ignore[arg-type]


def told(*nodes: NodeCoverage, **changed: object) -> SourceCoverage:
    whole = SourceCoverage(
        {"kind": "prometheus", "url": "http://p:9090", "server": "Prometheus 2", "match": []},
        Window(NOW - 48 * HOUR, NOW), NOW - 48 * HOUR, 48.0, nodes,
        (SeenExporter("dcgm-exporter", ("3.3.5",), len(nodes)), SeenExporter("kube-state-metrics")),
        dict.fromkeys(ALL, 60.0), sampled=24, kubernetes=True,
    )  # fmt: skip
    return replace(whole, **changed)  # type: ignore[arg-type]


def diagnosed(*nodes: NodeCoverage, prices: tuple[Price, ...] = (), **changed: object) -> Diagnosis:
    return diagnose(told(*nodes, **changed), CATALOG, PriceBook(CATALOG, prices), 30.0, NOW)


def codes(found: Diagnosis) -> list[str]:
    return [gap.code for gap in found.gaps]


def test_where_everything_is_told_nothing_is_missing() -> None:
    found = diagnosed(node())
    assert found.gaps == ()
    assert (found.expected, found.observed, found.unobserved) == (8, 8, ())
    assert found.nodes[0].usd_per_hour is not None
    assert found.readiness.ready_nodes == 1
    assert "No gaps found." in render_diagnosis_text(found)


def test_a_gpu_less_than_the_sku_has_is_unobserved_and_every_metric_lacks_it() -> None:
    found = diagnosed(node(gpus=7))
    (gone,) = found.unobserved
    assert (gone.code, len(gone.gpus)) == ("not-named", 1)
    assert {(m.having, m.of) for m in found.metrics if m.scope == "gpu"} == {(7, 8)}
    assert codes(found) == ["gpus-unobserved"]


def test_a_node_that_pods_alone_tell_of_is_expected_by_what_they_requested() -> None:
    dark = NodeCoverage("dark", requested=6)
    found = diagnosed(node(), dark)
    state = next(one for one in found.nodes if one.node == "dark")
    assert (state.expected, state.expected_from, state.observed) == (6, "requested", 0)
    assert state.unobserved[0].code == "no-exporter"


def test_a_replaced_gpu_is_no_gpu_more() -> None:
    old = gpu("old", hours=20.0, first_ts=NOW - 48 * HOUR, last_ts=NOW - 28 * HOUR)
    new = gpu("new", hours=27.0, first_ts=NOW - 27 * HOUR, last_ts=NOW)
    found = diagnosed(replace(node(), gpus=(*node(gpus=7).gpus, old, new)))
    assert (found.expected, found.observed) == (8, 8)
    assert at_once((old, new), HOUR) == 1


def test_a_metric_that_some_gpus_lack_names_their_nodes_and_the_exporters_line() -> None:
    blind = gpu("b", known={**ALL, "dram_active": 0.0, "tensor_active": 0.0})
    found = diagnosed(node(), replace(node("n2"), gpus=(blind,) * 8))
    gaps = {gap.code: gap for gap in found.gaps}
    assert set(gaps) == {"no-tensor-active", "no-dram-active"}
    assert gaps["no-dram-active"].nodes == ("n2",)
    assert gaps["no-dram-active"].add.startswith("DCGM_FI_PROF_DRAM_ACTIVE, gauge,")
    assert "CSV" in gaps["no-dram-active"].where


def test_nobody_asks_for_links_that_a_gpu_cannot_have() -> None:
    without = {**ALL, "nvlink": 0.0, "pcie": 0.0}
    flat = gpu(sku="L40S", known={**ALL, "nvlink": 0.0})
    sliced = gpu(known=without, instances=4)
    found = diagnosed(
        NodeCoverage("n1", (flat, replace(sliced, gpu_uuid="s")), node_sku=None, known={"ethernet": 48.0})
    )
    by_name = {one.metric: one for one in found.metrics}
    assert (by_name["nvlink"].having, by_name["nvlink"].of) == (0, 0)
    assert (by_name["pcie"].having, by_name["pcie"].of) == (1, 1)
    assert "no-nvlink" not in codes(found) and "no-pcie" not in codes(found)
    assert found.mig_instances == 4


def test_a_node_without_a_driver_is_told_so_and_not_to_choose_another_window() -> None:
    why = Absent("*", "no-driver", "The NVIDIA driver is not loaded.", "Load it with modprobe nvidia.")
    other = Absent("*", "no-gpm", "Nothing.")
    for declared in (None, 8):
        bare = NodeCoverage("n1", declared=declared, absences=(why, other), agent=True)
        found = diagnosed(bare, observed_hours=0.0)
        assert "no-driver" in codes(found)
        error = nothing_observed(found)
        assert error.exit_status == 3
        assert (
            str(error)
            == "The GPUs of n1 cannot be read: The NVIDIA driver is not loaded. Load it with modprobe nvidia."
        )
        assert "--since" not in str(error)


def test_a_source_without_any_node_says_what_to_scrape() -> None:
    error = nothing_observed(diagnosed(observed_hours=0.0))
    assert error.exit_status == 3
    assert "dcgm-exporter" in error.remedy


@pytest.mark.parametrize(
    ("changed", "kubernetes", "expected", "line"),
    [
        ({"node_sku": None, "region": None}, True, {"node-sku-unknown", "no-price"}, "node.kubernetes.io/"),
        ({"node_sku": None, "region": None}, False, {"node-sku-unknown", "no-price"}, "gpu_hour_usd"),
    ],
)  # fmt: skip
def test_money_that_cannot_be_said_names_the_line_for_it(
    changed: dict[str, Any], kubernetes: bool, expected: set[str], line: str
) -> None:
    found = diagnosed(replace(node(), **changed), kubernetes=kubernetes)
    assert set(codes(found)) == expected
    assert line in "\n".join(gap.add for gap in found.gaps)
    assert 'gpu_hour_usd = { "H100-SXM5" = 2.10 }' in found.gaps[-1].add
    if not kubernetes:
        assert "allowlist" not in render_diagnosis_text(found)


def test_a_region_that_is_not_known_is_assumed_and_says_so() -> None:
    found = diagnosed(node(region=None))
    (state,) = found.nodes
    price = CATALOG.price(AZURE, "eastus")
    assert price is not None
    assert (state.usd_per_hour, state.assumed_region, state.region) == (price.usd_per_hour, "eastus", None)
    (gap,) = found.gaps
    assert gap.code == "region-unknown" and "topology.kubernetes.io/region" in gap.add
    assert "unknown, eastus assumed" in render_diagnosis_text(found)
    jsonschema.validate(told_json := json.loads(render_diagnosis_json(found)), load_diagnosis_schema())
    assert told_json["nodes"][0]["price_region_assumed"] == "eastus"
    assert diagnosed(node()).nodes[0].assumed_region is None


def test_a_price_of_a_gpu_hour_is_the_price_of_a_node_whose_type_nobody_knows() -> None:
    hourly = HourPrices({"H100-SXM5": 2.10}, {}, "2026-11-22")
    own = node(gpus=7, node_sku=None, region=None, declared=8)
    found = diagnose(told(own), CATALOG, PriceBook(CATALOG, hourly=hourly), 30.0, NOW)
    (state,) = found.nodes
    assert state.usd_per_hour == pytest.approx(8 * 2.10)
    assert state.price == "your setting, gpu_hour_usd, 2026-11-22"
    assert "no-price" not in codes(found) and "region-unknown" not in codes(found)
    # GPUs of two kinds have no one price.
    mixed = replace(own, gpus=(gpu("a"), gpu("b", sku="L40S")))
    found = diagnose(told(mixed), CATALOG, PriceBook(CATALOG, hourly=hourly), 30.0, NOW)
    assert found.nodes[0].usd_per_hour is None and "no-price" in codes(found)


def test_labels_are_missed_on_the_gpus_that_worked() -> None:
    dumb = gpu("d", labeled_hours=0.0)
    found = diagnosed(node(gpus=8), replace(node("n2"), gpus=(dumb,) * 8))
    (gap,) = [one for one in found.gaps if one.code == "no-workload-labels"]
    assert gap.nodes == ("n2",)
    assert "50 %" in gap.what
    idle = gpu("i", busy_hours=0.0, labeled_hours=0.0)
    assert "no-workload-labels" not in codes(diagnosed(node(), replace(node("n2"), gpus=(idle,) * 8)))


def test_infiniband_is_missed_where_the_type_has_it_and_a_network_where_none_is_seen() -> None:
    assert codes(diagnosed(node(known={"ethernet": 48.0, "host": 48.0}))) == ["no-infiniband"]
    assert codes(diagnosed(node(node_sku="aws/p5.48xlarge", region="us-east-1", known={"host": 48.0}))) == [
        "no-network"
    ]


def test_too_little_data_says_how_much_more_is_needed() -> None:
    short = tuple(gpu(f"g{i}", hours=3.0, known=dict.fromkeys(ALL, 3.0)) for i in range(8))
    found = diagnosed(node(gpus=0, **{"region": "eastus"}), begin=NOW - 3 * HOUR, observed_hours=3.0)
    assert "too-little-data" in codes(found)
    found = diagnosed(replace(node(), gpus=short), begin=NOW - 3 * HOUR, observed_hours=3.0)
    (gap,) = [one for one in found.gaps if one.code == "too-little-data"]
    assert gap.add == "wait for 27.0 h more of data"
    assert found.readiness.hours_left == 27.0


def test_holes_and_rare_samples_and_pods_for_names_are_gaps() -> None:
    found = diagnosed(
        node(renamed_from="nvidia-dcgm-exporter-x2x4z"), observed_hours=40.0, resolution=dict.fromkeys(ALL, 300.0),
        exporters=(SeenExporter("dcgm-exporter"),),
    )  # fmt: skip
    assert codes(found) == ["window-has-holes", "hostname-is-a-pod", "no-kube-state-metrics", "coarse-samples"]


words = st.text(max_size=30)


@given(words, words, words, st.integers(0, 9), st.sampled_from([60, 80, 100, 200]))
def test_whatever_the_source_says_the_table_holds_no_control_and_json_is_valid(
    name: str, sku: str, said: str, count: int, width: int
) -> None:
    hostile = f"\x1b[2J\u202e{name}[red]"
    one = NodeCoverage(
        hostile, tuple(gpu(f"{hostile}{i}", sku=sku or None) for i in range(count)), declared=8, node_sku=sku or None,
        region=said or None, absences=(Absent("*", said, said, said),), renamed_from=hostile,
    )  # fmt: skip
    found = diagnosed(one, exporters=(SeenExporter(hostile, (said,), 1),), notes=(CodedText("said", said),))
    text = render_diagnosis_text(found, width=width)
    assert "\x1b" not in text and "\u202e" not in text
    assert not any(c != "\n" and unicodedata.category(c) in INVISIBLE for c in text)
    jsonschema.validate(json.loads(render_diagnosis_json(found)), load_diagnosis_schema())
    assert render_diagnosis_json(found).isascii()


def test_blanks_are_no_values_and_a_busy_engine_says_so() -> None:
    looks = dcgm_looks({"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_SM_ACTIVE"}, (), "300s", Spelling(("Hostname",), ()))
    util, sm = (one for one in looks if one.bit in ("engine_active", "sm_active"))
    told = util.told(np.array([0.0, 4.0, 6.0, 100.0, 2.0**47, 0x7FFFFFF0, -1.0, nan]))
    assert told["engine_active"].tolist() == [True] * 4 + [False] * 4
    assert told[BUSY].tolist() == [False, False, True, True] + [False] * 4
    # An instance's SM activity may pass 1.
    assert sm.told(np.array([1.4, 2.0**47, nan]))["sm_active"].tolist() == [True, False, False]


def seen_as(*devices: _Device) -> dict[tuple[str, str], set[int]]:
    seen = _Seen({(one.node, one.uuid): one for one in devices})
    _one_home_each(seen)
    return {key: set(one.at) for key, one in seen.devices.items()}


def device(node: str, moments: range) -> _Device:
    return _Device(node, "GPU-1", "GPU-1", None, {n: {"power"} for n in moments})
