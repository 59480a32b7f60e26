# pyright: reportReturnType=false, reportArgumentType=false
"""The hours of single workloads, from frames with known answers."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from skuwise.advisor.telemetry.hourly_work import hours_of, pods_of, queue_told, requests_told
from skuwise.advisor.telemetry.prometheus.owners.engines import _by_hour
from skuwise.agent.statistics.latency_bins import encode
from skuwise.agent.store.reading import queries
from skuwise.tests.support.frame_builder import DECODE, HOUR, START, FrameBuilder

W = frozenset({"w"})


def built(hours: int = 4, gpus: int = 2, **work: float) -> FrameBuilder:
    b = FrameBuilder(hours=hours)
    uuids = b.node(gpus=gpus)
    for uuid in uuids:
        b.use(DECODE, uuid=uuid)
    b.work("w", [("n1", uuid) for uuid in uuids], **work)
    return b


def telling(b: FrameBuilder, rows) -> pd.DataFrame:
    """Rows of (hour, node, seconds, tokens, queue seconds, running seconds, waiting seconds)."""
    told = [("n1", "w", engine, START + (n + 1) * HOUR, *values) for n, engine, *values in rows]
    columns = ["node", "workload_id", "engine", "ts", "seconds", "generated_tokens", "queue_seconds",
               "running_seconds", "waiting_seconds"]  # fmt: skip
    return replace(b.frame(), tokens=pd.DataFrame(told, columns=columns))


def test_engines_power_tokens_and_queue_stand_side_by_side_by_the_hour() -> None:
    frame = telling(
        built(), [(0, "vllm", 3600.0, 7200.0, 3600.0, 36000.0, 0.0), (2, "vllm", 1800.0, 3600.0, 0.0, None, None)]
    )
    hours = hours_of(frame, W)["w"]
    assert [one.end for one in hours] == [START + (n + 1) * HOUR for n in range(4)]
    first, second, third, _ = hours
    assert (first.seconds, first.gpus) == (HOUR, 2.0)
    assert first.busy == pytest.approx(0.99, rel=1e-5)
    assert first.watts == pytest.approx(280.0, rel=1e-5)
    assert (first.tokens, first.running) == (2.0, 10.0)
    assert (second.tokens, second.running) == (None, None)
    assert (third.tokens, third.running) == (2.0, None)  # half of an hour is enough, as a rate


def test_a_page_that_was_read_for_less_than_half_of_the_hour_does_not_count() -> None:
    frame = telling(built(), [(0, "vllm", 1000.0, 7200.0, 3600.0, 36000.0, 0.0)])
    assert hours_of(frame, W)["w"][0].tokens is None


def test_pages_of_one_workload_add_up_and_several_servers_of_one_engine_are_one_hour() -> None:
    frame = telling(
        built(), [(0, "vllm", 7200.0, 7200.0, 7200.0, 7200.0, 0.0), (0, "tgi", 3600.0, 3600.0, 3600.0, 3600.0, 0.0)]
    )
    first = hours_of(frame, W)["w"][0]
    assert (first.tokens, first.running) == (3.0, 3.0)


def test_rows_that_were_held_in_part_do_not_count() -> None:
    hours = hours_of(built(start=0.5, end=3.5).frame(), W)["w"]
    assert [one.end for one in hours] == [START + 2 * HOUR, START + 3 * HOUR]


def test_a_use_that_is_told_in_pieces_is_one() -> None:
    b = FrameBuilder(hours=2)
    (uuid,) = b.node()
    b.use(DECODE)
    b.work("w", [("n1", uuid)], end=0.5)
    b.work("w", [("n1", uuid)], start=0.5)
    assert len(hours_of(b.frame(), W)["w"]) == 2


def test_a_measure_that_no_gpu_has_is_missing_and_no_zero() -> None:
    b = FrameBuilder(hours=2)
    (uuid,) = b.node()
    b.use({name: value for name, value in DECODE.items() if name not in ("power_watts", "gpu_util", "sm_active")})
    b.work("w", [("n1", uuid)])
    first = hours_of(b.frame(), W)["w"][0]
    assert (first.busy, first.watts, first.tokens, first.requests) == (None, None, None, None)


def test_requests_are_the_first_tokens_that_were_counted() -> None:
    b = built()
    rows = [{"node": "n1", "workload_id": "w", "engine": "vllm", "first_token_bins": encode((0.0, 30.0, 6.0)),
             "latency_ts": START + HOUR, "samples": 0.0, "seconds": 0.0},
            {"node": "n1", "workload_id": "w", "engine": "vllm", "first_token_bins": "nonsense",
             "latency_ts": START + 2 * HOUR, "samples": 0.0, "seconds": 0.0}]  # fmt: skip
    frame = replace(b.frame(), serving=pd.DataFrame(rows).reindex(columns=list(queries.SERVING.columns)))
    first, second, *_ = hours_of(frame, W)["w"]
    assert first.requests == pytest.approx(0.01)
    assert second.requests is None
    assert (queue_told(frame), requests_told(frame)) == (frozenset(), W)


def test_requests_are_divided_by_the_time_that_was_observed() -> None:
    """A pod that lived for twenty minutes of an hour answered a third of an hour's requests."""
    b = FrameBuilder(hours=2)
    (uuid,) = b.node()
    b.use(DECODE, end=1)
    b.gpu_rows.append(
        {**b.gpu_rows[0], "ts": START + HOUR + 1200, "interval_seconds": 1200.0, "observed_seconds": 1200.0}
    )
    b.work("w", [("n1", uuid)], end=1 + 1 / 3)
    rows = [{"node": "n1", "workload_id": "w", "engine": "vllm", "first_token_bins": encode((0.0, count)),
             "latency_ts": START + (n + 1) * HOUR} for n, count in enumerate((360.0, 120.0))]  # fmt: skip
    serving = pd.DataFrame(rows).reindex(columns=list(queries.SERVING.columns))
    frame = replace(b.frame(), serving=serving)
    assert [one.requests for one in hours_of(frame, W)["w"]] == pytest.approx([0.1, 0.1])
    assert requests_told(frame) == W
    # A page that was read for a part of the hour: its counter may have grown for all of it.
    told = telling(b, [(0, "vllm", 1800.0, 10.0, 1800.0, 10.0, 0.0), (1, "vllm", 1200.0, 10.0, 1200.0, 10.0, 0.0)])
    assert [one.requests for one in hours_of(replace(told, serving=serving), W)["w"]] == [None, pytest.approx(0.1)]


