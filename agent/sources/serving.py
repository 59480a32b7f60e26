"""Metrics of local inference servers: how full their KV cache is, who waits, how fast they answer.

Counters become rates over the time between two pages. Servers of one endpoint that come in several parts (data-parallel
ranks, models) are added up, their cache usage is averaged; tensor-parallel ranks that repeat the same numbers count
once.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from math import inf
from typing import NamedTuple

from ..base.safe_text import clean_text
from ..metrics import SERVING_METRICS
from ..model import Absence, Capability, Instant, Probe, Reading, ServingSample
from ..statistics.latency_bins import MAX_BUCKETS, MEASURES, step_counts
from .base import Fault, sort_out
from .pages import FetchedPage, Locate, PageReader, Series, Target

EVERY_SECONDS = 10.0
# Where engines listen by default: vLLM and trtllm-serve 8000, SGLang 30000, TGI 3000 (80 in its image),
# Triton's metrics 8002. Only read where the settings ask for it.
_PLACES = ("8000/metrics", "8000/prometheus/metrics", "8002/metrics", "30000/metrics", "3000/metrics")
WELL_KNOWN = tuple(f"http://127.0.0.1:{place}" for place in _PLACES)
_MAX_GAP_SECONDS = 120.0  # two pages further apart say nothing about a rate
_MOST = {metric.name: metric.most for metric in SERVING_METRICS}
# Labels that part no engine from another: ranks that repeat the engine's numbers, and a bucket's edge.
_NOT_PARTS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid", "le"})

# Engines by the prefix of their series, and which series has what: the first that is on the page. NAME/LABEL/VALUE is
# some of one. Names are as in the engines' own documentation; what one lacks stays missing.
_TABLE = """
# A ratio whatever it is called; its second name is that of releases before the V1 engine. The second time per token is
# told beside its new name for some releases; the third counts requests by their mean, not tokens.
engine vllm vllm:
kv_cache_usage kv_cache_usage_perc gpu_cache_usage_perc
requests_running num_requests_running
requests_waiting num_requests_waiting
prompt_tokens_per_second prompt_tokens_total
generation_tokens_per_second generation_tokens_total
preemptions_per_second num_preemptions_total
requests_per_second request_success_total
first_token time_to_first_token_seconds
output_token inter_token_latency_seconds time_per_output_token_seconds request_time_per_output_token_seconds

engine sglang sglang:
kv_cache_usage token_usage
requests_running num_running_reqs
requests_waiting num_queue_reqs
prompt_tokens_per_second prompt_tokens_total
generation_tokens_per_second generation_tokens_total
preemptions_per_second num_retracted_requests_total
requests_per_second num_requests_total
first_token time_to_first_token_seconds
output_token inter_token_latency_seconds time_per_output_token_seconds

# Sums of histograms over requests count tokens, when the request is done. The time per token is each request's mean.
engine tgi tgi_
requests_running batch_current_size
requests_waiting queue_size
prompt_tokens_per_second request_input_length_sum
generation_tokens_per_second request_generated_tokens_sum
requests_per_second request_success
output_token request_mean_time_per_token_duration

engine tensorrt-llm trtllm_
kv_cache_usage kv_cache_utilization
requests_running num_requests_running
requests_waiting num_requests_waiting
prompt_tokens_per_second prompt_tokens_total
generation_tokens_per_second generation_tokens_total
requests_per_second request_success_total
first_token time_to_first_token_seconds
output_token time_per_output_token_seconds

