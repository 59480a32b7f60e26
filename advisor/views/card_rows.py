"""What a card shows, as named lines of words: the same for a terminal, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core import formatting as words
from ..core.card_types import Card
from ..core.ids import short_ids
from ..core.timestamps import minute, span

_NODES_LISTED = 3
_SHARES_LISTED = 4
_SHARE_MIN = 0.005
_BY_ENERGY = {
    "counter": "by energy counters", "power": "power times time", "both": "energy counters and power readings",
}  # fmt: skip
_STATE = {"running": "running", "ended": "ended", "unknown": "running when telemetry ended"}


@dataclass(frozen=True, slots=True)
class CardRow:
    """`label` and `text` of one line. `course`: levels (0..1, None: no data) that are drawn before the text."""

    label: str
    text: str
    course: tuple[float | None, ...] = ()


def card_title(card: Card) -> str:
    """``train-7b (Slurm job 4711)``."""
    about = ""
    if card.scheduler == "slurm":
        about = f" (Slurm job {card.job_id})" if card.job_id else " (Slurm job)"
    elif card.scheduler == "kubernetes":
        about = f" (pod {pod_of(card)})" if card.pod else " (Kubernetes)"
    return f"{card.name or 'unnamed workload'}{about}"


def pod_of(card: Card) -> str:
    """``namespace/pod``."""
    return f"{card.namespace}/{card.pod}" if card.namespace else card.pod or ""


def state_words(card: Card) -> str:
    """Slurm's word where it has one that fits, else what telemetry tells."""
    told = card.scheduler_state
    requeued = f", requeued {words.counted(card.restarts, 'time')}" if card.restarts else ""
    state = told if told and (card.state == "ended" or told == "RUNNING") else _STATE[card.state]
    return f"{state}{requeued}"


def owner_line(card: Card) -> str:
    """Whose it is and where it ran."""
    whose = words.owner_words(card.owner) or "owner unknown"
    cluster = f", cluster {card.cluster}" if card.cluster else ""
    more = len(card.nodes) - _NODES_LISTED
    nodes = ", ".join(card.nodes[:_NODES_LISTED]) + (f" and {more} more" if more > 0 else "")
    return f"{whose}{cluster}; {'nodes' if len(card.nodes) > 1 else 'node'} {nodes or 'unknown'}"


def card_rows(card: Card) -> tuple[CardRow, ...]:
    """The lines of a card, in order; a figure that is missing says why."""
    use, judged, course = card.use, card.judged, card.course

    def figure(name: str, value: float | None, text: str, otherwise: str = "not reported") -> str:
        return f"unknown: {card.missing.get(name, otherwise)}" if value is None else text.format(percent_of(value))

    def parts(values: Sequence[tuple[float | None, Callable[[float], str]]]) -> str:
        return ", ".join(words_of(value) for value, words_of in values if value is not None)

    kept = f"; from the card kept on {minute(card.kept_at)}" if card.kept_at is not None else ""
    asked = parts([
        (card.asked.gpus, lambda n: words.counted(round(n), "GPU")),
        (card.asked.cpus, lambda n: words.counted(round(n), "CPU")),
        (card.asked.mem_bytes, lambda n: f"{memory_size(n)} of memory"),
    ])  # fmt: skip
    host = parts([
        (use.cpu, lambda n: f"CPU {percent_of(n)}"),
        (use.io_wait, lambda n: f"I/O wait {percent_of(n)}"),
        (use.disk_read_bytes_per_second, lambda n: f"disk read {size(n)}/s"),
        (use.disk_write_bytes_per_second, lambda n: f"written {size(n)}/s"),
    ])  # fmt: skip
    peak, total = use.mem_peak_bytes, use.mem_total_bytes
    memory = figure("mem_peak_bytes", peak, "")
    if peak is not None:
        of = f" of {memory_size(total)} ({words.percent(peak / total)})" if total else ""
        memory = f"peak {memory_size(peak)}{of} on one GPU{', with what shares it' if card.shared else ''}"
    energy = figure("kwh", card.kwh, "", "not measured")
    if card.kwh is not None:
        kwh = f"{card.kwh:,.0f} kWh" if card.kwh >= 100 else f"{card.kwh:.3g} kWh"
        energy = f"{kwh} at the GPUs, {_BY_ENERGY.get(card.energy_basis or '', 'basis unknown')}"
    cost = figure("cost_usd", card.cost_usd, "", "no price is known")
    if card.cost_usd is not None:
        cost = f"{words.usd(card.cost_usd)}; {card.price.text if card.price else 'price unknown'}"
    sm = () if use.sm_active is None else course.sm_active
    tensor = () if use.tensor_active is None else course.tensor_active
    rows = [
        CardRow("State", f"{state_words(card)}{kept}"),
        CardRow("Time", f"{minute(card.start)} to {minute(card.end)}, {span(card.elapsed_seconds)}"),
        CardRow("GPUs", _gpus(card)),
        CardRow("Asked for", asked or f"unknown: {card.asked.reason or 'not in the job table'}"),
        CardRow("Kind", f"{judged.kind} (confidence {words.percent(judged.kind_confidence)})"),
        CardRow("Bottleneck", _bottleneck(card)),
        CardRow("SM activity", figure("sm_active", use.sm_active, "mean {}"), sm),
        CardRow("Tensor", figure("tensor_active", use.tensor_active, "mean {}"), tensor),
        CardRow("Memory", memory),
        CardRow("NVLink", figure("nvlink", use.nvlink, "{} of its bandwidth, mean")),
        CardRow("Fabric", figure("fabric", use.fabric, "{} of its line rate, mean")),
        CardRow("Host", f"{host} (mean, whole nodes)" if host else figure("cpu", None, "")),
        CardRow("Energy", energy),
        CardRow("Idle", _idle(card)),
        CardRow("Cost", cost),
    ]
    if (told := card.compared) is not None:
        of = "1 earlier run" if told.runs == 1 else f"median of {told.runs} earlier runs"
        series = parts([
            (told.gpu_hours, words.hours), (told.sm_active, lambda n: f"SM activity {percent_of(n)}"),
            (told.cost_usd, words.usd),
        ])  # fmt: skip
        rows.append(CardRow("Series", f"{of}: {series}"))
    covered = [f"{words.percent(use.observed)} of its GPU time was observed"] if use.observed < 0.995 else []
    if card.data_since is not None:
        covered.append(f"figures from {minute(card.data_since)} on; no earlier data")
    rows += [CardRow("Coverage", "; ".join(covered))] if covered else []
    return (*rows, CardRow("Next step", card.next_step.text))


