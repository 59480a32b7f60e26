"""What a card shows, as named lines of words: the same for a terminal, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core import formatting as words
from ..core.card_types import Card
from ..core.timestamps import minute, span

_NODES_LISTED = 3
_SHARES_LISTED = 4
_SHARE_MIN = 0.005
_BY_ENERGY = {
    "counter": "by energy counters",
    "power": "power times time",
    "both": "energy counters and power readings",
}
_STATE = {"running": "running", "ended": "ended", "unknown": "running when telemetry ended"}


@dataclass(frozen=True, slots=True)
class CardRow:
    """`label` and `text` of one line. `course`: levels (0..1, None: no data) that are drawn before the text."""

    label: str
    text: str
    course: tuple[float | None, ...] = ()


def card_title(card: Card) -> str:
    """``train-7b (Slurm job 4711)``."""
    where = {"slurm": f"Slurm job {card.job_id}" if card.job_id else "Slurm job", "kubernetes": f"pod {pod_of(card)}"}
    if card.scheduler == "kubernetes" and not card.pod:
        return f"{card.name or 'unnamed workload'} (Kubernetes)"
    about = where.get(card.scheduler)
    return f"{card.name or 'unnamed workload'}{f' ({about})' if about else ''}"


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
    use, judged = card.use, card.judged
    kept = f"; from the card kept on {minute(card.kept_at)}" if card.kept_at is not None else ""
    rows = [
        CardRow("State", f"{state_words(card)}{kept}"),
        CardRow("Time", f"{minute(card.start)} to {minute(card.end)}, {span(card.elapsed_seconds)}"),
        CardRow("GPUs", _gpus(card)),
        CardRow("Asked for", _asked(card)),
        CardRow("Kind", f"{judged.kind} (confidence {words.percent(judged.kind_confidence)})"),
        CardRow("Bottleneck", _bottleneck(card)),
        _course(card, "SM activity", "sm_active"),
        _course(card, "Tensor", "tensor_active"),
        CardRow("Memory", _memory(card)),
        CardRow("NVLink", _ratio(card, "nvlink", "of its bandwidth, mean")),
        CardRow("Fabric", _ratio(card, "fabric", "of its line rate, mean")),
        CardRow("Host", _host(card)),
        CardRow("Energy", _energy(card)),
        CardRow("Idle", _idle(card)),
        CardRow("Cost", _cost(card)),
    ]
    if card.compared is not None:
        rows.append(CardRow("Series", _series(card)))
    covered = [
        f"{words.percent(use.observed)} of its GPU time was observed" if use.observed < 0.995 else "",
        f"figures from {minute(card.data_since)} on; no earlier data" if card.data_since is not None else "",
    ]
    if any(covered):
        rows.append(CardRow("Coverage", "; ".join(part for part in covered if part)))
    return (*rows, CardRow("Next step", card.next_step.text))


def _gpus(card: Card) -> str:
    what = "GPU" if card.gpu_part >= 1 else "MIG instance"
    sku = f" ({card.gpu_sku})" if card.gpu_sku else " (model unknown)"
    part = "" if card.gpu_part >= 1 else f", each {words.figure(card.gpu_part)} of a GPU"
    shared = ", shared with other work" if card.shared else ""
    return f"{words.counted(card.gpu_count, what)}{sku}{part}, {words.hours(card.gpu_hours)}{shared}"


def _asked(card: Card) -> str:
    asked = card.asked
    told = [
        words.counted(round(asked.gpus), "GPU") if asked.gpus is not None else "",
        words.counted(round(asked.cpus), "CPU") if asked.cpus is not None else "",
        f"{memory_size(asked.mem_bytes)} of memory" if asked.mem_bytes is not None else "",
    ]
    return ", ".join(part for part in told if part) or f"unknown: {asked.reason or 'not in the job table'}"


def _bottleneck(card: Card) -> str:
    judged = card.judged
    shares = sorted(judged.time_shares.items(), key=lambda one: -one[1])
    listed = [f"{label} {words.percent(share)}" for label, share in shares if share >= _SHARE_MIN][:_SHARES_LISTED]
    told = f": {', '.join(listed)} of its time" if listed else ""
    return f"{judged.bottleneck} (confidence {words.percent(judged.bottleneck_confidence)}){told}"


def _course(card: Card, label: str, name: str) -> CardRow:
    mean = getattr(card.use, name)
    levels: Sequence[float | None] = getattr(card.course, name)
    if mean is None:
        return CardRow(label, f"unknown: {card.missing.get(name, 'not reported')}")
    return CardRow(label, f"mean {percent_of(mean)}", tuple(levels))


def _memory(card: Card) -> str:
    peak, total = card.use.mem_peak_bytes, card.use.mem_total_bytes
    if peak is None:
        return f"unknown: {card.missing.get('mem_peak_bytes', 'not reported')}"
    of = f" of {memory_size(total)} ({words.percent(peak / total)})" if total else ""
    return f"peak {memory_size(peak)}{of} on one GPU{', with what shares it' if card.shared else ''}"


def _ratio(card: Card, name: str, of: str) -> str:
    value = getattr(card.use, name)
    return f"unknown: {card.missing.get(name, 'not reported')}" if value is None else f"{percent_of(value)} {of}"


def _host(card: Card) -> str:
    use = card.use
    told = [
        f"CPU {percent_of(use.cpu)}" if use.cpu is not None else "",
        f"I/O wait {percent_of(use.io_wait)}" if use.io_wait is not None else "",
        f"disk read {size(use.disk_read_bytes_per_second)}/s" if use.disk_read_bytes_per_second is not None else "",
        f"written {size(use.disk_write_bytes_per_second)}/s" if use.disk_write_bytes_per_second is not None else "",
    ]
    known = ", ".join(part for part in told if part)
    return f"{known} (mean, whole nodes)" if known else f"unknown: {card.missing.get('cpu', 'not reported')}"


def _energy(card: Card) -> str:
    if card.kwh is None:
        return f"unknown: {card.missing.get('kwh', 'not measured')}"
    return f"{_kwh(card.kwh)} at the GPUs, {_BY_ENERGY.get(card.energy_basis or '', 'basis unknown')}"


def _kwh(value: float) -> str:
    return f"{value:,.0f} kWh" if value >= 100 else f"{value:.3g} kWh"


def _idle(card: Card) -> str:
    idle = card.use.idle_gpu_hours
    if idle is None:
        return f"unknown: {card.missing.get('idle_gpu_hours', 'not measured')}"
    share = f" ({words.percent(idle / card.gpu_hours)})" if card.gpu_hours > 0 else ""
    usd = f", {words.usd(card.idle_usd)}" if card.idle_usd is not None else ""
    never = f"; {card.use.unused} of {card.gpu_count} GPUs never used" if card.use.unused else ""
    since = ""
    if card.use.idle_since is not None and card.use.unused != card.gpu_count and card.end - card.use.idle_since >= 60:
        since = f"; last activity {minute(card.use.idle_since)}"
    return f"{words.hours(idle)}{share}{usd}{never}{since}"


def _cost(card: Card) -> str:
    if card.cost_usd is None:
        return f"unknown: {card.missing.get('cost_usd', 'no price is known')}"
    return f"{words.usd(card.cost_usd)}; {card.price.text if card.price else 'price unknown'}"


def _series(card: Card) -> str:
    told = card.compared
    assert told is not None
    parts = [
        words.hours(told.gpu_hours) if told.gpu_hours is not None else "",
        f"SM activity {percent_of(told.sm_active)}" if told.sm_active is not None else "",
        words.usd(told.cost_usd) if told.cost_usd is not None else "",
    ]
    of = "1 earlier run" if told.runs == 1 else f"median of {told.runs} earlier runs"
    return f"{of}: {', '.join(part for part in parts if part)}"


def percent_of(value: float) -> str:
    """``42 %``, and ``0.3 %`` of what would be rounded to nothing."""
    return f"{value * 100:.1f} %" if 0 < value < 0.0095 and value >= 0.0005 else words.percent(value)


def memory_size(value: float) -> str:
    """``71.2 GiB``, as a GPU's memory is sold."""
    return f"{value / 2**30:.3g} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def size(value: float | None) -> str:
    """``61.2 MB``: powers of ten."""
    if value is None:
        return "unknown"
    for unit, power in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= power:
            return f"{value / power:.3g} {unit}"
    return f"{value:.0f} B"
