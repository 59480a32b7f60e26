"""Which findings a workload deserves, by the definitions of waste, from what was generated."""

from collections.abc import Mapping
from dataclasses import dataclass

from .fleet import Workload
from .hardware import Machine

RULES = (
    "held-idle",
    "under-tier",
    "too-many-gpus",
    "over-tier",
    "memory-unused",
    "idle-nvlink",
    "idle-fabric",
    "fix-first",
)
CLEAR_BELOW, CLEAR_ABOVE = 0.30, 0.45  # around 0.35, where all experts agree
SPARE_BELOW, SPARE_ABOVE = 0.42, 0.55  # around half of the memory
FITS = 0.40  # of one GPU, on half as many


@dataclass(slots=True)
class Figures:
    """Over the samples of a workload, the most of its GPUs. `memory`: p99.5; `nvlink`: p99.5; `most`: p99 of the most
    of all uses; `compute`: p95. `needed`: memory that an engine needs, where its own series have it; None: unknown."""

    most: float
    compute: float
    memory: float
    nvlink: float
    needed: float | None = None


def deserved(
    workload: Workload, figures: Figures, machines: list[Machine], silent: Mapping[str, bool | None]
) -> dict[str, bool | None]:
    """Finding -> deserved; None: a matter of taste, or unknown. `silent`: nodes with a fabric -> whether
    nothing used it."""
    a, machine = workload.archetype, machines[0]
    is_work = a.kind not in ("idle", "interactive", None)
    out: dict[str, bool | None] = {
        "held-idle": False,
        "under-tier": False if a.kind is not None else None,
        "too-many-gpus": _too_many(workload, figures) if is_work else None,
        "over-tier": _over_tier(workload, figures) if is_work else None,
        "memory-unused": _memory(workload, figures, machine) if is_work else None,
        "idle-nvlink": _nvlink(workload, figures, machine) if is_work else None,
        "idle-fabric": _fabric(machines, silent),
        "fix-first": False if a.bottleneck is not None or a.kind == "online-inference" else None,
    }
    if a.bottleneck == "throttled":
        out["fix-first"] = None
    if machine.is_mig:
        out["memory-unused"] = out["idle-nvlink"] = out["too-many-gpus"] = None
    if workload.bottleneck != a.bottleneck:  # its counters are lost, or not exported
        out |= dict.fromkeys(("under-tier", "too-many-gpus", "over-tier", "fix-first"))
    return {**out, **a.sure}


def _fabric(machines: list[Machine], silent: Mapping[str, bool | None]) -> bool | None:
    said = {silent[machine.name] for machine in machines if machine.name in silent}
    return True if True in said else None if None in said else False


def _too_many(workload: Workload, f: Figures) -> bool | None:
    if f.most > CLEAR_ABOVE:
        return False
    if workload.place.gpus == 1 or workload.archetype.preallocates or f.most > CLEAR_BELOW:
        return None
    if workload.archetype.bottleneck in ("host-input", "latency", "straggler"):
        return None  # fixed first
    return True if f.memory < FITS else None


def _over_tier(workload: Workload, f: Figures) -> bool | None:
    """Of the same bandwidth and cheaper at the same provider, by the price list: the H100 NVL at Azure beside its H100
    SXM; nothing at the other providers beside their H100, A100, L40S, L4, A10G and T4."""
    if workload.archetype.bottleneck != "hbm-bandwidth":
        return False if workload.archetype.bottleneck is not None else None
    shape = workload.place.shape
    if shape.vendor is None:
        return None  # no price
    if shape.vendor != "Microsoft Corporation":
        return False
    return True if workload.place.gpus == 1 and f.compute < 0.27 else None


def _memory(workload: Workload, f: Figures, machine: Machine) -> bool | None:
    used = f.memory
    if workload.archetype.preallocates:
        if f.needed is None:
            return None
        used = f.needed
    if used > SPARE_ABOVE:
        return False
    # Nothing smaller can be had for the small ones.
    return True if used < SPARE_BELOW and machine.part.gib > 24 else None


def _nvlink(workload: Workload, f: Figures, machine: Machine) -> bool | None:
    if not machine.part.nvlink:
        return False
    if workload.place.gpus == 1:
        return None
    if not machine.has_nvlink:
        return False  # unknowable
    return True if f.nvlink < 0.005 else None if f.nvlink < 0.02 else False
