"""``skuwise skus``: the catalog as people read it, every dollar with its source and its date."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.sanitize import clean
from ...rules.base.text_table import columns
from ...rules.base.typed_fields import suggest
from ...rules.catalog.fabric_premium import Premium, fabric_premium, nvlink_premium
from ...rules.catalog.gpu_files import Accelerator, normalise
from ...rules.catalog.loader import Catalog, load_catalog
from ...rules.catalog.types import FigureSource, GpuSku, NodeSku, Price
from ..core import formatting as words
from .skus_compare import configure_compare
from .skus_plan import configure_plan

_UNKNOWN = "unknown"
_SHOWN = ("fp16", "fp8")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add ``list`` and ``show``, and those that other modules bring (``compare``, ``plan``)."""
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="GPUs, nodes and list prices")
    listing.add_argument("--provider", metavar="P", help="only nodes of this provider")
    _common(listing)
    listing.set_defaults(run=_list)
    show = actions.add_parser("show", help="one GPU or node with every figure and its source")
    show.add_argument("name", metavar="NAME", help="a GPU (H100-SXM5, 'NVIDIA L40S') or node (aws/p5.48xlarge)")
    _common(show)
    show.set_defaults(run=_show)
    configure_compare(actions.add_parser("compare", help="how long typical work takes on another GPU"))
    configure_plan(actions.add_parser("plan", help="what a model needs to be trained, and what to be served"))


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--rules", type=Path, metavar="DIR", help="a site's own catalog files, over those that ship")


def _list(options: argparse.Namespace) -> int:
    catalog = load_catalog(options.rules)
    nodes = _nodes_of_provider(catalog, options.provider)
    if options.format == "json":
        document: dict[str, object] = {"schema": "skuwise.skus/1"}
        if options.provider is None:
            document["gpus"] = [_gpu_json(gpu) for gpu in catalog.gpus.values()]
            document["accelerators"] = [_accelerator_json(one) for one in catalog.accelerators]
        document["nodes"] = [_node_json(node, catalog) for node in nodes]
        _out(json.dumps(document, indent=2, allow_nan=False))
        return EXIT_DONE
    if options.provider is None:
        _out(_gpu_table(catalog))
        _out("")
    _out(_node_table(nodes))
    _out("")
    _out("List prices of the whole node. 'skuwise skus show NAME' has every source.")
    return EXIT_DONE


def _show(options: argparse.Namespace) -> int:
    catalog = load_catalog(options.rules)
    found = _find(catalog, options.name)
    if options.format == "json":
        if isinstance(found, GpuSku):
            document: dict[str, object] = {"gpu": _gpu_json(found)}
            document["nodes"] = [_node_json(node, catalog) for node in catalog.nodes_of(found.name)]
        elif isinstance(found, NodeSku):
            document = {"node": _node_json(found, catalog)}
        else:
            document = {"accelerator": _accelerator_json(found)}
        _out(json.dumps({"schema": "skuwise.skus/1", **document}, indent=2, allow_nan=False))
    else:
        _out(sku_text(found, catalog))
    return EXIT_DONE


def sku_text(found: GpuSku | NodeSku | Accelerator, catalog: Catalog) -> str:
    """One part of the catalog with every figure and its source, for a person."""
    if isinstance(found, GpuSku):
        return _gpu_text(found, catalog)
    return _node_text(found, catalog) if isinstance(found, NodeSku) else _accelerator_text(found)


def _find(catalog: Catalog, name: str) -> GpuSku | NodeSku | Accelerator:
    gpu = catalog.gpu_asked(name)
    if gpu is not None:
        return gpu
    matches = [node for node in catalog.nodes.values() if name in (node.name, node.instance_type)]
    if len(matches) > 1:
        raise UsageError(f"{name!r} names several nodes.", f"Name one of {', '.join(node.name for node in matches)}.")
    if matches:
        return matches[0]
    for accelerator in catalog.accelerators:
        if normalise(accelerator.name) == normalise(name):
            return accelerator
    known = [*catalog.gpus, *catalog.nodes, *(one.name for one in catalog.accelerators)]
    holding = [one for one in known if name.casefold() in one.casefold()][:3]
    near = f"Did you mean {' or '.join(holding)}?" if holding else suggest(name, known)
    raise UsageError(f"The catalog has no {name!r}.", near or "'skuwise skus list' names all it has.")


def _nodes_of_provider(catalog: Catalog, provider: str | None) -> list[NodeSku]:
    nodes = [node for node in catalog.nodes.values() if provider in (None, node.provider)]
    if not nodes and provider is not None:
        known = sorted({node.provider for node in catalog.nodes.values()})
        raise UsageError(f"The catalog has no provider {provider!r}.", f"It has {', '.join(known)}.")
    return nodes


