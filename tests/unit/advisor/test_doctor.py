"""What is expected, observed and missing; each gap goes where its remedy, as it is printed, was followed."""

import json
import re
import shlex
import sqlite3
import tomllib
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.__main__ import main
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.demo import simulate
from skuwise.advisor.doctor.coverage import GPU_MEASURES, Diagnosis, MetricCoverage, TelemetryGap
from skuwise.advisor.doctor.diagnose import diagnosis_document, diagnosis_json
from skuwise.advisor.rulebook import Rulebook
from skuwise.advisor.show.page_options import PageOptions
from skuwise.advisor.show.writers.formats import render
from skuwise.advisor.show.writers.text import document_text
from skuwise.advisor.telemetry.prometheus.promql import DCGM_GAUGES
from skuwise.rules.base.sanitize import INVISIBLE
from skuwise.rules.catalog.price_files import HourPrices, StatedPrices, parse_flags, resolve_prices
from skuwise.tests.support.doctor_fleets import ALL_COLUMNS, Fleet, diagnosed, diagnosed_frame
from skuwise.tests.support.partly_observed import advice, dark
from skuwise.tests.support.rulebooks import rulebook
from skuwise.tests.support.schemas import validate

BOOK = rulebook()


def measure(diagnosis: Diagnosis, name: str) -> MetricCoverage:
    return next(metric for metric in diagnosis.metrics if metric.metric == name)


def gaps(diagnosis: Diagnosis) -> Mapping[str, list[TelemetryGap]]:
    by_code: dict[str, list[TelemetryGap]] = defaultdict(list)
    for gap in diagnosis.gaps:
        by_code[gap.code].append(gap)
    return by_code


def page_of(diagnosis: Diagnosis, width: int = 100) -> str:
    return document_text(diagnosis_document(diagnosis), width=width)


def document(diagnosis: Diagnosis) -> dict:
    out = json.loads(json.dumps(diagnosis_json(diagnosis), allow_nan=False))
    validate(out, "doctor")
    return out


def test_where_everything_is_there_nothing_is_missing() -> None:
    diagnosis = diagnosed(Fleet())
    assert diagnosis.gaps == ()
    out = document(diagnosis)
    counts = {"node_count": 1, "gpu_count": 8, "observed_gpu_count": 8, "mig_instances": 0}
    assert out["summary"] == {**counts, "unobserved": []}
    assert out["verdicts"]["waste_ready_gpus"] == 8 and out["verdicts"]["hours_until_waste"] == 0
    assert out["nodes"][0]["usd_per_hour"] > 0 and out["nodes"][0]["price_region_assumed"] is None
    text = page_of(diagnosis)
    assert "unknown, eastus assumed" in page_of(diagnosed(Fleet(region=None)))
    assert "No gaps found." in text and "judged on 8 of 8 GPUs" in text and "InfiniBand observed" in text


@pytest.fixture(scope="module")
def partly() -> Diagnosis:
    return diagnosed_frame(replace(dark(), source={"kind": "sqlite", "databases": ["a.db"]}), BOOK)


def test_doctor_and_advise_say_the_same(partly: Diagnosis) -> None:
    out, summary = document(partly), advice().summary
    assert out["summary"]["gpu_count"] == summary.gpu_count == 32
    assert out["summary"]["observed_gpu_count"] == 32 - summary.unobserved_gpu_count == 22
    assert out["summary"]["unobserved"] == [
        {"node": u.node, "gpus": list(u.gpus), "reason": u.reason, "code": u.code} for u in summary.unobserved
    ]
    assert out["verdicts"]["waste_ready_gpus"] == summary.judged_gpu_count
    prices = {price.usd_per_hour for price in advice().prices}
    assert {node["usd_per_hour"] for node in out["nodes"]} <= prices
    assert out["verdicts"]["waste_ready_nodes"] == 2
    coverage = PageOptions(sections=("coverage",))
    page = render(advice(), "table", width=200) + render(partly.advice, "table", width=200, page=coverage)
    for sentence in ("32 GPUs, 22 observed, 10 not observed", "Waste judged on 14 of 32 GPUs, 2 of 4 nodes."):
        assert sentence in page_of(partly, width=200) and sentence in page


def spoken(frame: Frame, book: Rulebook = BOOK) -> tuple[Diagnosis, str, str]:
    """What doctor and advise say of a frame."""
    diagnosis = diagnosed_frame(frame, book)
    page = render(diagnosis.advice, "table", width=200, page=PageOptions(sections=("coverage", "prices")))
    return diagnosis, page_of(diagnosis, width=200), page


