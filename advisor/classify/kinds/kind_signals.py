"""All shapes that tell kinds apart, in the order of the model that weighs them (rules/kind_model.yaml)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

from ..features.features import Features
from .course_shapes import COURSE_SHAPES
from .kind_signal import KindSignal
from .work_shapes import WORK_SHAPES

SHAPES: tuple[KindSignal, ...] = (*WORK_SHAPES, *COURSE_SHAPES)


def levels(features: Features) -> dict[str, float]:
    """Every shape's level, in the order of `SHAPES`."""
    return {shape.name: shape.level(features) for shape in SHAPES}


def fingerprint(shapes: Iterable[KindSignal]) -> str:
    """What a model was trained for: the shapes' names in order, the kinds they speak of, and their levels on a fixed
    grid of features."""
    digest = sha256()
    probes = [dict(PROBE), *({**PROBE, name: PROBE[name] * scale} for name in PROBE for scale in (0.0, 0.5, 2.0))]
    for shape in shapes:
        said = ",".join(f"{shape.level(probe):.6f}" for probe in probes)
        digest.update(f"{shape.name}:{shape.speaks_for}:{shape.speaks_against}:{said}\n".encode())
    return digest.hexdigest()[:16]


# Any features that make every shape say something; the fingerprint is taken around them.
PROBE: Mapping[str, float] = {
    "resolution_seconds": 1.0, "hours": 60.0, "elapsed_hours": 30.0, "chain_hours": 60.0, "ended": 0.5, "gpus": 2.0,
    "nodes": 1.5, "period_share": 0.4, "period_seconds": 8.0, "period_strength": 0.5, "fabric_utilization": 0.006,
    "nvlink_utilization": 0.1, "nvlink_symmetry": 0.8, "tensor_nvlink_correlation": 0.3, "diurnal_share": 0.3,
    "diurnal_amplitude": 0.05, "swing": 0.15, "mem_flat": 0.5, "mem_level": 0.6, "mem_max": 0.4,
    "memory_over_compute": 1.2,
    "hbm_of_sustained_busy_p95": 0.5, "tensor_of_sustained_busy_p95": 0.4, "hbm_per_engine": 0.3,
    "tensor_per_engine": 0.3, "write_bursts": 0.1, "pcie_utilization": 0.15, "duty": 0.45, "engine_active": 0.5,
    "idle_run_hours": 0.1, "sm_active_cv": 0.3, "active_share": 0.7, "rest_hours_max": 7.0, "rests_per_day": 2.0,
    "active_engine": 0.5, "active_fill": 0.7, "active_swing": 0.15, "between_share": 0.25, "day_before": 0.4,
    "working_hours_share": 0.8, "night_level": 0.3, "weekend_level": 0.3, "mem_swing_in_hour": 0.1,
    "mem_hourly_cv": 0.05, "mem_changes_share": 0.5, "mem_kept_at_rest": 0.5, "series_runs": 2.0,
    "series_run_hours": 18.0, "series_start_spread_hours": 1.5,
}  # fmt: skip
