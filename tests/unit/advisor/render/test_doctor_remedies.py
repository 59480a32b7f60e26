"""Each gap that `skuwise doctor` reports goes where its remedy, as it is printed, was followed."""

import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date

import pytest
from skuwise.advisor.doctor.coverage import MEASURES
from skuwise.advisor.doctor.types import Diagnosis, TelemetryGap
from skuwise.advisor.rulebook import Rulebook
from skuwise.advisor.telemetry.prometheus.promql.promql import DCGM_GAUGES
from skuwise.agent.jobs.identity import REGION_LABELS, TYPE_LABELS
from skuwise.rules.catalog.hour_prices import StatedPrices, parse_flags, resolve_prices
from skuwise.tests.support.doctor_fleets import ALL_COLUMNS, Fleet, diagnosed, diagnosed_frame
from skuwise.tests.support.rulebooks import rulebook

BOOK = rulebook()
FIELDS = {name: gauge.measure for gauge in DCGM_GAUGES for name in gauge.names}
COLUMNS = {"engine": "gpu_util"}
OF_MEASURE = {
    "engine_active": ("gpu_util", "sm_active"), "mem_used": ("mem_used_bytes",), "power": ("power_watts",),
    "clocks": ("sm_clock_hertz",), "nvlink": ("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second"),
    "pcie": ("pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second"),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A fleet with a gap, and what following the remedy's words makes of it."""

    code: str
    fleet: Fleet
    follow: Callable[[Fleet, TelemetryGap], Fleet]


def exported(fleet: Fleet, gap: TelemetryGap) -> Fleet:
    """With the fields that lines for dcgm-exporter's CSV name."""
    assert "CSV" in gap.where
    lines = [[part.strip() for part in line.split(",", 2)] for line in gap.add.split("\n")]
    assert all(kind == "gauge" and words for _, kind, words in lines)
    more = {COLUMNS.get(FIELDS[name], FIELDS[name]) for name, _, _ in lines if name in FIELDS}
    return replace(fleet, columns=fleet.columns | more)


def says(words: str, **changed: object) -> Callable[[Fleet, TelemetryGap], Fleet]:
    """The fleet as it is where somebody does what a remedy says, in these words among others."""

    def follow(fleet: Fleet, gap: TelemetryGap) -> Fleet:
        assert words in f"{gap.where} {gap.add}"
        return replace(fleet, **changed)  # type: ignore[arg-type]

    return follow


def labeled(fleet: Fleet, gap: TelemetryGap) -> Fleet:
    """With the node labels that the flag of kube-state-metrics shows."""
    (names,) = re.findall(r"nodes=\[(.*)\]", gap.add)
    shown = set(names.split(","))
    assert shown & set(TYPE_LABELS) and shown & set(REGION_LABELS)
    return replace(fleet, sku=Fleet.sku, region=Fleet.region)


def whole_series(fleet: Fleet, gap: TelemetryGap) -> Fleet:
    """With the series of kube-state-metrics that the rule keeps."""
    (kept,) = re.findall(r"regex: (.*)}\]", gap.add)
    names = ("kube_pod_owner", "kube_replicaset_owner", "kube_job_owner", "kube_pod_container_info", "kube_node_labels")
    assert all(re.fullmatch(kept, name) for name in names)
    return replace(fleet, owned=True)


def sampled(fleet: Fleet, gap: TelemetryGap) -> Fleet:
    (seconds,) = re.findall(r"scrape_interval: (\d+)s", gap.add)
    return replace(fleet, scrape_seconds=float(seconds))


def priced(gap: TelemetryGap) -> Rulebook:
    """The rulebook with the prices of the printed options, and of the printed settings, which say the same."""
    (options,) = re.findall(r"\(or pass (.*)\)", gap.where)
    words = shlex.split(options)
    assert set(words[::2]) == {"--gpu-hour-usd"}
    flags = parse_flags(words[1::2])
    settings = tomllib.loads(gap.add)["prices"]["gpu_hour_usd"]
    assert {one.name: float(str(one.usd)) for one in flags} == settings
    return replace(BOOK, hourly=resolve_prices(StatedPrices(gpu_flags=flags), BOOK.catalog, date(2026, 9, 1)))


def without(*columns: str) -> Fleet:
    return Fleet(columns=ALL_COLUMNS - set(columns))


CASES = [
    *(
        Case(
            f"no-{one.name.replace('_', '-')}", without(*OF_MEASURE.get(one.name, (one.name,))), exported
        )
        for one in MEASURES if one.scope == "gpu"
    ),
    Case("no-tensor-active", Fleet(still_tensor=True, columns=ALL_COLUMNS - {"fp32_active", "fp64_active"}), exported),
    Case("no-power", Fleet(frozen_power=True), says("restart dcgm-exporter", frozen_power=False)),
    Case("no-nvlink", Fleet(still_nvlink=True), says("restart dcgm-exporter", still_nvlink=False)),
    Case("not-profiled", Fleet(model="NVIDIA GeForce RTX 4090", columns=ALL_COLUMNS - {
        "sm_active", "tensor_active", "dram_active", "nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second",
        "pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second",
    }), says("dcgmi profile --list", columns=ALL_COLUMNS)),
    Case("gpus-unobserved", Fleet(seen=7), says("restart dcgm-exporter where it lists", seen=8)),
    Case("gpus-unobserved", Fleet(dark="declared"), says("run dcgm-exporter on these nodes", dark="seen")),
    Case("no-driver", Fleet(dark="no-driver"), says("Load it with modprobe nvidia.", dark="seen")),
    Case("too-little-data", Fleet(hours=20), says("wait until 2026-", hours=48)),
    Case("too-little-data", Fleet(window_hours=20), says("--since 30h or more", window_hours=48)),
    Case("window-has-holes", Fleet(seen_every=2), says("alert on up == 0", seen_every=1)),
    Case("no-infiniband", Fleet(layers=("Ethernet",)), says("--collector.infiniband", layers=("InfiniBand",))),
    Case("no-network", Fleet(layers=(), sku="aws/p5.48xlarge", region="us-east-1"),
         says("--collector.netdev", layers=("Ethernet",))),
    Case("no-host", Fleet(host=False), says("--collector.cpu", host=True)),
    Case("no-workload-labels", Fleet(scheduler=""), says("DCGM_EXPORTER_KUBERNETES=true", scheduler="kubernetes")),
    Case("no-workload-labels", Fleet(scheduler="", exporters=("dcgm-exporter", "node_exporter")),
         says("--hpc-job-mapping-dir=", scheduler="slurm")),
    Case("no-kube-state-metrics", Fleet(exporters=("dcgm-exporter", "node_exporter")),
         says("job_name: kube-state-metrics", exporters=Fleet.exporters)),
    Case("pod-owners-unknown", Fleet(owned=False), whole_series),
    Case("slurm-jobs-unnamed", Fleet(scheduler="slurm", owned=False), says("--jobs jobs.txt", owned=True)),
    Case("node-sku-unknown", Fleet(sku=None, region=None), labeled),
    Case("region-unknown", Fleet(region=None), labeled),
    Case("hostname-is-a-pod", Fleet(name="nvidia-dcgm-exporter-x2x4z"), says("NODE_NAME:", name="n1")),
    Case("coarse-samples", Fleet(scrape_seconds=300.0), sampled),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{case.code}" for n, case in enumerate(CASES)])
def test_a_gap_goes_where_its_remedy_is_followed(case: Case) -> None:
    before = gaps(diagnosed(case.fleet))
    (gap,) = before[case.code]
    assert gap.loses and gap.add
    after = gaps(diagnosed(case.follow(case.fleet, gap)))
    assert case.code not in after and set(after) < set(before)


@pytest.mark.parametrize("model", ["NVIDIA L40S", "NVIDIA H100 80GB HBM3"])
def test_a_printed_price_is_taken_as_it_is_printed(model: str) -> None:
    fleet = Fleet(model=model, sku=None, region=None)
    (gap,) = gaps(diagnosed(fleet))["no-price"]
    found = diagnosed_frame(fleet.frame(), priced(gap))
    assert "no-price" not in gaps(found) and "node-sku-unknown" not in gaps(found)
    (node,) = found.nodes
    assert node.price is not None and node.price.usd_per_hour == pytest.approx(8 * 2.10)
    assert node.price_words == "your setting, gpu_hour_usd, 2026-09-01"


@pytest.mark.parametrize("model", ["NVIDIA GB10", "NVIDIA GeForce RTX 4090", 'it\'s "new" $(id)'])
def test_a_price_of_any_name_survives_the_shell_and_the_settings(model: str) -> None:
    (gap,) = gaps(diagnosed(Fleet(model=model, sku=None, region=None)))["no-price"]
    (options,) = re.findall(r"\(or pass (.*)\)", gap.where)
    assert [one.name for one in parse_flags(shlex.split(options)[1:])] == [model]
    assert tomllib.loads(gap.add)["prices"]["gpu_hour_usd"] == {model: 2.10}


def test_what_a_gpu_cannot_have_is_not_asked_for() -> None:
    asked = gaps(diagnosed(Fleet(model="NVIDIA GB10", sku=None, columns=frozenset({"gpu_util", "power_watts"}))))
    assert not {"no-mem-used", "no-sm-active", "no-nvlink", "node-sku-unknown"} & set(asked)
    flat = diagnosed(replace(without(*OF_MEASURE["nvlink"]), model="NVIDIA L40S", sku=None))
    assert "no-nvlink" not in gaps(flat)
    without_rdma = Fleet(layers=(), absent=("infiniband", "no-fabric"))
    (gap,) = gaps(diagnosed(without_rdma))["no-network"]
    assert "infiniband" not in gap.add
    # The flag of a collector that fails is set already.
    failed = Fleet(layers=("Ethernet",), absent=("infiniband", "collector-failed"))
    (gap,) = gaps(diagnosed(failed))["no-infiniband"]
    assert (gap.what.partition(". ")[2], gap.add) == ("It failed.", "Mend it.")


def gaps(found: Diagnosis) -> Mapping[str, list[TelemetryGap]]:
    out: dict[str, list[TelemetryGap]] = {}
    for gap in found.gaps:
        out.setdefault(gap.code, []).append(gap)
    return out
