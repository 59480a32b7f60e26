"""``skuwise skus show``: one GPU or node with every figure and its source."""

from __future__ import annotations

import argparse

from ....rules.base.errors import EXIT_DONE, UsageError
from ....rules.base.output import write_json, write_lines
from ....rules.base.sanitize import suggest
from ....rules.catalog.gpu_files import normalise
from ....rules.catalog.loader import Catalog, load_catalog
from ....rules.catalog.types import GpuSku, NodeSku
from .options import add_catalog
from .text import SCHEMA, Sku, gpu_json, node_json, sku_text

EXAMPLES = ("skuwise skus show H100-SXM5", "skuwise skus show aws/p5.48xlarge")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="GPU (H100-SXM5, 'NVIDIA L40S') or node (aws/p5.48xlarge)")
    add_catalog(parser)


def run(options: argparse.Namespace) -> int:
    catalog = load_catalog(options.rules)
    found = _find(catalog, options.name)
    if options.format == "json":
        if isinstance(found, GpuSku):
            document: dict[str, object] = {"gpu": gpu_json(found)}
            document["nodes"] = [node_json(node, catalog) for node in catalog.nodes_of(found.name)]
        elif isinstance(found, NodeSku):
            document = {"node": node_json(found, catalog)}
        else:
            document = {"accelerator": gpu_json(found)}
        write_json({"schema": SCHEMA, **document})
    else:
        write_lines(sku_text(found, catalog))
    return EXIT_DONE


def _find(catalog: Catalog, name: str) -> Sku:
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