# Last, for it may pass on another's series. Models of any kind count requests. Its first responses are no tokens.
engine triton nv_
kv_cache_usage trt_llm_kv_cache_block_metrics/kv_cache_block_type/fraction
requests_running trt_llm_request_metrics/request_type/scheduled
requests_waiting trt_llm_request_metrics/request_type/waiting inference_pending_request_count
requests_per_second inference_request_success
"""
_SOME_OF = ("kv_cache_block_type", "request_type")
# Means over what was counted between two pages, of the histograms whose sum and count show them.
_MEANS = dict(zip(("time_to_first_token_seconds", "time_per_output_token_seconds"), MEASURES, strict=True))


class Engine(NamedTuple):
    """Where an engine reports what. Rates are of counters; `histograms` are in seconds, by `latency_bins.MEASURES`."""

    name: str
    prefix: str
    gauges: dict[str, list[str]]
    rates: dict[str, list[str]]
    histograms: dict[str, list[str]]


ENGINES: list[Engine] = []
for _word, *_rest in (line.split() for line in _TABLE.splitlines() if line and not line.startswith("#")):
    if _word == "engine":
        ENGINES.append(Engine(_rest[0], _rest[1], {}, {}, {}))
    else:
        _, _prefix, _gauges, _rates, _histograms = ENGINES[-1]
        _into = _histograms if _word in MEASURES else _rates if _word.endswith("_per_second") else _gauges
        _into[_word] = [_prefix + name for name in _rest]
WANTED = frozenset(
    name.split("/")[0] + part
    for engine in ENGINES
    for named, parts in ((engine.gauges | engine.rates, ("",)), (engine.histograms, ("_sum", "_count", "_bucket")))
    for name in chain.from_iterable(named.values())
    for part in parts
)
_NO_METRICS = (
    "The page has no metrics of vLLM, SGLang, TGI, Triton or TensorRT-LLM.",
    "Switch its metrics on (SGLang: --enable-metrics), or fix serving_endpoints (trtllm-serve: /prometheus/metrics).",
)
_NOT_A_SERVER = Fault("not-a-server", *_NO_METRICS)
_Buckets = dict[float, float]  # upper edge in seconds (``inf``: the whole) -> requests or tokens up to it


class _Told(NamedTuple):
    """What a page shows: gauges, counters, sums and counts of histograms; and the buckets of these by measure."""

    page: FetchedPage
    engine: Engine | None  # None: it is no engine's page
    amounts: dict[str, float]
    histograms: dict[str, _Buckets]
    absences: Sequence[Absence] = ()  # what it should have and does not


class ServingSource:
    """The pages of the servers that the settings name, and of those at well-known ports where they ask for that."""

    name = "serving"

    def __init__(
        self, reader: PageReader, urls: Sequence[str], discover: bool = False, locate: Locate = lambda _: frozenset()
    ) -> None:
        self._reader = reader
        self._named = frozenset(urls)
        every = dict.fromkeys((*urls, *(WELL_KNOWN if discover else ())))
        self._targets = [Target(url, WANTED, EVERY_SECONDS, locate) for url in every]
        self._told: dict[str, _Told] = {}

    def probe(self) -> Probe:
        self._reader.start(self._targets, wait=True)
        lines: list[Capability] = []
        for answer in (_read(page) for target in self._targets if (page := self._reader.latest(target.url))):
            subject = clean_text(answer.page.url)
            if answer.engine is None:
                lines += [Capability(self.name, "source", subject, "*", subject, why) for why in self._fault(answer)]
                continue
            name = answer.engine.name
            for metric in _MOST:
                lacks = Fault("not-exported", f"This {name} does not report {metric}.", "A newer release of it may.")
                there = metric in answer.amounts or f"{metric}_sum" in answer.amounts
                why = None if there else lacks.of("source", subject, metric)
                lines.append(Capability(self.name, "source", subject, metric, f"{name} at {subject}", why))
        return Probe(capabilities=tuple(lines))

    def read(self, instant: Instant) -> Reading:  # noqa: ARG002 - samples carry the time of their page
        """A sample of each page that arrived since the last reading and has one before it."""
        self._reader.start(self._targets)
        samples: list[ServingSample] = []
        for target in self._targets:
            page, before = self._reader.latest(target.url), self._told.get(target.url)
            if page is None or (before is not None and before.page is page):
                continue
            now = _read(page)
            sample, absences = _sample(before, now) if before is not None else (None, [])
            samples += [sample] if sample else []
            self._told[target.url] = now._replace(absences=self._fault(now) + absences)
        absences = frozenset(absence for answer in self._told.values() for absence in answer.absences)
        return Reading(serving=tuple(samples), absences=absences)

    def close(self) -> None:
        """End the reader's thread, for all that read pages with it."""
        self._reader.close()

    def _fault(self, answer: _Told) -> list[Absence]:
        page, subject = answer.page, clean_text(answer.page.url)
        if page.url not in self._named or answer.engine is not None:
            return []
        if page.fault is None:
            return [_NOT_A_SERVER.of("source", subject)]
        said = f"{subject}: {clean_text(page.fault.message)}"
        return [Fault(page.fault.reason, said, page.fault.remedy).of("source", subject)]


