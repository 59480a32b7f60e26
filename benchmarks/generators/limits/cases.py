"""What a GPU's counters show while a known resource limits its work: parametrised cases, each from physics alone.

A case is a step of parts (compute, exchange, wait for input ...) whose lengths and levels are drawn within what
published measurements allow. It is laid out at a tenth of a second, so that steps shorter than a sample blur by
themselves. Levels are shares of the peak: tensor activity in a matrix product reaches what the SKU sustains, a
collective keeps the engine busy with few SMs, copies leave the engine to rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

TICK = 0.1
SECONDS = 1800
NAMES = ("g", "sm", "o", "c", "m", "v", "n", "p", "i")  # i: of the line rate


@dataclass(frozen=True, slots=True)
class Board:
    """A GPU of the cases. `nvlink`: one way, bytes per second (None: none). `eta_c`, `eta_m`: what it sustains."""

    name: str
    sku: str
    hertz: float
    watts: float
    gib: float
    nvlink: float | None
    pcie: float
    eta_c: float
    eta_m: float


H100 = Board("NVIDIA H100 80GB HBM3", "H100-SXM5", 1.83e9, 700, 80, 450e9, 63e9, 0.82, 0.88)
A100 = Board("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB", 1.41e9, 400, 80, 300e9, 31.5e9, 0.80, 0.77)
L40S = Board("NVIDIA L40S", "L40S", 2.49e9, 350, 48, None, 31.5e9, 0.73, 0.84)
L4 = Board("NVIDIA L4", "L4", 2.04e9, 72, 24, None, 31.5e9, 0.7, 0.78)
BOARDS = (H100, A100, L40S, L4)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a step: how long (seconds), the levels meanwhile."""

    seconds: float
    levels: Mapping[str, float]


@dataclass(frozen=True)
class Case:
    """`label`: the truth. `levels`: by name, at 1 s, of one rank; `late`: of the rank that is late, where one is.

    `wire`: kind and line rate (bytes per second) of the ports between nodes, None: a node alone. `ports`: how many of
    them it uses of `all_ports`. `clock`: over the reference; `power`: over the rated. `throttled`: share of time.
    `serves`: whether demand, not work, sets how long it is busy; `swing`: how far its days swing. `free_gpus`: of each
    node, beside its own; `joined`: whether its parts on several nodes have one name.
    """

    label: str
    name: str
    board: Board
    gpus: int
    nodes: int
    levels: Mapping[str, Floats]
    wire: tuple[str, float] | None = None
    ports: int = 1
    all_ports: int = 1
    clock: float = 1.0
    power: float = 0.6
    throttled: float = 0.0
    cpu: float = 0.2
    io_wait: float = 0.01
    serves: bool = False
    swing: float = 0.0
    mem: float = 0.7
    free_gpus: int = 0
    joined: bool = True
    late: Mapping[str, Floats] | None = None
    late_clock: float = 1.0
    about: Mapping[str, str] = field(default_factory=dict)


def laid_out(rng: np.random.Generator, step: list[Part], jitter: float = 0.08) -> dict[str, Floats]:
    """Steps after one another, at 1 s: their lengths vary by `jitter`, their levels by a few percent."""
    ticks = round(SECONDS / TICK)
    out = {name: np.zeros(ticks) for name in NAMES}
    starts, at = [], 0.0
    while at < SECONDS:
        for number, part in enumerate(step):
            length = part.seconds * float(np.exp(rng.normal(0, jitter)))
            starts.append((at, at + length, number))
            at += length
            if at >= SECONDS:
                break
    # Parts shorter than a tick add up: what counts is how long each lasts within it.
    for begin, end, number in starts:
        first, last = int(begin / TICK), min(int(end / TICK), ticks - 1)
        wobble = float(np.exp(rng.normal(0, 0.04)))
        for name, value in step[number].levels.items():
            level = value * wobble
            if first == last:
                out[name][first] += level * (end - begin) / TICK
            else:
                out[name][first] += level * ((first + 1) * TICK - begin) / TICK
                out[name][first + 1 : last] += level
                out[name][last] += level * max(0.0, min(end, SECONDS) - last * TICK) / TICK
    return {name: np.clip(v.reshape(SECONDS, -1).mean(axis=1), 0, 1.0) for name, v in out.items()}


def _on_demand(rng: np.random.Generator, duty: float, busy: Mapping[str, float]) -> dict[str, Floats]:
    """Requests by chance: busy spells of some seconds."""
    spell = float(rng.uniform(0.5, 8))
    return laid_out(rng, [Part(spell, busy), Part(spell * (1 - duty) / duty, {})], jitter=0.9)