def test_one_function_decides_on_how_many_nodes_a_fabric_was_observed() -> None:
    frame = Fleet().frame()
    for role, said, having in (
        ("compute", "Compute fabric observed on 1 of 1 node with one.", 1),
        ("storage", "Compute fabric observed on 0 of 1 node with one.", 0),
    ):
        diagnosis, doctor, advise = spoken(replace(frame, fabric=frame.fabric.assign(role=role)))
        assert said in doctor and said in advise and measure(diagnosis, "infiniband").having == having
        assert ("no-infiniband" in {gap.code for gap in diagnosis.gaps}) == (having == 0)
        assert diagnosis.advice.fabrics[0].unseen is None or diagnosis.advice.fabrics[0].unseen in doctor


def test_a_node_that_the_advice_prices_has_the_same_name_in_both() -> None:
    hourly = HourPrices({"H100-SXM5": 2.5}, {}, "2026-11-02")
    diagnosis, doctor, advise = spoken(Fleet(sku=None, region=None).frame(), replace(BOOK, hourly=hourly))
    assert diagnosis.nodes[0].price is not None and "8 x H100-SXM5" in doctor and "8 x H100-SXM5" in advise


def test_both_say_that_no_gpu_was_observed_for_long_enough() -> None:
    _, doctor, advise = spoken(Fleet(hours=20, window_hours=48).frame())
    assert all("no GPU was observed for the 30 h" in text and "judged on" not in text for text in (doctor, advise))


def test_gaps_name_the_cause_and_the_nodes(partly: Diagnosis) -> None:
    by_code = {(gap.code, gap.nodes): gap for gap in partly.gaps}
    assert by_code["no-driver", ("n2",)].add == "Load it."
    assert by_code["no-driver", ("n2",)].what == "8 GPUs not observed: cannot be read: The NVIDIA driver is not loaded."
    assert ("too-little-data", ("n3",)) in by_code
    assert measure(partly, "power").having == 22 and measure(partly, "power").of == 32
    assert ("no-power", ("n2",)) not in by_code


def test_notes_of_the_reader_are_shown_but_for_those_that_a_gap_says() -> None:
    notes = (CodedText("no-fabric-series", "No fabric metrics."), CodedText("file-left-out", "Ignored: z.db."))
    frame = replace(Fleet(columns=ALL_COLUMNS - {"dram_active"}).frame(), notes=notes)
    assert [note.code for note in diagnosed_frame(frame, BOOK).notes] == ["file-left-out"]


words = st.text(max_size=30)


@given(words, words, st.sampled_from([60, 80, 100, 200]))
def test_whatever_the_source_says_the_table_holds_no_control_and_json_is_valid(
    name: str, said: str, width: int
) -> None:
    hostile = f"\x1b[2J\u202e{name}[red]"
    diagnosis = diagnosed(Fleet(sku=None, region=None))
    (node,) = diagnosis.nodes
    node = replace(node, facts=replace(node.facts, node=hostile, node_sku=said, region=hostile))
    diagnosis = replace(
        diagnosis, nodes=(node,), exporters=(hostile,), notes=(CodedText("said", hostile),),
        gaps=(*diagnosis.gaps, TelemetryGap("said", hostile, said, said, hostile, (hostile,))),
    )  # fmt: skip
    text = page_of(diagnosis, width=width)
    assert "\x1b" not in text and "\u202e" not in text
    assert not any(c != "\n" and unicodedata.category(c) in INVISIBLE for c in text)
    document(diagnosis)
    assert json.dumps(diagnosis_json(diagnosis)).isascii()


UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z


@pytest.fixture(scope="module")
def founding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("doctor") / "founding.db"
    simulate("founding", path, days=2, seed=4, until=UNTIL, minutes_seconds=3600, nodes=("serve-01", "serve-02"))
    return path


