"""Every GPU that a server names is observed, or unobserved with a reason: odd fleets behind real engines."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.classify.types import Verdicts
from skuwise.advisor.core.frame import Frame
from skuwise.tests.server_metrics.exposition import BUSY as VALUES
from skuwise.tests.server_metrics.exposition import gpu, kube, moments
from skuwise.tests.server_metrics.prometheus_series import Series, merged
from skuwise.tests.support.prometheus_engines import ENGINES, read_series
from skuwise.tests.support.rulebooks import rulebook

END = 1_790_000_000.0 // 86400 * 86400
HOURS = 8
BLANK = 9223372036854775794.0
SLICED = {name: value for name, value in VALUES.items() if name != "DCGM_FI_DEV_GPU_UTIL"} | {
    "DCGM_FI_PROF_SM_ACTIVE": 46.3
}


def told(
    node: str, uuid: str, values: Mapping[str, float] = VALUES, start: float = 0, end: float = HOURS, **labels: str
) -> Iterator[Series]:
    """A GPU's series of constant values from an hour to an hour of the last eight."""
    return gpu(node, uuid, moments(END - (HOURS - start) * 3600, END - (HOURS - end) * 3600), values, **labels)


def odd() -> Iterator[Series]:
    for missing in VALUES:
        yield from told("lacking", f"GPU-{missing[8:]}", {k: v for k, v in VALUES.items() if k != missing})
    for only, value in VALUES.items():
        yield from told(f"only-{only[8:]}", f"GPU-only-{only[8:]}", {only: value})
    yield from told("n-twice", "GPU-twice")
    yield from told("localhost", "GPU-twice", start=2, instance="127.0.0.1:9400")
    for series in told("n-spoiled", "GPU-spoiled"):
        values = series.values.copy()
        values[7::97], values[8::97], values[9::97] = 905.0 * values[0], 2.0**32 - 1, 2.0**47  # DCGM_FP64_BLANK
        yield replace(series, values=values)
    yield from told("n-blank", "GPU-blank", dict.fromkeys(VALUES, BLANK))
    for hour in range(0, HOURS, 2):
        for number in (1, 2):
            profile = "3g.40gb" if hour < 4 else "2g.20gb"
            instance = {"GPU_I_ID": str(number), "GPU_I_PROFILE": profile}
            yield from told("n-toggled", "GPU-toggled", SLICED, hour, hour + 1, **instance)
        yield from told("n-toggled", "GPU-toggled", start=hour + 1, end=hour + 2)
    ts, sort = moments(END - HOURS * 3600, END), {"resource": "nvidia_com_gpu", "unit": "integer"}
    for replica in ("10.0.0.1:8080", "10.0.0.2:8080"):
        yield kube("kube_node_status_capacity", 4, ts, replica, node="n-dark", **sort)
        for pod, node in (("a", "n-dark"), ("b", "n-dark"), ("c", "n-unlisted"), ("done", "n-unlisted")):
            part = {"namespace": "x", "pod": pod, "uid": pod}
            requested = {**part, "node": node, "container": "main", **sort}
            yield kube("kube_pod_container_resource_requests", 1, ts, replica, **requested)
            yield kube("kube_pod_status_phase", float(pod != "done"), ts, replica, phase="Running", **part)


@pytest.fixture(params=ENGINES, scope="module")
def strange(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Frame, Verdicts]:
    folder = tmp_path_factory.mktemp("engine")
    frame = read_series(request.param, folder, merged(odd()), END + 600, HOURS * 3600)
    return frame, judge(frame, rulebook())


def test_a_gpu_that_lacks_a_metric_lacks_nothing_else(strange: tuple[Frame, Verdicts]) -> None:
    frame, verdicts = strange
    node = verdicts.inventory.nodes["lacking"]
    assert len(node.observed) == len(VALUES) == node.gpu_count
    assert [gpu.hours for gpu in node.observed] == pytest.approx([HOURS] * len(VALUES), rel=0.02)
    rows = frame.gpu[(frame.gpu["node"] == "lacking") & (frame.gpu["gpu_uuid"] == "GPU-DEV_GPU_UTIL")]
    assert rows["gpu_util_mean"].to_numpy() == pytest.approx(0.9)
    assert frame.gpu.loc[frame.gpu["gpu_uuid"] == "GPU-PROF_DRAM_ACTIVE", "dram_active_mean"].isna().all()


