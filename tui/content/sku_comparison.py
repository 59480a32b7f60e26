"""Two GPUs or two nodes of the catalog beside each other, and how long typical work takes on one against the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...advisor.core import formatting as words
from ...rules.catalog.types import GpuSku, NodeSku, Price
from ..widgets.side_by_side import Pair

if TYPE_CHECKING:
    from ...rules.catalog.loader import Catalog

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SkuComparison:
    """`pairs`: figures; `times`: of typical work, in words; `notes`: what these rest on and what forbids the move."""

    heads: tuple[str, str]
    pairs: tuple[Pair, ...]
    times: tuple[str, ...]
    notes: tuple[str, ...]


def compared(first: GpuSku | NodeSku, second: GpuSku | NodeSku, catalog: Catalog) -> SkuComparison:
    """Two of a kind. The times are those of ``skuwise skus compare``."""
    if isinstance(first, GpuSku) and isinstance(second, GpuSku):
        pairs, source, target = _gpu_pairs(first, second, catalog), first, second
    elif isinstance(first, NodeSku) and isinstance(second, NodeSku):
        pairs, source, target = _node_pairs(first, second), catalog.gpu(first.gpu), catalog.gpu(second.gpu)
    else:
        raise TypeError("a GPU and a node are not to be compared")
    if source is None or target is None:
        times, notes = (), ("A GPU is not in the catalog.",)
    else:
        times, notes = _times(source, target, catalog)
    return SkuComparison((first.name, second.name), pairs, times, (*notes, *_prices(first, second, catalog)))


def _times(source: GpuSku, target: GpuSku, catalog: Catalog) -> tuple[tuple[str, ...], tuple[str, ...]]:
    from ...advisor.cli.sku_estimates import compare_typical  # noqa: PLC0415 - it needs numpy: not at the start

    found = compare_typical(source, target, catalog)
    times = tuple(f"{phase}: {words.time_words(one.time_ratio)}" for phase, one in found)
    blocked = {why: None for _, one in found for why in one.blocked_by}
    bases: dict[str, list[str]] = {}
    for phase, one in found:
        bases.setdefault(one.basis, []).append(phase)
    told = (f"{words.listed(phases)}: {basis}" for basis, phases in bases.items())
    return times, (*(f"Blocked: {why}" for why in blocked), *told)


def _gpu_pairs(first: GpuSku, second: GpuSku, catalog: Catalog) -> tuple[Pair, ...]:
    def rate(gpu: GpuSku, precision: str) -> str:
        value = gpu.dense_flops.get(precision)
        return "none" if value is None else f"{value / 1e12:,.0f} TFLOP/s"

    def share(value: float | None) -> str:
        return "not measured" if value is None else f"{value * 100:.0f} %"

    def link(gpu: GpuSku) -> str:
        rate = gpu.link_bytes_per_second
        return "none" if rate is None else f"{gpu.link_name} {rate / 1e9:,.0f} GB/s"

    def hourly(gpu: GpuSku) -> str:
        node = _cheapest_node(gpu, catalog)
        price = _cheapest(node) if node is not None else None
        return f"{words.usd(price.usd_per_hour / node.gpu_count)} /GPU-hour" if node and price else _UNKNOWN

    told = (
        ("architecture", lambda g: g.architecture),
        ("FP16", lambda g: rate(g, "fp16")),
        ("FP8", lambda g: rate(g, "fp8")),
        ("sustained compute", lambda g: share(g.achieved.bf16_gemm)),
        ("memory", lambda g: f"{g.mem_bytes / 1024**3:.0f} GiB"),
        ("memory bandwidth", lambda g: f"{g.mem_bandwidth_bytes_per_second / 1e9:,.0f} GB/s"),
        ("sustained memory", lambda g: share(g.achieved.mem)),
        ("link one way", link),
        ("power", lambda g: f"{g.tdp_watts:g} W"),
        ("MIG slices", lambda g: str(g.mig_slices_max or "none")),
        ("list price from", hourly),
    )
    return tuple(Pair(name, text(first), text(second)) for name, text in told)


def _node_pairs(first: NodeSku, second: NodeSku) -> tuple[Pair, ...]:
    def hourly(node: NodeSku) -> str:
        price = _cheapest(node)
        return _UNKNOWN if price is None else f"{words.usd(price.usd_per_hour)} {price.region}"

    def each(node: NodeSku) -> str:
        price = _cheapest(node)
        return _UNKNOWN if price is None else words.usd(price.usd_per_hour / max(node.gpu_count, 1))

    told = (
        ("GPUs", lambda n: f"{n.gpu_count} x {n.gpu}"),
        ("price/node-hour", hourly),
        ("/GPU-hour", each),
        ("fabric", words.fabric_words),
        ("link", lambda n: n.intra_node_link),
        ("CPUs", lambda n: f"{n.vcpus} virtual" if n.vcpus is not None else _UNKNOWN),
        ("host memory", lambda n: f"{n.host_mem_bytes / 1024**3:,.0f} GiB" if n.host_mem_bytes else _UNKNOWN),
    )
    return tuple(Pair(name, text(first), text(second)) for name, text in told)


def _cheapest(node: NodeSku) -> Price | None:
    return min(node.prices, key=lambda p: (p.usd_per_hour, p.region), default=None)


def _cheapest_node(gpu: GpuSku, catalog: Catalog) -> NodeSku | None:
    """The node whose GPUs cost least, each."""
    priced = [n for n in catalog.nodes_of(gpu.name) if n.prices]
    return min(priced, key=lambda n: (min(p.usd_per_hour for p in n.prices) / n.gpu_count, n.name), default=None)


def _prices(first: GpuSku | NodeSku, second: GpuSku | NodeSku, catalog: Catalog) -> Sequence[str]:
    """What each dollar rests on."""
    nodes = [_cheapest_node(one, catalog) if isinstance(one, GpuSku) else one for one in (first, second)]
    known = [_cheapest(node) for node in nodes if node is not None]
    return [f"{p.sku}, {p.region}: {words.price_words(p)}" for p in known if p is not None]
