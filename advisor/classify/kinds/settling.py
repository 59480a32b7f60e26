"""What would settle a kind that cannot be told: the series, label or metric that is missing, and by how much."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ....rules.models.kind_model import KindModel
from ....rules.policy.labels import KindLabel
from ...core.coded_text import CodedText, coded
from ..features.at_work import PERIOD_INTERVAL_MAX_SECONDS
from ..features.features import Features
from .clue import Clue
from .shapes import is_fine

# Log-odds that a scheduler's word for its work carries, at least; the priors are stated beside each.
_OWNER_SAYS = 2.0
_TELLING_MIN = math.log(2.0)  # what cannot double the odds settles nothing


@dataclass(frozen=True, slots=True)
class _Witness:
    """Something that a source could add. `lacking`: whether it is missing; `shapes`: what it would let us see."""

    code: str
    what: str
    lacking: Callable[[Features], bool]
    shapes: tuple[str, ...]


_WITNESSES = (
    _Witness(
        "settled-by-seconds",
        "samples one second apart (run the skuwise agent on its node)",
        lambda f: f.get("resolution_seconds", 1.0) > PERIOD_INTERVAL_MAX_SECONDS,
        ("periodic", "aperiodic", "pauses"),
    ),
    _Witness(
        "settled-by-pipes",
        "tensor and memory activity (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE and DCGM_FI_PROF_DRAM_ACTIVE)",
        lambda f: "tensor_utilization" not in f or "hbm_utilization" not in f,
        ("bandwidth-bound", "compute-bound", "thin-seconds"),
    ),
    _Witness(
        "settled-by-nvlink",
        "NVLink traffic (DCGM_FI_PROF_NVLINK_TX_BYTES and RX_BYTES)",
        lambda f: "nvlink_utilization" not in f and f.get("gpus", 1.0) > 1,
        ("collectives", "links-against-compute"),
    ),
    _Witness(
        "settled-by-fabric",
        "traffic of the fabric ports of its nodes (node_infiniband_port_data_*_bytes_total)",
        lambda f: "fabric_utilization" not in f and f.get("nodes", 1.0) > 1,
        ("fabric-busy", "fabric-silent"),
    ),
    _Witness(
        "settled-by-memory",
        "memory in use (DCGM_FI_DEV_FB_USED)",
        lambda f: "mem_hourly_cv" not in f and "mem_level" not in f and not _young(f),
        ("memory-pool", "memory-still", "memory-moves"),
    ),
    _Witness(
        "settled-by-a-day",
        "one full day of data",
        lambda f: f.get("elapsed_hours", 0.0) < 20.0 and not f.get("ended"),
        ("never-rests", "seldom-at-work", "rests-at-night"),
    ),
    _Witness(
        "settled-by-days",
        "three days of data including a weekend",
        lambda f: f.get("elapsed_hours", 0.0) >= 20.0 and "weekend_level" not in f and not f.get("ended"),
        ("same-hours", "working-hours", "daily"),
    ),
)  # fmt: skip


def settled_by(
    first: KindLabel, second: KindLabel, features: Features, names: Iterable[Clue], model: KindModel
) -> Sequence[CodedText]:
    """What would tell `first` from `second`, the most telling first, at most two of them; empty where nothing that is
    known to be missing would."""
    found: list[tuple[float, CodedText]] = []
    if not any(max(clue.weights.values(), default=0.0) > 0 for clue in names):
        found.append((_OWNER_SAYS, _said("settled-by-owner", _OWNER, _OWNER_SAYS, first, second)))
    for witness in _WITNESSES:
        if not witness.lacking(features):
            continue
        gaps = [abs(model.weights[name][first] - model.weights[name][second]) for name in witness.shapes]
        gap = max(gaps, default=0.0)
        if gap >= _TELLING_MIN:
            found.append((gap, _said(witness.code, witness.what, gap, first, second)))
    found.sort(key=lambda one: -one[0])
    return [said for _, said in found[:2]]


_OWNER = "its owner (pod owner from kube-state-metrics, Slurm's job table, or its command)"


def _said(code: str, what: str, log_odds: float, first: str, second: str) -> CodedText:
    text = coded(
        code,
        "Would decide between {first} and {second} (by up to {odds:.0f} to 1): {what}.",
        what=what, odds=math.exp(min(log_odds, 7.0)), first=first, second=second,
    )  # fmt: skip
    return text


def _young(features: Features) -> bool:
    return features.get("elapsed_hours", 0.0) < 1.0 or (is_fine(features) and "mem_level" in features)
