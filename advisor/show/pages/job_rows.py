"""What a card shows, as named lines of words: the same for a terminal, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...core import formatting as words
from ...core.card_types import Card
from ...core.ids import short_ids
from ...core.timestamps import minute, span

_NODES_LISTED = 3
_SHARES_LISTED, _SHARE_MIN = 4, 0.005
_BY_ENERGY = {
    "counter": "by energy counters", "power": "power times time", "both": "energy counters and power readings",
}  # fmt: skip
_HEADS = ("ID", "Job", "Name", "State", "GPUs", "GPU-hours", "SM", "Idle hours", "Cost", "Next step")
_RIGHT = (4, 5, 6, 7, 8)


class CardRow(NamedTuple):
    """`label` and `text` of one line. `course`: levels (0..1, None: no data) that are drawn before the text."""

    label: str
    text: str
    course: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class CardList:
    """`rows` by `heads`; `right`: columns of numbers; `total`: one sentence over all of them."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...]
    total: str


def card_title(card: Card) -> str:
    """``train-7b (Slurm job 4711)``."""
    about = ""
    if card.scheduler == "slurm":
        about = f" (Slurm job {card.job_id})" if card.job_id else " (Slurm job)"
    elif card.scheduler == "kubernetes":
        about = f" (pod {_pod(card)})" if card.pod else " (Kubernetes)"
    return f"{card.name or 'unnamed workload'}{about}"


def owner_line(card: Card) -> str:
    """Whose it is and where it ran."""
    whose = words.owner_words(card.owner) or "owner unknown"
    cluster = f", cluster {card.cluster}" if card.cluster else ""
    more = len(card.nodes) - _NODES_LISTED
    nodes = ", ".join(card.nodes[:_NODES_LISTED]) + (f" and {more} more" if more > 0 else "")
    return f"{whose}{cluster}; {'nodes' if len(card.nodes) > 1 else 'node'} {nodes or 'unknown'}"


def card_rows(card: Card) -> tuple[CardRow, ...]:
    """The lines of a card, in order; a figure that is missing says why."""
    use, judged = card.use, card.judged

    def figure(name: str, value: float | None, text: Callable[[float], str], otherwise: str = "not reported") -> str:
        return f"unknown: {card.missing.get(name, otherwise)}" if value is None else text(value)

    kept = f"; from the card kept on {minute(card.kept_at)}" if card.kept_at is not None else ""
    asked = _listed(
        (card.asked.gpus, lambda n: words.counted(round(n), "GPU")),
        (card.asked.cpus, lambda n: words.counted(round(n), "CPU")),
        (card.asked.mem_bytes, lambda n: f"{_memory(n)} of memory"),
    )
    host = _listed(
        (use.cpu, lambda n: f"CPU {_percent(n)}"), (use.io_wait, lambda n: f"I/O wait {_percent(n)}"),
        (use.disk_read_bytes_per_second, lambda n: f"disk read {_size(n)}/s"),
        (use.disk_write_bytes_per_second, lambda n: f"written {_size(n)}/s"),
    )  # fmt: skip
    total = use.mem_total_bytes
    with_others = ", with what shares it" if card.shared else ""
    energy = _BY_ENERGY.get(card.energy_basis or "", "basis unknown")
    price = card.price.text if card.price else "price unknown"
    sm = () if use.sm_active is None else card.course.sm_active
    tensor = () if use.tensor_active is None else card.course.tensor_active
    rows = [
        CardRow("State", f"{_state(card)}{kept}"),
        CardRow("Time", f"{minute(card.start)} to {minute(card.end)}, {span(card.elapsed_seconds)}"),
        CardRow("GPUs", _gpus(card)),
        CardRow("Asked for", asked or f"unknown: {card.asked.reason or 'not in the job table'}"),
        CardRow("Kind", f"{judged.kind} (confidence {words.percent(judged.kind_confidence)})"),
        CardRow("Bottleneck", _bottleneck(card)),
        CardRow("SM activity", figure("sm_active", use.sm_active, lambda n: f"mean {_percent(n)}"), sm),
        CardRow("Tensor", figure("tensor_active", use.tensor_active, lambda n: f"mean {_percent(n)}"), tensor),
        CardRow("Memory", figure("mem_peak_bytes", use.mem_peak_bytes, lambda n: f"peak {_memory(n)}" + (
            f" of {_memory(total)} ({words.percent(n / total)})" if total else "") + f" on one GPU{with_others}")),
        CardRow("NVLink", figure("nvlink", use.nvlink, lambda n: f"{_percent(n)} of its bandwidth, mean")),
        CardRow("Fabric", figure("fabric", use.fabric, lambda n: f"{_percent(n)} of its line rate, mean")),
        CardRow("Host", f"{host} (mean, whole nodes)" if host else figure("cpu", None, str)),
        CardRow("Energy", figure("kwh", card.kwh, lambda n: (
            f"{n:,.0f} kWh" if n >= 100 else f"{n:.3g} kWh") + f" at the GPUs, {energy}", "not measured")),
        CardRow("Idle", figure("idle_gpu_hours", use.idle_gpu_hours, lambda n: _idle(card, n), "not measured")),
        CardRow("Cost", figure("cost_usd", card.cost_usd, lambda n: f"{words.usd(n)}; {price}", "no price is known")),
    ]  # fmt: skip
    if (earlier := card.compared) is not None:
        of = "1 earlier run" if earlier.runs == 1 else f"median of {earlier.runs} earlier runs"
        medians = _listed(
            (earlier.gpu_hours, words.hours), (earlier.sm_active, lambda n: f"SM activity {_percent(n)}"),
            (earlier.cost_usd, words.usd),
        )  # fmt: skip
        rows.append(CardRow("Series", f"{of}: {medians}"))
    covered = [f"{words.percent(use.observed)} of its GPU time was observed"] if use.observed < 0.995 else []
    if card.data_since is not None:
        covered.append(f"figures from {minute(card.data_since)} on; no earlier data")
    rows += [CardRow("Coverage", "; ".join(covered))] if covered else []
    return (*rows, CardRow("Next step", card.next_step.text))