def _work(board: Board, c: float, m: float, **more: float) -> dict[str, float]:
    """Kernels that fill the GPU: `c`, `m` of what it sustains."""
    return {"g": 0.99, "sm": 0.9, "o": 0.25, "c": c * board.eta_c, "m": m * board.eta_m} | more


def _exchange(**more: float) -> dict[str, float]:
    """A collective's kernel: the engine is busy, a few SMs move data or poll."""
    return {"g": 1.0, "sm": 0.18, "o": 0.05, "c": 0.0, "m": 0.05} | more


def decode(rng: np.random.Generator) -> Case:
    board = BOARDS[rng.integers(4)]
    m, c = rng.uniform(0.68, 0.95), rng.uniform(0.05, 0.3)
    levels = laid_out(rng, [Part(2.0, _work(board, c, m, g=rng.uniform(0.93, 1.0)))])
    return Case("hbm-bandwidth", "decode", board, int(rng.choice([1, 2])), 1, levels, serves=True, mem=0.9,
                power=rng.uniform(0.35, 0.6), swing=0.1)  # fmt: skip


def light_decode(rng: np.random.Generator) -> Case:
    board = BOARDS[rng.integers(4)]
    duty = rng.uniform(0.08, 0.45)
    busy = _work(board, rng.uniform(0.03, 0.2), rng.uniform(0.6, 0.9), g=rng.uniform(0.9, 1.0))
    return Case("hbm-bandwidth", "light decode", board, 1, 1, _on_demand(rng, duty, busy), serves=True, mem=0.9,
                power=0.3, swing=rng.uniform(0.2, 0.6))  # fmt: skip


def light_prefill(rng: np.random.Generator) -> Case:
    """Embeddings, rerankers, vision: requests that are matrix products."""
    board = BOARDS[rng.integers(4)]
    busy = _work(board, rng.uniform(0.6, 0.85), rng.uniform(0.2, 0.35))
    return Case("compute", "light prefill", board, 1, 1, _on_demand(rng, rng.uniform(0.08, 0.45), busy), serves=True,
                mem=0.6, power=0.4, swing=rng.uniform(0.2, 0.6))  # fmt: skip


def light_launches(rng: np.random.Generator) -> Case:
    """A small model, request by request: kernels too small for the GPU, and it rests between requests."""
    board = BOARDS[rng.integers(4)]
    busy = {"g": 0.9, "sm": rng.uniform(0.08, 0.3), "o": 0.06, "c": rng.uniform(0.01, 0.1), "m": rng.uniform(0.04, 0.2)}
    return Case("latency", "light launches", board, 1, 1, _on_demand(rng, rng.uniform(0.15, 0.45), busy), serves=True,
                mem=0.3, power=0.3, swing=rng.uniform(0.2, 0.6))  # fmt: skip


def blended(rng: np.random.Generator) -> Case:
    """Prefill and decode by turns within the minute: decode takes most of the time."""
    board = BOARDS[rng.integers(4)]
    share = rng.uniform(0.12, 0.28)
    step = [Part(share, _work(board, 0.75, 0.3)), Part(1 - share, _work(board, 0.1, 0.85))]
    return Case("hbm-bandwidth", "prefill and decode", board, 1, 1, laid_out(rng, step), serves=True, mem=0.9,
                power=0.5, swing=0.1)  # fmt: skip


def training(rng: np.random.Generator) -> Case:
    """Dense training at 33 to 55 % of the peak; some of its communication is exposed, most of it overlapped."""
    board = (H100, A100)[rng.integers(2)]
    nodes, step = int(rng.choice([1, 2])), rng.uniform(0.6, 12)
    exposed, c = rng.uniform(0.05, 0.2), rng.uniform(0.38, 0.6) / board.eta_c
    wire = rng.uniform(0.05, 0.35) if nodes > 1 else 0.0
    busy = _work(board, min(c, 0.98), rng.uniform(0.2, 0.4), n=rng.uniform(0.02, 0.15), i=wire)
    parts = [
        Part(step * (1 - exposed), busy),
        Part(step * exposed, _exchange(n=0.3, i=min(0.8, 2 * wire))),
    ]
    return Case("compute", "training", board, 8, nodes, laid_out(rng, parts), wire=("InfiniBand", 50e9), ports=8,
                all_ports=8, power=rng.uniform(0.7, 0.98), clock=rng.uniform(0.93, 1.05))  # fmt: skip


