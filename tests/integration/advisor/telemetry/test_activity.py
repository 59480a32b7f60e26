"""Work without labels on both roads: what works and belongs to nobody becomes workloads, which wait for an owner."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.advise import read_and_advise
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.render.json import render_json
from skuwise.advisor.simulate.simulator import simulate
from skuwise.advisor.telemetry.activity import DeviceSeries
from skuwise.advisor.telemetry.activity.apply import name_of, with_activity
from skuwise.advisor.telemetry.prometheus.client.cache import Cache
from skuwise.advisor.telemetry.prometheus.client.client import Client
from skuwise.advisor.telemetry.prometheus.promql.labels import device_of, gpu_of
from skuwise.advisor.telemetry.prometheus.reader import ServerReading
from skuwise.advisor.telemetry.prometheus.reader import read_frame as read_server
from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings
from skuwise.advisor.telemetry.source import Databases
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.verdicts.workloads.attribution import attribute
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.fake_prometheus import GPU, DcgmServer, FakePrometheus, Request, matrix
from skuwise.tests.support.frame_builder import DECODE, FREE, GIB, HELD, START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook

HOUR, DAY = 3600.0, 86400.0
NOW = START // DAY * DAY  # midnight, so that a day is one piece
UUID = "GPU-5fd4f4a1-33d6-4b38-8f2c-6a1c3b1f2e10"


def no_minutes(devices: Sequence[tuple[str, str]], window: Window) -> list[DeviceSeries]:
    return []


def read(fake: FakePrometheus) -> Frame:
    client = Client(fake.url, PrometheusSettings(), {}, sleep=lambda _: None)
    return read_server(ServerReading(client, Cache(None, fake.url), (), NOW), load_catalog(), since_seconds=2 * DAY)


def inferred(frame: Frame) -> Frame:
    return with_activity(frame, no_minutes)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fine-tuning jobs on a node for a day and a half, of which nobody says whose they are."""
    folder = tmp_path_factory.mktemp("activity")
    simulate("fine-tuning", folder, days=1.5, seed=5, until=START, minutes_seconds=1.5 * DAY)
    nameless(folder)
    return folder


def nameless(folder: Path) -> None:
    for path in folder.glob("*.db"):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM workload_use")
            connection.execute("DELETE FROM workload")


@pytest.fixture(scope="module")
def advised(bare: Path) -> tuple[Frame, Advice]:
    return read_and_advise(Databases((bare,)), rulebook(), now=START, since=1.5 * DAY)


def test_work_in_a_database_without_owners_becomes_workloads(bare: Path, advised: tuple[Frame, Advice]) -> None:
    frame, advice = advised
    (path,) = bare.glob("*.db")
    with closing(sqlite3.connect(path)) as connection:
        truths = {key for (key,) in connection.execute("SELECT workload_id FROM truth")}
    assert set(frame.uses["basis"]) == {"activity"}
    assert len(frame.workloads) == pytest.approx(len(truths), abs=1)
    assert all(len(w.gpus) == 8 and w.name.startswith("unattributed on tune-01 (8 GPUs)") for w in advice.workloads)
    busy = sum(w.gpu_hours for w in advice.workloads)
    rows = frame.gpu
    worked = float((rows["gpu_util_mean"] * rows["observed_seconds"]).sum()) / HOUR
    assert busy >= worked


def test_the_sums_add_up_and_no_cash_is_counted(advised: tuple[Frame, Advice]) -> None:
    _, advice = advised
    told = advice.summary.reconciliation
    parts = (told.workloads, told.shared, told.allocated_idle, told.unallocated, told.drained, told.unobserved)
    assert sum(part or 0.0 for part in parts) == pytest.approx(told.total, rel=1e-3)
    assert not advice.summary.recoverable_usd_per_month
    for r in advice.recommendations:
        assert r.workload is None or any(why.code == "owner-unknown" for why in r.blocked_by)
        assert not r.counts


