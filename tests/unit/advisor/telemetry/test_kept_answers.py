# pyright: reportOptionalMemberAccess=false
"""Answers of servers that are kept: those of another server behind the same address are not taken for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from skuwise.advisor.core.fleet_identity import fleet_of
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.telemetry.source import PrometheusServer
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.fake_prometheus import (
    GPU,
    DcgmServer,
    FakePrometheus,
    Reply,
    Request,
    error,
    success,
)

DAY = 86400.0
NOW = 1_790_000_000.0 // DAY * DAY
CATALOG = load_catalog()
BOTH = ({**GPU}, {**GPU, "UUID": "GPU-a2", "Hostname": "n2", "instance": "n2:9400"})


def read(fake: FakePrometheus, folder: Path, said: list[str], *, until: float = NOW, cached: bool = True) -> Frame:
    environ = {"SKUWISE_PROMETHEUS_CACHE": str(folder / "kept"), "XDG_CONFIG_HOME": str(folder)}
    server = PrometheusServer(fake.url, (), environ, said.append, cached)
    return server.read(CATALOG, since=2 * DAY, until=until, now=until + DAY)


def measures(requests: Sequence[Request]) -> list[Request]:
    return [r for r in requests if r.path.endswith("query_range") and not r.query.startswith("max by (__name__")]


def test_another_server_behind_the_same_address_is_not_told_from_the_answers_of_the_first(tmp_path: Path) -> None:
    server, said = DcgmServer(), list[str]()
    with FakePrometheus(server).running() as fake:
        first = read(fake, tmp_path, said)
        server.series[:] = [{**GPU, "UUID": "GPU-b"}]
        asked = len(fake.requests)
        second = read(fake, tmp_path, said)
        assert measures(fake.requests[asked:])
        server.series[:] = [GPU]
        before = len(fake.requests)
        again = read(fake, tmp_path, said)
        assert not measures(fake.requests[before:])  # what was kept of the first is still there
    assert first.gpus["gpu_uuid"].tolist() == again.gpus["gpu_uuid"].tolist() == ["GPU-a"]
    assert second.gpus["gpu_uuid"].tolist() == ["GPU-b"]


def test_without_a_cache_every_answer_is_asked_for_and_none_is_kept(tmp_path: Path) -> None:
    with FakePrometheus(DcgmServer()).running() as fake:
        for _ in range(2):
            before = len(fake.requests)
            read(fake, tmp_path, [], cached=False)
            assert measures(fake.requests[before:])
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
        frame = read(fake, tmp_path, [])
    assert frame.external_labels == labels
    assert fleet_of(frame).labels == {name: value for name, value in labels.items() if name != "replica"}


def test_where_the_past_cannot_be_asked_for_nothing_is_kept_and_that_is_told(tmp_path: Path) -> None:
    server = DcgmServer(by_query={"max by (__name__": lambda _: error(422, "no")})
    with FakePrometheus(server).running() as fake:
        frame = read(fake, tmp_path, [])
        before = len(fake.requests)
        read(fake, tmp_path, [])
        assert measures(fake.requests[before:])
    assert [note for note in frame.notes if note.code == "answers-not-cached"]


def test_a_server_that_takes_exact_metric_names_only_is_read(tmp_path: Path) -> None:
    server = DcgmServer()

    def answer(request: Request) -> Reply:
        is_pattern = "__name__=~" in request.query + request.params.get("match[]", "")
        return error(400, "=~ is an unsupported matchtype for the __name__ label") if is_pattern else server(request)

    with FakePrometheus(answer).running() as fake:
        assert read(fake, tmp_path, []).gpus["gpu_uuid"].tolist() == ["GPU-a"]
