"""What exporters say that cannot be or is told several times: impossible samples, still counters, shared GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from skuwise.advisor.telemetry.prometheus.client.range_planner import Ask, Log
from skuwise.advisor.telemetry.prometheus.client.response import Grid, SeriesAnswer
from skuwise.advisor.telemetry.prometheus.promql.promql import DcgmQueries
from skuwise.advisor.telemetry.prometheus.rows.dcgm import dcgm_rows, leave_out_impossible
from skuwise.advisor.telemetry.prometheus.rows.gpus import GpuRows

HOUR = 3600.0
GRID = Grid(HOUR, 4 * HOUR, HOUR)
nan = float("nan")
A, B = ({"UUID": f"GPU-{one}", "Hostname": "n1", "instance": "n1:9400"} for one in "ab")
Told = tuple[Mapping[str, str], Sequence[float]]


def answer(*series: Told) -> SeriesAnswer:
    return SeriesAnswer(tuple(one for one, _ in series), np.array([values for _, values in series], dtype=float))


def rows_of(counts: Sequence[Told], **measures: Sequence[Told]) -> GpuRows:
    readings = {name: answer(*series) for name, series in measures.items()}
    return dcgm_rows(GRID, answer(*counts), readings, Log(), node=lambda _: "n1")[0]


def test_a_row_with_an_impossible_sample_is_asked_again_without_it_and_others_stay() -> None:
    asked: list[Ask] = []

    def ask(asks: Sequence[Ask]) -> dict[str, SeriesAnswer]:
        asked.extend(asks)
        counts = {one.name: [2] * 4 if one.name == "impossible" else [7] * 4 for one in asks}
        return {name: answer((A, values), (B, values)) for name, values in counts.items()}

    answers = {
        "gpu_util_mean": answer((A, [5, 22, 5, 9e9]), (B, [50] * 4)),
        "gpu_util_max": answer((A, [9, 905, 9, 2**32]), (B, [60] * 4)),
        "power_watts_mean": answer((A, [70] * 4), (B, [500] * 4)),
        "beyond": answer(
            ({**A, "measure": "gpu_util"}, [nan, 905, nan, 2**32]),
            ({**B, "measure": "power_watts"}, [nan, nan, 65535, nan]),
        ),
    }
    log = Log()
    made = DcgmQueries({"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"}, (), HOUR, scrape_seconds=30.0)
    leave_out_impossible(ask, made, answers, lambda labels: labels["Hostname"], log)
    assert answers["gpu_util_mean"].values.tolist() == [[5, 7, 5, 7], [50] * 4]
    assert answers["gpu_util_max"].values.tolist() == [[9, 7, 9, 7], [60] * 4]
    assert answers["power_watts_mean"].values.tolist() == [[70] * 4, [500, 500, 7, 500]]
    gpus = {"DCGM_FI_DEV_GPU_UTIL": "a", "DCGM_FI_DEV_POWER_USAGE": "b"}
    assert all(
        f'{name}{{UUID=~"GPU-{gpus[name]}"}}' in one.query for one in asked for name in gpus if name in one.query
    )
    assert all(":30s]" in one.query for one in asked) and {note.code for note in log.notes} == {"impossible-readings"}
    assert [(note.fields["metric"], note.fields["gpus"], note.fields["samples"]) for note in log.notes] == [
        ("DCGM_FI_DEV_GPU_UTIL", 1, 4.0), ("DCGM_FI_DEV_POWER_USAGE", 1, 2.0)
    ]  # fmt: skip


@pytest.mark.parametrize("value", [9223372036854775794.0, 2**47])
def test_a_gpu_that_never_has_a_value_is_no_fault_of_single_samples(value: float) -> None:
    beyond = answer(({**A, "measure": "gpu_util"}, [value] * 4))
    answers, log = {"gpu_util_mean": answer((A, [value] * 4)), "beyond": beyond}, Log()
    made = DcgmQueries({"DCGM_FI_DEV_GPU_UTIL"}, (), HOUR)
    leave_out_impossible(
        lambda asks: {one.name: SeriesAnswer.nothing(4) for one in asks}, made, answers, lambda _: "n1", log
    )
    assert np.isnan(answers["gpu_util_mean"].values).all() and not log.notes


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
        [(A, samples), *((one, held) for one in of_pods)],
        gpu_util_mean=[(A, device), *((one, [value] * 4) for one, value in zip(of_pods, pods, strict=True))],
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
    links = dict.fromkeys(f"nvlink_{way}_bytes_per_second_{one}" for way in ("tx", "rx") for one in ("mean", "p95"))
    sent = {name: [(gpu, [0.0, 0.0, traffic, 0.0]) for gpu in gpus] for name in links}
    rows = rows_of([(gpu, [60] * 4) for gpu in gpus], gpu_util_mean=[(gpu, [use] * 4) for gpu in gpus], **sent)
    assert [np.isnan(rows.cells.column(name)).any() for name in links] == [not is_known] * 4
    reasons = [(one["reason"], one["node"], one["metric"]) for one in rows.absences]
    expected = [("counter-never-moved", "n1", f"nvlink_{way}_bytes_per_second") for way in ("tx", "rx")]
    assert reasons == ([] if is_known else expected)
