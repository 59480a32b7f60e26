"""What local inference servers tell of themselves: how full their KV cache is, who waits, how fast they answer.

A server takes nearly all GPU memory at its start, so allocated memory says nothing about need; its KV cache does. Each
engine's page is known by its names; counters become rates over the time between two pages. Servers of one endpoint that
come in several parts (data-parallel ranks, models) are added up, their cache usage is averaged; tensor-parallel ranks
that repeat the same numbers count once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..base.safe_text import clean_text
from ..config import AgentConfig
from ..metrics import SERVING_METRICS
from ..model import Absence, Capability, Gpu, Instant, Probe, Reading, ServingSample
from ..statistics.latency_bins import MEASURES, step_counts
from .base import NOTHING_READ, Fault, SourceContext, SourceSpec
from .latency_pages import Buckets, buckets_of
from .prometheus_text import Series
from .scraper import FetchedPage, PageReader, Pages, Target

EVERY_SECONDS = 10.0
# Where engines listen unless told otherwise: vLLM and trtllm-serve 8000, SGLang 30000, TGI 3000 (80 in its image),
# Triton's metrics 8002. Only looked at where the settings ask for it.
WELL_KNOWN = (
    "http://127.0.0.1:8000/metrics",
    "http://127.0.0.1:8000/prometheus/metrics",
    "http://127.0.0.1:8002/metrics",
    "http://127.0.0.1:30000/metrics",
    "http://127.0.0.1:3000/metrics",
)
_FIRST_PAGES_SECONDS = 4.0
_MAX_GAP_SECONDS = 120.0  # two pages further apart say nothing about a rate

# Ranks of one engine: each repeats the engine's numbers.
_REPEATED = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid"})


class _Pick(NamedTuple):
    """A series by name, or some of it by one label's value."""

    name: str
    label: str = ""
    value: str = ""


class _Engine(NamedTuple):
    """Where an engine tells what; the first that is on the page counts. Rates are of counters."""

    name: str
    prefix: str
    gauges: Mapping[str, tuple[_Pick, ...]]
    rates: Mapping[str, tuple[_Pick, ...]]
    first_token: str  # a histogram's name, in seconds; empty: not told
    pace: tuple[str, ...]  # likewise of the time for each token after the first, newest name first


def _engine(name: str, prefix: str, first_token: str = "", pace: str = "", **metrics: str) -> _Engine:
    """An engine by the names of its series, without the prefix that all have; ``NAME/LABEL=VALUE`` is some of one."""
    picks: dict[str, tuple[_Pick, ...]] = {}
    for metric, names in metrics.items():
        parts = [one.replace("=", "/").split("/") for one in names.split()]
        picks[metric] = tuple(_Pick(prefix + one, *rest) for one, *rest in parts)
    rates = {metric: one for metric, one in picks.items() if metric.endswith("_per_second")}
    gauges = {metric: one for metric, one in picks.items() if metric not in rates}
    tokens = tuple(prefix + one for one in pace.split())
    return _Engine(name, prefix, gauges, rates, first_token and prefix + first_token, tokens)


