"""Training as steps of segments: compute, exchange, wait, write."""

from __future__ import annotations

import numpy as np

from .activity import Activity, F, Segment, constant, run
from .hardware import Host

Rng = np.random.Generator

HW_THERMAL, SW_POWER, POWER_BRAKE = 0x40, 0x4, 0x80


def _math(rng: Rng, *, tensor_parallel: float = 0.0, intensity: tuple[float, float] = (0.72, 0.97)) -> dict[str, float]:
    """Rates of dense forward and backward passes."""
    return {
        "engine": 1.0,
        "sm": rng.uniform(0.86, 0.97),
        "occupancy": rng.uniform(0.22, 0.45),
        "compute": rng.uniform(*intensity),
        "memory": rng.uniform(0.28, 0.5),
        "fp32": rng.uniform(0.03, 0.1),
        "nv_tx": tensor_parallel,
        "nv_rx": tensor_parallel,
        "pcie_rx": rng.uniform(0.01, 0.05),
        "pcie_tx": rng.uniform(0.005, 0.02),
    }


def _exchange(rng: Rng, *, nv: float, fab: float) -> dict[str, float]:
    """Rates of a collective that nothing hides: few SMs copy, the tensor cores stand still."""
    return {
        "engine": 1.0, "sm": rng.uniform(0.25, 0.9), "occupancy": rng.uniform(0.1, 0.3), "compute": 0.0,
        "memory": rng.uniform(0.05, 0.16), "nv_tx": nv, "nv_rx": nv * rng.uniform(0.96, 1.0), "fab_tx": fab,
        "fab_rx": fab * rng.uniform(0.96, 1.0),
    }  # fmt: skip


def _optimizer(rng: Rng) -> dict[str, float]:
    return {"engine": 1.0, "sm": 0.9, "occupancy": 0.7, "memory": rng.uniform(0.75, 0.95), "fp32": 0.2}


def _waiting(rng: Rng) -> dict[str, float]:
    return {"engine": 0.0, "pcie_rx": rng.uniform(0.0, 0.05)}


