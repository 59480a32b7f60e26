"""The text format, its escapes and its limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.agent.base.address import Address, parse_listen
from skuwise.agent.base.page_url import PageError
from skuwise.agent.model import Instant, Reading, ServingSample
from skuwise.agent.sources.prometheus_text import (
    MAX_LABELS,
    MAX_LINE_BYTES,
    MAX_NUMBER_LENGTH,
    MAX_SERIES,
    PageParser,
    Series,
)
from skuwise.agent.sources.serving import WELL_KNOWN, ServingSource
from skuwise.agent.statistics.latency_bins import percentile
from skuwise.tests.support.metrics_fixtures import SGLANG, TGI, TRITON, TRTLLM, VLLM, PagesAtHand, counted

WANTED = ("up", "a:b_total")


def parsed(page: bytes, piece: int = 7) -> list[Series]:
    parser = PageParser(WANTED)
    for start in range(0, len(page), piece):
        parser.feed(page[start : start + piece])
    return parser.finish()


def refused(page: bytes) -> str:
    with pytest.raises(PageError) as caught:
        parsed(page, 4096)
    return caught.value.reason


@pytest.mark.parametrize(
    ("line", "series"),
    [
        (b"up 1\n", ("up", {}, "1")),
        (b"up{} 1.5e3\n", ("up", {}, "1.5e3")),
        (b'up\t{a="x",b="y",} -0 1700000000000\n', ("up", {"a": "x", "b": "y"}, "-0")),
        (b'a:b_total{ a = "x" } +Inf # {trace="1"} 2 3\n', ("a:b_total", {"a": "x"}, "+Inf")),
        (b'up{a="a\\\\b\\"c\\nd"} NaN\r\n', ("up", {"a": 'a\\b"c\nd'}, "NaN")),
        (b'up{a="},{=# "} 9223372036854775794\n', ("up", {"a": "},{=# "}, "9223372036854775794")),
        ('up{a="ü\\\\n"} .5\n'.encode(), ("up", {"a": "ü\\n"}, ".5")),
        (b'up{a="\xff\xfe"} 1\n', ("up", {"a": "\ufffd\ufffd"}, "1")),
        (b'up{a="' + b"x" * 4096 + b'"} 1\n', ("up", {"a": "x" * 4096}, "1")),
        (b'up{a="\x1b[31m\x00"} 1\n', ("up", {"a": "\x1b[31m\x00"}, "1")),
    ],
)
def test_a_line_is_read_exactly(line: bytes, series: tuple[str, dict[str, str], str]) -> None:
    assert parsed(b'# HELP up x\n\nother{x="1"} 3\n' + line) == [Series(*series)]


@pytest.mark.parametrize(
    "page",
    [
        b"<html>\n",
        b'{"kv": 1}\n',
        b"up\n",
        b"up one\n",
        b"up 1_000\n",
        b"up " + b"0" * MAX_NUMBER_LENGTH + b"1\n",
        b"up " + b"1" * 60_000 + b"x\n",  # every split of the digits, were there two ways to match them
        "up ١\n".encode(),  # a digit, but not one of the format's
        b'up{a="x} 1\n',
        b'up{a="x",a="y"} 1\n',
        b'up{a="\\t"} 1\n',
        b"up{a=x} 1\n",
        b"up" + b" " * (MAX_LINE_BYTES + 1) + b"1\n",
        b"\x1f\x8b\x08\x00\n",
    ],
)
def test_one_line_out_of_the_format_refuses_the_page(page: bytes) -> None:
    assert refused(b"up 1\n" + page) == "page-malformed"


def test_a_page_without_its_end_and_too_many_series_are_refused() -> None:
    assert refused(b"up 1\nup 2") == "page-cut"
    assert refused(b"up 1\n" * (MAX_SERIES + 1)) == "page-too-large"
    labels = ",".join(f'a{number}=""' for number in range(1000)).encode()
    assert refused((b"up{" + labels + b"} 1\n") * (MAX_LABELS // 1000 + 1)) == "page-too-large"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=50))
def test_every_label_comes_back_as_it_was(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    assert parsed(f'up{{a="{escaped}"}} 1\n'.encode(), 4096)[0].labels["a"] == text


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9500", Address("127.0.0.1", 9500)),
        ("0.0.0.0:9500", Address("0.0.0.0", 9500)),
        ("node-1:0", Address("node-1", 0)),
        ("[::1]:9500", Address("::1", 9500)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_listen(text) == address
    assert str(parse_listen(str(address))) == str(address)


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


RATES = {"prompt_tokens_per_second": 100.0, "generation_tokens_per_second": 50.0}
TTFT = {"time_to_first_token_seconds": pytest.approx(0.3)}


@pytest.mark.parametrize(
    ("engine", "page", "values"),
    [
        (
            "vllm",
            VLLM,
            {"kv_cache_usage": 0.4565217391304348, "requests_running": 7.0, "requests_waiting": 3.0}
            | {"preemptions_per_second": pytest.approx(0.2)} | RATES | TTFT,
        ),
        (
            "sglang",
            SGLANG,
            {"kv_cache_usage": 0.55, "requests_running": 4.0, "requests_waiting": 6.0}
            | {"preemptions_per_second": pytest.approx(0.2)} | RATES | TTFT,
        ),
        ("tgi", TGI, {"requests_running": 7.0, "requests_waiting": 2.0} | RATES),
        ("triton", TRITON, {"kv_cache_usage": 0.25, "requests_running": 7.0, "requests_waiting": 5.0}),
        (
            "tensorrt-llm",
            TRTLLM,
            {"kv_cache_usage": 0.25, "requests_running": 7.0, "requests_waiting": 1.0} | RATES | TTFT,
        ),
    ],
)  # fmt: skip
def test_each_engine_is_known_by_its_page(engine: str, page: str, values: dict[str, float]) -> None:
    (sample,) = samples(counted(page, 0), counted(page, 1))
    assert sample.engine == engine
    assert sample.values == values
    assert (sample.endpoint, sample.ts, sample.interval_seconds) == (URL, 1_790_000_010.0, 10.0)
    assert sample.pids == frozenset({42})


def test_a_restarted_server_gives_no_rate_over_its_restart() -> None:
    restarted, after = samples(counted(VLLM, 5), counted(VLLM, 0), counted(VLLM, 1))
    assert set(restarted.values) == {"kv_cache_usage", "requests_running", "requests_waiting"}
    assert after.values["prompt_tokens_per_second"] == 100.0


@pytest.mark.parametrize("odd", ["NaN", "-3", "45.6", "+Inf"])
def test_a_cache_usage_that_cannot_be_is_missing(odd: str) -> None:
    page = VLLM.replace("0.4565217391304348", odd)
    (sample,) = samples(counted(page, 0), counted(page, 1))
    assert "kv_cache_usage" not in sample.values
    assert sample.values["requests_running"] == 7.0


def reasons(reading: Reading) -> dict[str, str]:
    return {a.subject: a.reason for a in reading.absences}


def test_an_endpoint_that_fails_is_absent_until_it_is_back() -> None:
    source, pages = begun()
    pages.put(URL, counted(VLLM, 0), 0)
    source.read(NOW)
    pages.fail(URL, "page-too-slow", 10)
    assert reasons(source.read(NOW)) == {URL: "page-too-slow"}
    assert reasons(source.read(NOW)) == {URL: "page-too-slow"}
    pages.put(URL, counted(VLLM, 2), 20)
    reading = source.read(NOW)
    assert reading.absences == frozenset()
    assert reading.serving == ()  # nothing is known of the time in which nothing was read


def test_a_page_that_is_no_servers_says_how_to_switch_metrics_on() -> None:
    source, pages = begun()
    pages.put(URL, "process_cpu_seconds_total 12.5\n", 0)
    assert reasons(source.read(NOW)) == {URL: "not-a-server"}
    (line,) = source.probe().capabilities
    assert line.absence is not None
    assert "--enable-metrics" in line.absence.remedy


def test_well_known_ports_are_looked_at_only_where_asked_and_silence_there_is_no_fault() -> None:
    pages = PagesAtHand()
    off = ServingSource(pages, ())
    assert off.read(NOW) == Reading()
    assert off.probe().capabilities == ()
    assert pages.targets == {}
    on = ServingSource(pages, (), discover=True)
    on.read(NOW)
    assert set(pages.targets) == set(WELL_KNOWN)
    for url in WELL_KNOWN:
        pages.fail(url, "unreachable", 1)
    assert on.read(NOW).absences == frozenset()
    assert on.probe().capabilities == ()


def test_doctor_is_told_what_an_engine_tells_and_what_not() -> None:
    source, pages = begun()
    pages.put(URL, counted(TGI, 0), 0)
    source.read(NOW)
    lines = {c.metric: c.absence.reason if c.absence else None for c in source.probe().capabilities}
    told = ("requests_running", "requests_waiting", "prompt_tokens_per_second", "generation_tokens_per_second")
    assert {metric for metric, reason in lines.items() if reason is None} == set(told)
    assert len(lines) == 8 and set(lines.values()) == {None, "not-exported"}


LATENCY = """{name}_bucket{{{{engine="0",le="0.05",model_name="m"}}}} {{fast}}
{name}_bucket{{{{engine="0",le="0.1",model_name="m"}}}} {{most}}
{name}_bucket{{{{engine="0",le="2.5",model_name="m"}}}} {{all}}
{name}_bucket{{{{engine="0",le="+Inf",model_name="m"}}}} {{all}}
{name}_sum{{{{engine="0",model_name="m"}}}} {{sum}}
{name}_count{{{{engine="0",model_name="m"}}}} {{all}}
"""


def latency(name: str, step: int, *, begun: int = 0) -> str:
    """The histogram's lines after `step` rounds: 100 were counted in each, half within 50 ms, 90 within 100 ms."""
    n = step + begun
    return LATENCY.format(name=name).format(fast=50 * n, most=90 * n, all=100 * n, sum=6.0 * n)


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


def test_a_histogram_that_began_anew_or_has_the_whole_alone_counts_nothing() -> None:
    name = "vllm:inter_token_latency_seconds"
    again, after = samples(*(counted(VLLM, 1) + latency(name, n) for n in (5, 0, 1)))
    assert "output_token" not in again.latency and "time_per_output_token_seconds" not in again.values
    assert sum(after.latency["output_token"]) == pytest.approx(100.0)
    # The first token's histogram of this page has one edge below everything it counts, and the whole.
    (plain,) = samples(counted(VLLM, 0), counted(VLLM, 1))
    assert plain.values["time_to_first_token_seconds"] == pytest.approx(0.3) and plain.latency == {}
