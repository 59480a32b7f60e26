"""What the texts of sightings share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...rules.base.sanitize import clean
from ..core.advice_types import Evidence
from ..core.formatting import listed
from ..core.incident_types import Subject
from .scene import Scene

_NAME_MAX = 80


def named(text: str) -> str:
    """A name from outside, fit for a sentence."""
    return clean(text)[:_NAME_MAX]


def gpus_of(subject: Subject) -> str:
    """``8 H100-SXM5 on gpu-009``; of a MIG instance its part of a GPU."""
    count = subject.gpu_count
    number = f"{count:.0f}" if abs(count - round(count)) < 1e-6 else f"{count:.2g}"
    sku = named(subject.gpu_sku) if subject.gpu_sku else ("GPU" if number == "1" else "GPUs")
    nodes = [named(node) for node in subject.nodes]
    return f"{number} {sku} on {listed(nodes)}"


def who(subject: Subject) -> str:
    """The holder with its owner: ``job 4711 (train-7b, alice)``."""
    kind = subject.holder or "workload"
    kind = "job" if kind == "allocation" and subject.scheduler == "slurm" else kind
    owner = subject.owner.user or subject.owner.namespace or subject.owner.account
    if subject.scheduler == "slurm" and subject.job_id:
        inside = [part for part in (subject.name, owner) if part and part != subject.job_id]
        return f"{kind} {named(subject.job_id)}" + (f" ({', '.join(map(named, inside))})" if inside else "")
    return f"{kind} {named(subject.name)}" + (f" ({named(owner)})" if owner else "")


def power_evidence(scene: Scene, gpus: Sequence[int], since: float) -> tuple[Evidence, ...]:
    """Power since a moment, with the GPUs' own level at rest."""
    line, at = scene.line, list(gpus)
    power, level = (
        float(known.mean()) if len(known := values[np.isfinite(values)]) else None
        for values in (scene.gpus.power[at][:, line.ends - line.seconds >= since - 1.0], scene.gpus.rest_watts[at])
    )
    return () if power is None else (Evidence("power", power, level, "watts per GPU"),)
