"""What servers tell of themselves: kept, shown by the view, and added to older databases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.classify.bottlenecks.evidence import tokens_of
from skuwise.advisor.telemetry.tables import to_table
from skuwise.agent.model import Node, ServingSample, Workload
from skuwise.agent.statistics.latency_bins import decode
from skuwise.agent.store.reading import queries
from skuwise.agent.store.reading.reader import open_reader
from skuwise.agent.store.writing.writer import Writer

T0 = 1_790_000_000.0
WORK = Workload("w-1", "s-1", "serve", "process", framework="vllm")
VALUES = {
    "kv_cache_usage": 0.4565, "requests_running": 7.0, "requests_waiting": 0.0, "prompt_tokens_per_second": 100.1,
    "generation_tokens_per_second": 50.0, "time_to_first_token_seconds": 0.3123, "preemptions_per_second": 0.2,
    "time_per_output_token_seconds": 0.02345,
}  # fmt: skip
COLUMNS = ("ts", "interval_seconds", "node", "workload_id", "engine", "endpoint", *VALUES)


def sample(ts: float, workload_id: str | None = None, **values: float) -> ServingSample:
    return ServingSample(ts, 10.02, "http://127.0.0.1:8000/metrics", "vllm", values or VALUES, workload_id=workload_id)


def shown(path: Path) -> list[tuple[object, ...]]:
    with open_reader(path) as reader:
        return reader.fetch("SELECT * FROM serving_samples ORDER BY ts")


def test_a_sample_comes_back_in_base_units(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    with Writer.open(path) as writer:
        node = writer.for_node(Node("n1"), T0)
        node.set_workloads((WORK,), (), T0)
        node.add_serving(sample(T0 + 10, "w-1"))
        node.add_serving(sample(T0 + 20, "nobody-named-it", requests_running=3.0))
    first, second = shown(path)
    with open_reader(path) as reader:
        assert tuple(c[0] for c in reader.execute("SELECT * FROM serving_samples").description) == COLUMNS
    expected = (T0 + 10, 10.02, "n1", "w-1", "vllm", "http://127.0.0.1:8000/metrics", *VALUES.values())
    assert first == pytest.approx(expected)
    assert second[3] is None
    assert second[6:] == (None, 3.0, None, None, None, None, None, None)


FAST, SLOW = (0.0,) * 7 + (80.0, 20.0) + (0.0,) * 22, (0.0,) * 30 + (3.0,)


def test_what_servers_counted_is_added_up_by_the_hour_and_the_work_that_held_them(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    hour = T0 // 3600 * 3600
    told = [(10.0, "w-1", FAST), (20.0, "w-1", FAST), (30.0, None, SLOW), (3590.0, "w-1", SLOW), (3610.0, "w-1", FAST)]
    for part in (told[:3], told[3:]):  # the agent is started again in between
        with Writer.open(path, now=lambda: hour + 7200) as writer:
            node = writer.for_node(Node("n1"), hour)
            node.set_workloads((WORK,), (), hour)
            for after, work, counts in part:
                one = sample(hour + after, work)
                node.add_serving(replace(one, latency={"output_token": counts}))
    with open_reader(path) as reader:
        kept = reader.fetch("SELECT ts, interval_seconds, workload_id, first_token_bins, output_token_bins"
                            " FROM serving_hours ORDER BY ts")  # fmt: skip
        rows = reader.fetch(queries.SERVING.sql, {"start": hour, "end": hour + 7200})
    assert [float(str(row[0])) - hour for row in kept] == [20.0, 30.0, 3590.0, 3610.0]
    assert kept[0][1] == pytest.approx(20.04)
    assert all(row[3] is None for row in kept)
    assert decode(kept[0][4]) == tuple(2 * n for n in FAST)
    table = to_table(rows, queries.SERVING)
    waited = table[table["latency_ts"].notna()].sort_values("latency_ts")
    assert waited["workload_id"].tolist() == ["w-1"] * 3  # what nobody held is nobody's
    assert waited["seconds"].tolist() == [0.0] * 3 and waited["kv_percent"].isna().all()
    assert tokens_of(table, "w-1") == pytest.approx(50.0 * 10.02 * 4)
