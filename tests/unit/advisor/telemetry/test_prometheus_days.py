# pyright: reportOptionalMemberAccess=false
"""Days of a window: which are asked for together, what the cache keeps, and data that change between queries."""

from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.core.cache_folder import cache_folder
from skuwise.advisor.core.fleet_identity import fleet_of
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.telemetry.prometheus.client.client import Client, PrometheusSettings
from skuwise.advisor.telemetry.prometheus.client.range_planner import DAY, Ask, Cache, Log, Runner
from skuwise.advisor.telemetry.prometheus.client.response import Grid, SeriesAnswer
from skuwise.advisor.telemetry.source import PrometheusServer
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.fake_prometheus import (
    GPU,
    Answer,
    DcgmServer,
    FakePrometheus,
    Reply,
    Request,
    error,
    matrix,
    success,
)

HOUR = 3600.0
NOW = 1_790_000_000.0 // DAY * DAY
CATALOG = load_catalog()
ASK = Ask("busy", "busy", ("a",))
LATER = 30 * DAY


def hours_told(request: Request) -> Reply:
    """Two series, each with its moment as its value; the second begins on the fourth day."""
    start, end = (float(request.params[name]) for name in ("start", "end"))
    moments = [start + n * HOUR for n in range(round((end - start) / HOUR) + 1)]
    late = [str(at) if at > 3 * DAY else "NaN" for at in moments]
    some = [({"a": "late"}, late)] if end > 3 * DAY else []
    return matrix(request, ({"a": "first"}, [str(at) for at in moments]), *some)


def asked(fake: FakePrometheus, cache: Path | None, window: Window, log: Log | None = None) -> SeriesAnswer:
    client = Client(fake.url, PrometheusSettings(), {}, sleep=lambda _: None)
    runner = Runner(client, Cache(cache, "here"), log or Log(), 4, LATER)
    return next(answer for _, answer in runner.matrices([ASK], window, HOUR, 2))


def spans(fake: FakePrometheus) -> list[tuple[float, float]]:
    """What was asked for since the last call."""
    results = sorted((float(request.params["start"]), float(request.params["end"])) for request in fake.requests)
    fake.requests.clear()
    return results


def same(entry: SeriesAnswer, other: SeriesAnswer) -> bool:
    return entry.labels == other.labels and np.array_equal(entry.values, other.values, equal_nan=True)


def test_days_are_one_question_and_those_between_kept_ones_too(tmp_path: Path) -> None:
    with FakePrometheus(hours_told).running() as fake:
        asked(fake, tmp_path, Window(2 * DAY, 3 * DAY))
        assert spans(fake) == [(2 * DAY + HOUR, 3 * DAY)]
        whole = asked(fake, None, Window(0.0, 5 * DAY))
        assert spans(fake) == [(HOUR, 5 * DAY)]
        mixed = asked(fake, tmp_path, Window(0.0, 5 * DAY))
        assert spans(fake) == [(HOUR, 2 * DAY), (3 * DAY + HOUR, 5 * DAY)]
        kept = asked(fake, tmp_path, Window(0.0, 5 * DAY))
        assert spans(fake) == []
    assert [label["a"] for label in whole.labels] == ["first", "late"]
    assert whole.values[0].tolist() == [n * HOUR for n in range(1, 121)] and np.isnan(whole.values[1]).sum() == 72
    assert same(mixed, whole) and same(kept, whole)


def test_a_server_that_takes_one_day_at_a_time_is_asked_by_days_and_each_is_kept(tmp_path: Path) -> None:
    def told(request: Request) -> Reply:
        too_long = float(request.params["end"]) - float(request.params["start"]) >= DAY
        return error(422, "query processing would load too many samples") if too_long else hours_told(request)

    log = Log()
    with FakePrometheus(told).running() as fake:
        series_answer = asked(fake, tmp_path, Window(0.0, 5 * DAY), log)
        assert spans(fake)
        again = asked(fake, tmp_path, Window(0.0, 5 * DAY))
        assert not spans(fake)
    assert log.notes == [] and same(series_answer, again)
    assert series_answer.values[0].tolist() == [n * HOUR for n in range(1, 121)]


def test_hours_that_are_too_much_by_themselves_are_missing_and_told() -> None:
    def told(request: Request) -> Reply:
        covers = float(request.params["start"]) <= 30 * HOUR <= float(request.params["end"])
        return error(422, "too many samples") if covers else hours_told(request)

    log = Log()
    with FakePrometheus(told).running() as fake:
        series_answer = asked(fake, None, Window(0.0, 3 * DAY), log)
    assert np.nonzero(np.isnan(series_answer.values[0]))[0].tolist() == [29]
    assert [note.code for note in log.notes] == ["measure-missing-for-a-time"]


