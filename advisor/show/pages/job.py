"""The card of one job, or a list of cards, as a page; and as JSON (schema ``skuwise.card/1``) and CSV."""

import json
from collections.abc import Callable, Sequence

from ...core import formatting as words
from ...core.advice_json import plain
from ...core.card_types import LIST_SCHEMA, SCHEMA, Card
from ...core.ids import short_ids
from ...core.timestamps import minute, span
from ..document import Document, Figures, Table, brief, section

_SHARES_LISTED, _SHARE_MIN = 4, 0.005
_TEXT_MAX = 172  # two lines of 100 columns beside the label
_NAME_MAX = 24  # in a list
_ENERGY_BASES = {"counter": "energy counters", "power": "power times time", "both": "energy counters and power"}
CSV_COLUMNS = (
    "id", "job_id", "name", "user", "account", "namespace", "state", "start", "end", "gpu_sku", "gpus", "gpu_hours",
    "sm_active", "idle_gpu_hours", "energy_kwh", "cost_usd", "idle_usd", "next_step",
)  # fmt: skip
# Signs of rising levels, and of no data; the second for terminals that show only ASCII.
_SIGNS, _ASCII_SIGNS = ("▁▂▃▄▅▆▇█", "·"), ("_.:-=+*#", "?")


def card_document(card: Card, *, ascii_only: bool = False) -> Document:
    """The page of one card: what to do next, then a figure a line; of a missing figure the reason."""
    title = _title(card)
    owner = words.owner_words(card.owner) or "owner unknown"
    cluster = f", cluster {card.cluster}" if card.cluster else ""
    nodes = f"{'nodes' if len(card.nodes) > 1 else 'node'} {words.listed(card.nodes) or 'unknown'}"
    rows = tuple((name, brief(text, _TEXT_MAX)) for name, text in _rows(card, ascii_only).items() if text)
    return Document(
        title=title,
        heading=f"{title}  {card.id}",
        lead=brief(f"Next step: {card.next_step.text}", _TEXT_MAX),
        window=brief(f"{owner}{cluster}; {nodes}", _TEXT_MAX),
        sections=(section("", Figures(rows)),),
    )


