"""Metrics pages as exporters and inference servers write them, a server, and a reader that has them at hand."""

import contextlib
import http.server
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from skuwise.agent.base.settings import PageError
from skuwise.agent.model import Instant
from skuwise.agent.sources.pages import FetchedPage, PageReader, Target, parse_page

Handler = Callable[[http.server.BaseHTTPRequestHandler], None]


@contextlib.contextmanager
def _running(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def serving(
    answer: str | bytes | Handler, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[str]]]:
    """A real HTTP server on loopback: its address, and the paths that were asked for. `answer` may be a handler."""
    asked: list[str] = []

    class _Handler(http.server.BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else a body waits 40 ms for the acknowledgement of its head

        def do_GET(self) -> None:
            asked.append(self.path)
            if callable(answer):
                with contextlib.suppress(OSError):
                    answer(self)
                return
            body = answer.encode() if isinstance(answer, str) else answer
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer((host, 0), _Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign] - a client that hangs up
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with _running(server):
        yield f"http{'s' if tls else ''}://{host}:{server.server_address[1]}/metrics", asked


@contextlib.contextmanager
def raw_server(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """A listener that says to its first callers what it likes, HTTP or not."""

    class _Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.settimeout(2)
                talk(self.request)

    server = socketserver.TCPServer(("127.0.0.1", 0), _Handler)
    with _running(server):
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"


class PagesAtHand(PageReader):
    """A reader whose pages a test puts there."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: dict[str, Target] = {}
        self.waited = 0

    def start(self, targets: Sequence[Target], *, wait: bool = False) -> None:
        self.waited += wait and any(target.url not in self.targets for target in targets)
        self.targets |= {target.url: target for target in targets}

    def put(self, url: str, text: str, at_seconds: float, pids: Collection[int] = ()) -> None:
        self._put(url, at_seconds, series=parse_page(text.encode(), self.targets[url].wanted), pids=frozenset(pids))

    def fail(self, url: str, reason: str, at_seconds: float) -> None:
        self._put(url, at_seconds, fault=PageError(reason, "It did not work.", "Fix it."))

    def _put(self, url: str, at_seconds: float, **answer: Any) -> None:
        instant = Instant(1_790_000_000.0 + at_seconds, at_seconds)
        self._pages[url] = FetchedPage(url, instant, **answer)


OLD_DCGM = (
    'gpu="{i}",UUID="{uuid}",device="nvidia{i}",modelName="NVIDIA A100-SXM4-80GB",Hostname="gpu-017",'
    'DCGM_FI_DRIVER_VERSION="535.161.08"'
)
NEW_DCGM = (
    'gpu="{i}",UUID="{uuid}",pci_bus_id="00000000:07:00.0",device="nvidia{i}",modelName="NVIDIA A100-SXM4-80GB",'
    'hostname="gpu-017",pod="{pod}",namespace="ml",container="main",pod_uid=""'
)


def dcgm_page(values: Mapping[str, object], uuid: str, labels: str = OLD_DCGM, i: int = 0, pod: str = "") -> str:
    """Lines of dcgm-exporter for one GPU, as it writes them: HELP and TYPE before each."""
    inside = labels.format(i=i, uuid=uuid, pod=pod)
    return "".join(
        f"# HELP {name} Something of it.\n# TYPE {name} gauge\n{name}{{{inside}}} {value}\n"
        for name, value in values.items()
    )


VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="meta-llama/Llama-3.1-8B"}} {running}.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="meta-llama/Llama-3.1-8B"}} 3.0
vllm:num_requests_waiting_by_reason{{engine="0",model_name="meta-llama/Llama-3.1-8B",reason="capacity"}} 3.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="meta-llama/Llama-3.1-8B"}} 0.4565217391304348
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{{engine="0",model_name="meta-llama/Llama-3.1-8B"}} {preemptions}.0
vllm:num_preemptions_created{{engine="0",model_name="meta-llama/Llama-3.1-8B"}} 1.8e+09
vllm:prompt_tokens_total{{engine="0",model_name="meta-llama/Llama-3.1-8B"}} {prompt}.0
vllm:generation_tokens_total{{engine="0",model_name="meta-llama/Llama-3.1-8B"}} {generated}.0
vllm:time_to_first_token_seconds_bucket{{engine="0",le="0.001",model_name="meta-llama/Llama-3.1-8B"}} 0.0
vllm:time_to_first_token_seconds_bucket{{engine="0",le="+Inf",model_name="meta-llama/Llama-3.1-8B"}} {first}.0
vllm:time_to_first_token_seconds_count{{engine="0",model_name="meta-llama/Llama-3.1-8B"}} {first}.0
vllm:time_to_first_token_seconds_sum{{engine="0",model_name="meta-llama/Llama-3.1-8B"}} {first_sum}
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="meta-llama/Llama-3.1-8B"}} {first}.0
vllm:request_success_total{{engine="0",finished_reason="length",model_name="meta-llama/Llama-3.1-8B"}} 3.0
vllm:cache_config_info{{block_size="16",engine="0",gpu_memory_utilization="0.9",num_gpu_blocks="27915"}} 1.0
"""
SGLANG = """sglang:num_running_reqs{{model_name="m",tp_rank="0"}} 4.0
sglang:num_running_reqs{{model_name="m",tp_rank="1"}} 4.0
sglang:num_queue_reqs{{model_name="m",priority="",tp_rank="0"}} 6.0
sglang:num_queue_reqs{{model_name="m",priority="1",tp_rank="0"}} 6.0
sglang:token_usage{{model_name="m",tp_rank="0"}} 0.55
sglang:gen_throughput{{model_name="m",tp_rank="0"}} 86.5
sglang:prompt_tokens_total{{model_name="m"}} {prompt}.0
sglang:generation_tokens_total{{model_name="m"}} {generated}.0
sglang:num_retracted_requests_total{{model_name="m"}} {preemptions}.0
sglang:time_to_first_token_seconds_sum{{model_name="m"}} {first_sum}
sglang:time_to_first_token_seconds_count{{model_name="m"}} {first}.0
"""
TGI = """# TYPE tgi_batch_current_size gauge
tgi_batch_current_size {running}

# TYPE tgi_queue_size gauge
tgi_queue_size 2
tgi_request_input_length_sum {prompt}
tgi_request_input_length_count {first}
tgi_request_generated_tokens_sum {generated}
tgi_request_generated_tokens_count {first}

"""
TRITON = """# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{{model="ensemble",version="1"}} 9
nv_trt_llm_request_metrics{{model="tensorrt_llm",request_type="waiting",version="1"}} 5
nv_trt_llm_request_metrics{{model="tensorrt_llm",request_type="scheduled",version="1"}} {running}
nv_trt_llm_request_metrics{{model="tensorrt_llm",request_type="max",version="1"}} 512
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="tokens_per",model="tensorrt_llm",version="1"}} 64
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"}} 0.25
nv_inference_request_success{{model="ensemble",version="1"}} {first}
nv_inference_first_response_histogram_ms_count{{model="ensemble",version="1"}} {first}
nv_inference_first_response_histogram_ms_sum{{model="ensemble",version="1"}} {first_sum}
"""
TRTLLM = """trtllm_kv_cache_utilization{{engine_type="trtllm",model_name="m"}} 0.25
trtllm_num_requests_running{{engine_type="trtllm",model_name="m"}} {running}.0
trtllm_num_requests_waiting{{engine_type="trtllm",model_name="m"}} 1.0
trtllm_prompt_tokens_total{{engine_type="trtllm",model_name="m"}} {prompt}.0
trtllm_generation_tokens_total{{engine_type="trtllm",model_name="m"}} {generated}.0
trtllm_time_to_first_token_seconds_sum{{engine_type="trtllm",model_name="m"}} {first_sum}
trtllm_time_to_first_token_seconds_count{{engine_type="trtllm",model_name="m"}} {first}.0
"""


def counted(page: str, step: int, running: int = 7) -> str:
    """An engine's page after `step` rounds of 1,000 prompt tokens, 500 generated, 4 answers of 0.3 s, 2 preemptions."""
    return page.format(
        running=running, prompt=5000 + 1000 * step, generated=900 + 500 * step, first=10 + 4 * step,
        first_sum=3.5 + 1.2 * step, preemptions=1 + 2 * step,
    )  # fmt: skip
