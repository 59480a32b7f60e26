"""The names of the series by which inference engines tell of themselves."""

from __future__ import annotations

from .....agent.sources.scrape.serving import ENGINES, histograms_of

# How many requests an engine answered, by the name that its own documentation gives the counter.
REQUESTS = {
    "vllm": "vllm:request_success_total",
    "sglang": "sglang:num_requests_total",
    "tgi": "tgi_request_success",
    "triton": "nv_inference_request_success",
    "tensorrt-llm": "trtllm_request_success_total",
}
ENGINE_SERIES = frozenset(
    {pick.name for one in ENGINES for picks in (*one.gauges.values(), *one.rates.values()) for pick in picks}
    | set(REQUESTS.values())
    | {f"{name}_bucket" for one in ENGINES for names in histograms_of(one).values() for name in names}
)
"Series that are asked for; any of them makes a pod a server."