def _read(page: FetchedPage) -> _Told:
    named: dict[str, list[Series]] = {}
    for sample in page.series:
        some = "".join(f"/{label}/{sample.labels[label]}" for label in _SOME_OF if label in sample.labels)
        named.setdefault(sample.name + some, []).append(sample)
    engine = next((engine for engine in ENGINES if any(name.startswith(engine.prefix) for name in named)), None)
    if engine is None:
        return _Told(page, None, {}, {})
    amounts: dict[str, float] = {}
    for metric, names in (engine.gauges | engine.rates).items():
        values = _whole(_first(named, names))
        if values and metric == "kv_cache_usage":
            amounts[metric] = sum(values) / len(values)
        elif values:
            # Triton's gauges count a request of an ensemble once for each model that it waits for.
            amounts[metric] = max(values) if engine.name == "triton" and metric in engine.gauges else sum(values)
    histograms: dict[str, _Buckets] = {}
    for metric, measure in _MEANS.items():
        names = engine.histograms.get(measure, ())
        for part in ("_sum", "_count"):
            if bucketses := _first(named, names, part):
                amounts[metric + part] = sum(_whole(bucketses))
        buckets = [buckets for buckets in _first(named, names, "_bucket") if len(buckets) <= MAX_BUCKETS]
        # An edge that not every part has is left out: the counts up to the others hold all the same.
        common = set[float].intersection(*(set(bucket) for bucket in buckets)) if buckets else ()
        histograms[measure] = {edge: sum(buckets[edge] for buckets in buckets) for edge in common}
    return _Told(page, engine, amounts, histograms)


def _first(named: Mapping[str, Sequence[Series]], names: Sequence[str], suffix: str = "") -> list[_Buckets]:
    """The first of `names` that is on the page, by the parts of its server: repeated ranks count once, by the greatest.
    Each value stands at its upper edge where it is a bucket's, else at ``inf``."""
    parts: dict[tuple[tuple[str, str], ...], _Buckets] = {}
    series = next((named[name + suffix] for name in names if name + suffix in named), [])
    # SGLang reports the whole with an empty priority and each priority again.
    for sample in [sample for sample in series if not sample.labels.get("priority")] or series:
        edge, value = edge_of(sample.labels.get("le", "inf")), sample.value
        if edge is not None and value is not None:
            key = tuple(sorted((name, label) for name, label in sample.labels.items() if name not in _NOT_PARTS))
            part = parts.setdefault(key, {})
            part[edge] = max(value, part.get(edge, value))
    return list(parts.values())


def _whole(parts: Sequence[_Buckets]) -> list[float]:
    return [part[inf] for part in parts if inf in part]


def edge_of(text: str) -> float | None:
    """A bucket's upper edge in seconds, of its label ``le``; None where it is no number above 0."""
    try:
        edge = float(text) if len(text) <= 32 else 0.0
    except ValueError:
        return None
    return edge if 0 < edge <= inf else None


def _sample(before: _Told, now: _Told) -> tuple[ServingSample | None, list[Absence]]:
    """The figures from two pages of one engine (None: none, or they are too far apart), and what is
    implausible. What went back since the first page, which is a restart, has no rate."""
    page, elapsed = now.page, now.page.instant.monotonic_seconds - before.page.instant.monotonic_seconds
    if now.engine is None or now.engine is not before.engine or not 0 < elapsed <= _MAX_GAP_SECONDS:
        return None, []
    old = before.amounts
    steps = {key: value - old[key] for key, value in now.amounts.items() if 0.0 <= old.get(key, -1.0) <= value}
    figures = {metric: now.amounts[metric] for metric in now.engine.gauges if metric in now.amounts}
    figures |= {metric: steps[metric] / elapsed for metric in now.engine.rates if metric in steps}
    for metric in _MEANS:
        count, total = steps.get(f"{metric}_count"), steps.get(f"{metric}_sum")
        if count and total is not None:
            figures[metric] = total / count
    values, absences = sort_out("source", clean_text(page.url), figures, _MOST)
    counts = {of: step_counts(before.histograms[of], buckets) for of, buckets in now.histograms.items()}
    latency = {of: bins for of, bins in counts.items() if bins is not None}
    ts = page.instant.wall_seconds
    sample = ServingSample(ts, elapsed, page.url, now.engine.name, values, page.pids, latency=latency)
    return sample if values else None, absences
