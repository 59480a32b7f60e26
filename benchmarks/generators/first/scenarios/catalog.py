"""The scenarios: which nodes there are and what runs on them."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from skuwise.advisor import demo
from skuwise.advisor.core.fleet_identity import fleet_mark
from skuwise.advisor.demo.builder import FleetPlan
from skuwise.advisor.demo.simulator import SimulationReport, count, node_skus, place_groups
from skuwise.rules.base.errors import UsageError

from .. import skus
from ..builder import Builder
from ..writer import write_node
from . import serving as serving_scenes
from . import training as training_scenes
from .kind_model_fleet import assorted
from .varied_fleet import varied


def plan(scenario: str, builder: Builder) -> FleetPlan:
    """The fleet of a scenario. Raises UsageError for a name that is not in SCENARIOS."""
    if scenario not in _LAYOUTS:
        raise UsageError(f"Unknown scenario {scenario!r}.", f"Choose one of: {', '.join(SCENARIOS)}.")
    _LAYOUTS[scenario](builder)
    return builder.fleet


def plan_fleet(scenario: str, *, seed: int, start: float, end: float) -> FleetPlan:
    """The fleet that `simulate` would write."""
    return plan(scenario, Builder(node_skus(), seed, start, end, mark=fleet_mark(scenario, seed, start, end)))


def simulate(scenario: str, path: Path, *, scraped: bool = False, **options: Any) -> SimulationReport:
    """`skuwise.advisor.demo.simulate` for the scenarios here; `scraped`: hours alone, as a server makes them that
    scrapes an exporter once a minute."""
    write = partial(write_node, scraped=scraped)
    return demo.simulate(scenario, path, planner=plan_fleet, write=write, **options)


def _training(b: Builder) -> None:
    b.pretraining(b.nodes("train", count(b, "training", [2, 3]), skus.H100_IB), "compute")


def _tuning(b: Builder) -> None:
    (node,) = b.nodes("tune", 1, skus.H100_ETHERNET)
    b.tuning(node, tuple(range(8)))


def _decode(b: Builder) -> None:
    b.service(b.nodes("serve", 1, skus.H200_IB))


def _idle(b: Builder) -> None:
    b.bare(b.nodes("spare", 1, skus.A100_IB))
    (node,) = b.nodes("left", 1, skus.H100_ETHERNET)
    b.held(node, tuple(range(8)))


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
    "founding": partial(place_groups, scenario="founding"),
    "small": partial(place_groups, scenario="small"),
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
    "assorted": assorted,
    "varied": varied,
    "fleet": _fleet,
}
# What `small` already holds, and what is no part of any fleet.
_WITHIN_SMALL = frozenset({"training", "fine-tuning", "decode", "idle", "founding", "assorted", "varied"})

SCENARIOS = tuple(_LAYOUTS)
