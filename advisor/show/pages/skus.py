"""GPUs, nodes and prices of the catalog as text and as JSON, every dollar with its source and its date."""

from collections.abc import Sequence

from msgspec import to_builtins

from ....rules.base.output import columns
from ....rules.catalog.loader import Catalog, Premium, fabric_premium, nvlink_premium
from ....rules.catalog.types import GpuSku, NodeSku
from ...core.formatting import fabric_words

Sku = GpuSku | NodeSku
_SCHEMA = "skuwise.skus/1"


def lines_of(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A title, and under it a line for each name and value."""
    width = max(len(name) for name, _ in rows)
    return "\n".join([title, *(f"  {name.ljust(width)}  {value}" for name, value in rows)])


def _in(value: float | None, unit: float, suffix: str = "", none: str = "unknown") -> str:
    return none if value is None else f"{value / unit:.5g}{suffix}"


def catalog_text(catalog: Catalog, nodes: Sequence[NodeSku], *, whole: bool) -> str:
    """The nodes as a table; `whole`: behind one of all GPUs."""
    gpus, rows, text = [], [], ""
    for gpu in catalog.gpus.values() if whole else ():
        rates = (_in(gpu.dense_flops.get(precision), 1e12) for precision in ("fp16", "fp8"))
        memory = (f"{gpu.mem_bytes / 1024**3:.0f}", _in(gpu.mem_bandwidth_bytes_per_second, 1e9))
        link = _in(gpu.link_bytes_per_second, 1e9, none="none")
        gpus.append((gpu.name, *rates, *memory, link, f"{gpu.tdp_watts:g}", gpu.source.grade or "unknown"))
    if whole:
        header = ("GPU", "FP16 TFLOP/s", "FP8 TFLOP/s", "GiB", "memory GB/s", "link GB/s one way", "W", "grade")
        note = "Dense rates per GPU. Grade C rests on memory or on a formula: verify it before you rely on it."
        text = "\n".join([columns(header, gpus, right=range(1, 7)), note, "", ""])
    for node in nodes:
        common = (node.name, f"{node.gpu_count} x {node.gpu}", node.intra_node_link, fabric_words(node))
        prices = [(price.region, f"{price.usd_per_hour:.3f}", price.as_of) for price in node.prices]
        rows += [(*common, *price) for price in prices or [("", "unknown", "")]]
    text += columns(("node", "GPUs", "link", "fabric", "region", "USD/h", "as of"), rows, right=(5,))
    return f"{text}\n\nList prices of the whole node. 'skuwise skus show NAME' has every source."


def sku_text(sku: Sku, catalog: Catalog) -> str:
    """One part of the catalog with every figure and its source, for a person."""
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
    dated = (sku.source.as_of and f"as of {sku.source.as_of}", sku.source.grade and f"grade {sku.source.grade}")
    rows.append(("source", "; ".join(filter(None, (sku.source.text, *dated)))))
    header = ("list price of", "region", "USD/h", "as of", "source")
    cells = [(p.sku, p.region, f"{p.usd_per_hour:.3f}", p.as_of, p.source) for p in prices]
    listed = columns(header, cells, right=(2,)) if cells else "No list price is known."
    return f"{lines_of(sku.name, rows)}\n\n{listed}"


def _premiums(node: NodeSku, catalog: Catalog) -> list[tuple[str, Premium]]:
    parts = (("fabric", fabric_premium), ("NVLink", nvlink_premium))
    premiums = [(part, of(catalog, catalog.price, node, price.region)) for price in node.prices for part, of in parts]
    return [(part, premium) for part, premium in premiums if premium is not None]


def _premium_words(premium: Premium, node: NodeSku, catalog: Catalog) -> str:
    cost = f"{premium.usd_per_hour:.3f} USD/h, {premium.share * 100:.1f} % of the price in {premium.price.region}"
    if premium.twin is None:
        return f"{cost}, assumed ({premium.prior}, from pairs elsewhere)"
    twin = catalog.nodes[premium.twin.sku]
    slower = f" of {twin.gpu}, a slower part as well" if twin.gpu != node.gpu else f", {fabric_words(twin)}"
    return f"{cost}, over {twin.name}{slower} ({premium.twin.usd_per_hour:.3f} USD/h, {premium.twin.as_of})"


def catalog_json(catalog: Catalog, nodes: Sequence[NodeSku], *, whole: bool) -> dict[str, object]:
    """Schema ``skuwise.skus/1``: every figure of the nodes; `whole`: and of all GPUs."""
    gpus = {"gpus": [_gpu_json(gpu) for gpu in catalog.gpus.values()]} if whole else {}
    return {"schema": _SCHEMA, **gpus, "nodes": [_node_json(node, catalog) for node in nodes]}


def sku_json(sku: Sku, catalog: Catalog) -> dict[str, object]:
    """Schema ``skuwise.skus/1``: every figure of one part of the catalog; a GPU with the nodes that have it."""
    if isinstance(sku, NodeSku):
        return {"schema": _SCHEMA, "node": _node_json(sku, catalog)}
    nodes = [_node_json(node, catalog) for node in catalog.nodes_of(sku.name)]
    return {"schema": _SCHEMA, "gpu": _gpu_json(sku), "nodes": nodes}


def _gpu_json(gpu: GpuSku) -> dict[str, object]:
    """Every figure but the shapes of MIG instances."""
    return {key: value for key, value in to_builtins(gpu).items() if key != "mig_profiles"}


def _node_json(node: NodeSku, catalog: Catalog) -> dict[str, object]:
    interconnect = []
    for part, premium in _premiums(node, catalog):
        cost = {"usd_per_hour": premium.usd_per_hour, "share_of_price": premium.share, "prior": premium.prior}
        basis = {"basis": "assumed" if premium.assumed else "pair", "over": premium.twin and premium.twin.sku}
        interconnect.append({"part": part.casefold(), "region": premium.price.region, **cost, **basis})
    twins = [twin.name for twin in catalog.fabric_twins(node)]
    return {**to_builtins(node), "fabric_twins": twins, "interconnect": interconnect}