def changed(path: Path, to: Path, *statements: str) -> Path:
    to.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(to, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return to


def document_databases(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    capsys.readouterr()
    assert main(["doctor", *arguments, "--format", "json"]) == 0
    diagnosis = json.loads(capsys.readouterr().out)
    validate(diagnosis, "doctor")
    return diagnosis


def test_a_metric_that_is_nowhere_is_a_gap_and_advise_says_so_in_a_line(
    founding: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(founding, tmp_path / "blind.db", *(
        f"UPDATE gpu_{family} SET dram_active_mean = NULL, dram_active_to_p95 = NULL, dram_active_to_max = NULL"
        for family in ("hour", "minute")
    ))  # fmt: skip
    document = document_databases(capsys, "--db", str(path), "--since", "2d")
    assert next(metric for metric in document["metrics"] if metric["metric"] == "dram_active")["having"] == 0
    (gap,) = document["gaps"]
    assert (gap["code"], len(gap["nodes"])) == ("no-dram-active", 2)
    assert main(["advise", "--no-ledger", "--db", str(path), "--since", "2d"]) == 0
    said = capsys.readouterr().err
    assert "Coverage: 16 of 16 GPUs observed, DRAM activity on 0. For remedies run" in said
    assert f"skuwise doctor --db {path}'" in said
    assert main(["advise", "--no-ledger", "--db", str(founding), "--since", "2d"]) == 0
    assert "Coverage:" not in capsys.readouterr().err  # where it is good


def test_advise_names_missing_prices_regions_and_fabrics(
    founding: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(
        founding, tmp_path / "it's bare.db", "UPDATE node SET region = NULL, node_sku = NULL, instance_type = NULL",
        "DELETE FROM fabric_hour", "DELETE FROM fabric_minute", "DELETE FROM fabric_sample",
    )  # fmt: skip
    assert main(["advise", "--no-ledger", "--db", str(path), "--since", "10d"]) == 0
    err = capsys.readouterr().err
    assert "Coverage: 48.0 h of 10.0 days observed; no price; no fabric counters; region unknown." in err
    assert "it'\"'\"'s bare.db'" in err  # to be copied into a shell
    gaps = document_databases(capsys, "--db", str(path), "--since", "2d")["gaps"]
    assert [gap["code"] for gap in gaps] == ["no-network", "node-sku-unknown", "no-price"]


Follow = Callable[[Fleet, TelemetryGap], Fleet]
FIELDS = {
    name: "gpu_util" if gauge.measure == "engine" else gauge.measure for gauge in DCGM_GAUGES for name in gauge.names
}


def exported(fleet: Fleet, gap: TelemetryGap) -> Fleet:
    """With the fields that lines for dcgm-exporter's CSV name."""
    assert "CSV" in gap.where
    lines = [[part.strip() for part in line.split(",", 2)] for line in gap.add.split("\n")]
    assert all(kind == "gauge" and words for _, kind, words in lines)
    return replace(fleet, columns=fleet.columns | {FIELDS[name] for name, _, _ in lines if name in FIELDS})


def says(words: str, **changed: object) -> Follow:
    """The fleet as it is where somebody does what a remedy says, in these words among others."""

    def follow(fleet: Fleet, gap: TelemetryGap) -> Fleet:
        assert words in f"{gap.where} {gap.add}"
        return replace(fleet, **changed)  # type: ignore[arg-type]

    return follow


LABELED = says("nodes=[topology.kubernetes.io/region,node.kubernetes.io", sku=Fleet.sku, region=Fleet.region)


def without(*columns: str) -> Fleet:
    return Fleet(columns=ALL_COLUMNS - set(columns))


_ALSO = {"engine_active": ("sm_active",)}  # by which the measure is known, too
# A gap, a fleet that has it, and what following the remedy's words makes of the fleet.
CASES: list[tuple[str, Fleet, Follow]] = [
    *(
        (f"no-{name.replace('_', '-')}", without(*of.columns, *_ALSO.get(name, ())), exported)
        for name, of in GPU_MEASURES.items()
    ),
    ("no-tensor-active", Fleet(still_tensor=True, columns=ALL_COLUMNS - {"fp32_active", "fp64_active"}), exported),
    ("no-power", Fleet(frozen_power=True), says("restart dcgm-exporter", frozen_power=False)),
    ("no-nvlink", Fleet(still_nvlink=True), says("restart dcgm-exporter", still_nvlink=False)),
    ("not-profiled", Fleet(model="NVIDIA GeForce RTX 4090", columns=ALL_COLUMNS - {
        "sm_active", "tensor_active", "dram_active", "nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second",
        "pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second",
    }), says("dcgmi profile --list", columns=ALL_COLUMNS)),
    ("gpus-unobserved", Fleet(seen=7), says("restart dcgm-exporter where it lists", seen=8)),
    ("gpus-unobserved", Fleet(dark="declared"), says("run dcgm-exporter on these nodes", dark="seen")),
    ("no-driver", Fleet(dark="no-driver"), says("Load it with modprobe nvidia.", dark="seen")),
    ("too-little-data", Fleet(hours=20), says("wait until 2026-", hours=48)),
    ("too-little-data", Fleet(window_hours=20), says("--since 30h or more", window_hours=48)),
    ("window-has-holes", Fleet(seen_every=2), says("alert on up == 0", seen_every=1)),
    ("no-infiniband", Fleet(layers=("Ethernet",)), says("--collector.infiniband", layers=("InfiniBand",))),
    ("no-network", Fleet(layers=(), sku="aws/p5.48xlarge", region="us-east-1"),
         says("--collector.netdev", layers=("Ethernet",))),
    ("no-host", Fleet(host=False), says("--collector.cpu", host=True)),
    ("no-workload-labels", Fleet(scheduler=""), says("DCGM_EXPORTER_KUBERNETES=true", scheduler="kubernetes")),
    ("no-workload-labels", Fleet(scheduler="", exporters=("dcgm-exporter", "node_exporter")),
         says("--hpc-job-mapping-dir=", scheduler="slurm")),
    ("no-kube-state-metrics", Fleet(exporters=("dcgm-exporter", "node_exporter")),
         says("job_name: kube-state-metrics", exporters=Fleet.exporters)),
    ("pod-owners-unknown", Fleet(owned=False), says("|info|created|start_time|", owned=True)),
    ("slurm-jobs-unnamed", Fleet(scheduler="slurm", owned=False), says("--jobs jobs.txt", owned=True)),
    ("node-sku-unknown", Fleet(sku=None, region=None), LABELED),
    ("region-unknown", Fleet(region=None), LABELED),
    ("hostname-is-a-pod", Fleet(name="nvidia-dcgm-exporter-x2x4z"), says("NODE_NAME:", name="n1")),
    ("coarse-samples", Fleet(scrape_seconds=300.0), says("scrape_interval: 30s", scrape_seconds=30.0)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "fleet", "follow"), CASES, ids=[f"{n}-{code}" for n, (code, *_) in enumerate(CASES)])
def test_a_gap_goes_where_its_remedy_is_followed(code: str, fleet: Fleet, follow: Follow) -> None:
    before = gaps(diagnosed(fleet))
    (gap,) = before[code]
    assert gap.loses and gap.add
    after = gaps(diagnosed(follow(fleet, gap)))
    assert code not in after and set(after) < set(before)


@pytest.mark.parametrize(
    "model",
    ["NVIDIA L40S", "NVIDIA H100 80GB HBM3", "NVIDIA GB10", "NVIDIA GeForce RTX 4090", 'it\'s "new" $(id)'],
)
def test_a_printed_price_survives_the_shell_and_the_settings_and_is_taken(model: str) -> None:
    fleet = Fleet(model=model, sku=None, region=None)
    (gap,) = gaps(diagnosed(fleet))["no-price"]
    (options,) = re.findall(r"\(or pass (.*)\)", gap.where)
    words = shlex.split(options)
    assert set(words[::2]) == {"--gpu-hour-usd"}
    flags = parse_flags(words[1::2])
    assert {flag.name: float(str(flag.usd)) for flag in flags} == tomllib.loads(gap.add)["prices"]["gpu_hour_usd"]
    hourly = resolve_prices(StatedPrices(gpu_flags=flags), BOOK.catalog, date(2026, 9, 1))
    diagnosis = diagnosed_frame(fleet.frame(), replace(BOOK, hourly=hourly))
    assert "no-price" not in gaps(diagnosis) and "node-sku-unknown" not in gaps(diagnosis)
    (node,) = diagnosis.nodes
    assert node.price is not None and node.price.usd_per_hour == pytest.approx(8 * 2.10)
    assert node.price_words == "your setting, gpu_hour_usd, 2026-09-01"


def test_what_a_gpu_cannot_have_is_not_asked_for() -> None:
    asked = gaps(diagnosed(Fleet(model="NVIDIA GB10", sku=None, columns=frozenset({"gpu_util", "power_watts"}))))
    assert not {"no-mem-used", "no-sm-active", "no-nvlink", "node-sku-unknown"} & set(asked)
    flat = diagnosed(replace(without(*GPU_MEASURES["nvlink"].columns), model="NVIDIA L40S", sku=None))
    assert "no-nvlink" not in gaps(flat)
    without_rdma = Fleet(layers=(), absent=("infiniband", "no-fabric"))
    (gap,) = gaps(diagnosed(without_rdma))["no-network"]
    assert "infiniband" not in gap.add
    # The flag of a collector that fails is set already.
    failed = Fleet(layers=("Ethernet",), absent=("infiniband", "collector-failed"))
    (gap,) = gaps(diagnosed(failed))["no-infiniband"]
    assert (gap.what.partition(". ")[2], gap.add) == ("It failed.", "Mend it.")