def _rows(card: Card, ascii_only: bool) -> dict[str, str]:
    use, judged, asked, course = card.use, card.judged, card.asked, card.course

    def figure(name: str, value: float | None, text: Callable[[float], str], missing: str = "not reported") -> str:
        return f"unknown: {card.missing.get(name, missing)}" if value is None else text(value)

    def activity(name: str, mean: float | None, levels: Sequence[float | None]) -> str:
        signs, no_data = _ASCII_SIGNS if ascii_only else _SIGNS
        drawn = (no_data if n is None else signs[min(int(max(n, 0.0) * len(signs)), len(signs) - 1)] for n in levels)
        return figure(name, mean, lambda n: f"{''.join(drawn)}  mean {_percent(n)}".strip())

    def memory(peak: float) -> str:
        total = use.mem_total_bytes
        of = f" of {_gib(total)} ({words.percent(peak / total)})" if total else ""
        return f"peak {_gib(peak)}{of} on one GPU{', with what shares it' if card.shared else ''}"

    def energy(kwh: float) -> str:
        amount = f"{kwh:,.0f} kWh" if kwh >= 100 else f"{kwh:.3g} kWh"
        return f"{amount} at the GPUs, by {_ENERGY_BASES.get(card.energy_basis or '', 'unknown basis')}"

    requested = _listed(
        (asked.gpus, lambda n: words.counted(round(n), "GPU")),
        (asked.cpus, lambda n: words.counted(round(n), "CPU")),
        (asked.mem_bytes, lambda n: f"{_gib(n)} of memory"),
    )
    host = _listed(
        (use.cpu, lambda n: f"CPU {_percent(n)}"),
        (use.io_wait, lambda n: f"I/O wait {_percent(n)}"),
        (use.disk_read_bytes_per_second, lambda n: f"disk read {n / 1e6:,.3g} MB/s"),
        (use.disk_write_bytes_per_second, lambda n: f"written {n / 1e6:,.3g} MB/s"),
    )
    earlier, series = card.compared, ""
    if earlier is not None:
        of = "1 earlier run" if earlier.runs == 1 else f"median of {earlier.runs} earlier runs"
        activity_words = (earlier.sm_active, lambda n: f"SM activity {_percent(n)}")
        series = f"{of}: {_listed((earlier.gpu_hours, words.hours), activity_words, (earlier.cost_usd, words.usd))}"
    observed = f"{words.percent(use.observed)} of its GPU time was observed" if use.observed < 0.995 else ""
    since = f"figures from {minute(card.data_since)} on; no earlier data" if card.data_since is not None else ""
    kept = f"; from the card kept on {minute(card.kept_at)}" if card.kept_at is not None else ""
    what, part = ("GPU", "") if card.gpu_part >= 1 else ("MIG instance", f", each {card.gpu_part:.4g} of a GPU")
    gpus = f"{words.counted(card.gpu_count, what)} ({card.gpu_sku or 'model unknown'}){part}"
    shared = ", shared with other work" if card.shared else ""
    by_time = sorted(judged.time_shares.items(), key=lambda share: -share[1])
    shares = [f"{label} {words.percent(share)}" for label, share in by_time if share >= _SHARE_MIN][:_SHARES_LISTED]
    times = f": {', '.join(shares)} of its time" if shares else ""
    price = card.price.text if card.price else "price unknown"
    return {
        "State": f"{_state(card)}{kept}",
        "Time": f"{minute(card.start)} to {minute(card.end)}, {span(card.elapsed_seconds)}",
        "GPUs": f"{gpus}, {words.hours(card.gpu_hours)}{shared}",
        "Requested": requested or f"unknown: {asked.reason or 'not in the job table'}",
        "Kind": f"{judged.kind} (confidence {words.percent(judged.kind_confidence)})",
        "Bottleneck": f"{judged.bottleneck} (confidence {words.percent(judged.bottleneck_confidence)}){times}",
        "SM activity": activity("sm_active", use.sm_active, course.sm_active),
        "Tensor": activity("tensor_active", use.tensor_active, course.tensor_active),
        "Memory": figure("mem_peak_bytes", use.mem_peak_bytes, memory),
        "NVLink": figure("nvlink", use.nvlink, lambda n: f"{_percent(n)} of its bandwidth, mean"),
        "Fabric": figure("fabric", use.fabric, lambda n: f"{_percent(n)} of its line rate, mean"),
        "Host": f"{host} (mean, whole nodes)" if host else figure("cpu", None, str),
        "Energy": figure("kwh", card.kwh, energy, "not measured"),
        "Idle": figure("idle_gpu_hours", use.idle_gpu_hours, lambda n: _idle(card, n), "not measured"),
        "Cost": figure("cost_usd", card.cost_usd, lambda n: f"{words.usd(n)}; {price}", "no price is known"),
        "Series": series,
        "Coverage": "; ".join(filter(None, (observed, since))),
    }  # fmt: skip


def worst_first(cards: Sequence[Card]) -> list[Card]:
    """By the cost of idle GPU-hours, then by the hours, then by all GPU-hours; unknown last."""
    return sorted(cards, key=lambda c: (-(c.idle_usd or 0.0), -(c.use.idle_gpu_hours or 0.0), -c.gpu_hours, c.id))


