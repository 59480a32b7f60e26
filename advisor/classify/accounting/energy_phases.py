"""What a workload did at a moment, as energy and money are told: training, evaluation, prefill, decode and the rest.

Phases are those of the verdict. Generation is called prefill where computing holds it back and decode where memory
bandwidth does, for that is what the two halves of it are bound by; and only of work that is known to run an engine for
language models. Other inference, and what something else holds back, is not told apart.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.energy_types import EnergyPhase
from ...core.verdict_types import Phase, WorkloadVerdict

# Of moments that are no workload's.
NO_PHASE = ""
# The frameworks that generate by tokens (agent/inventory/processes/frameworks.py).
GENERATES = frozenset({"vllm", "sglang", "tensorrt-llm", "text-generation-inference"})
_HALVES: dict[str, EnergyPhase] = {"compute": "prefill", "hbm-bandwidth": "decode"}


def phase_name(phase: Phase, *, generates: bool) -> EnergyPhase:
    """What a phase of a verdict is called. `generates`: whether the workload runs an engine for language models."""
    if any(one.code == "evaluates" for one in phase.evidence):
        return "evaluation"
    match phase.kind:
        case "training" | "fine-tuning":
            return "training"
        case "online-inference" | "batch-inference":
            return _HALVES.get(phase.bottleneck, "inference") if generates else "inference"
        case "interactive":
            return "interactive"
        case "idle":
            return "idle"
        case _:
            return "not-told"


def phases_of_rows(
    workload_ids: pd.Series, middle: npt.NDArray[np.float64], idle: npt.NDArray[np.bool_],
    workloads: Mapping[str, WorkloadVerdict],
) -> npt.NDArray[np.object_]:  # fmt: skip
    """The phase of every row by the middle of its time (Unix seconds); `NO_PHASE` where it is no workload's.
    `workloads`: by id.

    A row at rest is idle, whatever the phase around it; one between phases, which nobody judged, is not told.
    """
    out = np.full(len(workload_ids), NO_PHASE, dtype=object)
    for key, rows in workload_ids.reset_index(drop=True).groupby(workload_ids.to_numpy(), sort=False).indices.items():
        at = np.asarray(rows, dtype=np.intp)
        own = workloads.get(str(key))
        out[at] = _of_one(own, middle[at]) if own is not None else "not-told"
        out[at[idle[at]]] = "idle"
    return out


def _of_one(w: WorkloadVerdict, middle: npt.NDArray[np.float64]) -> npt.NDArray[np.object_]:
    generates = w.framework in GENERATES or "generated_tokens" in w.features
    phases = sorted(w.phases, key=lambda one: one.start)
    names = np.array([*(phase_name(one, generates=generates) for one in phases), "not-told"], dtype=object)
    if not phases:
        return np.full(len(middle), "not-told", dtype=object)
    place = np.searchsorted([one.start for one in phases], middle, side="right") - 1
    ends = np.array([one.end for one in phases])
    inside = (place >= 0) & (middle <= ends[np.clip(place, 0, None)])
    return names[np.where(inside, place, len(phases))]
