"""Reading through Prometheus in parts: impossible and repeated values of exporters."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.core.advice_types import Advice, Recommendation
from skuwise.advisor.core.column_rows import BinsArray
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.telemetry.prometheus.client.range_planner import Log
from skuwise.advisor.telemetry.prometheus.client.response import Grid, SeriesAnswer
from skuwise.advisor.telemetry.prometheus.promql import GAUGES, DcgmQueries, gpu_of
from skuwise.advisor.telemetry.prometheus.rows.dcgm import dcgm_rows
from skuwise.advisor.telemetry.prometheus.rows.fabric import RATE, exporter_ports
from skuwise.advisor.telemetry.prometheus.rows.gpus import About, GpuRows
from skuwise.advisor.telemetry.prometheus.rows.workloads import agent_work, dcgm_uses, work_of
from skuwise.agent.jobs.ids import series_id, workload_id
from skuwise.tests.support.frame_builder import DECODE, FREE, HELD, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import advice_of

HOUR = 3600.0
GRID = Grid(HOUR, 4 * HOUR, HOUR)
nan = float("nan")


def test_labels_name_gpus_and_workloads_as_the_agent_does() -> None:
    assert gpu_of({"UUID": "GPU-a", "GPU_I_ID": "3"}) == ("GPU-a/gi3", "GPU-a")
    assert gpu_of({"UUID": "GPU-a"}) == ("GPU-a", None) and gpu_of({"gpu": "0"}) is None
    labels = {"pod": "web-6d4cf56db6-x7k2p", "namespace": "shop", "pod_uid": "u-1", "container": "main"}
    web = work_of(labels, exported=False)
    reserved = work_of({"pod": "gpu-reservation-n1-x2k4m", "namespace": "kai-resource-reservation"}, exported=False)
    first, second = work_of({"hpc_job": "12"}, exported=False), work_of({"hpc_job": "13"}, exported=True)
    ours = agent_work({"workload_id": "w", "series_id": "s", "scheduler": "slurm", "job_id": "7", "shared": "1"})
    assert web and reserved and first and second and ours
    assert web.workload_id == workload_id("", "kubernetes", "u-1")
    assert web.series_id == series_id("", "shop", None, "web")
    assert (web.name, web.pod) == ("web", "web-6d4cf56db6-x7k2p")
    assert (reserved.name, reserved.shared) == ("reserved for shared use", True)
    # The numbers of two jobs of Slurm fold to one series.
    assert first.workload_id == workload_id("", "slurm", "12") and first.series_id is None
    assert first.workload_id != second.workload_id and work_of({"hpc_job": "0"}, exported=False) is None
    assert (ours.workload_id, ours.series_id, ours.shared, ours.name) == ("w", "s", True, "job 7")
    assert agent_work({"series_id": "s"}) is None


def bare(pod: str, container: str, **more: str) -> dict[str, str]:
    return {"pod": pod, "namespace": "ml", "container": container, **more}


EXPORTER = bare("nvidia-dcgm-exporter-1kq7z", "nvidia-dcgm-exporter")


@pytest.mark.parametrize(
    ("series", "requesting", "pods"),
    [
        # A user's container that exports models is work, under either setting of honor_labels.
        ([{**EXPORTER, "exported_pod": "trt-0", "exported_container": "onnx-exporter"}], (), {"trt-0"}),
        ([bare("trt-0", "onnx-exporter")], (), {"trt-0"}),
        ([bare("metrics-exporter-7d4b9c6f5d-x2k4m", "exporter")], (), {"metrics-exporter-7d4b9c6f5d-x2k4m"}),
        ([{**bare("train-0", "main"), "namespace": "exporter"}], (), {"train-0"}),
        # On a target where any series has an exported pod, bare labels are the exporter's on all its GPUs.
        ([{**bare("gm-x7k2p", "gm"), "exported_pod": "train-0"}, bare("gm-x7k2p", "gm")], (), {"train-0"}),
        # No workload at all: the exporter by its DaemonSet, container or hostname.
        ([EXPORTER, EXPORTER], (), set()),
        ([bare("dcgm-exporter-wwwjh", "exporter")], (), set()),
        ([bare("gm-x7k2p", "gm", Hostname="gm-x7k2p"), bare("train-0", "main")], (), {"train-0"}),
        # Another target of the scrape job shows that bare labels are the exporter's, unless the pod requests GPUs.
        ([bare("gm-x7k2p", "gm", instance="b"), bare("gm-z", "gm", exported_pod="train-0")], (), {"train-0"}),
        (
            [bare("eval-0", "main", instance="b"), bare("gm-z", "gm", exported_pod="train-0")],
            ("eval-0", "train-0"), {"train-0", "eval-0"},
        ),
    ],
)  # fmt: skip
def test_an_exporters_pod_is_no_workload(series: list[dict], requesting: tuple[str, ...], pods: set[str]) -> None:
    target = {"job": "dcgm", "instance": "10.0.0.1:9400"}
    labels = tuple({"UUID": f"GPU-{n}", **target, **more} for n, more in enumerate(series))
    about = {label["UUID"]: About("n1", uuid=label["UUID"]) for label in labels}
    uses = dcgm_uses(
        SeriesAnswer(labels, np.full((len(labels), GRID.count), 60.0)), GRID, about, taken=set(),
        intervals=dict.fromkeys(about, 60.0), key_of=lambda series_labels: series_labels["UUID"],
        requesting={("ml", pod) for pod in requesting},
    )  # fmt: skip
    assert set(uses["pod"] if len(uses) else ()) == pods


def test_renamed_fields_are_asked_under_both_names_and_rules_stand_in_for_means_and_maxima_only() -> None:
    both = {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO"}
    made = DcgmQueries(both, ('cluster="a\\"b"',), HOUR, {"skuwise:gpu_util:mean5m", "skuwise:gpu_util:max5m"})
    asks = {ask.name: ask.query for ask in made.of_all()}
    chosen = '{cluster="a\\"b"}[3599s999ms]'
    old, new = (f"avg_over_time(DCGM_FI_PROF_DRAM_{ending}{chosen})" for ending in ("ACTIVE", "UTIL_RATIO"))
    assert asks["dram_active_mean"] == f"{old} or {new}"
    assert asks["gpu_util_mean"] == f"avg_over_time(skuwise:gpu_util:mean5m{chosen})"
    assert asks["gpu_util_max"] == f"max_over_time(skuwise:gpu_util:max5m{chosen})"
    assert asks["gpu_util_p95"] == f"quantile_over_time(0.95, DCGM_FI_DEV_GPU_UTIL{chosen})"
    assert "tensor_active_mean" not in asks


SCRAPES = [(60.0, 60), (61.02, 60), (59.0, 60), (14.9, 15), (2.0, 2), (0.3, 1), (None, 60)]


@pytest.mark.parametrize(("counted_seconds", "each"), SCRAPES)
def test_possible_samples_are_read_at_each_scrape(counted_seconds: float | None, each: int) -> None:
    made = DcgmQueries({"DCGM_FI_DEV_GPU_UTIL"}, (), HOUR, scrape_seconds=counted_seconds)
    _, mean, *_ = made.statistics(GAUGES["gpu_util"], possible=True)
    assert mean.query == f"avg_over_time((DCGM_FI_DEV_GPU_UTIL <= 100.1)[3599s999ms:{each}s])"


def _of_port(*values: float) -> SeriesAnswer:
    """Two rows of one port."""
    return SeriesAnswer(({"instance": "n1:9100", "device": "mlx5_0", "port": "1"},), np.array([values]))


@pytest.mark.parametrize("sent", ["tx", "rx"])
def test_a_port_of_which_one_way_is_not_told_has_no_use(sent: str) -> None:
    grid, other = Grid(HOUR, 2 * HOUR, HOUR), {"tx": "rx", "rx": "tx"}[sent]
    statistics, answers = ("mean", "p95", "max"), {"fabric n": _of_port(60, 60)}
    answers |= {f"fabric {sent}_{statistic}": _of_port(5e9, 5e9) for statistic in statistics}
    answers |= {f"fabric {other}_{statistic}": _of_port(20e9, nan) for statistic in statistics}
    about = {"node_of": lambda _: "n1", "gpu_counts": {"n1": 1}, "configured": {}}
    rows = exporter_ports(grid, answers, {RATE: _of_port(50e9)}, **about)
    for statistic in statistics:
        np.testing.assert_allclose(rows.cells.column(f"util_{statistic}"), [[0.4, nan]])
    np.testing.assert_array_equal(rows.cells.column(f"{sent}_bytes_per_second_mean"), [[5e9, 5e9]])


A, B = ({"UUID": f"GPU-{letter}", "Hostname": "n1", "instance": "n1:9400"} for letter in "ab")
Told = tuple[Mapping[str, str], Sequence[float]]


def answer(*series: Told) -> SeriesAnswer:
    return SeriesAnswer(tuple(labels for labels, _ in series), np.array([values for _, values in series], dtype=float))


def rows_of(counts: Sequence[Told], **measures: Sequence[Told]) -> GpuRows:
    readings = {name: answer(*series) for name, series in measures.items()}
    return dcgm_rows(GRID, answer(*counts), readings, Log(), node=lambda _: "n1")[0]


@pytest.mark.parametrize(
    ("samples", "device", "pods", "expected"),
    [
        # The device's own value beside the share of each pod, as of dcgm-exporter 4.5.3 with virtual GPUs.
        ([60, 60, 60, 0], [0.8, 0.8, 0.8, nan], [0.5, 0.3], [0.8, 0.8, 0.8, 0.4]),
        # No series of the device's own: each pod has a copy of its value.
        ([nan] * 4, [nan] * 4, [0.6, 0.6], [0.6] * 4),
        # The pods left within the first hour.
        ([30, 0, 0, 0], [0.1, nan, nan, nan], [0.6, 0.6], [0.35, 0.6, 0.6, 0.6]),
    ],
)
def test_a_shared_gpu_has_the_devices_value_where_it_is_told(
    samples: list[float], device: list[float], pods: list[float], expected: list[float]
) -> None:
    of_pods = [{**A, "exported_pod": name, "exported_namespace": "x"} for name in "pq"]
    held = [15, 60, 60, 60] if samples[0] == 30 else [60] * 4
    rows = rows_of(
        [(A, samples), *((of_pod, held) for of_pod in of_pods)],
        gpu_util_mean=[(A, device), *((of_pod, [value] * 4) for of_pod, value in zip(of_pods, pods, strict=True))],
    )
    assert rows.cells.column("gpu_util_mean")[0].tolist() == pytest.approx(expected)
    shares = rows.pods.values[1:].tolist() if rows.pods else None
    assert str(shares) == str([[0.5] * 3 + [nan], [0.3] * 3 + [nan]] if samples[0] == 60 else None)


@pytest.mark.parametrize(("use", "codes"), [(0.8, set()), (0.05, {"exporters-contradict"})])
def test_two_exporters_of_one_gpu_count_once_and_where_they_contradict_not_at_all(use: float, codes: set[str]) -> None:
    held, other = {**A, "pod": "p", "namespace": "x"}, {**A, "job": "other"}
    log = Log()
    uses = {"gpu_util_mean": answer((held, [0.9] * 4), (other, [use] * 4))}
    rows, _ = dcgm_rows(GRID, answer((held, [60] * 4), (other, [60] * 4)), uses, log, node=lambda _: "n1")
    assert np.nansum(rows.cells.column("observed_seconds")) == (0 if codes else 4 * HOUR)
    assert np.isnan(rows.cells.column("gpu_util_mean")).all() == bool(codes) and rows.pods is None
    assert {note.code for note in log.notes} == {"gpus-reported-twice", *codes}


@pytest.mark.parametrize(
    ("gpus", "use", "traffic", "is_known"),
    [((A, B), 0.5, 0.0, False), ((A, B), 0.05, 0.0, True), ((A, B), 0.5, 20.0, True), ((A,), 0.9, 0.0, True)],
    ids=["under load and never moved", "idle", "keeps the link alive", "alone and has nothing to send"],
)
def test_a_counter_that_stands_still_under_load_is_missing(
    gpus: tuple[Mapping[str, str], ...], use: float, traffic: float, is_known: bool
) -> None:
    counters = [f"nvlink_{direction}_bytes_per_second" for direction in ("tx", "rx")]
    links = [f"{counter}_{statistic}" for counter in counters for statistic in ("mean", "p95")]
    sent = {name: [(gpu, [0.0, 0.0, traffic, 0.0]) for gpu in gpus] for name in links}
    rows = rows_of([(gpu, [60] * 4) for gpu in gpus], gpu_util_mean=[(gpu, [use] * 4) for gpu in gpus], **sent)
    assert [np.isnan(rows.cells.column(name)).any() for name in links] == [not is_known] * 4
    reasons = [(absence["reason"], absence["node"], absence["metric"]) for absence in rows.absences]
    assert reasons == ([] if is_known else [("counter-never-moved", "n1", counter) for counter in counters])


RISKS = ("very-low", "low", "medium", "high")
PLACE = {"provider": "azure", "region": "eastus", "node_sku": "azure/Standard_ND96isr_H100_v5"}
SERVED = dict(DECODE) | {"tensor_active": 0.04, "dram_active": 0.3, "gpu_util": 0.5, "mem_used_bytes": 60e9}


@pytest.fixture(scope="module")
def frame() -> Frame:
    """A node that serves on a silent fabric, one that trains over its own, a free one and one held for nothing."""
    builder = FrameBuilder(hours=40)
    for name, load in {"serve": SERVED, "train": TRAINING, "spare": FREE, "held": HELD}.items():
        uuids = builder.node(name, gpus=8)
        builder.nodes[-1] |= PLACE
        for uuid in uuids:
            builder.use(load, name, uuid, wave="dram_active" if name == "serve" else "")
        for port in range(2):
            builder.port(0.3 if name == "train" else 0.0003, name, f"mlx5_{port}")
        builder.host_rows += [
            {"node": name, "ts": row["ts"], "interval_seconds": 3600.0, "observed_seconds": 3600.0,
             "cpu_util_mean": 0.1, "io_wait_mean": 0.0, "disk_write_bytes_per_second_mean": 1e5}
            for row in builder.gpu_rows if row["gpu_uuid"] == uuids[0]
        ]  # fmt: skip
        if name != "spare":
            held, framework = [(name, uuid) for uuid in uuids], "vllm" if name == "serve" else None
            builder.work(f"w-{name}", held, name=name, series=name, framework=framework)
    return builder.frame()


@pytest.fixture(scope="module")
def whole(frame: Frame) -> Advice:
    advice = advice_of(frame, frame.window.end, seed=20)
    assert {r.action for r in claimed(advice)} >= {"release", "move-sku"}
    return advice


def claimed(advice: Advice) -> list[Recommendation]:
    """What promises cash."""
    unblocked = [r for r in advice.recommendations if r.realisation in {"cash-now", "cash-at"} and not r.blocked_by]
    return [r for r in unblocked if r.saving_usd_per_month is not None and r.saving_usd_per_month.p50 > 0]


def idle_gpus(advice: Advice) -> set[str]:
    of_findings = {gpu for f in advice.findings if f.rule in {"idle", "held-idle"} for gpu in f.gpus}
    return of_findings | {gpu for w in advice.workloads if w.kind.label == "idle" for gpu in w.gpus}


@pytest.mark.parametrize(
    "hidden",
    [
        ("gpu_util",), ("sm_active",), ("tensor_active",), ("dram_active",), ("mem_used_bytes",), ("mem_total_bytes",),
        ("power_watts",), ("sm_clock_hertz",), ("gpu_util", "sm_active"), ("tensor_active", "dram_active"),
        ("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second"),
        ("pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second"), ("fabric",), ("bins",), ("names",),
    ],
    ids=",".join,
)  # fmt: skip
def test_hiding_a_metric_never_raises_a_claim(frame: Frame, whole: Advice, hidden: tuple[str, ...]) -> None:
    part = advice_of(without(frame, hidden), frame.window.end, seed=20)
    assert {r.id for r in claimed(part)} <= {r.id for r in claimed(whole)}
    assert (part.summary.recoverable_usd_per_month or 0) <= (whole.summary.recoverable_usd_per_month or 0) + 0.01
    risks = {r.id: r.risk for r in whole.recommendations}
    for r in part.recommendations:
        assert RISKS.index(r.risk) >= RISKS.index(risks.get(r.id, "very-low")), r.text
    working = {gpu for w in whole.workloads if w.kind.label not in {"idle", "unknown"} for gpu in w.gpus}
    assert not (idle_gpus(part) - idle_gpus(whole)) & working


def without(frame: Frame, hidden: tuple[str, ...]) -> Frame:
    """The frame as if these were never measured."""
    if hidden == ("fabric",):
        return replace(frame, fabric=frame.fabric.iloc[:0])
    if hidden == ("names",):
        return replace(frame, uses=frame.uses.iloc[:0], workloads=frame.workloads.iloc[:0])
    bins = hidden == ("bins",)
    nothing = BinsArray.of([None] * len(frame.gpu)) if bins else np.nan
    names = ("_bins",) if bins else tuple(f"{name}_{part}" for name in hidden for part in ("mean", "p95", "max"))
    hidden_columns = {column: nothing for column in map(str, frame.gpu) if column.endswith(names)}
    return replace(frame, gpu=frame.gpu.assign(**hidden_columns))