def _gpus(card: Card) -> str:
    what = "GPU" if card.gpu_part >= 1 else "MIG instance"
    sku = f" ({card.gpu_sku})" if card.gpu_sku else " (model unknown)"
    part = "" if card.gpu_part >= 1 else f", each {words.figure(card.gpu_part)} of a GPU"
    shared = ", shared with other work" if card.shared else ""
    return f"{words.counted(card.gpu_count, what)}{sku}{part}, {words.hours(card.gpu_hours)}{shared}"


def _bottleneck(card: Card) -> str:
    judged = card.judged
    shares = sorted(judged.time_shares.items(), key=lambda one: -one[1])
    listed = [f"{label} {words.percent(share)}" for label, share in shares if share >= _SHARE_MIN][:_SHARES_LISTED]
    told = f": {', '.join(listed)} of its time" if listed else ""
    return f"{judged.bottleneck} (confidence {words.percent(judged.bottleneck_confidence)}){told}"


def _idle(card: Card) -> str:
    idle, unused = card.use.idle_gpu_hours, card.use.unused
    if idle is None:
        return f"unknown: {card.missing.get('idle_gpu_hours', 'not measured')}"
    share = f" ({words.percent(idle / card.gpu_hours)})" if card.gpu_hours > 0 else ""
    usd = f", {words.usd(card.idle_usd)}" if card.idle_usd is not None else ""
    never = f"; {unused} of {card.gpu_count} GPUs never used" if unused else ""
    since = ""
    if card.use.idle_since is not None and unused != card.gpu_count and card.end - card.use.idle_since >= 60:
        since = f"; last activity {minute(card.use.idle_since)}"
    return f"{words.hours(idle)}{share}{usd}{never}{since}"


def percent_of(value: float) -> str:
    """``42 %``, and ``0.3 %`` of what would be rounded to nothing."""
    return f"{value * 100:.1f} %" if 0 < value < 0.0095 and value >= 0.0005 else words.percent(value)


def memory_size(value: float) -> str:
    """``71.2 GiB``, as a GPU's memory is sold."""
    return f"{value / 2**30:.3g} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def size(value: float) -> str:
    """``61.2 MB``: powers of ten."""
    for unit, power in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= power:
            return f"{value / power:.3g} {unit}"
    return f"{value:.0f} B"


_HEADS = ("ID", "Job", "Name", "State", "GPUs", "GPU-hours", "SM", "Idle hours", "Cost", "Next step")
_RIGHT = (4, 5, 6, 7, 8)


@dataclass(frozen=True, slots=True)
class CardList:
    """`rows` by `heads`; `right`: columns of numbers; `total`: one sentence over all of them."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...]
    total: str


def worst_first(cards: Sequence[Card]) -> tuple[Card, ...]:
    """By what their idle GPU-hours cost, then by the hours, then by what they cost; the unknown last."""
    return tuple(
        sorted(cards, key=lambda c: (-(c.idle_usd or 0.0), -(c.use.idle_gpu_hours or 0.0), -c.gpu_hours, c.id))
    )


def card_list(cards: Sequence[Card]) -> CardList:
    """The table of these cards, in their order, and ``12 jobs, 340 GPU-hours, 41.0 of them idle, $1,234 ($120 idle)``
    with what that leaves out."""
    short = short_ids(card.id for card in cards)
    rows = []
    for card in cards:
        sm, cost = card.use.sm_active, card.cost_usd
        rows.append((
            short[card.id], card.job_id or pod_of(card), card.name, state_words(card), f"{card.gpu_count}",
            _hours(card.gpu_hours), words.NONE if sm is None else percent_of(sm), _hours(card.use.idle_gpu_hours),
            words.NONE if cost is None else words.usd(cost), card.next_step.text,
        ))  # fmt: skip
    idle = [card.use.idle_gpu_hours for card in cards if card.use.idle_gpu_hours is not None]
    costs = [card.cost_usd for card in cards if card.cost_usd is not None]
    told = [words.counted(len(cards), "job"), words.hours(sum(card.gpu_hours for card in cards))]
    told += [f"{_hours(sum(idle))} of them idle"] if idle else []
    wasted = words.usd(sum(card.idle_usd or 0.0 for card in cards))
    told += [f"{words.usd(sum(costs))} ({wasted} idle)"] if costs else []
    counts = {"idle hours": len(cards) - len(idle), "cost": len(cards) - len(costs)}
    left = "; ".join(f"{what} unknown for {count}" for what, count in counts.items() if count)
    return CardList(_HEADS, tuple(rows), _RIGHT, f"Total: {', '.join(told)}{f' ({left})' if left else ''}")


def _hours(value: float | None) -> str:
    return words.NONE if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