def test_a_gpu_that_any_one_series_names_exists(strange: tuple[Frame, Verdicts]) -> None:
    silent = ("only-DEV_GPU_TEMP", "only-DEV_FB_FREE", "n-blank")
    for name in (*(f"only-{name[8:]}" for name in VALUES), "n-blank"):
        node = strange[1].inventory.nodes[name]
        counts = (node.gpu_count, len(node.observed), node.unobserved_count)
        assert counts == ((1, 0, 1) if name in silent else (1, 1, 0)), name


def test_a_gpu_under_two_nodes_at_once_is_kept_on_one_and_said(strange: tuple[Frame, Verdicts]) -> None:
    frame, verdicts = strange
    assert "localhost" not in verdicts.inventory.nodes and len(verdicts.inventory.nodes["n-twice"].observed) == 1
    assert any(note.code == "gpus-under-several-nodes" for note in frame.notes)


def test_impossible_samples_are_left_out_one_by_one_and_counted(strange: tuple[Frame, Verdicts]) -> None:
    frame, _ = strange
    rows = frame.gpu[frame.gpu["gpu_uuid"] == "GPU-spoiled"]
    assert rows["observed_seconds"].sum() == HOURS * 3600
    for column, value in (
        ("gpu_util_mean", 0.9), ("gpu_util_p95", 0.9), ("gpu_util_max", 0.9), ("sm_active_mean", 0.8),
        ("power_watts_mean", 500), ("mem_used_bytes_max", 60000 * 2**20),
    ):  # fmt: skip
        assert rows[column].to_numpy() == pytest.approx(value), column
    notes = [note for note in frame.notes if note.code == "impossible-readings"]
    assert len(notes) == 7 and {note.fields["samples"] for note in notes} == {15.0}


def test_a_gpu_that_is_divided_again_and_again_is_one_all_along(strange: tuple[Frame, Verdicts]) -> None:
    frame, verdicts = strange
    (gpu,) = verdicts.inventory.nodes["n-toggled"].gpus
    assert gpu.hours == pytest.approx(HOURS, rel=0.03) and gpu.sliced
    instances = frame.gpus[(frame.gpus["node"] == "n-toggled") & (frame.gpus["kind"] == "mig")]
    assert sorted(instances["mig_profile"]) == ["2g.20gb", "2g.20gb", "3g.40gb", "3g.40gb"]
    cut = frame.gpu[frame.gpu["gpu_uuid"].isin(instances["gpu_uuid"])]
    assert (cut["sm_active_mean"] == 1.0).all() and cut["power_watts_mean"].isna().all()
    whole = frame.gpu[(frame.gpu["gpu_uuid"] == "GPU-toggled")]
    assert (whole["power_watts_mean"] == 500).all()
    hours = verdicts.occupancy[verdicts.occupancy["node"] == "n-toggled"]["gpu_hours"].sum()
    assert hours == pytest.approx(HOURS)


def test_nodes_that_pods_alone_name_are_counted_once_though_told_twice(strange: tuple[Frame, Verdicts]) -> None:
    frame, verdicts = strange
    dark, unlisted = verdicts.inventory.nodes["n-dark"], verdicts.inventory.nodes["n-unlisted"]
    assert (dark.gpu_count, dark.unobserved_count) == (4, 4)
    assert (unlisted.gpu_count, unlisted.unobserved_count) == (1, 1), "a pod that is done holds nothing"
    assert len(frame.requests) == 3 and frame.requests["count"].tolist() == [1, 1, 1]
    reasons = {unobserved.node: unobserved.code for unobserved in verdicts.inventory.unobserved}
    assert reasons["n-dark"] == reasons["n-unlisted"] == "not-named"


def test_every_gpu_is_observed_or_has_a_reason(strange: tuple[Frame, Verdicts]) -> None:
    for name, node in strange[1].inventory.nodes.items():
        assert len(node.observed) + node.unobserved_count >= node.gpu_count, name
        assert all(unobserved.reason for unobserved in node.unobserved)