def worst_first(cards: Sequence[Card]) -> tuple[Card, ...]:
    """By what their idle GPU-hours cost, then by the hours, then by what they cost; the unknown last."""
    return tuple(
        sorted(cards, key=lambda c: (-(c.idle_usd or 0.0), -(c.use.idle_gpu_hours or 0.0), -c.gpu_hours, c.id))
    )


def card_list(cards: Sequence[Card]) -> CardList:
    """The table of these cards, in their order, and ``12 jobs, 340 GPU-hours, 41.0 of them idle, $1,234 ($120 idle)``
    with what that leaves out."""
    short = short_ids(card.id for card in cards)
    rows = tuple(
        (
            short[card.id], card.job_id or _pod(card), card.name, _state(card), f"{card.gpu_count}",
            _hours(card.gpu_hours), words.NONE if card.use.sm_active is None else _percent(card.use.sm_active),
            _hours(card.use.idle_gpu_hours), words.NONE if card.cost_usd is None else words.usd(card.cost_usd),
            card.next_step.text,
        )
        for card in cards
    )  # fmt: skip
    idle = [card.use.idle_gpu_hours for card in cards if card.use.idle_gpu_hours is not None]
    costs = [card.cost_usd for card in cards if card.cost_usd is not None]
    sums = [words.counted(len(cards), "job"), words.hours(sum(card.gpu_hours for card in cards))]
    sums += [f"{_hours(sum(idle))} of them idle"] if idle else []
    wasted = words.usd(sum(card.idle_usd or 0.0 for card in cards))
    sums += [f"{words.usd(sum(costs))} ({wasted} idle)"] if costs else []
    counts = {"idle hours": len(cards) - len(idle), "cost": len(cards) - len(costs)}
    left = "; ".join(f"{what} unknown for {count}" for what, count in counts.items() if count)
    return CardList(_HEADS, rows, _RIGHT, f"Total: {', '.join(sums)}{f' ({left})' if left else ''}")


def _pod(card: Card) -> str:
    return f"{card.namespace}/{card.pod}" if card.namespace else card.pod or ""


def _state(card: Card) -> str:
    """Slurm's word where it has one that fits, else what telemetry tells."""
    state = "running when telemetry ended" if card.state == "unknown" else card.state
    if card.scheduler_state and (card.state == "ended" or card.scheduler_state == "RUNNING"):
        state = card.scheduler_state
    return f"{state}, requeued {words.counted(card.restarts, 'time')}" if card.restarts else state


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
    times = f": {', '.join(listed)} of its time" if listed else ""
    return f"{judged.bottleneck} (confidence {words.percent(judged.bottleneck_confidence)}){times}"


def _idle(card: Card, idle: float) -> str:
    since, unused = card.use.idle_since, card.use.unused
    share = f" ({words.percent(idle / card.gpu_hours)})" if card.gpu_hours > 0 else ""
    usd = f", {words.usd(card.idle_usd)}" if card.idle_usd is not None else ""
    never = f"; {unused} of {card.gpu_count} GPUs never used" if unused else ""
    is_told = since is not None and unused != card.gpu_count and card.end - since >= 60
    last = f"; last activity {minute(since)}" if since is not None and is_told else ""
    return f"{words.hours(idle)}{share}{usd}{never}{last}"


def _listed(*values: tuple[float | None, Callable[[float], str]]) -> str:
    """The known ones in words, with commas."""
    return ", ".join(words_of(value) for value, words_of in values if value is not None)


def _percent(value: float) -> str:
    """``42 %``, and ``0.3 %`` of what would be rounded to nothing."""
    return f"{value * 100:.1f} %" if 0.0005 <= value < 0.0095 else words.percent(value)


def _memory(value: float) -> str:
    """``71.2 GiB``, as a GPU's memory is sold."""
    return f"{value / 2**30:.3g} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def _size(value: float) -> str:
    """``61.2 MB``: powers of ten."""
    for unit, power in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= power:
            return f"{value / power:.3g} {unit}"
    return f"{value:.0f} B"


def _hours(value: float | None) -> str:
    return words.NONE if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