# Names as the engines' own documentation gives them; what one does not tell is left out and stays missing.
ENGINES = (
    _engine(
        "vllm",
        "vllm:",
        "time_to_first_token_seconds",
        # The second is its name of old, told beside the first for some releases ("DEPRECATED: Use
        # vllm:inter_token_latency_seconds instead"); the third counts requests by their mean, not tokens.
        "inter_token_latency_seconds time_per_output_token_seconds request_time_per_output_token_seconds",
        # A ratio whatever it is called; the second name is that of releases before the V1 engine.
        kv_cache_usage="kv_cache_usage_perc gpu_cache_usage_perc",
        requests_running="num_requests_running",
        requests_waiting="num_requests_waiting",
        prompt_tokens_per_second="prompt_tokens_total",
        generation_tokens_per_second="generation_tokens_total",
        preemptions_per_second="num_preemptions_total",
    ),
    _engine(
        "sglang",
        "sglang:",
        "time_to_first_token_seconds",
        "inter_token_latency_seconds time_per_output_token_seconds",
        kv_cache_usage="token_usage",
        requests_running="num_running_reqs",
        requests_waiting="num_queue_reqs",
        prompt_tokens_per_second="prompt_tokens_total",
        generation_tokens_per_second="generation_tokens_total",
        preemptions_per_second="num_retracted_requests_total",
    ),
    _engine(
        "tgi",
        "tgi_",
        # No first token is told; the time per token is a mean for each request.
        pace="request_mean_time_per_token_duration",
        requests_running="batch_current_size",
        requests_waiting="queue_size",
        # Histograms over requests: their sums count tokens, when the request is done.
        prompt_tokens_per_second="request_input_length_sum",
        generation_tokens_per_second="request_generated_tokens_sum",
    ),
    _engine(
        "triton",
        "nv_",
        # Its histogram of first responses counts chunks, or whole answers where nothing is streamed: not tokens.
        "",
        kv_cache_usage="trt_llm_kv_cache_block_metrics/kv_cache_block_type=fraction",
        requests_running="trt_llm_request_metrics/request_type=scheduled",
        requests_waiting="trt_llm_request_metrics/request_type=waiting inference_pending_request_count",
    ),
    _engine(
        "tensorrt-llm",
        "trtllm_",
        "time_to_first_token_seconds",
        "time_per_output_token_seconds",
        kv_cache_usage="kv_cache_utilization",
        requests_running="num_requests_running",
        requests_waiting="num_requests_waiting",
        prompt_tokens_per_second="prompt_tokens_total",
        generation_tokens_per_second="generation_tokens_total",
    ),
)
# Older TensorRT-LLM backends tell used and max blocks but no fraction.
_TRITON_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"


def _names(engine: _Engine) -> set[str]:
    names = {pick.name for picks in (*engine.gauges.values(), *engine.rates.values()) for pick in picks}
    histograms = [one for one in (engine.first_token, *engine.pace) if one]
    return names | {f"{one}_{part}" for one in histograms for part in ("sum", "count", "bucket")}


WANTED = frozenset(name for engine in ENGINES for name in _names(engine))
_NOT_A_SERVER = Fault(
    "not-a-server",
    "The page has no metrics of vLLM, SGLang, TGI, Triton or TensorRT-LLM.",
    "Switch its metrics on (SGLang: --enable-metrics), or fix serving_endpoints (trtllm-serve: /prometheus/metrics).",
)
_NAME_PAGES = "Where one runs here, name its page in serving_endpoints (or set serving_discover)."


class _State(NamedTuple):
    """What was read of an endpoint last: its page's number and time, its counters, and its histograms by what they are
    of (`latency_bins.MEASURES`)."""

    number: int
    engine: str
    instant: Instant
    counters: Mapping[str, float]
    histograms: Mapping[str, Buckets]