@pytest.mark.parametrize("beside", [{"warnings": ["store \x07down"]}, {"isPartial": True}])
def test_a_partial_answer_is_noted_and_its_days_are_not_kept(tmp_path: Path, beside: dict[str, object]) -> None:
    def partial(request: Request) -> Reply:
        late = float(request.params["end"]) > 3 * DAY
        return matrix(request, ({"a": "1"}, 1), **(beside if late else {}))

    log = Log()
    with FakePrometheus(partial).running() as fake:
        asked(fake, tmp_path, Window(0.0, 3 * DAY), log)
        assert log.notes == []
        asked(fake, tmp_path, Window(2 * DAY, 5 * DAY), log)
        assert spans(fake)
        asked(fake, tmp_path, Window(0.0, 5 * DAY), log)
        assert spans(fake) == [(3 * DAY + HOUR, 5 * DAY)]
    (note,) = log.notes
    assert note.code == "server-warns"
    assert note.text.startswith(("The server warns: store down.", "The server warns: The server reports a partial"))


def test_a_day_that_is_not_settled_is_not_kept(tmp_path: Path) -> None:
    with FakePrometheus(hours_told).running() as fake:
        for first in (LATER - 2 * DAY, LATER - DAY):
            asked(fake, tmp_path, Window(LATER - 2 * DAY, LATER))
            assert spans(fake) == [(first + HOUR, LATER)]


@pytest.mark.parametrize("measured", ["other", "none"])
def test_gpus_that_come_and_go_between_two_queries_are_neither_invented_nor_mixed_up(measured: str) -> None:
    gone, come = {**GPU, "UUID": "GPU-gone"}, {**GPU, "UUID": "GPU-come"}

    means = [(come, 70), (GPU, 50)] if measured == "other" else [(GPU, 50)]
    by_query: dict[str, Answer] = {"count_over_time(": lambda asked: matrix(asked, (GPU, 60), (gone, 60))}
    for function in ("avg", "max", "quantile"):
        by_query[f"{function}_over_time("] = lambda asked: matrix(asked, *means)
    with FakePrometheus(DcgmServer(series=[GPU], by_query=by_query)).running() as fake:
        frame = PrometheusServer(fake.url, environ={}, cached=False).read(CATALOG, since=2 * DAY, until=NOW, now=NOW)
    rows = frame.gpu.groupby("gpu_uuid")
    assert (rows.get_group(GPU["UUID"])["gpu_util_mean"] == 0.5).all() and len(rows.get_group(GPU["UUID"])) == 48
    # Counted and not measured: there is no row, and the GPU exists all the same. Measured alone it was there.
    assert set(rows.groups) == {GPU["UUID"], *(["GPU-come"] if measured == "other" else [])}
    assert "GPU-gone" in set(frame.gpus["gpu_uuid"])


GRID = Grid(DAY + HOUR, 2 * DAY, HOUR)
ANSWER = SeriesAnswer(({"a": "1"},), np.array([[1.0, np.nan, *range(22)]]))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """A cache that holds one answer, of the folder `c`."""
    cache = Cache(tmp_path / "c", "http://one")
    cache.put("q", GRID, ("a",), ANSWER)
    return cache


def test_answers_are_kept_for_the_same_question_alone(cache: Cache, tmp_path: Path) -> None:
    again = cache.get("q", GRID, ("a",))
    assert again is not None and again.labels == ANSWER.labels
    assert np.array_equal(again.values, ANSWER.values, equal_nan=True)
    assert cache.get("other", GRID, ("a",)) is None and cache.get("q", GRID, ("b",)) is None
    assert Cache(tmp_path / "c", "http://two").get("q", GRID, ("a",)) is None
    (file,) = (tmp_path / "c").glob("*.answer")
    assert (tmp_path / "c").stat().st_mode & 0o077 == 0
    cache.prune()
    assert list((tmp_path / "c").iterdir()) == [file]
    cache.prune(0)
    assert not list((tmp_path / "c").iterdir())


def test_a_file_that_does_not_read_back_is_asked_again(cache: Cache, tmp_path: Path) -> None:
    (file,) = tmp_path.glob("c/*.answer")
    good = file.read_bytes()
    for damage in (b"", b"PK", good[:-1], good[:60], good + b"\0", good[:40] + bytes([good[40] ^ 1]) + good[41:]):
        file.write_bytes(damage)
        assert cache.get("q", GRID, ("a",)) is None
    file.write_bytes(good)
    assert cache.get("q", GRID, ("a",)) is not None