def tuning(rng: np.random.Generator) -> Case:
    board = BOARDS[rng.integers(4)]
    step = rng.uniform(0.3, 4)
    parts = [
        Part(step * 0.92, _work(board, rng.uniform(0.55, 0.9), rng.uniform(0.25, 0.4))),
        Part(step * 0.08, {"g": 0.3}),
    ]
    return Case("compute", "tuning", board, int(rng.choice([1, 2, 4])), 1, laid_out(rng, parts), power=0.85,
                clock=0.85 if board is L4 else 0.98)  # fmt: skip


def starved(rng: np.random.Generator) -> Case:
    """Training that waits for its data: cores at their limit, storage that is slow, or neither to be seen."""
    board = BOARDS[rng.integers(4)]
    busy, step = rng.uniform(0.2, 0.58), rng.uniform(0.4, 5)
    parts = [
        Part(step * busy, _work(board, rng.uniform(0.5, 0.85), rng.uniform(0.25, 0.45), n=0.03)),
        Part(step * (1 - busy), {"g": 0.02}),
    ]
    cause = rng.integers(3)
    cpu, io_wait = rng.uniform(0.85, 1.0), rng.uniform(0.12, 0.4)
    return Case("host-input", "starved", board, int(rng.choice([1, 2, 8])), 1, laid_out(rng, parts),
                cpu=cpu if cause == 0 else 0.3, io_wait=io_wait if cause == 1 else 0.02, power=0.35,
                about={"command": "torchrun train.py"} if cause == 2 else {})  # fmt: skip


def launches(rng: np.random.Generator) -> Case:
    """Training of a small model: short kernels, one after another."""
    board = BOARDS[rng.integers(4)]
    levels = {"g": rng.uniform(0.72, 0.98), "sm": rng.uniform(0.1, 0.4), "o": rng.uniform(0.03, 0.15),
              "c": rng.uniform(0.01, 0.13), "m": rng.uniform(0.04, 0.22)}  # fmt: skip
    gpus = int(rng.choice([1, 1, 2]))
    levels |= {"n": 0.01, "p": 0.01}
    return Case(
        "latency", "launches", board, gpus, 1, laid_out(rng, [Part(0.5, levels)]), power=rng.uniform(0.25, 0.45)
    )


def nvlink_parallel(rng: np.random.Generator) -> Case:
    board = (H100, A100)[rng.integers(2)]
    step, share = rng.uniform(0.01, 3), rng.uniform(0.55, 0.75)
    parts = [
        Part(step * (1 - share), _work(board, 0.65, 0.4)),
        Part(step * share, _exchange(sm=0.4, m=0.25, n=rng.uniform(0.62, 0.78))),
    ]
    return Case("nvlink", "tensor parallel over NVLink", board, 8, 1, laid_out(rng, parts), power=0.6)


def pcie_parallel(rng: np.random.Generator) -> Case:
    """Tensor parallelism without NVLink: all-reduce over PCIe sustains a fraction of the link."""
    board = (L40S, L4)[rng.integers(2)]
    step, share = rng.uniform(0.01, 1), rng.uniform(0.55, 0.75)
    parts = [
        Part(step * (1 - share), _work(board, 0.4, 0.5)),
        Part(step * share, _exchange(sm=0.3, m=0.1, p=rng.uniform(0.38, 0.65))),
    ]
    return Case("pcie", "tensor parallel over PCIe", board, int(rng.choice([2, 4])), 1, laid_out(rng, parts), power=0.5)


def offload(rng: np.random.Generator) -> Case:
    """Weights, optimiser or cache come over PCIe: the engine rests while copies run."""
    board = BOARDS[rng.integers(4)]
    step, share = rng.uniform(0.2, 5), rng.uniform(0.6, 0.8)
    parts = [
        Part(step * (1 - share), _work(board, 0.6, 0.5, p=0.1)),
        Part(step * share, {"g": rng.uniform(0.2, 0.7), "sm": 0.1, "m": 0.08, "p": rng.uniform(0.75, 0.9)}),
    ]
    return Case("pcie", "offload", board, int(rng.choice([1, 2])), 1, laid_out(rng, parts), power=0.4)


def _exchanging(
    rng: np.random.Generator,
    name: str,
    wire: tuple[str, float],
    reach: float,
    share: float,
    *,
    gpus: int = 8,
    **more: Any,
) -> Case:
    """`share` of each step is an exchange at `reach` of the line rate, while the collective's kernel spins."""
    board = (H100, A100, L40S)[rng.integers(3)] if wire[0] == "Ethernet" else (H100, A100)[rng.integers(2)]
    step = float(rng.choice([0.3, 1.5, 8.0]) * rng.uniform(0.7, 1.4))
    spin = rng.uniform(0.15, 0.95)
    parts = [
        Part(step * (1 - share), _work(board, rng.uniform(0.5, 0.75), rng.uniform(0.2, 0.4), n=0.1, i=0.02)),
        Part(step * share, _exchange(sm=spin, i=reach, n=0.03, p=0.1)),
    ]
    return Case("network", name, board, gpus, 2, laid_out(rng, parts), wire=wire, power=0.45, **more)


