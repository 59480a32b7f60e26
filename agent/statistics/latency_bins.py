"""How long requests waited, as counts in fixed bins: what a server's histogram counted, so that it can be added up.

Each engine has its own buckets, so their counts are spread over ours in proportion within a bucket, as Prometheus's
histogram_quantile does. Where engines have an edge that we have too (all limits of rules/latency_classes.yaml), nothing
is lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite

# Upper edges of the bins in seconds; what lies above the last is counted in one bin more. They hold the edges that
# vLLM, SGLang and TensorRT-LLM give their histograms between 5 ms and 20 s.
LATENCY_EDGES: tuple[float, ...] = (
    0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.075, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6,
    0.75, 0.8, 1.0, 1.5, 2.0, 2.5, 4.0, 5.0, 7.5, 10.0, 20.0,
)  # fmt: skip
# What a histogram is of, as columns and keys name it.
MEASURES = ("first_token", "output_token")
# More buckets than any engine's histogram has; a page with more is not believed.
MAX_BUCKETS = 256
# A histogram whose last finite edge lies below says nothing of how long its slowest took, and is not read: the engines'
# reach 8 s and more, and 2 s is the longest that a class lets people wait.
REACH_SECONDS = 2.0
_MOST = 1e15  # beyond lies no count
_BINS = len(LATENCY_EDGES) + 1
_MAX_TEXT = 40 * _BINS

Counts = tuple[float, ...]


def step_counts(before: Mapping[float, float], now: Mapping[float, float]) -> Counts | None:
    """What was counted between two pages, by our bins. Each maps an upper edge in seconds (``inf`` is the whole) to the
    count up to it. None: nothing was counted, or it is unknown: no edges that reach far enough, a count that went back
    (a restart), or counts that fall from one edge to the next."""
    if inf not in before or inf not in now:
        return None
    # Counts up to an edge stay true where other edges are missing: those that both pages have are enough.
    return spread({edge: now[edge] - before[edge] for edge in now if edge in before})


def spread(up_to: Mapping[float, float]) -> Counts | None:
    """Counts up to each edge, by our bins; None where there are none, or they cannot be."""
    edges = sorted(edge for edge in up_to if edge > 0)
    if not can_tell(edges) or not 0 < up_to[inf] <= _MOST:
        return None
    counts = [0.0] * _BINS
    low, passed = 0.0, 0.0
    for edge in edges:
        count = up_to[edge] - passed
        if count < 0 or up_to[edge] < 0:
            return None
        if count > 0:
            _put(counts, low, edge, count)
        low, passed = edge, up_to[edge]
    return tuple(counts)


def can_tell(edges: Sequence[float]) -> bool:
    """Whether a histogram of these edges (in order) has a whole (``inf``), and finite edges that reach far enough."""
    return 2 <= len(edges) <= MAX_BUCKETS and edges[-1] == inf and edges[-2] >= REACH_SECONDS


def bucket_shares(edges: Sequence[float]) -> list[Counts]:
    """Of each bucket of a histogram (by its upper edges, in order), the share of its count that each of our bins takes:
    what `spread` does to many histograms of the same edges at once."""
    edges_below, low = [], 0.0
    for edge in edges:
        counts = [0.0] * _BINS
        _put(counts, low, edge, 1.0)
        edges_below.append(tuple(counts))
        low = edge
    return edges_below


def _put(counts: list[float], low: float, high: float, count: float) -> None:
    """Spread a bucket's count over the bins it lies in; what has no upper edge is in the last of all."""
    if high == inf:
        counts[-1] += count
        return
    begin = 0.0
    for n, end in enumerate((*LATENCY_EDGES, inf)):
        within = min(high, end) - max(low, begin)
        if within > 0:
            counts[n] += count * within / (high - low)
        begin = end


def added(many: Iterable[Sequence[float]]) -> Counts | None:
    columns = list(zip(*many, strict=True))
    return tuple(map(sum, columns)) if columns else None


def percentile(counts: Sequence[float], share: float) -> float | None:
    """The time in seconds within which this share (0..1) stayed, within a bin in proportion; None where none is
    counted. What lies above the last edge counts as that edge: it was longer."""
    total = sum(counts)
    if total <= 0:
        return None
    wanted, passed, begin = share * total, 0.0, 0.0
    for count, end in zip(counts, LATENCY_EDGES, strict=False):
        if count > 0 and passed + count >= wanted:
            return begin + (end - begin) * max(wanted - passed, 0.0) / count
        passed, begin = passed + count, end
    return LATENCY_EDGES[-1]


def encode(counts: Sequence[float]) -> str:
    """As the store keeps it: counts to a tenth, with a comma between, without the empty bins at the end."""
    texts = [f"{count:.1f}".removesuffix(".0") for count in counts]
    while texts and texts[-1] == "0":
        texts.pop()
    return ",".join(texts)


def decode(text: object) -> Counts | None:
    """The counts of a stored text; None of what is no such text (no database is trusted), or counts nothing."""
    if not isinstance(text, str) or not 0 < len(text) <= _MAX_TEXT:
        return None
    try:
        counts = [float(part) for part in text.split(",")]
    except ValueError:
        return None
    if len(counts) > _BINS or not all(isfinite(count) and 0 <= count <= _MOST for count in counts) or not any(counts):
        return None
    return tuple(counts + [0.0] * (_BINS - len(counts)))