def test_answers_that_others_could_have_written_are_not_believed(cache: Cache, tmp_path: Path) -> None:
    assert cache.get("q", GRID, ("a",)) is not None and not cache.refused
    (tmp_path / "c").chmod(0o777)
    theirs = Cache(tmp_path / "c", "http://one")
    assert theirs.get("q", GRID, ("a",)) is None and "other users" in theirs.refused


def test_a_cache_without_a_place_keeps_nothing() -> None:
    cache = Cache(None, "")
    cache.put("q", GRID, (), ANSWER)
    assert cache.get("q", GRID, ()) is None
    assert cache_folder("", {"HOME": "/h"}, "prometheus") is None and cache_folder(None, {}, "prometheus") is None
    assert cache_folder(None, {"HOME": "/h"}, "prometheus") == Path("/h/.cache/skuwise/prometheus")


def read(fake: FakePrometheus, folder: Path, *, cached: bool = True) -> tuple[Frame, list[str]]:
    """What is read, and the measures that were asked for: not what distinguishes servers."""
    environ = {"SKUWISE_PROMETHEUS_CACHE": str(folder / "kept"), "XDG_CONFIG_HOME": str(folder)}
    before = len(fake.requests)
    server = PrometheusServer(fake.url, (), environ, cached=cached)
    frame = server.read(CATALOG, since=2 * DAY, until=NOW, now=NOW + DAY)
    querys = [r.query for r in fake.requests[before:] if r.path.endswith("query_range")]
    return frame, [query for query in querys if not query.startswith("max by (__name__")]


def test_another_server_behind_the_same_address_is_not_told_from_the_answers_of_the_first(tmp_path: Path) -> None:
    server = DcgmServer()
    with FakePrometheus(server).running() as fake:
        for uuid, is_asked in (("GPU-a", True), ("GPU-b", True), ("GPU-a", False)):
            server.series[:] = [{**GPU, "UUID": uuid}]
            frame, asked = read(fake, tmp_path)
            assert frame.gpus["gpu_uuid"].tolist() == [uuid]
            assert bool(asked) is is_asked  # what was kept of the first is still there


def test_what_one_tenant_was_told_is_not_told_to_another(tmp_path: Path) -> None:
    (tmp_path / "skuwise").mkdir()
    reported = []
    with FakePrometheus(DcgmServer()).running() as fake:
        for tenant in "aba":
            file = tmp_path / "skuwise" / "skuwise.toml"
            file.write_text(f'[prometheus]\nheaders = {{"X-Tenant" = "{tenant}"}}\n')
            reported.append(sorted(read(fake, tmp_path)[1]))
    first, other, again = reported
    assert first == other and first and not again


def test_without_a_cache_every_answer_is_asked_for_and_none_is_kept(tmp_path: Path) -> None:
    with FakePrometheus(DcgmServer()).running() as fake:
        assert all(read(fake, tmp_path, cached=False)[1] for _ in range(2))
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("reply", "labels"),
    [
        (success({"yaml": "global:\n  external_labels:\n    cluster: eu\n    replica: 0\nscrape_configs: [{}]\n"}),
         {"cluster": "eu", "replica": "0"}),
        (success({"yaml": "global: {scrape_interval: 1m}\n"}), {}),
        (error(404, "no"), {}),
    ],
)  # fmt: skip
def test_external_labels_are_read_where_the_server_tells_them(tmp_path: Path, reply: Reply, labels) -> None:
    server = DcgmServer()

    def answer(request: Request) -> Reply:
        return reply if request.path.endswith("status/config") else server(request)

    with FakePrometheus(answer).running() as fake:
        frame, _ = read(fake, tmp_path)
    assert frame.external_labels == labels
    assert fleet_of(frame).labels == {name: value for name, value in labels.items() if name != "replica"}


def test_where_the_past_cannot_be_asked_for_nothing_is_kept_and_that_is_told(tmp_path: Path) -> None:
    server = DcgmServer(by_query={"max by (__name__": lambda _: error(422, "no")})
    with FakePrometheus(server).running() as fake:
        for frame, asked in (read(fake, tmp_path) for _ in range(2)):
            assert asked and [note for note in frame.notes if note.code == "answers-not-cached"]


def test_a_server_that_takes_exact_metric_names_only_is_read(tmp_path: Path) -> None:
    server = DcgmServer()

    def answer(request: Request) -> Reply:
        is_pattern = "__name__=~" in request.query + request.params.get("match[]", "")
        return error(400, "=~ is an unsupported matchtype for the __name__ label") if is_pattern else server(request)

    with FakePrometheus(answer).running() as fake:
        assert read(fake, tmp_path)[0].gpus["gpu_uuid"].tolist() == ["GPU-a"]
