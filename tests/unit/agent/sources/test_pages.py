"""Metrics pages: their text format, and what inference servers tell on theirs."""

from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.classify.workloads.engine_facts import engine_facts
from skuwise.advisor.telemetry import queries
from skuwise.advisor.telemetry.tables import to_table
from skuwise.agent.base.address import PageError
from skuwise.agent.model import Instant, Node, Reading, ServingSample, Workload
from skuwise.agent.sources.pages import MAX_KEPT, Series, parse_page
from skuwise.agent.sources.serving import WELL_KNOWN, ServingSource
from skuwise.agent.statistics.latency_bins import percentile
from skuwise.agent.store.reader import open_reader
from skuwise.agent.store.writer import Writer
from skuwise.tests.support.metrics_fixtures import SGLANG, TGI, TRITON, TRTLLM, VLLM, PagesAtHand, counted

WANTED = ("up", "a:b_total")


@pytest.mark.parametrize(
    ("line", "series"),
    [
        (b"up 1\n", ("up", {}, "1")),
        (b"up{} 1.5e3\n", ("up", {}, "1.5e3")),
        (b'up\t{a="x",b="y",} -0 1700000000000\n', ("up", {"a": "x", "b": "y"}, "-0")),
        (b'a:b_total{ a = "x" } +Inf # {trace="1"} 2 3\n', ("a:b_total", {"a": "x"}, "+Inf")),
        (b'up{a="a\\\\b\\"c\\nd\\t"} NaN\r\n', ("up", {"a": 'a\\b"c\nd\\t'}, "NaN")),
        (b'up{a="},{=# "} 9223372036854775794\n', ("up", {"a": "},{=# "}, "9223372036854775794")),
        (b'up{a="\xff\xfe"} .5\n', ("up", {"a": "\ufffd\ufffd"}, ".5")),
        (b'up{a="\x1b[31m\x00"} 1\n', ("up", {"a": "\x1b[31m\x00"}, "1")),
    ],
)
def test_a_line_is_read_exactly(line: bytes, series: tuple[str, dict[str, str], str]) -> None:
    assert parse_page(b'# HELP up x\n\nother{x="1"} 3\n' + line, WANTED) == [Series(*series)]


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        *(
            (line + b"\n", "page-malformed")
            for line in (
                b"<html>", b'{"kv": 1}', b"up", b"up one", b"up 1_000", "up ١".encode(), b'up{a="x} 1', b"up{a=x} 1",
                b"up{a}1", b"\x1f\x8b\x08\x00", b"up " + b"1" * 60_000 + b"x",  # every split, were there two ways
            )
        ),
        (b"up 2", "page-cut"),
        (b"up 1\n" * (MAX_KEPT + 1), "page-too-large"),
        ((b"up{" + b",".join(b'a%d=""' % n for n in range(1000)) + b"} 1\n") * (MAX_KEPT // 1000), "page-too-large"),
    ],
)  # fmt: skip
def test_one_line_out_of_the_format_refuses_the_page(page: bytes, reason: str) -> None:
    with pytest.raises(PageError) as caught:
        parse_page(b"up 1\n" + page, WANTED)
    assert caught.value.reason == reason


URL = "http://127.0.0.1:8000/metrics"
NOW = Instant(1_790_000_000.0, 0.0)


def begun() -> tuple[ServingSource, PagesAtHand]:
    """A source of one page that did not come yet."""
    pages = PagesAtHand()
    source = ServingSource(pages, (URL,))
    source.read(NOW)
    return source, pages


def samples(*pages: str, every: float = 10.0) -> list[ServingSample]:
    """What a source makes of these pages, which come `every` seconds."""
    source, at_hand = begun()
    found: list[ServingSample] = []
    for number, page in enumerate(pages):
        at_hand.put(URL, page, every * number, pids={42})
        found += source.read(NOW).serving
        assert source.read(NOW).serving == ()  # a page is given once
    return found


QUEUE = {"requests_running": 7.0, "requests_waiting": 3.0}
TOKENS = {"prompt_tokens_per_second": 100.0, "generation_tokens_per_second": 50.0}
TTFT = {"time_to_first_token_seconds": pytest.approx(0.3)}
KV, OUT, DONE = "kv_cache_usage", {"preemptions_per_second": pytest.approx(0.2)}, {"requests_per_second": 0.4}


@pytest.mark.parametrize(
    ("engine", "page", "values"),
    [
        ("vllm", VLLM, {KV: 0.4565217391304348} | QUEUE | TOKENS | TTFT | OUT | DONE),
        ("sglang", SGLANG, {KV: 0.55, "requests_running": 4.0, "requests_waiting": 6.0} | TOKENS | TTFT | OUT),
        ("tgi", TGI, QUEUE | {"requests_waiting": 2.0} | TOKENS),
        ("triton", TRITON, {KV: 0.25} | QUEUE | {"requests_waiting": 5.0} | DONE),
        ("vllm", TRITON + VLLM, {KV: 0.4565217391304348} | QUEUE | TOKENS | TTFT | OUT | DONE),
        ("tensorrt-llm", TRTLLM, {KV: 0.25} | QUEUE | {"requests_waiting": 1.0} | TOKENS | TTFT),
    ],
)
def test_each_engine_is_known_by_its_page(engine: str, page: str, values: dict[str, float]) -> None:
    (sample,) = samples(counted(page, 0), counted(page, 1))
    assert sample.engine == engine
    assert sample.values == values
    assert (sample.endpoint, sample.ts, sample.interval_seconds) == (URL, 1_790_000_010.0, 10.0)
    assert sample.pids == frozenset({42})