def _gpu_table(catalog: Catalog) -> str:
    rows = [
        (
            gpu.name,
            *(_number(gpu.dense_flops.get(precision), 1e12) for precision in _SHOWN),
            f"{gpu.mem_bytes / 1024**3:.0f}",
            _number(gpu.mem_bandwidth_bytes_per_second, 1e9),
            _number(gpu.nvlink_bytes_per_second, 1e9, none="none"),
            f"{gpu.tdp_watts:g}",
            gpu.source.grade or _UNKNOWN,
        )
        for gpu in catalog.gpus.values()
    ]
    header = ("GPU", "FP16 TFLOP/s", "FP8 TFLOP/s", "GiB", "memory GB/s", "NVLink GB/s one way", "W", "grade")
    notes = ["Dense rates per GPU. Grade C rests on memory or on a formula: verify it before you rely on it."]
    notes += [f"Also known, as information: {one.name} ({one.vendor})." for one in catalog.accelerators]
    return "\n".join([columns(header, rows, right=range(1, 7)), *notes])


def _node_table(nodes: Sequence[NodeSku]) -> str:
    rows = []
    for node in nodes:
        common = (node.name, f"{node.gpu_count} x {node.gpu}", node.intra_node_link, words.fabric_words(node))
        rows += [(*common, price.region, f"{price.usd_per_hour:.3f}", price.as_of) for price in node.prices]
        if not node.prices:
            rows.append((*common, "", _UNKNOWN, ""))
    return columns(("node", "GPUs", "link", "fabric", "region", "USD/h", "as of"), rows, right=(5,))


def _gpu_text(gpu: GpuSku, catalog: Catalog) -> str:
    eta = gpu.achieved
    rows = [
        ("architecture", f"{gpu.architecture}, compute capability {gpu.compute_capability}, {gpu.form_factor}"),
        ("SMs and clocks", f"{gpu.sm_count} SMs, {gpu.boost_hertz / 1e6:g} MHz at most"),
        ("clock of the rates", f"{gpu.tensor_reference_hertz / 1e6:g} MHz"),
        *((f"dense {precision}", f"{rate / 1e12:g} T(FL)OP/s") for precision, rate in gpu.dense_flops.items()),
        ("memory", f"{gpu.mem_bytes / 1024**3:.1f} GiB at {gpu.mem_bandwidth_bytes_per_second / 1e9:g} GB/s"),
        ("NVLink one way", _rate(gpu.nvlink_bytes_per_second, "none")),
        ("PCIe one way", f"{gpu.pcie_bytes_per_second / 1e9:.1f} GB/s"),
        ("power limit", f"{gpu.tdp_watts:g} W"),
        ("MIG slices", str(gpu.mig_slices_max) if gpu.mig_slices_max else "none"),
        *(
            (f"achieved, {name}", f"{share:.2f} of the peak" if share is not None else "not measured")
            for name, share in (
                ("BF16 matrix", eta.bf16_gemm),
                ("FP8 matrix", eta.fp8_gemm),
                ("memory", eta.mem),
                ("all-reduce", eta.link_allreduce),
                ("FP32 matrix", eta.fp32_gemm),
            )
        ),
        ("also called", ", ".join(gpu.aliases) or "nothing else"),
        ("source", _source(gpu.source)),
    ]
    prices = [price for node in catalog.nodes_of(gpu.name) for price in node.prices]
    return "\n".join([gpu.name, _pairs(rows), "", _prices(prices)])


def _node_text(node: NodeSku, catalog: Catalog) -> str:
    rows = [
        ("GPUs", f"{node.gpu_count} x {node.gpu}, joined by {node.intra_node_link}"),
        ("fabric", words.fabric_words(node)),
        ("RDMA", {True: "yes", False: "no", None: _UNKNOWN}[node.fabric.rdma]),
        ("CPUs", f"{node.vcpus} virtual" if node.vcpus is not None else _UNKNOWN),
        ("host memory", f"{node.host_mem_bytes / 1024**3:g} GiB" if node.host_mem_bytes is not None else _UNKNOWN),
        ("other fabric, same host", ", ".join(twin.name for twin in catalog.fabric_twins(node)) or "none known"),
        *_interconnect_rows(node, catalog),
        ("source", _source(node.source)),
    ]
    return "\n".join([node.name, _pairs(rows), "", _prices(node.prices)])