def cards_document(cards: Sequence[Card]) -> Document:
    """The page of several cards, in their order: a table, and a total with what it does not include."""
    short = short_ids(card.id for card in cards)
    heads = ("ID", "Job", "Name", "State", "GPUs", "GPU-hours", "SM", "Idle hours", "Cost", "Next step")
    rows = tuple(
        (
            short[c.id], *(brief(text, _NAME_MAX) for text in (c.job_id or _pod(c), c.name, _state(c))),
            f"{c.gpu_count}", words.bare_hours(c.gpu_hours), _listed((c.use.sm_active, _percent)) or words.NONE,
            _listed((c.use.idle_gpu_hours, words.bare_hours)) or words.NONE,
            _listed((c.cost_usd, words.usd)) or words.NONE,
            brief(c.next_step.text, _TEXT_MAX),
        )
        for c in cards
    )  # fmt: skip
    idle = [card.use.idle_gpu_hours for card in cards if card.use.idle_gpu_hours is not None]
    costs = [card.cost_usd for card in cards if card.cost_usd is not None]
    wasted = words.usd(sum(card.idle_usd or 0.0 for card in cards))
    sums = [words.counted(len(cards), "job"), words.hours(sum(card.gpu_hours for card in cards))]
    sums += [f"{words.bare_hours(sum(idle))} of them idle"] if idle else []
    sums += [f"{words.usd(sum(costs))} ({wasted} idle)"] if costs else []
    counts = {"idle hours": len(cards) - len(idle), "cost": len(cards) - len(costs)}
    left = "; ".join(f"{what} unknown for {count}" for what, count in counts.items() if count)
    return Document(
        title="Jobs",
        heading="Jobs, the most idle first",
        window=f"Total: {', '.join(sums)}{f' ({left})' if left else ''}",
        sections=(section("", Table(heads, rows, right=(4, 5, 6, 7, 8))),),
    )


def cards_json(cards: Card | Sequence[Card]) -> str:
    """A card in its contract (RFC 3339 in UTC, base units, null for what is missing), or a document of several."""
    values = [{"schema": SCHEMA, **plain(card)} for card in ([cards] if isinstance(cards, Card) else cards)]
    document = values[0] if isinstance(cards, Card) else {"schema": LIST_SCHEMA, "cards": values}
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def csv_rows(cards: Sequence[Card]) -> list[dict[str, object]]:
    """One row a card by column, with units in the names; what is missing is None."""
    rows = []
    for card in cards:
        more = {"gpus": card.gpu_count, "energy_kwh": card.kwh, "next_step": card.next_step.text}
        values = plain(card) | plain(card.owner) | plain(card.use) | more
        rows.append({name: values[name] for name in CSV_COLUMNS})
    return rows


def _title(card: Card) -> str:
    about = {
        "slurm": f" (Slurm job {brief(card.job_id)})" if card.job_id else " (Slurm job)",
        "kubernetes": f" (pod {brief(_pod(card))})" if card.pod else " (Kubernetes)",
    }
    return f"{brief(card.name or 'unnamed workload')}{about.get(card.scheduler, '')}"


def _pod(card: Card) -> str:
    return f"{card.namespace}/{card.pod}" if card.namespace else card.pod or ""


def _state(card: Card) -> str:
    state = "running when telemetry ended" if card.state == "unknown" else card.state
    if card.scheduler_state and (card.state == "ended" or card.scheduler_state == "RUNNING"):
        state = card.scheduler_state
    return f"{state}, requeued {words.counted(card.restarts, 'time')}" if card.restarts else state


def _idle(card: Card, idle: float) -> str:
    since, unused = card.use.idle_since, card.use.unused
    share = f" ({words.percent(idle / card.gpu_hours)})" if card.gpu_hours > 0 else ""
    usd = f", {words.usd(card.idle_usd)}" if card.idle_usd is not None else ""
    never = f"; {unused} of {card.gpu_count} GPUs never used" if unused else ""
    is_recent = since is None or unused == card.gpu_count or card.end - since < 60
    last = "" if since is None or is_recent else f"; last activity {minute(since)}"
    return f"{words.hours(idle)}{share}{usd}{never}{last}"


def _listed(*values: tuple[float | None, Callable[[float], str]]) -> str:
    return ", ".join(words_of(value) for value, words_of in values if value is not None)


def _percent(value: float) -> str:
    """``42 %``, and ``0.3 %`` of what would be rounded to nothing."""
    return f"{value * 100:.1f} %" if 0.0005 <= value < 0.0095 else words.percent(value)


def _gib(value: float) -> str:
    return f"{value / 2**30:.3g} GiB"
