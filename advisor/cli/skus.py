"""``skuwise skus``: the catalog as people read it, every dollar with its source and its date, and what it predicts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click import argument, option

from ...rules.base.click_commands import Choice, Group, examples, exclusive, format_option, joined
from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.output import write_json, write_lines
from ...rules.base.sanitize import suggest
from ...rules.catalog.loader import Catalog
from ...rules.catalog.types import GpuSku, NodeSku
from ..show.pages.skus import Sku
from .options import DURATION, number, rules_option

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
    from ..show.pages.skus import catalog_json, catalog_text

    catalog = _catalog_of(rules)
    nodes, whole = _nodes_of(catalog, provider), provider is None
    return _print(form, catalog_json(catalog, nodes, whole=whole), catalog_text(catalog, nodes, whole=whole))


@skus.command("show", epilog=examples("skuwise skus show H100-SXM5", "skuwise skus show aws/p5.48xlarge"))
@argument("name")
@_catalog
def show(name: str, form: str, rules: Path | None) -> int:
    """Show one GPU or node with every figure and its source.

    NAME: GPU (H100-SXM5, 'NVIDIA L40S') or node (aws/p5.48xlarge).
    """
    from ..show.pages.skus import sku_json, sku_text

    catalog = _catalog_of(rules)
    sku = _find_sku(catalog, name)
    return _print(form, sku_json(sku, catalog), sku_text(sku, catalog))


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
    gpu = catalog.gpu_asked(name)
    nodes = [node for node in catalog.nodes.values() if name in (node.name, node.instance_type)]
    if gpu is None and len(nodes) > 1:
        raise UsageError(f"{name!r} names several nodes.", f"Name one of {', '.join(node.name for node in nodes)}.")
    if gpu is not None or nodes:
        return gpu or nodes[0]
    names = [*catalog.gpus, *catalog.nodes]
    holding = [other for other in names if name.casefold() in other.casefold()][:3]
    near = f"Did you mean {' or '.join(holding)}?" if holding else suggest(name, names)
    raise UsageError(f"The catalog has no {name!r}.", near or "'skuwise skus list' names all it has.")


def _nodes_of(catalog: Catalog, provider: str | None) -> list[NodeSku]:
    providers = sorted({node.provider for node in catalog.nodes.values()})
    if provider is not None and provider not in providers:
        raise UsageError(f"The catalog has no provider {provider!r}.", f"Use {', '.join(providers)}.")
    return [node for node in catalog.nodes.values() if provider in (None, node.provider)]