class ServingSource:
    """The pages of the servers that the settings name, and of those at well-known ports where they ask for that.

    `locate` gives the PIDs that listen on a port; it is called off the tick.
    """

    name = "serving"

    def __init__(
        self,
        reader: Pages,
        endpoints: Sequence[str],
        *,
        discover: bool = False,
        every_seconds: float = EVERY_SECONDS,
        locate: Callable[[int], frozenset[int]] | None = None,
    ) -> None:
        self._reader = reader
        self._named = tuple(dict.fromkeys(endpoints))
        self._urls = tuple(dict.fromkeys((*self._named, *(WELL_KNOWN if discover else ()))))
        self._targets = tuple(Target(url, WANTED, every_seconds, locate) for url in self._urls)
        self._states: dict[str, _State] = {}
        self._faults: dict[str, Absence | None] = {}
        self._absences: frozenset[Absence] = frozenset()
        self._started = False

    def probe(self) -> Probe:
        """What each page tells. Only the first call waits, for the first pages."""
        if not self._urls:
            return Probe()
        if not self._started:
            self._start()
            self._reader.wait(self._urls, _FIRST_PAGES_SECONDS)
        lines = [line for url in self._urls if (page := self._reader.latest(url)) for line in self._lines(url, page)]
        return Probe(capabilities=tuple(lines))

    def read(self, instant: Instant) -> Reading:
        """A sample of each page that arrived since the last reading and has one before it."""
        del instant  # samples carry the time of their page
        if not self._urls:
            return NOTHING_READ
        if not self._started:
            self._start()
        samples: list[ServingSample] = []
        news = False
        for url in self._urls:
            page = self._reader.latest(url)
            known = self._states.get(url)
            if page is None or (known is not None and known.number == page.number):
                continue
            news = True
            sample = self._take(url, page, known)
            if sample is not None:
                samples.append(sample)
        if news and (now := frozenset(filter(None, self._faults.values()))) != self._absences:
            self._absences = now
        return Reading(serving=tuple(samples), absences=self._absences)

    def close(self) -> None:
        """End the reader's thread, for all that read pages with it."""
        self._reader.close()

    def _start(self) -> None:
        self._started = True
        self._reader.start(self._targets)

    def _take(self, url: str, page: FetchedPage, known: _State | None) -> ServingSample | None:
        engine = engine_of(page.series)
        self._faults[url] = self._fault(url, page, engine)
        if page.fault is not None or engine is None:
            self._states[url] = _State(page.number, "", page.instant, {}, {})
            return None
        counters = _counters(engine, page.series)
        histograms = _histograms(engine, page.series)
        self._states[url] = _State(page.number, engine.name, page.instant, counters, histograms)
        if known is None or known.engine != engine.name:
            return None
        elapsed = page.instant.monotonic_seconds - known.instant.monotonic_seconds
        if not 0 < elapsed <= _MAX_GAP_SECONDS:
            return None
        values = _gauges(engine, page.series) | _rates(engine, known.counters, counters, elapsed)
        if not values:
            return None
        steps = {name: step_counts(known.histograms[name], own) for name, own in histograms.items()}
        latency = {name: counts for name, counts in steps.items() if counts is not None}
        return ServingSample(page.instant.wall_seconds, elapsed, url, engine.name, values, page.pids, latency=latency)

    def _fault(self, url: str, page: FetchedPage, engine: _Engine | None) -> Absence | None:
        if (page.fault is None and engine is not None) or url not in self._named:
            return None  # nobody said that there is a server at a well-known port
        subject = clean_text(url)
        if page.fault is None:
            return _NOT_A_SERVER.of("source", subject)
        said = f"{subject}: {clean_text(page.fault.message)}"
        return Absence("source", subject, "*", page.fault.reason, said, page.fault.remedy)

    def _lines(self, url: str, page: FetchedPage) -> list[Capability]:
        engine = engine_of(page.series)
        absence = self._fault(url, page, engine)
        subject = clean_text(url)
        if absence is not None:
            return [Capability(self.name, "source", subject, "*", subject, absence)]
        if engine is None:
            return []
        told = {*_gauges(engine, page.series), *_counters(engine, page.series)}
        origin = f"{engine.name} at {subject}"
        lines: list[Capability] = []
        for metric in SERVING_METRICS:
            silent = Absence(
                "source", subject, metric.name, "not-exported", f"This {engine.name} does not report {metric.name}.",
                "Nothing to do; a newer release of it may.",
            )  # fmt: skip
            there = metric.name in told or f"{metric.name}_sum" in told
            lines.append(Capability(self.name, "source", subject, metric.name, origin, None if there else silent))
        return lines


def engine_of(series: Sequence[Series]) -> _Engine | None:
    """Which engine's names are on a page; the one with most where a frontend passes on another's."""
    counts = {engine.name: sum(one.name.startswith(engine.prefix) for one in series) for engine in ENGINES}
    best = max(ENGINES, key=lambda engine: counts[engine.name])
    return best if counts[best.name] else None


def _pick(series: Sequence[Series], pick: _Pick) -> list[float]:
    """One value per engine part: repeated ranks count once, by the greatest."""
    parts: dict[tuple[tuple[str, str], ...], float] = {}
    named = [one for one in series if one.name == pick.name and one.labels.get(pick.label, "") == pick.value]
    # SGLang tells the whole with an empty priority and each priority again.
    for one in [one for one in named if not one.labels.get("priority")] or named:
        value = one.value
        if value is None or value < 0:
            continue
        key = tuple(sorted((name, label) for name, label in one.labels.items() if name not in _REPEATED))
        parts[key] = max(value, parts.get(key, 0.0))
    return list(parts.values())


