"""Answers that fill the memory, or are no numbers: they are counted before they are read."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from skuwise.advisor.core.frame import Window
from skuwise.advisor.telemetry.prometheus.client import range_planner as plan
from skuwise.advisor.telemetry.prometheus.client.cache import Cache
from skuwise.advisor.telemetry.prometheus.client.client import Client
from skuwise.advisor.telemetry.prometheus.client.errors import AnswerError, RefusedError, TooMuchError, UnreachableError
from skuwise.advisor.telemetry.prometheus.client.memory_budget import MemoryBudget
from skuwise.advisor.telemetry.prometheus.client.response import Grid
from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings
from skuwise.tests.support.fake_prometheus import FakePrometheus, Reply, Request, error, matrix, vector

GRID = Grid(3600.0, 3 * 3600.0, 3600.0)
_MATRIX = b'{"status":"success","data":{"resultType":"matrix","result":[%s]}}'


def of_prometheus(url: str, seconds: float = 30.0, **given: object) -> Client:
    return Client(url, PrometheusSettings(timeout_seconds=seconds), {}, sleep=lambda _: None, **given)  # type: ignore[arg-type]


def test_a_server_that_is_busy_for_ever_is_left_and_one_answer_makes_it_a_new_one() -> None:
    clock = itertools.count(0.0, 10.0)
    replies = itertools.chain([error(503, "busy")] * 4, [vector(({}, 1))], itertools.repeat(error(503, "busy")))
    with FakePrometheus(lambda _: next(replies)).running() as fake:
        client = of_prometheus(fake.url, 30.0, monotonic=lambda: float(next(clock)))
        with pytest.raises(TooMuchError, match="503"):
            client.scalar("a", 0.0)
        assert client.scalar("b", 0.0) == 1.0
        with pytest.raises(TooMuchError, match="503"):
            client.scalar("c", 0.0)
        with pytest.raises(UnreachableError, match="No answer from"):
            for _ in range(5):
                try:
                    client.scalar("d", 0.0)
                except RefusedError:
                    continue


def test_attempts_end_after_a_time_and_not_only_after_some_number() -> None:
    clock = itertools.count(0.0, 50.0)
    with FakePrometheus(lambda _: error(503, "busy")).running() as fake:
        with pytest.raises(RefusedError):
            of_prometheus(fake.url, 60.0, monotonic=lambda: float(next(clock))).scalar("a", 0.0)
        assert 1 < len(fake.requests) < 4


HOSTILE: dict[str, bytes] = {
    "lists": b'{"status":"success","data":[' + b"[]," * 400_000 + b"[]]}",
    "mappings": b'{"status":"success","data":[' + b"{}," * 400_000 + b"{}]}",
    "texts": b'{"status":"success","data":[' + b'"ab",' * 400_000 + b'""]}',
    "numbers": b'{"status":"success","data":[' + b"1," * 600_000 + b"1]}",
    "series": b'{"status":"success","data":[' + b'{"metric":{}},' * 250_001 + b"]}",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_an_answer_is_made_of_is_counted_before_it_is_read(name: str) -> None:
    with FakePrometheus(lambda _: Reply(HOSTILE[name])).running() as fake:
        client = of_prometheus(fake.url, 30.0, room=MemoryBudget(20 * 1024 * 1024))
        with pytest.raises(TooMuchError, match="time series"):
            client.range("up", GRID)


def test_a_matrix_is_no_larger_than_what_was_told() -> None:
    grid = Grid(60.0, 60.0 * 10_000, 60.0)
    one = b'{"metric":{"a":"%d"},"values":[[60,"1"]]}'
    body = _MATRIX % b",".join(one % n for n in range(500))
    with FakePrometheus(lambda _: Reply(body)).running() as fake, pytest.raises(TooMuchError, match="500 time series"):
        of_prometheus(fake.url, 30.0).range("up", grid)


@pytest.mark.parametrize("value", ['"0x1"', '"1_000"', "1", "null", '""'])
def test_what_go_writes_as_no_number_is_none(value: str) -> None:
    body = _MATRIX % b'{"metric":{},"values":[[3600,%s]]}' % value.encode()
    with (
        FakePrometheus(lambda _: Reply(body)).running() as fake,
        pytest.raises(AnswerError, match="not numbers"),
    ):
        of_prometheus(fake.url, 30.0).range("up", GRID)


def test_what_is_not_finite_is_missing_and_extremes_are_numbers() -> None:
    values = ["NaN", "+Inf", "-Inf", "1" * 400, "1e400", "1e308", "-5e-324", "-1", "0"]
    with FakePrometheus(
        lambda _: vector(*(({"a": str(n)}, value) for n, value in enumerate(values)))
    ).running() as fake:
        told = of_prometheus(fake.url, 30.0).instant("up", 0.0).answer.values[:, 0]
    assert np.isnan(told[:5]).all() and told[5:].tolist() == [1e308, -5e-324, -1.0, 0.0]


def test_a_series_with_a_label_of_megabytes_is_left_out_and_no_other() -> None:
    series = [({"a": "x" * 10_000_000}, 1), ({"a": "b"}, 2), ({"a": "c", "other": "y" * 5000}, 3)]
    with FakePrometheus(lambda _: vector(*series)).running() as fake:
        client = of_prometheus(fake.url, 30.0)
        kept, every = client.instant("up", 0.0, ("a",)), client.instant("up", 0.0)
    assert kept.answer.labels == ({"a": "b"}, {"a": "c"}) and kept.left_out == 1
    assert every.answer.labels == ({"a": "b"},) and every.left_out == 2


def test_names_of_labels_are_harmless_too() -> None:
    with FakePrometheus(lambda _: vector(({"a\x1b[31m": "b\x07"}, 1))).running() as fake:
        assert of_prometheus(fake.url, 30.0).instant("up", 0.0).answer.labels == ({"a[31m": "b"},)


def test_a_measure_of_far_more_series_than_were_counted_is_left_out_and_the_others_are_read() -> None:
    def told(request: Request) -> Reply:
        day = round(float(request.params["start"]))
        count = 160 if request.query == "many" else 2
        return matrix(request, *(({"a": f"{n}-{day if count > 2 else 0}"}, n) for n in range(count)))

    log = plan.Log()
    asks = [plan.Ask(name, name, ("a",)) for name in ("few", "many", "more")]
    with FakePrometheus(told).running() as fake:
        runner = plan.Runner(of_prometheus(fake.url, 30.0), Cache(None, ""), log, 4, 0.0, series_anyway=100)
        answers = [answer for _, answer in runner.matrices(asks, Window(0.0, 5 * 86400.0), 3600.0, 2)]
    assert [len(answer.labels) for answer in answers] == [2, 0, 2]
    assert [note for note in log.notes if note.text.startswith("No data for many")] and len(log.notes) == 1
    assert answers[0].values.tolist() == [[0.0] * 120, [1.0] * 120]
