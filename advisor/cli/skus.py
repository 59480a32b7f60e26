"""``skuwise skus``: the catalog as people read it, every dollar with its source and its date, and what it predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import argument, option
from msgspec import to_builtins

from ...rules.base.click_commands import Choice, Group, examples, exclusive, format_option, joined
from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.output import columns, write_json, write_lines
from ...rules.base.sanitize import suggest
from .options import DURATION, lines_of, number, rules_option

if TYPE_CHECKING:
    from ...rules.catalog.loader import Accelerator, Catalog, Premium
    from ...rules.catalog.types import GpuSku, NodeSku

    Sku = GpuSku | NodeSku | Accelerator

SCHEMA = "skuwise.skus/1"
PHASES = ("training", "prefill", "decode", "mixed")
PRECISIONS = ("fp64", "fp32", "bf16", "fp16", "fp8", "int8", "fp4", "int4")
_SI = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_HERTZ = {"": 1, "hz": 1, "khz": 1e3, "mhz": 1e6, "ghz": 1e9}
AMOUNT = number("N", "a number with a unit, as in 70B or 350M", 1, 1e15, units=_SI)
WATTS = number("W", "watts, as in 500 or 500W", 1, 1e5, units={"": 1, "w": 1})
HERTZ = number("HZ", "a clock, as in 1110MHz, or hertz", 1e6, 1e11, units=_HERTZ)
WHOLE = number("N", "a whole number above zero", 1, 10**9, kind=int)
_BF16 = {"type": Choice(PRECISIONS), "default": "bf16"}
_catalog = joined(format_option("table", "json"), rules_option("catalog"))
_provider = option("--provider", metavar="P", help="only nodes of this provider")
_model = joined(
    option("--active-params", type=AMOUNT, help="parameters used per token (mixture of experts): 13B (default: all)"),
    option("--precision", **_BF16, help="precision of weights and arithmetic (default: bf16)"),
)


@click.group("skus", cls=Group)
def skus() -> None:
    """List, show and compare GPUs, nodes and prices."""


def _catalog_of(rules: Path | None) -> Catalog:
    from ...rules.catalog.loader import load_catalog

    return load_catalog(rules)


def _print(form: str, document: Mapping[str, object], text: str) -> int:
    write_json(document) if form == "json" else write_lines(text)
    return EXIT_DONE


@skus.command("list", epilog=examples("skuwise skus list", "skuwise skus list --provider aws"))
@_provider
@_catalog
def list_(provider: str | None, form: str, rules: Path | None) -> int:
    """List GPUs, nodes and list prices."""
    catalog = _catalog_of(rules)
    nodes = _nodes_of(catalog, provider)
    text = f"{_node_table(nodes)}\n\nList prices of the whole node. 'skuwise skus show NAME' has every source."
    document: dict[str, object] = {"schema": SCHEMA}
    if provider is None:
        text = f"{_gpu_table(catalog)}\n\n{text}"
        document["gpus"] = [_gpu_json(gpu) for gpu in catalog.gpus.values()]
        document["accelerators"] = [_gpu_json(accelerator) for accelerator in catalog.accelerators]
    return _print(form, document | {"nodes": [_node_json(node, catalog) for node in nodes]}, text)


@skus.command("show", epilog=examples("skuwise skus show H100-SXM5", "skuwise skus show aws/p5.48xlarge"))
@argument("name")
@_catalog
def show(name: str, form: str, rules: Path | None) -> int:
    """Show one GPU or node with every figure and its source.

    NAME: GPU (H100-SXM5, 'NVIDIA L40S') or node (aws/p5.48xlarge).
    """
    from ...rules.catalog.types import GpuSku, NodeSku

    catalog = _catalog_of(rules)
    sku = _find_sku(catalog, name)
    if isinstance(sku, NodeSku):
        document: dict[str, object] = {"node": _node_json(sku, catalog)}
    elif isinstance(sku, GpuSku):
        document = {"gpu": _gpu_json(sku), "nodes": [_node_json(node, catalog) for node in catalog.nodes_of(sku.name)]}
    else:
        document = {"accelerator": _gpu_json(sku)}
    return _print(form, {"schema": SCHEMA} | document, sku_text(sku, catalog))


@skus.command("compare", epilog=examples("skuwise skus compare H100-SXM5 L40S --phase decode --params 13B"))
@argument("source", metavar="A")
@argument("target", metavar="B")
@option("--phase", type=Choice(PHASES), default="mixed", help="phase of the work (default: mixed)")
@option("--params", type=AMOUNT, help="parameters of the model: 70B, 350M")
@_model
@option("--gpus", type=WHOLE, help="GPUs per copy of the model (default: as many as its memory needs)")
@option("--batch", type=WHOLE, help="concurrent sequences (default: as many as fit in memory)")
@option("--attention-copies", type=WHOLE, default=1, help="copies of the attention layers on these GPUs (default: 1)")
@option("--cache-precision", type=Choice(PRECISIONS), help="precision of the key-value cache (default: as the weights)")
@option("--input-tokens", type=WHOLE, help="input tokens per request")
@option("--output-tokens", type=WHOLE, help="output tokens per request")
@option("--power-limit", type=WATTS, help="compare the same GPU (A A) under this power limit: 500W")
@option("--sm-clock", type=HERTZ, help="compare the same GPU (A A) at this SM clock: 1110MHz")
@option("--power-at-work", type=WATTS, help="power draw of one GPU at work (default: typical for this work)")
@_catalog
def compare(source: str, target: str, form: str, rules: Path | None, **asked: Any) -> int:  # noqa: ANN401 - as `compared`
    """Predict the time of typical work on another GPU.

    A: GPU that the work runs on, as in H100-SXM5.

    B: GPU to compare it with.
    """
    from .sku_estimates import compared

    exclusive(power_limit=asked["power_limit"], sm_clock=asked["sm_clock"])
    catalog = _catalog_of(rules)
    return _print(form, *compared(catalog, _find_gpu(catalog, source), _find_gpu(catalog, target), **asked))


@skus.command("plan", epilog=examples("skuwise skus plan --params 70B --load 20rps --latency 500ms"))
@option("--params", type=AMOUNT, required=True, help="parameters of the model: 70B, 350M")
@_model
@option("--context", type=WHOLE, default=8192, help="input and output tokens per request (default: 8192)")
@option("--output-tokens", type=WHOLE, help="output tokens per request (default: 1/4 of the context, 512 at most)")
@option("--batch", type=WHOLE, help="concurrent sequences per replica")
@option("--load", metavar="RATE", help="load to serve: 20rps (requests/s) or 5000tps (output tokens/s)")
@option("--latency", "first_token_seconds", type=DURATION, help="maximum time to first token: 500ms, 2s")
@option("--token-latency", "token_seconds", type=DURATION, help="maximum time per output token: 50ms")
@option("--train-precision", **_BF16, help="precision of arithmetic in training (default: bf16)")
@option("--train-tokens", type=AMOUNT, help="tokens to train on: 1.4T")
@option("--train-time", type=DURATION, help="maximum time of training: 30d (with --train-tokens)")
@_provider
@option("--gpu", metavar="GPU", help="only nodes with this GPU")
@_catalog
def plan(provider: str | None, gpu: str | None, form: str, rules: Path | None, **asked: Any) -> int:  # noqa: ANN401 - as `planned`
    """Estimate the hardware to train or serve a model."""
    from .sku_estimates import planned

    catalog = _catalog_of(rules)
    name = _find_gpu(catalog, gpu).name if gpu else None
    nodes = [node for node in _nodes_of(catalog, provider) if name in (None, node.gpu)]
    return _print(form, *planned(catalog, nodes, **asked))


def _find_gpu(catalog: Catalog, name: str) -> GpuSku:
    gpu = catalog.gpu_asked(name)
    if gpu is None:
        near = suggest(name, [*catalog.gpus]) or "Run 'skuwise skus list' for a list."
        raise UsageError(f"The catalog has no GPU {name!r}.", near)
    return gpu


def _find_sku(catalog: Catalog, name: str) -> Sku:
    """The GPU, node or accelerator of a name. Raises UsageError with the nearest name."""
    from ...rules.catalog.gpu_files import normalise

    gpu = catalog.gpu_asked(name)
    nodes = [node for node in catalog.nodes.values() if name in (node.name, node.instance_type)]
    others = [other for other in catalog.accelerators if normalise(other.name) == normalise(name)]
    if gpu is None and len(nodes) > 1:
        raise UsageError(f"{name!r} names several nodes.", f"Name one of {', '.join(node.name for node in nodes)}.")
    if gpu is not None or nodes or others:
        return gpu or (nodes + others)[0]
    names = [*catalog.gpus, *catalog.nodes, *(other.name for other in catalog.accelerators)]
    holding = [other for other in names if name.casefold() in other.casefold()][:3]
    near = f"Did you mean {' or '.join(holding)}?" if holding else suggest(name, names)
    raise UsageError(f"The catalog has no {name!r}.", near or "'skuwise skus list' names all it has.")


def _nodes_of(catalog: Catalog, provider: str | None) -> list[NodeSku]:
    """The nodes of a provider; None: of all. Raises UsageError for one that the catalog does not have."""
    providers = sorted({node.provider for node in catalog.nodes.values()})
    if provider is not None and provider not in providers:
        raise UsageError(f"The catalog has no provider {provider!r}.", f"Use {', '.join(providers)}.")
    return [node for node in catalog.nodes.values() if provider in (None, node.provider)]


def _in(value: float | None, unit: float, suffix: str = "", none: str = "unknown") -> str:
    """A figure in a larger unit; `none` where there is no figure."""
    return none if value is None else f"{value / unit:.5g}{suffix}"


def _gpu_table(catalog: Catalog) -> str:
    rows = [
        (
            gpu.name,
            *(_in(gpu.dense_flops.get(precision), 1e12) for precision in ("fp16", "fp8")),
            f"{gpu.mem_bytes / 1024**3:.0f}",
            _in(gpu.mem_bandwidth_bytes_per_second, 1e9),
            _in(gpu.link_bytes_per_second, 1e9, none="none"),
            f"{gpu.tdp_watts:g}",
            gpu.source.grade or "unknown",
        )
        for gpu in catalog.gpus.values()
    ]
    header = ("GPU", "FP16 TFLOP/s", "FP8 TFLOP/s", "GiB", "memory GB/s", "link GB/s one way", "W", "grade")
    notes = ["Dense rates per GPU. Grade C rests on memory or on a formula: verify it before you rely on it."]
    notes += [f"For information only: {other.name} ({other.vendor})." for other in catalog.accelerators]
    return "\n".join([columns(header, rows, right=range(1, 7)), *notes])


def _node_table(nodes: Sequence[NodeSku]) -> str:
    from ..core.formatting import fabric_words

    rows = []
    for node in nodes:
        common = (node.name, f"{node.gpu_count} x {node.gpu}", node.intra_node_link, fabric_words(node))
        prices = [(price.region, f"{price.usd_per_hour:.3f}", price.as_of) for price in node.prices]
        rows += [(*common, *price) for price in prices or [("", "unknown", "")]]
    return columns(("node", "GPUs", "link", "fabric", "region", "USD/h", "as of"), rows, right=(5,))


def sku_text(sku: Sku, catalog: Catalog) -> str:
    """One part of the catalog with every figure and its source, for a person."""
    from ...rules.catalog.types import GpuSku, NodeSku
    from ..core.formatting import fabric_words

    if isinstance(sku, NodeSku):
        prices = sku.prices
        rows = [
            ("GPUs", f"{sku.gpu_count} x {sku.gpu}, joined by {sku.intra_node_link}"),
            ("fabric", fabric_words(sku)),
            ("RDMA", {True: "yes", False: "no", None: "unknown"}[sku.fabric.rdma]),
            ("CPUs", _in(sku.vcpus, 1, " virtual")),
            ("host memory", _in(sku.host_mem_bytes, 1024**3, " GiB")),
            ("other fabric, same host", ", ".join(twin.name for twin in catalog.fabric_twins(sku)) or "none known"),
            *((f"{part} alone", _premium_words(premium, sku, catalog)) for part, premium in _premiums(sku, catalog)),
        ]
    else:
        prices = [price for node in catalog.nodes_of(sku.name) for price in node.prices]
        rows = [
            ("vendor", sku.vendor),
            *((f"dense {precision}", _in(rate, 1e12, " T(FL)OP/s")) for precision, rate in sku.dense_flops.items()),
            ("memory", _in(sku.mem_bytes, 1024**3, " GiB")),
            ("memory bandwidth", _in(sku.mem_bandwidth_bytes_per_second, 1e9, " GB/s")),
        ]
    if isinstance(sku, GpuSku):
        rows += [
            ("architecture", f"{sku.architecture}, compute capability {sku.compute_capability}, {sku.form_factor}"),
            ("SMs and clocks", f"{sku.sm_count} SMs, {sku.boost_hertz / 1e6:g} MHz at most"),
            ("clock of the rates", _in(sku.tensor_reference_hertz, 1e6, " MHz")),
            (f"{sku.link_name} one way", _in(sku.link_bytes_per_second, 1e9, " GB/s", none="none")),
            ("PCIe one way", f"{sku.pcie_bytes_per_second / 1e9:.1f} GB/s"),
            ("power limit", _in(sku.tdp_watts, 1, " W")),
            ("lowest power limit", _in(sku.min_limit_watts, 1, " W")),
            ("MIG slices", str(sku.mig_slices_max or "none")),
            *(
                (f"achieved, {name.replace('_', ' ')}", _in(share, 1, " of the peak", none="not measured"))
                for name, share in to_builtins(sku.achieved).items()
            ),
            ("also called", ", ".join(sku.aliases) or "nothing else"),
        ]
    elif not isinstance(sku, NodeSku):
        rows.append(("note", f"For information only: skuwise reads no telemetry of it. {sku.note or ''}".rstrip()))
    dated = (sku.source.as_of and f"as of {sku.source.as_of}", sku.source.grade and f"grade {sku.source.grade}")
    rows.append(("source", "; ".join(filter(None, (sku.source.text, *dated)))))
    header = ("list price of", "region", "USD/h", "as of", "source")
    cells = [(p.sku, p.region, f"{p.usd_per_hour:.3f}", p.as_of, p.source) for p in prices]
    listed = columns(header, cells, right=(2,)) if cells else "No list price is known."
    return f"{lines_of(sku.name, rows)}\n\n{listed}"


def _premiums(node: NodeSku, catalog: Catalog) -> list[tuple[str, Premium]]:
    """The cost of each interconnect of a node alone, by region; its part is ``fabric`` or ``NVLink``."""
    from ...rules.catalog.loader import fabric_premium, nvlink_premium

    parts = (("fabric", fabric_premium), ("NVLink", nvlink_premium))
    premiums = [(part, of(catalog, catalog.price, node, price.region)) for price in node.prices for part, of in parts]
    return [(part, premium) for part, premium in premiums if premium is not None]


def _premium_words(premium: Premium, node: NodeSku, catalog: Catalog) -> str:
    from ..core.formatting import fabric_words

    cost = f"{premium.usd_per_hour:.3f} USD/h, {premium.share * 100:.1f} % of the price in {premium.price.region}"
    if premium.twin is None:
        return f"{cost}, assumed ({premium.prior}, from pairs elsewhere)"
    twin = catalog.nodes[premium.twin.sku]
    slower = f" of {twin.gpu}, a slower part as well" if twin.gpu != node.gpu else f", {fabric_words(twin)}"
    return f"{cost}, over {twin.name}{slower} ({premium.twin.usd_per_hour:.3f} USD/h, {premium.twin.as_of})"


def _gpu_json(gpu: GpuSku | Accelerator) -> dict[str, object]:
    """Every figure but the shapes of MIG instances."""
    return {key: value for key, value in to_builtins(gpu).items() if key != "mig_profiles"}


def _node_json(node: NodeSku, catalog: Catalog) -> dict[str, object]:
    """Every figure, with the cost of each interconnect."""
    interconnect = [
        {
            "part": part.casefold(),
            "region": premium.price.region,
            "usd_per_hour": premium.usd_per_hour,
            "share_of_price": premium.share,
            "basis": "assumed" if premium.assumed else "pair",
            "prior": premium.prior,
            "over": premium.twin.sku if premium.twin else None,
        }
        for part, premium in _premiums(node, catalog)
    ]
    twins = [twin.name for twin in catalog.fabric_twins(node)]
    return {**to_builtins(node), "fabric_twins": twins, "interconnect": interconnect}