def _interconnect(node: NodeSku, catalog: Catalog) -> list[tuple[str, Premium]]:
    """What each interconnect of a node costs on its own, by region; its part is ``fabric`` or ``NVLink``."""
    found = []
    for price in node.prices:
        for part, premium_of in (("fabric", fabric_premium), ("NVLink", nvlink_premium)):
            premium = premium_of(catalog, catalog.price, node, price.region)
            if premium is not None:
                found.append((part, premium))
    return found


def _interconnect_rows(node: NodeSku, catalog: Catalog) -> list[tuple[str, str]]:
    rows = []
    for part, premium in _interconnect(node, catalog):
        cost = f"{premium.usd_per_hour:.3f} USD/h, {premium.share * 100:.1f} % of the price in {premium.price.region}"
        basis = f"assumed ({premium.prior}, from pairs elsewhere): no pair here tells it"
        if premium.twin is not None:
            twin = catalog.nodes[premium.twin.sku]
            slower = (
                f" of {twin.gpu}, a slower part as well" if twin.gpu != node.gpu else f", {words.fabric_words(twin)}"
            )
            basis = f"over {twin.name}{slower} ({premium.twin.usd_per_hour:.3f} USD/h, {premium.twin.as_of})"
        rows.append((f"{part} alone", f"{cost}, {basis}"))
    return rows


def _accelerator_text(one: Accelerator) -> str:
    rows = [
        ("vendor", one.vendor),
        *((f"dense {precision}", f"{rate / 1e12:g} T(FL)OP/s") for precision, rate in one.dense_flops.items()),
        ("memory", f"{one.mem_bytes / 1024**3:g} GiB" if one.mem_bytes is not None else _UNKNOWN),
        ("memory bandwidth", _rate(one.mem_bandwidth_bytes_per_second, _UNKNOWN)),
        ("note", one.note or "none"),
        ("source", _source(one.source)),
    ]
    return "\n".join([f"{one.name} (information only: skuwise reads no telemetry of it)", _pairs(rows)])


def _prices(prices: Sequence[Price]) -> str:
    if not prices:
        return "No list price is known."
    rows = [(p.sku, p.region, f"{p.usd_per_hour:.3f}", p.as_of, p.source) for p in prices]
    return columns(("list price of", "region", "USD/h", "as of", "source"), rows, right=(2,))


def _pairs(rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name.ljust(width)}  {value}" for name, value in rows)


def _source(source: FigureSource) -> str:
    parts = [
        source.text,
        f"as of {source.as_of}" if source.as_of else "",
        f"grade {source.grade}" if source.grade else "",
    ]
    return "; ".join(part for part in parts if part)


def _number(value: float | None, unit: float, none: str = _UNKNOWN) -> str:
    return none if value is None else f"{value / unit:g}"


def _rate(value: float | None, none: str) -> str:
    return none if value is None else f"{value / 1e9:g} GB/s"


def _gpu_json(gpu: GpuSku) -> dict[str, object]:
    return {
        "name": gpu.name,
        "vendor": gpu.vendor,
        "architecture": gpu.architecture,
        "compute_capability": gpu.compute_capability,
        "form_factor": gpu.form_factor,
        "sm_count": gpu.sm_count,
        "boost_hertz": gpu.boost_hertz,
        "tensor_reference_hertz": gpu.tensor_reference_hertz,
        "dense_flops": dict(gpu.dense_flops),
        "mem_bytes": gpu.mem_bytes,
        "mem_bandwidth_bytes_per_second": gpu.mem_bandwidth_bytes_per_second,
        "nvlink_bytes_per_second": gpu.nvlink_bytes_per_second,
        "nvlink_links": gpu.nvlink_links,
        "pcie_bytes_per_second": gpu.pcie_bytes_per_second,
        "tdp_watts": gpu.tdp_watts,
        "mig_slices_max": gpu.mig_slices_max,
        "achieved": asdict(gpu.achieved),
        "aliases": list(gpu.aliases),
        "source": asdict(gpu.source),
    }


def _node_json(node: NodeSku, catalog: Catalog) -> dict[str, object]:
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
            for part, premium in _interconnect(node, catalog)
        ],
    }


def _accelerator_json(one: Accelerator) -> dict[str, object]:
    return {
        "name": one.name,
        "vendor": one.vendor,
        "dense_flops": dict(one.dense_flops),
        "mem_bytes": one.mem_bytes,
        "mem_bandwidth_bytes_per_second": one.mem_bandwidth_bytes_per_second,
        "note": one.note,
        "source": asdict(one.source),
    }


def _out(text: str) -> None:
    """Print lines; what stands in a site's files has no effect on the terminal."""
    sys.stdout.write("\n".join(clean(line) for line in text.split("\n")) + "\n")
