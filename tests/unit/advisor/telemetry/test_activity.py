"""Work without labels: GPUs of a node that are busy at the same times become workloads, which wait for an owner."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.telemetry.activity import DeviceSeries, with_activity
from skuwise.advisor.telemetry.prometheus.client.response import Grid, SeriesAnswer
from skuwise.advisor.telemetry.prometheus.owners import REQUESTS
from skuwise.advisor.telemetry.prometheus.rows.gpus import About
from skuwise.advisor.telemetry.prometheus.rows.workloads import GPU_GROUP, dcgm_uses, with_groups, with_requests
from skuwise.tests.support.frame_builder import DECODE, FREE, GIB, HELD, HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import advice_of

HOURS = 48
END = START + HOURS * HOUR
Periods = Sequence[tuple[float, float]]
Found = list[tuple[tuple[str, ...], float, float]]


def inferred(frame: Frame, minutes: Sequence[DeviceSeries] = ()) -> Frame:
    return with_activity(frame, lambda asked, _: [each for each in minutes if (each.node, each.gpu_uuid) in asked])


def found(frame: Frame) -> Found:
    """The GPUs of each inferred workload, and the hours of its begin and end."""
    part = frame.uses[frame.uses["basis"] == "activity"]
    return sorted(
        (tuple(sorted(set(of["gpu_uuid"]))), (of["ts_start"].min() - START) / HOUR, (of["ts_end"].max() - START) / HOUR)
        for _, of in part.groupby("workload_id")
    )


def minutes_of(node: str, uuid: str, busy: Periods, memory: float = 0.0) -> DeviceSeries:
    """A GPU by the minute: at work in these hours, in which it holds memory."""
    ts = np.arange(START + 60, END + 1, 60.0)
    at = np.any([(ts > START + a * HOUR) & (ts <= START + b * HOUR) for a, b in busy], axis=0)
    return DeviceSeries(node, uuid, ts, 60.0, 0.8 * at, memory * at)


def by_minutes(*busy: Periods) -> Found:
    """What is found of GPUs that are at work in these hours, two on each node."""
    builder, series = FrameBuilder(hours=HOURS), []
    for n in range(0, len(busy), 2):
        name = f"n{n // 2 + 1}"
        for uuid, periods in zip(builder.node(name, gpus=2), busy[n : n + 2], strict=False):
            builder.use(TRAINING, node=name, uuid=uuid)
            series.append(minutes_of(name, uuid, periods))
    return found(inferred(builder.frame(), series))


A, B = "GPU-n1-0", "GPU-n1-1"


@pytest.mark.parametrize(
    ("busy", "expected"),
    [
        ([[(2, 9)], [(2, 9)]], [((A, B), 2, 9)]),
        # Nothing is concluded across nodes.
        ([[(2, 9)], [], [(2, 9)]], [((A,), 2, 9), (("GPU-n2-0",), 2, 9)]),
        ([[(2, 9)], [(2 + 1 / 60, 9 - 1 / 60)]], [((A, B), 2, 9)]),
        ([[(2, 9)], [(2 + 2 / 60, 9)]], [((A,), 2, 9), ((B,), 2 + 2 / 60, 9)]),
        ([[(2, 9)], [(2, 8)]], [((A,), 2, 9), ((B,), 2, 8)]),
        # A pause of half an hour is part of the work, a longer one is not.
        ([[(2, 5), (5.5, 9)], [(2, 9)]], [((A, B), 2, 9)]),
        ([[(2, 5), (6, 9)], [(6, 9)]], [((A,), 2, 5), ((A, B), 6, 9)]),
        # A health check is no work.
        ([[(2, 2 + 4 / 60)], [(20, 48)]], [((B,), 20, 48)]),
    ],
)
def test_gpus_that_begin_and_end_within_one_sample_are_one(busy: Sequence[Periods], expected: Found) -> None:
    reported = by_minutes(*busy)
    assert [gpus for gpus, _, _ in reported] == [gpus for gpus, _, _ in expected]
    assert [pytest.approx(entry[1:]) for entry in reported] == [element[1:] for element in expected]


GPUS = tuple(f"GPU-n1-{n}" for n in range(4))
ALL_ALONG = [(TRAINING, HOURS), (TRAINING, HOURS), (HELD, HOURS), (FREE, HOURS)]


@pytest.mark.parametrize(
    ("loads", "works", "expected"),
    [
        # Memory counts as use.
        (
            [(TRAINING, 20), (HELD, 20), (DECODE, 30), (FREE, HOURS)], [],
            [(GPUS[:2], 0, 20), (GPUS[2:3], 0, 30)],
        ),
        # GPUs busy for the whole window are one workload if all worked, or none did.
        (ALL_ALONG, [], [(GPUS[:2], 0, HOURS), (GPUS[2:3], 0, HOURS)]),
        # What somebody holds stays theirs, used or not.
        (ALL_ALONG, [(0, "process", 0, HOURS), (2, "allocation", 0, HOURS)], [(GPUS[1:2], 0, HOURS)]),
        # Work before and after a named job is apart.
        ([(TRAINING, HOURS)], [(0, "process", 10, 20)], [(GPUS[:1], 0, 9), (GPUS[:1], 21, HOURS)]),
    ],
)  # fmt: skip
def test_hours_serve_where_minutes_are_missing(
    loads: Sequence[tuple[Mapping[str, float], int]], works: Sequence[tuple[int, str, int, int]], expected: list
) -> None:
    """`loads`: what each GPU does, and up to which hour; `works`: GPU, basis and hours of named workloads."""
    builder = FrameBuilder(hours=HOURS)
    for uuid, (values, end) in zip(builder.node(gpus=len(loads)), loads, strict=True):
        builder.use(values, uuid=uuid, end=end)
        builder.use(FREE, uuid=uuid, start=end)
    for gpu, basis, start, end in works:
        builder.work(f"w{gpu}", [("n1", GPUS[gpu])], start=start, end=end, basis=basis)
    assert found(inferred(builder.frame())) == expected


def test_minutes_go_on_where_the_hours_end() -> None:
    builder = FrameBuilder(hours=HOURS)
    (uuid,) = builder.node()
    builder.use(TRAINING)
    late = minutes_of("n1", uuid, [(24, 40.25)])
    half = DeviceSeries("n1", uuid, late.ts[24 * 60 :], 60.0, late.use[24 * 60 :], late.mem_used_bytes[24 * 60 :])
    assert found(inferred(builder.frame(), [half])) == [((uuid,), 0, pytest.approx(40.25))]


def test_a_gpu_that_is_divided_is_its_instances_each_by_itself() -> None:
    builder = FrameBuilder(hours=HOURS)
    (uuid,) = builder.node()
    for n in range(2):
        builder.gpus.append({**builder.gpus[0], "gpu_uuid": f"MIG-{n}", "kind": "mig", "parent_uuid": uuid})
    builder.use(TRAINING)
    for n in range(2):
        builder.use({**TRAINING, "mem_used_bytes": 8 * GIB}, uuid=f"MIG-{n}")
    frame = inferred(builder.frame())
    assert found(frame) == [(("MIG-0",), 0, HOURS), (("MIG-1",), 0, HOURS)]
    assert set(frame.workloads["name"]) == {"unattributed on n1 (1 MIG instance)"}


def test_the_same_data_give_the_same_ids_and_a_later_window_the_same_series() -> None:
    builder = FrameBuilder(hours=HOURS)
    builder.node()
    builder.use(FREE, end=10)
    builder.use(TRAINING, start=10)
    first, again = (inferred(builder.frame()).workloads for _ in range(2))
    assert first.equals(again)
    later = inferred(builder.frame(Window(START + 5 * HOUR, END))).workloads
    assert later["workload_id"].tolist() == first["workload_id"].tolist()
    open_start = inferred(builder.frame(Window(START + 10 * HOUR, END))).workloads
    assert open_start["workload_id"].tolist() != first["workload_id"].tolist()
    assert open_start["series_id"].tolist() == first["series_id"].tolist()


def test_its_recommendations_wait_for_an_owner_and_its_verdicts_say_why_they_are_less_sure() -> None:
    builder = FrameBuilder(hours=HOURS)
    for uuid in builder.node(gpus=8):
        builder.use(TRAINING, uuid=uuid, end=3)
        builder.use(HELD, uuid=uuid, start=3)
    advice = advice_of(inferred(builder.frame()), END)
    (workload,) = advice.workloads
    assert (workload.basis, workload.owner.user, len(workload.gpus)) == ("activity", None, 8)
    assert workload.kind.confidence <= 0.9
    assert "inferred-from-activity" in {reason.code for reason in workload.kind.evidence}
    blocked = [{why.code for why in recommendation.blocked_by} for recommendation in advice.recommendations]
    assert blocked and all("owner-unknown" in codes for codes in blocked)
    assert not advice.summary.recoverable_usd_per_month


nan = float("nan")
GRID = Grid(HOUR, 10 * HOUR, HOUR)
ABOUT = {f"GPU-{n}": About("n1", uuid=f"GPU-{n}") for n in range(2)}
RESERVATION = ("kai-resource-reservation", "gpu-reservation-n1-x2k4m")


def use(pod: str, gpu: str = "GPU-0", namespace: str = "ml") -> dict[str, object]:
    return {
        "workload_id": f"w-{pod}", "node": "n1", "gpu_uuid": gpu, "basis": "allocation", "ts_start": 0.0,
        "ts_end": 10 * HOUR, "shared": 0.0, "scheduler": "kubernetes", "namespace": namespace, "pod": pod,
        "cluster": "", "name": pod,
    }  # fmt: skip


def requests(*pods: str, resource: str = "nvidia_com_gpu", start: float = 0.0, end: float = 10.0) -> pd.DataFrame:
    rows = [("n1", "ml", pod, "main", resource, 1.0, start * HOUR, end * HOUR) for pod in pods]
    return pd.DataFrame(rows, columns=REQUESTS)


@pytest.mark.parametrize(
    ("named", "wanted", "gpus"),
    [
        # More replicas than GPUs: each unnamed pod is on the GPU with the fewest holders.
        ({"a": "GPU-0"}, requests("a", "b", "c", "d"), {"a": "GPU-0", "b": "GPU-1", "c": "GPU-0", "d": "GPU-1"}),
        # A resource for shares, without a pod in any series.
        ({}, requests("a", "b", "c", resource="nvidia_com_gpu_shared"), {"a": "GPU-0", "b": "GPU-1", "c": "GPU-0"}),
    ],
)
def test_pods_that_request_shares_hold_gpus(named: dict[str, str], wanted: pd.DataFrame, gpus: dict) -> None:
    uses = pd.DataFrame([use(pod, gpu) for pod, gpu in named.items()])
    results = with_requests(uses, wanted, ABOUT, HOUR, offered={})
    assert dict(zip(results["pod"], results["gpu_uuid"], strict=True)) == gpus and set(results["shared"]) == {1.0}


@pytest.mark.parametrize(
    "wanted",
    [
        requests("a", "b"),
        # A GPU of which no series is left.
        requests("a", "b", "c"),
        # One pod follows another within a row.
        pd.concat([requests("a", "b", end=5), requests("c", "d", start=4)]),
    ],
)
def test_whole_gpus_are_left_to_those_whom_series_name(wanted: pd.DataFrame) -> None:
    uses = pd.DataFrame([use("a")])
    assert with_requests(uses, wanted, ABOUT, HOUR, offered={"n1": 2}) is uses


def test_the_pods_of_a_gpu_group_hold_the_gpu_reserved_for_them() -> None:
    uses = pd.DataFrame([use(RESERVATION[1], namespace=RESERVATION[0]), use("b", "GPU-1")])
    reported = [(*RESERVATION, "g1", 10), ("ml", "half-0", "g1", 10), ("ml", "half-1", "g1", 4), ("ml", "c", "g2", 10)]
    labels = tuple({"namespace": space, "pod": pod, GPU_GROUP: group} for space, pod, group, _ in reported)
    values = np.array([[1.0] * hours + [np.nan] * (10 - hours) for *_, hours in reported])
    answer = SeriesAnswer(labels, values)
    results = with_groups(uses, lambda asks, _: {asks[0].name: answer}, {"kube_pod_labels"}, (), GRID)
    columns = results["gpu_uuid"], results["ts_end"] / HOUR, results["shared"]
    spans = dict(zip(results["pod"], zip(*columns, strict=True), strict=True))
    assert spans == {"half-0": ("GPU-0", 10, 1), "half-1": ("GPU-0", 4, 1), "b": ("GPU-1", 10, 0)}
    assert with_groups(uses, lambda *_: {}, (), (), GRID) is uses


@pytest.mark.parametrize(
    ("used", "shares"),
    [
        ({"a": 0.6, "b": 0.2}, {"a": 0.75, "b": 0.25}),
        ({"a": 0.0, "b": 0.0}, {"a": 0.5, "b": 0.5}),
        ({"a": 0.6, "b": nan}, {"a": 1.0, "b": nan}),
    ],
)
def test_a_pods_own_use_of_a_device_is_its_share(used: dict[str, float], shares: dict[str, float]) -> None:
    labels = tuple({"UUID": "GPU-0", "pod": pod, "namespace": "ml"} for pod in used)
    pods = SeriesAnswer(labels, np.array([[value] * GRID.count for value in used.values()]))
    device = {"UUID": "GPU-0"}
    counts = SeriesAnswer((device, *labels), np.full((len(labels) + 1, GRID.count), 60.0))
    results = dcgm_uses(
        counts, GRID, ABOUT, intervals={"GPU-0": 60.0}, taken=set(), key_of=lambda entry: entry["UUID"], pods=pods
    )
    assert dict(zip(results["pod"], results["share"], strict=True)) == pytest.approx(shares, nan_ok=True)
