"""GPUs for a model from the start: to train it, and to serve it, of GPUs whose sustained rates were measured."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ....rules.catalog.loader import Catalog
from ....rules.catalog.types import GpuSku, NodeSku, Price
from ....rules.models import MoveModel
from ..constraints import NVLINK, room_bytes
from ..prediction import rates_of
from .sku_comparison import PCIE_GROUP_MAX, STATE_BYTES, Question, blocks, parts_of, serving_times

# Activations per token and hidden unit (arXiv 2205.05198): of a layer at work, and of each layer's input.
LAYER_BYTES, INPUT_BYTES = 34.0, 2.0
HEADROOM = 0.7  # load that a service's GPUs carry at most
AVAILABLE_REPLICAS = 2  # where people wait, one may fail
Offer = tuple[NodeSku, GpuSku, Price]  # a node with its GPU and the list price of the cheapest of its regions


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a team says of its model. Tokens per request; rates per second; seconds; None: not said."""

    params: float
    active_params: float | None
    precision: str
    train_precision: str
    input_tokens: int
    output_tokens: int
    batch: int | None = None
    load_requests: float | None = None
    first_token_seconds: float | None = None
    token_seconds: float | None = None
    train_tokens: float | None = None
    train_days: float | None = None

    @property
    def context(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """One configuration. `price`: of a node. `group_gpus`: that hold one copy of the model. `memory`: bytes of one GPU
    by what takes them, of which `room` may be asked for. `figures`: what it reaches, by name."""

    node: NodeSku
    gpu: GpuSku
    price: Price
    nodes: int
    gpus: int
    group_gpus: int
    memory: Mapping[str, float]
    figures: Mapping[str, float]

    @property
    def room(self) -> float:
        return room_bytes(self.gpu.mem_bytes)

    @property
    def needed(self) -> float:
        return sum(self.memory.values())

    @property
    def needs_fabric(self) -> bool:
        """Whether one copy of the model spans nodes."""
        return self.group_gpus > self.node.gpu_count

    @property
    def usd_per_hour(self) -> float:
        """Of all its nodes."""
        return self.nodes * self.price.usd_per_hour


def plan_training(wanted: Wanted, catalog: Catalog, model: MoveModel, nodes: Iterable[NodeSku]) -> list[CapacityPlan]:
    """Every node that can train the model, the cheapest run first, one a GPU and provider. Empty: none can."""
    reference, offers = catalog.gpus[model.profiles.reference], _for_sale(catalog, nodes, wanted.train_precision)
    return _best((_training_on(wanted, offer, reference, model) for offer in offers), "usd_per_million_tokens")


def plan_serving(wanted: Wanted, catalog: Catalog, model: MoveModel, nodes: Iterable[NodeSku]) -> list[CapacityPlan]:
    """Every node that can serve it within the latencies, the cheapest first, one a GPU and provider; empty: none."""
    reference, offers = catalog.gpus[model.profiles.reference], _for_sale(catalog, nodes, wanted.precision)
    plans = (_serving_on(wanted, gpus, offer, reference, model) for offer in offers for gpus in (1, 2, 4, 8))
    return _best(plans, "usd_per_hour")


def _for_sale(catalog: Catalog, nodes: Iterable[NodeSku], precision: str) -> Iterator[Offer]:
    for node in nodes:
        gpu = catalog.gpu(node.gpu)
        rates = rates_of(gpu, precision) if gpu else None
        if gpu and rates and not rates.assumed and node.prices and not blocks(Question("decode", precision), gpu, gpu):
            yield node, gpu, min(node.prices, key=lambda p: (p.usd_per_hour, p.region))


def _training_on(wanted: Wanted, offer: Offer, reference: GpuSku, model: MoveModel) -> CapacityPlan | None:
    node, gpu, price = offer
    question = Question("training", wanted.train_precision, params=wanted.params, active_params=wanted.active_params)
    standard, parts = rates_of(reference, wanted.train_precision), parts_of(question, gpu, reference, model)
    if standard is None or parts is None:
        return None
    # The least GPUs whose memory holds the sharded states and one sequence.
    gpus, room = 1, room_bytes(gpu.mem_bytes)
    if sum(_training_memory(wanted, question, 1).values()) > room:
        sharded = _training_memory(wanted, question, 2)
        left = room - sharded["activations"] - sharded["gathered"]
        if left <= 0:
            return None
        gpus = math.ceil(STATE_BYTES * wanted.params / left)
    # Model FLOPs a second of one GPU: the reference reaches its profile's share of what it sustains.
    speed = standard.matrix * model.profiles.shares["training"]["matrix"] / sum(parts.values())
    per_token = 6.0 * question.computed_params
    if wanted.train_tokens and wanted.train_days:
        gpus = max(gpus, math.ceil(per_token * wanted.train_tokens / (speed * wanted.train_days * 86400)))
    nodes = math.ceil(gpus / node.gpu_count)
    if (nodes > 1 and not node.fabric.rdma) or (gpus > PCIE_GROUP_MAX and node.intra_node_link not in NVLINK):
        return None
    # Nodes are rented whole, so all of their GPUs train.
    gpus = nodes * node.gpu_count
    tokens_per_second = speed * gpus / per_token
    usd = nodes * price.usd_per_hour / 3600 / tokens_per_second * 1e6
    figures = {"tokens_per_second": tokens_per_second, "usd_per_million_tokens": usd}
    if wanted.train_tokens:
        figures["days"] = wanted.train_tokens / tokens_per_second / 86400
        figures["usd"] = nodes * price.usd_per_hour * figures["days"] * 24
    return CapacityPlan(node, gpu, price, nodes, gpus, gpus, _training_memory(wanted, question, gpus), figures)


def _training_memory(wanted: Wanted, question: Question, gpus: int) -> dict[str, float]:
    layers, hidden = question.shape
    return {
        "states": STATE_BYTES * wanted.params / gpus,
        "activations": wanted.context * hidden * (INPUT_BYTES * layers + LAYER_BYTES),
        # Two layers are gathered whole while the next is fetched.
        "gathered": 2 * 2.0 * wanted.params / layers if gpus > 1 else 0.0,
    }


def _serving_on(wanted: Wanted, gpus: int, offer: Offer, reference: GpuSku, model: MoveModel) -> CapacityPlan | None:
    node, gpu, price = offer
    links = NVLINK if gpus > PCIE_GROUP_MAX else (*NVLINK, "pcie")
    if gpus > node.gpu_count or (gpus > 1 and node.intra_node_link not in links):
        return None
    question = Question(
        "mixed", wanted.precision, gpus, wanted.params, wanted.active_params, wanted.batch, wanted.input_tokens,
        wanted.output_tokens,
    )  # fmt: skip
    weights, each = question.weights_bytes / gpus, question.kv_bytes_per_token * wanted.context / gpus
    if weights + each * (wanted.batch or 1) > room_bytes(gpu.mem_bytes):
        return None
    times = serving_times(question, gpu, reference, model, token_seconds=wanted.token_seconds)
    if times is None or (wanted.first_token_seconds and times.first_token_seconds > wanted.first_token_seconds):
        return None
    replicas = 1
    if wanted.load_requests:
        replicas = max(math.ceil(wanted.load_requests / (HEADROOM * times.requests_per_second)), AVAILABLE_REPLICAS)
    nodes = math.ceil(replicas / (node.gpu_count // gpus))
    figures = {
        "first_token_seconds": times.first_token_seconds,
        "token_seconds": times.token_seconds,
        "batch": times.batch,
        "requests_per_second": times.requests_per_second * replicas,
        "output_tokens_per_second": times.requests_per_second * replicas * wanted.output_tokens,
        "replicas": float(replicas),
        "usd_per_hour": nodes * price.usd_per_hour,
    }
    memory = {"weights": weights, "key-value cache": each * times.batch}
    return CapacityPlan(node, gpu, price, nodes, replicas * gpus, gpus, memory, figures)


def _best(plans: Iterable[CapacityPlan | None], by: str) -> list[CapacityPlan]:
    """The cheapest plan of each GPU and provider, in order; of those that cost the same, the one that does most."""
    done, kept = "requests_per_second", dict[tuple[str, str], CapacityPlan]()
    there = (plan for plan in plans if plan is not None)
    order = sorted(there, key=lambda p: (p.figures[by], p.usd_per_hour, -p.figures.get(done, 0.0), p.node.name))
    for plan in order:
        kept.setdefault((plan.gpu.name, plan.node.provider), plan)
    return list(kept.values())