def network_rdma(rng: np.random.Generator) -> Case:
    return _exchanging(rng, "RDMA exchange", ("InfiniBand", 50e9), rng.uniform(0.7, 0.92), rng.uniform(0.58, 0.8),
                       ports=8, all_ports=8)  # fmt: skip


def network_moderate(rng: np.random.Generator) -> Case:
    """Many small exchanges: half of the line rate is all that they reach."""
    return _exchanging(rng, "moderate exchange", ("InfiniBand", 50e9), rng.uniform(0.42, 0.6), rng.uniform(0.6, 0.8),
                       ports=8, all_ports=8)  # fmt: skip


def network_ethernet(rng: np.random.Generator) -> Case:
    """NCCL over TCP: 25 to 200 Gb/s, sockets fill the slow ones."""
    gigabits = float(rng.choice([25, 50, 100, 200]))
    reach = rng.uniform(0.7, 0.95) * min(1.0, 50 / gigabits)
    return _exchanging(rng, "Ethernet exchange", ("Ethernet", gigabits / 8 * 1e9), reach, rng.uniform(0.6, 0.85))


def network_one_rail(rng: np.random.Generator) -> Case:
    """One rail of eight carries everything: a misconfigured NCCL."""
    return _exchanging(rng, "one rail of eight", ("InfiniBand", 50e9), rng.uniform(0.8, 0.95), rng.uniform(0.6, 0.85),
                       ports=1, all_ports=8)  # fmt: skip


def network_unnamed(rng: np.random.Generator) -> Case:
    """A job that nobody joins: on each node another name, and half of the node's GPUs."""
    gigabits = float(rng.choice([25, 100]))
    reach = rng.uniform(0.7, 0.95) * min(1.0, 50 / gigabits)
    return _exchanging(rng, "exchange, not joined", ("Ethernet", gigabits / 8 * 1e9), reach, rng.uniform(0.6, 0.85),
                       gpus=4, free_gpus=4, joined=False)  # fmt: skip


def throttled(rng: np.random.Generator) -> Case:
    board = (H100, A100, L40S)[rng.integers(3)]
    c = rng.uniform(0.5, 0.9)
    levels = laid_out(rng, [Part(3.0, _work(board, c, 0.35))])
    return Case("throttled", "throttled", board, int(rng.choice([1, 8])), 1, levels, clock=rng.uniform(0.5, 0.78),
                power=rng.uniform(0.4, 0.75), throttled=rng.uniform(0.5, 1.0))  # fmt: skip


def straggler(rng: np.random.Generator) -> Case:
    """One rank is slow by its host (its engine rests) or by its clock; the others spin."""
    board = (H100, A100)[rng.integers(2)]
    step, share, work = rng.uniform(2.5, 9), rng.uniform(0.3, 0.5), _work(board, 0.7, 0.35, n=0.05)
    others = [Part(step * (1 - share), work), Part(step * share, _exchange(sm=0.9, n=0.0, m=0.02))]
    by_clock = bool(rng.integers(2))
    slow = {**work, "c": work["c"], "m": work["m"] * (1 - share)} if by_clock else work
    late = [Part(step, slow)] if by_clock else [Part(step * (1 - share), slow), Part(step * share, {"g": 0.05})]
    return Case("straggler", "straggler", board, 8, 1, laid_out(rng, others, 0.02), late=laid_out(rng, late, 0.02),
                late_clock=1 - share if by_clock else 1.0, power=0.6, throttled=0.0)  # fmt: skip


def idle(rng: np.random.Generator) -> Case:
    board = BOARDS[rng.integers(4)]
    return Case("idle", "idle", board, 1, 1, laid_out(rng, [Part(5.0, {"g": 0.002})]), power=0.12, mem=0.4)


CASES: tuple[Callable[[np.random.Generator], Case], ...] = (
    decode, light_decode, light_prefill, light_launches, blended, training, tuning, starved, launches, nvlink_parallel,
    pcie_parallel, offload, network_rdma, network_moderate, network_ethernet, network_one_rail, network_unnamed,
    throttled, straggler, idle,
)  # fmt: skip