def _memory(rng: Rng, seconds: int, host: Host) -> F:
    """A caching allocator: grows for some minutes, then steps up at times."""
    level = rng.uniform(0.55, 0.9)
    grown = level * (1 - rng.uniform(0.1, 0.35) * np.exp(-np.arange(seconds) / rng.uniform(60, 400)))
    for at in rng.integers(0, max(seconds, 1), rng.integers(1, 5)):
        grown[at:] += rng.uniform(0.004, 0.03)
    wobble = 0.006 * np.repeat(rng.standard_normal(seconds // 30 + 1), 30)[:seconds]
    return np.clip((grown + wobble) * host.part.mem_bytes, 0, 0.97 * host.part.mem_bytes)[None, :]


def _host(rng: Rng, seconds: int, cpu: float, read: float) -> dict[str, F]:
    slow = np.repeat(rng.normal(1, 0.08, seconds // 60 + 1), 60)[:seconds]
    return {
        "cpu": cpu * slow,
        "io_wait": np.full(seconds, rng.uniform(0.0, 0.01)),
        "read": read * slow,
        "write": np.full(seconds, 2e5),
        "storage": read * slow * 0.9,
    }


def _checkpoints(rng: Rng, gpu: dict[str, F], host: dict[str, F], seconds: int) -> None:
    """Every hour or two everything stops for a minute or two while tensors are written."""
    at = rng.uniform(600, 5000)
    while at < seconds:
        lasts = rng.uniform(15, 110)
        span = slice(int(at), int(at + lasts))
        for values in gpu.values():
            values[:, span] *= 0.04
        gpu["pcie_tx"][:, span] += 0.15
        host["write"][span] = rng.uniform(1.5e9, 6e9)
        host["storage"][span] = rng.uniform(1e9, 5e9)
        at += rng.uniform(2400, 8000)


def _assemble(rng: Rng, host: Host, seconds: int, segments: list[Segment], *, cpu: float, read: float,
              extra: F | None = None, checkpoints: bool = True) -> Activity:  # fmt: skip
    gpu = run(rng, segments, seconds, extra=extra)
    hosts = _host(rng, seconds, cpu, read)
    if checkpoints:
        _checkpoints(rng, gpu, hosts, seconds)
    return Activity(seconds, gpu, hosts, _memory(rng, seconds, host))


def compute_bound(rng: Rng, host: Host, seconds: int, nodes: int, *, tuned: bool = False) -> Activity:
    """Exposed communication costs at most a fifth of the step."""
    step = rng.uniform(0.4, 3.0) if tuned else rng.uniform(0.8, 15.0)
    exposed = rng.uniform(0.02, 0.2) if nodes > 1 or host.part.nvlink else rng.uniform(0.01, 0.08)
    fab = rng.uniform(0.35, 0.9) if nodes > 1 else 0.0
    nv = rng.uniform(0.3, 0.7) * host.part.eta_link if host.part.nvlink else 0.0
    parallel = rng.uniform(0.0, 0.22) if host.part.nvlink and nodes > 1 else 0.0
    segments = [
        Segment(step * (0.9 - exposed), _math(rng, tensor_parallel=parallel)),
        Segment(step * exposed, _exchange(rng, nv=nv, fab=fab), 0.12),
        Segment(step * 0.06, _optimizer(rng)),
        Segment(step * 0.04, _waiting(rng), 0.3),
    ]
    return _assemble(rng, host, seconds, segments, cpu=rng.uniform(0.05, 0.3), read=rng.uniform(5e7, 8e8),
                     checkpoints=not tuned)  # fmt: skip


def network_bound(rng: Rng, host: Host, seconds: int) -> Activity:
    """The exchange between nodes takes more of the step than the arithmetic."""
    step = rng.uniform(2.0, 20.0)
    share = rng.uniform(0.55, 0.75)
    nv = rng.uniform(0.01, 0.15) if host.part.nvlink else 0.0
    segments = [
        Segment(step * (0.95 - share), _math(rng)),
        Segment(step * share, _exchange(rng, nv=nv, fab=rng.uniform(0.72, 0.95)), 0.08),
        Segment(step * 0.05, _waiting(rng), 0.3),
    ]
    return _assemble(rng, host, seconds, segments, cpu=rng.uniform(0.05, 0.2), read=rng.uniform(5e7, 5e8))


def nvlink_bound(rng: Rng, host: Host, seconds: int) -> Activity:
    """All-to-all of experts inside the node takes most of the step."""
    step = rng.uniform(2.0, 10.0)
    share = rng.uniform(0.55, 0.75)
    nv = rng.uniform(0.8, 0.98) * host.part.eta_link
    segments = [
        Segment(step * (0.97 - share), _math(rng)),
        Segment(step * share, _exchange(rng, nv=nv, fab=0.0), 0.08),
        Segment(step * 0.03, _waiting(rng), 0.3),
    ]
    return _assemble(rng, host, seconds, segments, cpu=rng.uniform(0.05, 0.2), read=rng.uniform(5e7, 5e8))


def pcie_bound(rng: Rng, host: Host, seconds: int) -> Activity:
    """Weights and optimizer states live on the host and travel each step."""
    step = rng.uniform(3.0, 20.0)
    share = rng.uniform(0.6, 0.8)
    rate = rng.uniform(0.72, 0.92)
    travel = {"engine": rng.uniform(0.2, 0.6), "sm": rng.uniform(0.02, 0.12), "occupancy": 0.05, "memory": 0.05,
              "pcie_tx": rate * rng.uniform(0.5, 0.9), "pcie_rx": rate}  # fmt: skip
    segments = [
        Segment(step * (1 - share), _math(rng)),
        Segment(step * share, travel, 0.08),
    ]
    return _assemble(rng, host, seconds, segments, cpu=rng.uniform(0.2, 0.6), read=rng.uniform(5e7, 5e8))


def input_bound(rng: Rng, host: Host, seconds: int) -> Activity:
    """The loader is slower than the GPU: every step waits, some wait long."""
    step = rng.uniform(1.5, 8.0)
    starved = rng.uniform(0.5, 0.75)
    segments = [Segment(step * (1 - starved), _math(rng)), Segment(step * starved * 0.6, _waiting(rng), 0.25)]
    extra = rng.gamma(0.7, step * starved * 0.4 / 0.7, 997)
    made = _assemble(rng, host, seconds, segments, cpu=rng.uniform(0.5, 0.98), read=rng.uniform(2e8, 2e9),
                     extra=extra, checkpoints=bool(rng.integers(0, 2)))  # fmt: skip
    if rng.random() < 0.4:
        made.host["cpu"] *= 0.4
        made.host["io_wait"] += rng.uniform(0.1, 0.4)
    return made


def memory_bound(rng: Rng, host: Host, seconds: int) -> Activity:
    """Recommenders: embedding tables are read, little is multiplied."""
    step = rng.uniform(0.2, 2.0)
    lookup = {"engine": 1.0, "sm": rng.uniform(0.7, 0.95), "occupancy": rng.uniform(0.5, 0.8),
              "compute": rng.uniform(0.05, 0.2), "memory": rng.uniform(0.82, 0.98), "fp32": 0.15}  # fmt: skip
    segments = [
        Segment(step * 0.93, lookup),
        Segment(step * 0.07, _exchange(rng, nv=0.3 if host.part.nvlink else 0, fab=0)),
    ]
    return _assemble(rng, host, seconds, segments, cpu=rng.uniform(0.2, 0.5), read=rng.uniform(3e8, 2e9))


def launch_bound(rng: Rng, host: Host, seconds: int) -> Activity:
    """Small kernels, one after the other: the engine is busy, the chip is not."""
    small = {"engine": rng.uniform(0.75, 0.98), "sm": rng.uniform(0.08, 0.3), "occupancy": rng.uniform(0.03, 0.14),
             "compute": rng.uniform(0.01, 0.1), "memory": rng.uniform(0.03, 0.16), "fp32": rng.uniform(0.02, 0.1),
             "pcie_rx": 0.01}  # fmt: skip
    segments = [Segment(rng.uniform(0.3, 2.0), small, 0.1), Segment(0.03, _waiting(rng), 0.5)]
    return _assemble(rng, host, seconds, segments, cpu=rng.uniform(0.03, 0.15), read=rng.uniform(1e6, 5e7))


def throttled(rng: Rng, host: Host, seconds: int) -> Activity:
    """Good training on GPUs that run hot, or whose supply brakes them."""
    made = compute_bound(rng, host, seconds, 1)
    reason = HW_THERMAL if rng.random() < 0.6 else POWER_BRAKE
    share, allowed = rng.uniform(0.55, 0.98), rng.uniform(0.45, 0.78)
    # Minutes of throttling and minutes without.
    held = np.repeat(rng.random(seconds // 120 + 1) < share, 120)[:seconds][None, :]
    made.clock = np.where(held, allowed, 1.0)
    made.throttle = np.where(held, float(reason), 0.0)
    return made


def straggler(rng: Rng, host: Host, seconds: int) -> Activity:
    """One rank is slower than the others, which poll in the collective until it arrives."""
    step, slow = rng.uniform(3.0, 16.0), rng.uniform(0.7, 1.6)
    work, fast_share = _math(rng), 1 / (1 + slow)
    polling = {"engine": 1.0, "sm": rng.uniform(0.88, 0.99), "occupancy": 0.1, "memory": 0.02, "spin": 1.0}
    exchange = _exchange(rng, nv=0.4 * host.part.eta_link if host.part.nvlink else 0.0, fab=0.0)
    fast = [Segment(step * 0.95 * fast_share, work, 0.02), Segment(step * 0.95 * (1 - fast_share), polling, 0.02),
            Segment(step * 0.05, exchange, 0.02)]  # fmt: skip
    late = {
        name: value * fast_share if name in ("compute", "memory", "fp32") else value for name, value in work.items()
    }
    slow_one = [Segment(step * 0.95, late, 0.02), Segment(step * 0.05, exchange, 0.02)]
    made = _assemble(rng, host, seconds, fast, cpu=rng.uniform(0.05, 0.2), read=rng.uniform(5e7, 5e8))
    other = run(rng, slow_one, seconds)
    rank = int(rng.integers(0, host.gpus))
    for name, values in made.gpu.items():
        wide = np.repeat(values, host.gpus, axis=0)
        wide[rank] = other[name][0]
        made.gpu[name] = wide
    if rng.random() < 0.6:  # it is slow because it is hot
        made.clock = np.ones((host.gpus, seconds))
        made.clock[rank] = max(0.4, fast_share)
        made.throttle = np.zeros((host.gpus, seconds))
        made.throttle[rank] = HW_THERMAL
    return made


def idle_process(rng: Rng, host: Host, seconds: int) -> Activity:
    """A process that was left behind: a context, some memory, nothing else."""
    gpu = {name: constant(seconds, 0.0) for name in ("engine",)}
    memory = constant(seconds, rng.uniform(0.02, 0.85) * host.part.mem_bytes)
    return Activity(seconds, gpu, {"cpu": np.full(seconds, 0.01)}, memory)
