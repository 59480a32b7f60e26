"""Metrics pages: their text format, of inference servers, and of dcgm-exporter."""

from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.classify.workloads.session import engine_facts
from skuwise.advisor.telemetry import queries
from skuwise.advisor.telemetry.tables import to_table
from skuwise.agent.base.settings import PageError
from skuwise.agent.model import Absence, Instant, Node, Reading, ServingSample, Workload
from skuwise.agent.sampler import Sampler
from skuwise.agent.sources.base import UnreadGpu
from skuwise.agent.sources.dcgm import DcgmSource
from skuwise.agent.sources.pages import MAX_KEPT, Series, parse_page
from skuwise.agent.sources.serving import WELL_KNOWN, ServingSource
from skuwise.agent.statistics.latency_bins import percentile
from skuwise.agent.store.reader import open_reader
from skuwise.agent.store.writer import Writer
from skuwise.tests.support.metrics_fixtures import (
    NEW_DCGM,
    OLD_DCGM,
    SGLANG,
    TGI,
    TRITON,
    TRTLLM,
    VLLM,
    PagesAtHand,
    counted,
    dcgm_page,
)
from skuwise.tests.support.sysfs_trees import at, reasons
from skuwise.tests.unit.agent.test_sampler import Steady

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
    serving_samples: list[ServingSample] = []
    for number, page in enumerate(pages):
        at_hand.put(URL, page, every * number, pids={42})
        serving_samples += source.read(NOW).serving
        assert source.read(NOW).serving == ()  # a page is given once
    return serving_samples


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
    by_name = {"busy": samples(triton(1000), triton(1800)), "idle": samples(triton(1800), triton(1800))}
    assert {name: serving_sample.values for name, (serving_sample,) in by_name.items()} == {
        "busy": {"requests_waiting": 0.0, "requests_per_second": 80.0},
        "idle": {"requests_waiting": 0.0, "requests_per_second": 0.0},
    }
    with Writer.open(path, now=lambda: hour + 7200) as writer:
        node = writer.for_node(Node("n1"), hour)
        node.set_workloads([Workload(name, "s", name, "process") for name in by_name], (), hour)
        for name, (serving_sample,) in by_name.items():
            node.add_serving(replace(serving_sample, workload_id=name))
    with open_reader(path) as reader:
        table = to_table(reader.fetch(queries.SERVING.sql, {"start": hour, "end": hour + 7200}), queries.SERVING)
    assert {name: facts.has_counted for name, facts in engine_facts(table).items()} == {"busy": True, "idle": False}


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


DCGM = "http://127.0.0.1:9400/metrics"
GPU, OTHER = "GPU-aaaa", "GPU-bbbb"
# Field of the page, our metric, and what the page says, which is in our unit already.
FIELDS = (
    ("SM_ACTIVE", "sm_active", 0.5),
    ("SM_OCCUPANCY", "sm_occupancy", 0.25),
    ("PIPE_TENSOR_ACTIVE", "tensor_active", 0.4),
    ("DRAM_ACTIVE", "dram_active", 0.3),
    ("PIPE_FP64_ACTIVE", "fp64_active", 0),
    ("PIPE_FP32_ACTIVE", "fp32_active", 0.1),
    ("PIPE_FP16_ACTIVE", "fp16_active", 0.02),
    ("PCIE_TX_BYTES", "pcie_tx_bytes_per_second", 1500000000),
    ("PCIE_RX_BYTES", "pcie_rx_bytes_per_second", 2500000000),
    ("NVLINK_TX_BYTES", "nvlink_tx_bytes_per_second", 90000000000),
    ("NVLINK_RX_BYTES", "nvlink_rx_bytes_per_second", 80000000000),
)
RATIOS = {f"DCGM_FI_PROF_{field}": value for field, _, value in FIELDS[:7]} | {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.9}
BYTES = {f"DCGM_FI_PROF_{field}": value for field, _, value in FIELDS[7:]}
TRUTH = {metric: value for _, metric, value in FIELDS}


def source_on(page: str, *lacking: UnreadGpu) -> tuple[DcgmSource, PagesAtHand]:
    pages = PagesAtHand()
    source = DcgmSource(lambda: lacking or (UnreadGpu(GPU, GPU),), pages, DCGM, 30.0)
    source.read(at(0))
    pages.put(DCGM, page, 1)
    return source, pages


def missing(reading: Reading, uuid: str = GPU) -> dict[str, str]:
    return {a.metric: a.reason for a in reading.absences if a.subject == uuid}


RENAMED = {
    name.replace("PIPE_", "").replace("_ACTIVE", "_UTIL_RATIO").replace("OCCUPANCY", "OCCUPANCY_RATIO"): value
    for name, value in RATIOS.items()
}


@pytest.mark.parametrize(("ratios", "labels"), [(RATIOS, OLD_DCGM), (RENAMED, NEW_DCGM), (RENAMED | RATIOS, NEW_DCGM)])
def test_pages_of_older_and_newer_exporters_are_read_in_base_units(ratios: dict[str, float], labels: str) -> None:
    source, _ = source_on(dcgm_page(ratios | BYTES, GPU, labels))
    reading = source.read(at(1))
    assert reading.gpus == {GPU: TRUTH}
    assert reading.absences == frozenset()


SM = "DCGM_FI_PROF_SM_ACTIVE"


def pods(*values: float) -> str:
    """A page that repeats a GPU for each pod on it."""
    return "".join(dcgm_page(RATIOS | {SM: value}, GPU, NEW_DCGM, pod=f"p{value}") for value in values)


def busy(share: int) -> str:
    """A page whose profiling says 0 while kernels ran for that share of time, in percent."""
    return dcgm_page(dict.fromkeys(RATIOS, 0) | {"DCGM_FI_DEV_GPU_UTIL": share}, GPU)