def triton(requests: int) -> str:
    """Triton's page with a model that is no LLM, after so many requests."""
    labels = '{model="resnet50",version="1"}'
    return (
        f"nv_inference_request_success{labels} {requests}\nnv_inference_request_failure{labels} 0\n"
        f"nv_inference_count{labels} {requests}\nnv_inference_pending_request_count{labels} 0\n"
    )


def test_a_triton_without_llms_that_counts_requests_is_a_service_in_use(tmp_path: Path) -> None:
    hour, path = NOW.wall_seconds // 3600 * 3600, tmp_path / "node.db"
    told = {"busy": samples(triton(1000), triton(1800)), "idle": samples(triton(1800), triton(1800))}
    assert {name: one.values for name, (one,) in told.items()} == {
        "busy": {"requests_waiting": 0.0, "requests_per_second": 80.0},
        "idle": {"requests_waiting": 0.0, "requests_per_second": 0.0},
    }
    with Writer.open(path, now=lambda: hour + 7200) as writer:
        node = writer.for_node(Node("n1"), hour)
        node.set_workloads([Workload(name, "s", name, "process") for name in told], (), hour)
        for name, (one,) in told.items():
            node.add_serving(replace(one, workload_id=name))
    with open_reader(path) as reader:
        table = to_table(reader.fetch(queries.SERVING.sql, {"start": hour, "end": hour + 7200}), queries.SERVING)
    assert {name: facts.has_counted for name, facts in engine_facts(table).items()} == {"busy": True, "idle": False}


def reasons(reading: Reading) -> dict[str, str]:
    return {a.metric: a.reason for a in reading.absences}


@pytest.mark.parametrize(
    ("odd", "reason"), [("NaN", None), ("-3", "out-of-range"), ("45.6", "out-of-range"), ("+Inf", None)]
)
def test_a_cache_usage_that_cannot_be_is_missing(odd: str, reason: str | None) -> None:
    source, pages = begun()
    for number in (0, 1):
        pages.put(URL, counted(VLLM.replace("0.4565217391304348", odd), number), 10.0 * number)
        reading = source.read(NOW)
    assert "kv_cache_usage" not in reading.serving[0].values
    assert reading.serving[0].values["requests_running"] == 7.0
    assert reasons(reading).get("kv_cache_usage") == reason


def test_an_endpoint_that_fails_or_is_no_server_is_absent_until_it_is_back() -> None:
    source, pages = begun()
    pages.put(URL, counted(VLLM, 0), 0)
    source.read(NOW)
    pages.fail(URL, "page-too-slow", 10)
    assert reasons(source.read(NOW)) == {"*": "page-too-slow"}
    pages.put(URL, "process_cpu_seconds_total 12.5\n", 20)
    assert reasons(source.read(NOW)) == reasons(source.read(NOW)) == {"*": "not-a-server"}
    assert [line.absence for line in source.probe().capabilities] == list(source.read(NOW).absences)
    pages.put(URL, counted(VLLM, 2), 30)
    assert source.read(NOW) == Reading()  # nothing is known of the time in which nothing was read


def test_well_known_ports_are_looked_at_only_where_asked_and_silence_there_is_no_fault() -> None:
    for urls in ((), WELL_KNOWN):
        pages = PagesAtHand()
        source = ServingSource(pages, (), discover=bool(urls))
        source.read(NOW)
        assert tuple(pages.targets) == urls
        for url in urls:
            pages.fail(url, "unreachable", 1)
        assert (source.read(NOW), source.probe().capabilities) == (Reading(), ())


def latency(name: str, n: int) -> str:
    """The histogram's lines after `n` rounds: 100 were counted in each, half within 50 ms, 90 within 100 ms."""
    counts = {"0.05": 50 * n, "0.1": 90 * n, "2.5": 100 * n, "+Inf": 100 * n}
    lines = [f'{name}_bucket{{engine="0",le="{edge}"}} {count}\n' for edge, count in counts.items()]
    return "".join(lines) + f'{name}_sum{{engine="0"}} {6.0 * n}\n{name}_count{{engine="0"}} {100 * n}\n'


@pytest.mark.parametrize(
    ("page", "first", "token"),
    [
        (VLLM, None, "vllm:inter_token_latency_seconds"),
        (VLLM, None, "vllm:request_time_per_output_token_seconds"),
        (SGLANG, "sglang:time_to_first_token_seconds", "sglang:inter_token_latency_seconds"),
        (TGI, None, "tgi_request_mean_time_per_token_duration"),
        (TRTLLM, None, "trtllm_time_per_output_token_seconds"),
    ],
)
def test_histograms_of_latency_are_counted_in_bins_between_two_pages(page: str, first: str | None, token: str) -> None:
    names = [name for name in (first, token) if name is not None]
    pages = [counted(page, n) + "".join(latency(name, n) for name in names) for n in (0, 1)]
    (sample,) = samples(*pages)
    counts = sample.latency["output_token"]
    assert sum(counts) == pytest.approx(100.0)
    assert sample.values["time_per_output_token_seconds"] == pytest.approx(0.06)
    assert percentile(counts, 0.9) == pytest.approx(0.1)
    assert ("first_token" in sample.latency) == (first is not None)


def test_a_restarted_server_gives_no_rate_and_counts_nothing_over_its_restart() -> None:
    name = "vllm:inter_token_latency_seconds"
    again, after = samples(*(counted(VLLM, n) + latency(name, n) for n in (5, 0, 1)))
    assert set(again.values) == {"kv_cache_usage", "requests_running", "requests_waiting"} and again.latency == {}
    assert after.values["prompt_tokens_per_second"] == 100.0
    # The first token's histogram of this page has one edge below everything it counts, and the whole: no bins.
    assert sum(after.latency["output_token"]) == pytest.approx(100.0) and set(after.latency) == {"output_token"}
    assert after.values["time_to_first_token_seconds"] == pytest.approx(0.3)