def _first(series: Sequence[Series], picks: Sequence[_Pick]) -> list[float]:
    return next((values for pick in picks if (values := _pick(series, pick))), [])


def _gauges(engine: _Engine, series: Sequence[Series]) -> dict[str, float]:
    found: dict[str, float] = {}
    for metric, picks in engine.gauges.items():
        values = _first(series, picks)
        if metric == "kv_cache_usage":
            if not values and engine.name == "triton":
                values = _used_blocks(series)
            # A usage far above 1 is a percentage or nonsense: neither is known, so neither is kept.
            if values and max(values) <= 1.001:
                found[metric] = min(1.0, sum(values) / len(values))
        elif values:
            # Triton counts a request of an ensemble once for each model that it waits for.
            found[metric] = max(values) if engine.name == "triton" else sum(values)
    return found


def _used_blocks(series: Sequence[Series]) -> list[float]:
    used = sum(_pick(series, _Pick(_TRITON_BLOCKS, "kv_cache_block_type", "used")))
    most = sum(_pick(series, _Pick(_TRITON_BLOCKS, "kv_cache_block_type", "max")))
    return [used / most] if most else []


def _counters(engine: _Engine, series: Sequence[Series]) -> dict[str, float]:
    found = {metric: sum(values) for metric, picks in engine.rates.items() if (values := _first(series, picks))}
    for metric, histograms in _MEANS.items():
        for suffix in ("_sum", "_count"):
            values = _first(series, [_Pick(name + suffix) for name in histograms(engine)])
            if values:
                found[metric + suffix] = sum(values)
    return found


# Means over what was counted between two pages, and the histograms whose sum and count tell them.
_MEANS: Mapping[str, Callable[[_Engine], Sequence[str]]] = {
    "time_to_first_token_seconds": lambda engine: [engine.first_token] if engine.first_token else [],
    "time_per_output_token_seconds": lambda engine: engine.pace,
}


def histograms_of(engine: _Engine) -> Mapping[str, Sequence[str]]:
    """An engine's histograms by what they are of (`latency_bins.MEASURES`): their names, the first asked for first."""
    return {measure: names(engine) for measure, names in zip(MEASURES, _MEANS.values(), strict=True)}


def _histograms(engine: _Engine, series: Sequence[Series]) -> dict[str, Buckets]:
    return {measure: buckets_of(series, names, _REPEATED) for measure, names in histograms_of(engine).items()}


def _rates(engine: _Engine, before: Mapping[str, float], now: Mapping[str, float], elapsed: float) -> dict[str, float]:
    """Rates of what both pages count; none of what went back, which is a restart."""
    steps = {key: now[key] - before[key] for key in now if key in before and now[key] >= before[key]}
    found = {metric: steps[metric] / elapsed for metric in engine.rates if metric in steps}
    for metric in _MEANS:
        count = steps.get(f"{metric}_count")
        if count and f"{metric}_sum" in steps:
            found[metric] = steps[f"{metric}_sum"] / count
    return found


def _build(context: SourceContext) -> ServingSource:
    config = context.config
    reader = context.shared(PageReader, lambda: PageReader(remote=config.scrape_remote))
    return ServingSource(reader, config.serving_endpoints, discover=config.serving_discover, locate=context.listeners)


def _unasked(config: AgentConfig, gpus: Sequence[Gpu], _lines: Sequence[Capability]) -> Fault | None:
    if not gpus or config.serving_endpoints:
        return None
    detail = "No inference server's metrics page is configured, so the use of KV caches, queues and tokens is unknown."
    if config.serving_discover:
        detail = "No inference server's page was found at the engines' usual ports on this node."
    return Fault("not-configured", detail, _NAME_PAGES)


SERVING = SourceSpec(
    name=ServingSource.name,
    metrics=tuple(metric.name for metric in SERVING_METRICS),
    needs="an inference server's page of metrics",
    remedy=_NAME_PAGES,
    build=_build,
    every_seconds=EVERY_SECONDS,
    unasked=_unasked,
)
