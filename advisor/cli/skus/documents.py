"""Parts of the catalog as JSON."""

from __future__ import annotations

from dataclasses import asdict, replace

from ....rules.catalog.gpu_files import Accelerator
from ....rules.catalog.loader import Catalog
from ....rules.catalog.types import GpuSku, NodeSku
from .text import interconnect

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
