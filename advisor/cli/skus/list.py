"""``skuwise skus list``: the GPUs, nodes and list prices of the catalog."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ....rules.base.errors import EXIT_DONE
from ....rules.base.output import columns, write_json, write_lines
from ....rules.catalog.loader import Catalog, load_catalog
from ....rules.catalog.types import NodeSku
from ...core import formatting as words
from .options import add_catalog, add_provider, nodes_of_provider
from .text import SCHEMA, UNKNOWN, gpu_json, node_json

_SHOWN = ("fp16", "fp8")

EXAMPLES = ("skuwise skus list", "skuwise skus list --provider aws")


def configure(parser: argparse.ArgumentParser) -> None:
    add_provider(parser)
    add_catalog(parser)


def run(options: argparse.Namespace) -> int:
    catalog = load_catalog(options.rules)
    nodes = nodes_of_provider(catalog, options.provider)
    if options.format == "json":
        document: dict[str, object] = {"schema": SCHEMA}
        if options.provider is None:
            document["gpus"] = [gpu_json(gpu) for gpu in catalog.gpus.values()]
            document["accelerators"] = [gpu_json(accelerator) for accelerator in catalog.accelerators]
        document["nodes"] = [node_json(node, catalog) for node in nodes]
        write_json(document)
        return EXIT_DONE
    if options.provider is None:
        write_lines(f"{_gpu_table(catalog)}\n")
    write_lines(f"{_node_table(nodes)}\n")
    write_lines("List prices of the whole node. 'skuwise skus show NAME' has every source.")
    return EXIT_DONE


def _gpu_table(catalog: Catalog) -> str:
    rows = [
        (
            gpu.name,
            *(_number(gpu.dense_flops.get(precision), 1e12) for precision in _SHOWN),
            f"{gpu.mem_bytes / 1024**3:.0f}",
            _number(gpu.mem_bandwidth_bytes_per_second, 1e9),
            _number(gpu.link_bytes_per_second, 1e9, none="none"),
            f"{gpu.tdp_watts:g}",
            gpu.source.grade or UNKNOWN,
        )
        for gpu in catalog.gpus.values()
    ]
    header = ("GPU", "FP16 TFLOP/s", "FP8 TFLOP/s", "GiB", "memory GB/s", "link GB/s one way", "W", "grade")
    notes = ["Dense rates per GPU. Grade C rests on memory or on a formula: verify it before you rely on it."]
    notes += [
        f"Also known, as information: {accelerator.name} ({accelerator.vendor})."
        for accelerator in catalog.accelerators
    ]
    return "\n".join([columns(header, rows, right=range(1, 7)), *notes])


def _node_table(nodes: Sequence[NodeSku]) -> str:
    rows = []
    for node in nodes:
        common = (node.name, f"{node.gpu_count} x {node.gpu}", node.intra_node_link, words.fabric_words(node))
        rows += [(*common, price.region, f"{price.usd_per_hour:.3f}", price.as_of) for price in node.prices]
        if not node.prices:
            rows.append((*common, "", UNKNOWN, ""))
    return columns(("node", "GPUs", "link", "fabric", "region", "USD/h", "as of"), rows, right=(5,))


def _number(value: float | None, unit: float, none: str = UNKNOWN) -> str:
    return none if value is None else f"{value / unit:g}"
