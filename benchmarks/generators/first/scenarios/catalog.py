"""The scenarios: which nodes there are and what runs on them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from skuwise.advisor.demo import scenarios, simulator
from skuwise.advisor.demo.fleet_builder import Builder
from skuwise.advisor.demo.fleet_plan import FleetPlan
from skuwise.advisor.demo.scenarios import LAYOUTS, count
from skuwise.advisor.demo.simulator import SimulationReport
from skuwise.advisor.demo.skus import A100_IB, H100_ETHERNET, H100_IB, H200_IB

from . import mixed as mixed_scenes
from . import serving as serving_scenes
from . import training as training_scenes
from .kind_model_fleet import assorted
from .varied_fleet import varied

SCENARIOS: Mapping[str, str] = {
    "training": "multi-node training over InfiniBand, bound by compute, with checkpoints, stalls and restarts",
    "fine-tuning": "jobs of a few hours on one node, one after another: NVLink busy, no traffic between nodes",
    "decode": "online serving with daily load on preallocated memory, bound by HBM bandwidth",
    "idle": "unused GPUs, and GPUs held by a process after its job",
    "founding": "online serving on 8xH100 InfiniBand nodes whose fabric is silent",
    "moved": "the service of `founding` after its move to nodes without the fabric, in a later window",
    "small": "the most common kinds together on 13 H100, H200, A100 and L40S nodes: shown by skuwise demo",
    "single-gpu": "training on one GPU each: A10G, T4, L4 and A100",
    "input-bound": "days of training that waits for its data loaders: slow storage, or decoding that uses all cores",
    "ethernet": "data-parallel training on PCIe nodes whose network is too slow for it",
    "nvlink-bound": "tensor- and expert-parallel training within a node, bound by NVLink, on A100 and B200",
    "pcie-bound": "models larger than their GPU, read over PCIe for every step",
    "launch-bound": "small models in eager mode: kernels too short to fill the GPU",
    "straggler": "training in which one rank is late and all others wait for it",
    "throttled": "training on GPUs slowed by a low power limit, warm air or a power brake",
    "checkpoints": "training that writes long synchronous checkpoints over the storage network",
    "prefill-heavy": "long prompts with short answers, bound by compute",
    "light": "services with an occasional request: never idle, never full",
    "standby": "warm replicas that only answer probes, and a group that is tried every few days",
    "experts": "mixture-of-experts serving across nodes: every token crosses the fabric",
    "disaggregated": "prefill on one node and decode on another, caches sent over the fabric",
    "rdma-storage": "training and serving whose storage is reached over the compute fabric",
    "batch": "batch inference: generation, embedding, and media that host cores decode",
    "notebooks": "interactive work in working hours on A100, T4 and A10G",
    "mig": "GPUs cut into instances: notebooks, small services and small training",
    "telemetry-fault": "work that runs while the profiling counters report zero",
    "phases": "training by day and serving at night, and a training job that evaluates",
    "mixed": "sixteen nodes on which every kind of recommendation pays",
    "assorted": "kinds, GPUs and sizes drawn independently: training data of the kind model",
    "varied": "every kind in many variants, lengths and histories without metadata: training data of the kind model",
    "fleet": "every kind and every node type together (allow a minute)",
}


def plan(scenario: str, builder: Builder) -> FleetPlan:
    """The fleet of a scenario. Raises UsageError for a name that is not in SCENARIOS."""
    return scenarios.plan(scenario, builder, _LAYOUTS)


def plan_fleet(scenario: str, *, seed: int, start: float, end: float) -> FleetPlan:
    """The fleet that `simulate` would write, from the catalog that ships."""
    return simulator.plan_fleet(scenario, seed=seed, start=start, end=end, layouts=_LAYOUTS)


def _training(b: Builder) -> None:
    b.pretraining(b.nodes("train", count(b, "training", 2, 3), H100_IB), "compute")


def _tuning(b: Builder) -> None:
    (node,) = b.nodes("tune", 1, H100_ETHERNET)
    b.tuning(node, tuple(range(8)))


def _decode(b: Builder) -> None:
    b.service(b.nodes("serve", 1, H200_IB))


def _idle(b: Builder) -> None:
    b.bare(b.nodes("spare", 1, A100_IB))
    (node,) = b.nodes("left", 1, H100_ETHERNET)
    b.held(node, tuple(range(8)))


def _moved(b: Builder) -> None:
    nodes = b.nodes("plain", count(b, "founding", 2, 4), H100_ETHERNET)
    b.service(nodes, replicas_per_node=count(b, "replicas", 1, 2), moved_from="serve-01")


def _rdma(b: Builder) -> None:
    training_scenes.rdma_storage(b)
    serving_scenes.cache_over_rdma(b)


def _phases(b: Builder) -> None:
    serving_scenes.turns(b)
    training_scenes.evaluating(b)
    training_scenes.day_and_night(b)


def _fleet(b: Builder) -> None:
    for name, layout in _LAYOUTS.items():
        if name not in _WITHIN_SMALL and layout is not _fleet:
            layout(b)


_LAYOUTS: Mapping[str, Callable[[Builder], None]] = {
    "training": _training,
    "fine-tuning": _tuning,
    "decode": _decode,
    "idle": _idle,
    "founding": LAYOUTS["founding"],
    "moved": _moved,
    "small": LAYOUTS["small"],
    "single-gpu": training_scenes.single_gpu,
    "input-bound": training_scenes.input_bound,
    "ethernet": training_scenes.ethernet,
    "nvlink-bound": training_scenes.nvlink_bound,
    "pcie-bound": serving_scenes.pcie_bound,
    "launch-bound": training_scenes.launch_bound,
    "straggler": training_scenes.straggler,
    "throttled": training_scenes.throttled,
    "checkpoints": training_scenes.checkpoints,
    "prefill-heavy": serving_scenes.prefill_heavy,
    "light": serving_scenes.lightly_loaded,
    "standby": serving_scenes.standby,
    "experts": serving_scenes.mixture_of_experts,
    "disaggregated": serving_scenes.disaggregated,
    "rdma-storage": _rdma,
    "batch": serving_scenes.batch_inference,
    "notebooks": serving_scenes.interactive,
    "mig": serving_scenes.sliced,
    "telemetry-fault": training_scenes.telemetry_fault,
    "phases": _phases,
    "mixed": mixed_scenes.mixed,
    "assorted": assorted,
    "varied": varied,
    "fleet": _fleet,
}
# What `small` already holds, and what is no part of any fleet.
_WITHIN_SMALL = frozenset(
    {"training", "fine-tuning", "decode", "idle", "founding", "moved", "mixed", "assorted", "varied"}
)

__all__ = ["SCENARIOS", "SimulationReport", "plan", "plan_fleet", "simulate"]

simulate = functools.partial(simulator.simulate, layouts=_LAYOUTS)