def test_verdicts_on_it_are_less_sure_and_say_why(advised: tuple[Frame, Advice]) -> None:
    _, advice = advised
    for w in advice.workloads:
        assert w.basis == "activity"
        assert w.kind.confidence <= 0.9
        assert any(one.code == "inferred-from-activity" for one in w.kind.evidence)
        assert w.owner.user is None
    assert json.loads(render_json(advice))["workloads"]


def test_the_same_data_give_the_same_ids_and_a_later_window_mostly_the_same(bare: Path) -> None:
    first, again = (read_frame([bare], since_seconds=1.5 * DAY, until=START) for _ in range(2))
    assert first.workloads.equals(again.workloads)
    later = read_frame([bare], since_seconds=1.25 * DAY, until=START)
    began_since = first.workloads[first.workloads["first_seen"] > later.window.start + HOUR]
    assert len(began_since)
    assert set(began_since["workload_id"]) <= set(later.workloads["workload_id"])
    assert set(later.workloads["series_id"]) == set(first.workloads["series_id"])


@pytest.mark.slow
def test_the_founding_case_is_found_without_names(tmp_path: Path) -> None:
    simulate("founding", tmp_path, days=1.5, seed=5, until=START, minutes_seconds=1.5 * DAY)
    nameless(tmp_path)
    _, advice = read_and_advise(Databases((tmp_path,)), rulebook(), now=START, since=1.5 * DAY)
    assert {one.rule for one in advice.findings} >= {"idle-fabric"}
    assert all(len(finding.nodes) == 1 for finding in advice.findings)
    assert not [one for one in advice.recommendations if one.realisation == "cash-now" and not one.blocked_by]


def test_what_is_left_of_a_gpu_that_works_for_somebody_unknown_is_not_called_idle(
    advised: tuple[Frame, Advice],
) -> None:
    """Rest between pieces of work whose owner is unknown may be held: with a label it might not be free."""
    _, advice = advised
    assert advice.workloads and not [one for one in advice.findings if one.rule == "idle"]


def test_what_somebody_holds_stays_theirs_used_or_not() -> None:
    builder = FrameBuilder(hours=48)
    gpus = [("n1", uuid) for uuid in builder.node(gpus=4)]
    for _, uuid in gpus[:2]:
        builder.use(TRAINING, uuid=uuid)
    builder.use(HELD, uuid=gpus[2][1])
    builder.use(FREE, uuid=gpus[3][1])
    builder.work("w1", gpus[:1], basis="process")
    builder.work("w2", gpus[2:3], basis="allocation")
    frame = inferred(builder.frame())
    own = frame.uses[frame.uses["basis"] == "activity"]
    assert own["gpu_uuid"].tolist() == [gpus[1][1]]
    assert own[["ts_start", "ts_end"]].iloc[0].tolist() == [frame.window.start, frame.window.end]


def test_work_after_a_named_job_is_its_own_and_begins_after_it() -> None:
    builder = FrameBuilder(hours=48)
    (uuid,) = builder.node()
    builder.use(TRAINING, end=20)
    builder.use(DECODE, start=20)
    builder.work("w1", [("n1", uuid)], end=20)
    own = inferred(builder.frame()).uses
    (found,) = own[own["basis"] == "activity"].to_dict("records")
    assert START + 20 * HOUR < found["ts_start"] <= START + 22 * HOUR
    assert found["ts_end"] == START + 48 * HOUR


def test_a_frame_in_which_nobody_is_missing_stays_as_it_is() -> None:
    builder = FrameBuilder(hours=48)
    (uuid,) = builder.node()
    builder.use(FREE)
    assert inferred(frame := builder.frame()) is frame
    builder = FrameBuilder(hours=48)
    (uuid,) = builder.node()
    builder.use(TRAINING)
    builder.work("w1", [("n1", uuid)])
    assert inferred(frame := builder.frame()) is frame


