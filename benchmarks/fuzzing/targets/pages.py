"""Pages of metrics, as the agent reads dcgm-exporter's and inference servers', and its own writer and reader."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from pathlib import Path

from ..lines import by_lines
from ..target import BrokenPromiseError, Prepared, Seed, Target
from ..verdict import finite

_DCGM = """# HELP DCGM_FI_PROF_SM_ACTIVE The ratio of cycles an SM has at least 1 warp assigned.
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA H100",Hostname="h",pod="p \\"q\\""} 0.5
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-1",GPU_I_ID="1",GPU_I_PROFILE="1g.10gb",Hostname="h"} 0.25
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-1",Hostname="h"} 0.75 1790000000000
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-1",Hostname="h"} 0.125
DCGM_FI_PROF_NVLINK_TX_BYTES{gpu="0",UUID="GPU-1",Hostname="h"} 1.5e+09
DCGM_FI_PROF_NVLINK_RX_BYTES{gpu="0",UUID="GPU-1",Hostname="h"} 9223372036854775794
"""
_VLLM = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:prompt_tokens_total{engine="0",model_name="m"} 12345.0
vllm:generation_tokens_total{engine="0",model_name="m"} 678.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 10.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 12.5
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 10.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 10.0
"""
_SGLANG = """sglang:num_running_reqs{model_name="m",tp_rank="0",priority=""} 2.0
sglang:num_running_reqs{model_name="m",tp_rank="0",priority="1"} 2.0
sglang:num_queue_reqs{model_name="m",tp_rank="0",priority=""} 0.0
sglang:token_usage{model_name="m",tp_rank="0"} 0.25
sglang:prompt_tokens_total{model_name="m"} 100.0
sglang:generation_tokens_total{model_name="m"} 200.0
"""
_TRITON = """nv_trt_llm_request_metrics{model="m",request_type="active",version="1"} 4
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="m",version="1"} 30
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="m",version="1"} 60
nv_inference_request_success{model="m",version="1"} 40
nv_inference_pending_request_count{model="m",version="1"} 0
"""
_TGI = """tgi_queue_size 0
tgi_batch_current_size 2
tgi_request_generated_tokens_sum 400
tgi_request_input_length_sum 300
tgi_request_success{method="batch"} 10
"""
_HTTP = "HTTP/1.0 200 OK\r\nServer: x\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\r\n"


def _prepare(folder: Path) -> Prepared:  # noqa: ARG001
    from skuwise.agent.base.page_url import PageError
    from skuwise.agent.model import Instant
    from skuwise.agent.service.exporter.answers import negotiate
    from skuwise.agent.sources.scrape import dcgm, serving
    from skuwise.agent.sources.scrape import http_fetch as page_http
    from skuwise.agent.sources.scrape.scraper import FetchedPage
    from skuwise.agent.sources.scrape.scraper import Target as Source

    most = 4 << 20

    class At:
        """A reader that has its pages at hand."""

        def __init__(self) -> None:
            self.page: FetchedPage | None = None

        def start(self, targets: Sequence[Source]) -> None: ...

        def latest(self, url: str) -> FetchedPage | None:  # noqa: ARG002
            return self.page

        def wait(self, urls: Collection[str], timeout_seconds: float) -> bool:  # noqa: ARG002
            return True

        def close(self) -> None: ...

    def page_of(data: bytes, number: int, wanted: Collection[str]) -> FetchedPage:
        at = Instant(1_790_000_000.0 + 10 * number, 10.0 * number)
        pieces = (data[start : start + 1000] for start in range(0, len(data), 1000))
        try:
            return FetchedPage(number, at, tuple(page_http._answer(pieces, wanted, most)))
        except PageError as error:
            return FetchedPage(number, at, fault=error)

    url = "http://127.0.0.1:8000/metrics"
    lacking = [dcgm.UnreadGpu("GPU-1", "GPU-1"), dcgm.UnreadGpu("MIG-1", "GPU-1", "1")]
    honest = {name: _answer(text) for name, text in (("dcgm", _DCGM), ("vllm", _VLLM), ("sglang", _SGLANG),
                                                      ("triton", _TRITON), ("tgi", _TGI))}  # fmt: skip

    def read(name: str, data: bytes) -> object:
        negotiate(data[:300].decode("latin-1"))
        at = At()
        source = (
            dcgm.DcgmSource(lambda: lacking, at, url) if name == "dcgm"
            else serving.ServingSource(reader=at, endpoints=(url,))
        )  # fmt: skip
        readings = []
        fault: PageError | None = None
        for number, body in enumerate((honest[name], data, honest[name])):
            page = at.page = page_of(body, number, dcgm.WANTED if name == "dcgm" else serving.WANTED)
            source.probe()
            readings.append(source.read(page.instant))
            if number == 1:
                fault = page.fault
        for reading in readings:
            finite(reading.gpus, "values of GPUs")
            finite(reading.serving, "samples of a server")
            finite(reading.absences, "absences")
            if any(value < 0 for values in reading.gpus.values() for value in values.values()):
                raise BrokenPromiseError("a value is below 0")
        if fault is not None:
            raise fault
        return readings

    words = (b'{a="x"} 1', b"# TYPE x counter", b" NaN", b" +Inf", b' # {trace="1"} 2', b'\\n"', b"HTTP/1.1 200 OK\r\n",
             b"Content-Length: 99999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: gzip\r\n",
             b"q=0.5;version=1.0.0,", b"vllm:num_requests_running 1\n", b'le="+Inf"')  # fmt: skip
    mutate = by_lines(*words)

    def fitting(draw: random.Random, seed: Seed, seeds: Sequence[Seed]) -> bytes:
        """The length is mended in half of them: else all that is shorter or longer is refused for that alone."""
        data = mutate(draw, seed, seeds)
        head, end, body = data.partition(b"\r\n\r\n")
        return _answer(body.decode("latin-1"), "latin-1") if end and draw.random() < 0.6 and head else data

    return Prepared([Seed(name, data) for name, data in honest.items()], read, fitting)


def _answer(text: str, encoding: str = "utf-8") -> bytes:
    body = text.encode(encoding)
    return _HTTP.format(len(body)).encode() + body


PAGES = Target("pages", "pages of dcgm-exporter and inference servers, with their HTTP heads (agent/sources)", _prepare)