@pytest.mark.parametrize(
    ("page", "value", "reason"),
    [
        *(
            (dcgm_page(RATIOS | {SM: value}, GPU), None, reason)
            for value, reason in (
                ("9223372036854775792", "dcgm-blank"),
                ("9223372036854775794", "not-supported"),
                ("9223372036854775795", "no-permission"),
                ("1.40737488355330e+14", "not-supported"),
                ("2147483632", "dcgm-blank"),
                ("NaN", "not-a-number"),
                ("-1", "out-of-range"),
                ("1.73", "out-of-range"),  # SM_ACTIVE on MIG, NVIDIA/DCGM#152
                ("4294967295", "out-of-range"),
            )
        ),
        (dcgm_page(RATIOS | {SM: 1.0004}, GPU), 1.0, None),
        (pods(0.5, 0.5), 0.5, None),
        (pods(0.5, 0.7), None, "ambiguous"),
        (busy(100), None, "profiling-stuck"),
        (busy(0), 0.0, None),
    ],
)
def test_what_a_page_says_is_a_value_or_missing_with_its_reason(
    page: str, value: float | None, reason: str | None
) -> None:
    reading = source_on(page)[0].read(at(1))
    assert (reading.gpus.get(GPU, {}).get("sm_active"), missing(reading).get("sm_active")) == (value, reason)
    assert reason == "profiling-stuck" or "tensor_active" in reading.gpus[GPU]


def test_what_other_fields_tell_is_never_taken_and_doctor_says_which_line_switches_one_on() -> None:
    # NVLINK_BANDWIDTH_TOTAL adds up both directions; the others are impossible (dcgm-exporter#418, #312).
    others = {"NVLINK_BANDWIDTH_TOTAL": 87900, "GPU_UTIL": 905, "GPU_TEMP": 82505, "POWER_USAGE": 644245923}
    zeros = dict.fromkeys(RATIOS, 0)
    source, _ = source_on(dcgm_page(zeros | {f"DCGM_FI_DEV_{name}": value for name, value in others.items()}, GPU))
    reading = source.read(at(1))
    assert reading.gpus == {GPU: {metric: 0.0 for _, metric, _ in FIELDS[:7]}}
    # The driver's own counters may show traffic: what the page lacks of it is for doctor alone.
    assert reading.absences == frozenset()
    lines = {c.metric: c for c in source.probe().capabilities}
    assert {metric for metric, line in lines.items() if line.absence} == {metric for _, metric, _ in FIELDS[7:]}
    absence = lines["nvlink_tx_bytes_per_second"].absence
    assert absence is not None and absence.reason == "not-exported"
    assert "DCGM_FI_PROF_NVLINK_TX_BYTES, gauge, " in absence.remedy
    assert lines["tensor_active"].origin == "dcgm-exporter DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, every 30 s"


def test_a_mig_instances_values_are_its_own_and_never_its_parents() -> None:
    mig = ',GPU_I_PROFILE="3g.40gb",GPU_I_ID="2"'
    page = dcgm_page({"DCGM_FI_PROF_SM_ACTIVE": 0.9}, GPU, OLD_DCGM + mig)
    page += dcgm_page({"DCGM_FI_PROF_SM_ACTIVE": 0.4}, GPU, OLD_DCGM)
    page += dcgm_page({"DCGM_FI_PROF_SM_ACTIVE": 0.1}, GPU, OLD_DCGM + mig.replace('"2"', '"3"'))
    source, _ = source_on(page, UnreadGpu(GPU, GPU), UnreadGpu("MIG-1", GPU, "2"), UnreadGpu("MIG-2", GPU, "5"))
    reading = source.read(at(1))
    assert reading.gpus == {GPU: {"sm_active": 0.4}, "MIG-1": {"sm_active": 0.9}}
    assert missing(reading, "MIG-2")["sm_active"] == "gpu-not-on-page"


def test_an_exporter_that_cannot_be_reached_is_one_line_with_a_remedy() -> None:
    pages = PagesAtHand()
    source = DcgmSource(lambda: (UnreadGpu(GPU, GPU),), pages, DCGM, 30.0)
    assert [c.absence.reason for c in source.probe().capabilities if c.absence] == ["not-read-yet"]
    source.read(at(0))
    pages.fail(DCGM, "unreachable", 1)
    (line,) = source.probe().capabilities
    assert line.absence in source.read(at(1)).absences and line.absence.reason == "unreachable"
    assert pages.waited == 1  # only the first probe may wait: a later one runs between two ticks
    pages.put(DCGM, dcgm_page(RATIOS | BYTES, GPU), 31)
    assert source.read(at(31)).absences == frozenset()


def test_gpm_wins_and_a_page_is_given_once_and_not_absent_until_the_next() -> None:
    no_gpm, other = (Absence("gpu", uuid, "sm_active", "no-gpm") for uuid in (GPU, OTHER))
    gpm = Steady("gpm", Reading(gpus={GPU: {"dram_active": 0.77}}, absences=frozenset({no_gpm, other})))
    source, pages = source_on(dcgm_page(RATIOS | BYTES, GPU))
    sampler = Sampler((gpm, source), 1.0, 10.0)
    first, second = sampler.sample(at(1)), sampler.sample(at(2))
    assert (first.gpus[GPU]["dram_active"], first.gpus[GPU]["sm_active"]) == (0.77, 0.5)
    assert second.gpus == {GPU: {"dram_active": 0.77}}
    assert first.absences == second.absences == frozenset({other})
    assert no_gpm in sampler.sample(at(300)).absences
    pages.put(DCGM, dcgm_page(RATIOS, GPU), 301)
    assert sampler.sample(at(301)).gpus[GPU]["sm_active"] == 0.5