def test_a_gpu_that_is_divided_is_its_instances() -> None:
    builder = FrameBuilder(hours=48)
    (uuid,) = builder.node()
    for n in range(2):
        builder.gpus.append({**builder.gpus[0], "gpu_uuid": f"MIG-{n}", "kind": "mig", "parent_uuid": uuid})
    builder.use(TRAINING)
    for n in range(2):
        builder.use({**TRAINING, "mem_used_bytes": 8 * GIB}, uuid=f"MIG-{n}")
    frame = inferred(builder.frame())
    assert sorted(frame.uses["gpu_uuid"]) == ["MIG-0", "MIG-1"]
    assert set(frame.workloads["name"]) == {"unattributed on n1 (1 MIG instance)"}


def test_names_say_where_and_how_many() -> None:
    def gpus(*nodes: str) -> list[tuple[str, str]]:
        return [(node, f"GPU-{k}") for node in nodes for k in range(8)]

    assert name_of(gpus("gpu-015")) == "unattributed on gpu-015 (8 GPUs)"
    assert name_of(gpus("b", "a")) == "unattributed on a and 1 more node (16 GPUs)"
    assert name_of(gpus("d", "c", "b", "a")) == "unattributed on a and 3 more nodes (32 GPUs)"
    assert name_of([("a", "GPU-0")]) == "unattributed on a (1 GPU)"


# A server without labels, and devices that several pods share


def test_a_server_without_labels_gives_workloads_in_bounded_cost() -> None:
    with FakePrometheus(DcgmServer()).running() as fake:
        frame = read(fake)
        fine = [r for r in fake.requests if 0 < float(r.params.get("step", 0)) < HOUR]
    (use,) = frame.uses.itertuples()
    assert (use.basis, use.ts_start, use.ts_end) == ("activity", NOW - 2 * DAY, NOW)
    assert frame.workloads["name"].tolist() == ["unattributed on n1 (1 GPU)"]
    assert 0 < len(fine) <= 8


def shared_by(uuids: Sequence[str], counted: Sequence[float]) -> Frame:
    """A device that pods share, as an exporter repeats it: under each pod's labels, maybe under a name of its own."""
    series: list[Mapping[str, str]] = [
        {**GPU, "UUID": uuid, "exported_pod": f"p{n}-6d4cf56db6-x7k2p", "exported_namespace": "ns"}
        for n, uuid in enumerate(uuids)
    ]

    def counts(request: Request):
        return matrix(request, *zip(series, counted, strict=True))

    with FakePrometheus(DcgmServer(series=series, by_query={"count_over_time(": counts})).running() as fake:
        return read(fake)


@pytest.mark.parametrize("uuids", [[UUID] * 3, [f"{UUID}::{n}" for n in range(3)], [f"{UUID}-{n}" for n in range(3)]])
def test_a_device_that_pods_share_is_counted_once(uuids: list[str]) -> None:
    frame = shared_by(uuids, [60, 60, 60])
    assert frame.gpus["gpu_uuid"].tolist() == [UUID]
    assert np.isclose(frame.gpu["observed_seconds"], HOUR).all()
    assert np.isclose(frame.gpu["gpu_util_mean"], 0.5).all()
    assert len(frame.workloads) == 3
    told = attribute(frame)
    assert all(session.shared for session in told.sessions)
    assert told.places["shared"].all()
    assert float(told.places["seconds"].sum()) == pytest.approx(2 * DAY)


def test_ids_of_virtual_devices_are_their_gpus() -> None:
    assert device_of(f"{UUID}::12") == device_of(f"{UUID}/vgpu0") == device_of(f"{UUID}-3") == device_of(UUID) == UUID
    assert device_of("GPU-a-1") == "GPU-a-1"
    assert device_of(f"MIG-{UUID[4:]}") == f"MIG-{UUID[4:]}"
    assert gpu_of({"UUID": f"{UUID}::1", "GPU_I_ID": "2"}) == (f"{UUID}/gi2", UUID)