def test_engine_time_is_of_one_kind_for_all_that_are_compared() -> None:
    """An instance tells how active its own SMs are, which is no GPU's utilization; so do exporters without it."""
    b = FrameBuilder(hours=1)
    (whole,), (parent,), (bare,) = b.node("n1"), b.node("m1"), b.node("n2")
    b.use(DECODE, uuid=whole)
    b.gpus.append({**b.gpus[1], "gpu_uuid": "MIG-m1-0", "kind": "mig", "parent_uuid": parent})
    sms = {name: value for name, value in DECODE.items() if name != "gpu_util"}
    b.use(sms, "m1", "MIG-m1-0")
    b.use(sms, "n2", bare)
    for name, node, uuid in (("whole", "n1", whole), ("slice", "m1", "MIG-m1-0"), ("bare", "n2", bare)):
        b.work(name, [(node, uuid)])
    frame = b.frame()

    def busy(*ids: str) -> list[float | None]:
        found = hours_of(frame, frozenset(ids))
        return [found[one][0].busy for one in ids]

    assert busy("whole", "slice", "bare") == [pytest.approx(0.99, rel=1e-5), None, None]
    assert busy("whole", "bare") == [pytest.approx(0.99, rel=1e-5), None]
    assert busy("bare") == [pytest.approx(0.85, rel=1e-5)]
    assert busy("slice", "bare") == [None, None]


def test_nobody_and_nothing_have_no_hours() -> None:
    frame = built().frame()
    assert hours_of(frame, frozenset()) == {}
    assert hours_of(frame, frozenset({"other"})) == {}
    assert hours_of(FrameBuilder(hours=1).frame(), W) == {}
    assert pods_of(FrameBuilder(hours=1).frame()) == {}


def test_a_servers_rows_become_the_same_hours() -> None:
    whose = {"node": "n1", "workload_id": "w", "engine": "vllm", "seconds": 3600.0}
    rows = [{**whose, "ts": START + HOUR, "generated_tokens": 10.0, "running_seconds": 5.0, "waiting_seconds": 1.0},
            {**whose, "ts": START + 2 * HOUR, "generated_tokens": float("nan"), "running_seconds": 7.0},
            {**whose, "ts": START + 3 * HOUR, "kv_percent": 5.0}]  # fmt: skip
    table = _by_hour(rows)
    assert list(table.columns) == list(queries.TOKENS.columns)
    assert table["seconds"].tolist() == [3600.0, 0.0]
    assert table["queue_seconds"].tolist() == [3600.0, 3600.0]
    assert table["running_seconds"].tolist() == [5.0, 7.0]
    assert _by_hour([]).empty
