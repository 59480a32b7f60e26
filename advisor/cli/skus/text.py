"""One part of the catalog as people read it, every dollar with its source and its date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from ....rules.base.output import columns
from ....rules.catalog.fabric_premium import Premium, fabric_premium, nvlink_premium
from ....rules.catalog.loader import Accelerator, Catalog
from ....rules.catalog.types import FigureSource, GpuSku, NodeSku, Price
from ...core import formatting as words

Sku = GpuSku | NodeSku | Accelerator
UNKNOWN = "unknown"


def sku_text(found: Sku, catalog: Catalog) -> str:
    """One part of the catalog with every figure and its source, for a person."""
    if isinstance(found, GpuSku):
        return _gpu_text(found, catalog)
    return _node_text(found, catalog) if isinstance(found, NodeSku) else _accelerator_text(found)


def _gpu_text(gpu: GpuSku, catalog: Catalog) -> str:
    eta = gpu.achieved
    lowest = "" if gpu.min_limit_watts is None else f", lowest {gpu.min_limit_watts:g} W"  # as the driver has it
    achieved = {
        "BF16 matrix": eta.bf16_gemm, "FP8 matrix": eta.fp8_gemm, "memory": eta.mem, "all-reduce": eta.link_allreduce,
        "FP32 matrix": eta.fp32_gemm,
    }  # fmt: skip
    rows = {
        "architecture": f"{gpu.architecture}, compute capability {gpu.compute_capability}, {gpu.form_factor}",
        "SMs and clocks": f"{gpu.sm_count} SMs, {gpu.boost_hertz / 1e6:g} MHz at most",
        "clock of the rates": f"{gpu.tensor_reference_hertz / 1e6:g} MHz",
        **_rates(gpu),
        "memory": f"{gpu.mem_bytes / 1024**3:.1f} GiB at {gpu.mem_bandwidth_bytes_per_second / 1e9:g} GB/s",
        f"{gpu.link_name} one way": _rate(gpu.link_bytes_per_second, "none"),
        "PCIe one way": f"{gpu.pcie_bytes_per_second / 1e9:.1f} GB/s",
        "power limit": f"{gpu.tdp_watts:g} W{lowest}",
        "MIG slices": str(gpu.mig_slices_max or "none"),
        **{
            f"achieved, {name}": f"{share:.2f} of the peak" if share is not None else "not measured"
            for name, share in achieved.items()
        },
        "also called": ", ".join(gpu.aliases) or "nothing else",
    }
    return _page(gpu.name, rows, gpu.source, [price for node in catalog.nodes_of(gpu.name) for price in node.prices])


def _node_text(node: NodeSku, catalog: Catalog) -> str:
    rows = {
        "GPUs": f"{node.gpu_count} x {node.gpu}, joined by {node.intra_node_link}",
        "fabric": words.fabric_words(node),
        "RDMA": {True: "yes", False: "no", None: UNKNOWN}[node.fabric.rdma],
        "CPUs": f"{node.vcpus} virtual" if node.vcpus is not None else UNKNOWN,
        "host memory": f"{node.host_mem_bytes / 1024**3:g} GiB" if node.host_mem_bytes is not None else UNKNOWN,
        "other fabric, same host": ", ".join(twin.name for twin in catalog.fabric_twins(node)) or "none known",
    }
    more = [(f"{part} alone", _premium_words(premium, node, catalog)) for part, premium in interconnect(node, catalog)]
    return _page(node.name, [*rows.items(), *more], node.source, node.prices)


def interconnect(node: NodeSku, catalog: Catalog) -> list[tuple[str, Premium]]:
    """What each interconnect of a node costs on its own, by region; its part is ``fabric`` or ``NVLink``."""
    found = []
    for price in node.prices:
        for part, premium_of in (("fabric", fabric_premium), ("NVLink", nvlink_premium)):
            premium = premium_of(catalog, catalog.price, node, price.region)
            if premium is not None:
                found.append((part, premium))
    return found


def _premium_words(premium: Premium, node: NodeSku, catalog: Catalog) -> str:
    cost = f"{premium.usd_per_hour:.3f} USD/h, {premium.share * 100:.1f} % of the price in {premium.price.region}"
    if premium.twin is None:
        return f"{cost}, assumed ({premium.prior}, from pairs elsewhere): no pair of nodes here shows it"
    twin = catalog.nodes[premium.twin.sku]
    slower = f" of {twin.gpu}, a slower part as well" if twin.gpu != node.gpu else f", {words.fabric_words(twin)}"
    return f"{cost}, over {twin.name}{slower} ({premium.twin.usd_per_hour:.3f} USD/h, {premium.twin.as_of})"


def _accelerator_text(one: Accelerator) -> str:
    rows = {
        "vendor": one.vendor,
        **_rates(one),
        "memory": f"{one.mem_bytes / 1024**3:g} GiB" if one.mem_bytes is not None else UNKNOWN,
        "memory bandwidth": _rate(one.mem_bandwidth_bytes_per_second, UNKNOWN),
        "note": one.note or "none",
    }
    return _page(f"{one.name} (information only: skuwise reads no telemetry of it)", rows, one.source)


def _rates(gpu: GpuSku | Accelerator) -> dict[str, str]:
    return {f"dense {precision}": f"{rate / 1e12:g} T(FL)OP/s" for precision, rate in gpu.dense_flops.items()}


def _page(
    title: str, rows: Mapping[str, str] | Sequence[tuple[str, str]], source: FigureSource,
    prices: Sequence[Price] | None = None,
) -> str:  # fmt: skip
    """`prices` None: of what no node of the catalog has."""
    dated = (f"as of {source.as_of}" if source.as_of else "", f"grade {source.grade}" if source.grade else "")
    pairs = [
        *(rows.items() if isinstance(rows, Mapping) else rows),
        ("source", "; ".join(filter(None, (source.text, *dated)))),
    ]
    width = max(len(name) for name, _ in pairs)
    lines = [title, *(f"  {name.ljust(width)}  {value}" for name, value in pairs)]
    if prices is not None:
        heads = ("list price of", "region", "USD/h", "as of", "source")
        cells = [(p.sku, p.region, f"{p.usd_per_hour:.3f}", p.as_of, p.source) for p in prices]
        lines += ["", columns(heads, cells, right=(2,)) if cells else "No list price is known."]
    return "\n".join(lines)


def _rate(value: float | None, none: str) -> str:
    return none if value is None else f"{value / 1e9:g} GB/s"


SCHEMA = "skuwise.skus/1"


def gpu_json(gpu: GpuSku | Accelerator) -> dict[str, object]:
    """Every figure but the shapes of MIG instances."""
    document = asdict(replace(gpu, dense_flops=dict(gpu.dense_flops)))
    document.pop("mig_profiles", None)
    return document


def node_json(node: NodeSku, catalog: Catalog) -> dict[str, object]:
    return {
        **asdict(node),
        "fabric_twins": [twin.name for twin in catalog.fabric_twins(node)],
        "interconnect": [
            {
                "part": part.casefold(),
                "region": premium.price.region,
                "usd_per_hour": premium.usd_per_hour,
                "share_of_price": premium.share,
                "basis": "assumed" if premium.assumed else "pair",
                "prior": premium.prior,
                "over": premium.twin.sku if premium.twin else None,
            }
            for part, premium in interconnect(node, catalog)
        ],
    }
