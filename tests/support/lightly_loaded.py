"""Fleets of healthy GPUs at rest and at light work, written from published levels of power (not from the simulator)."""

from dataclasses import dataclass, replace

import numpy as np
from skuwise.advisor.core.frame import Frame
from skuwise.tests.support.frame_builder import GIB, HOUR, START, FrameBuilder


@dataclass(frozen=True, slots=True)
class Board:
    """A kind of GPU: power at rest without a context, with one (lowest and highest), and its limit, in watts."""

    sku: str
    free: float
    low: float
    high: float
    limit: float
    mem_gib: float


# arXiv 2605.23918 (H100, A100, L40S), open-gpu-kernel-modules issue 874 (A40), ollama issue 8591 (V100); L4, T4 and
# A10G behave alike: the same range of shares of their limits.
BOARDS = (
    Board("H100-SXM5", 68, 71.8, 121.7, 700, 80), Board("A100-SXM4-80GB", 50, 53.7, 80.0, 400, 80),
    Board("L40S", 32, 35.6, 102.1, 350, 48), Board("A40", 28, 30, 110, 300, 48),
    Board("V100-SXM2-16GB", 25, 27, 40, 300, 16), Board("L4", 16, 18, 33, 72, 24), Board("T4", 9, 12, 30, 70, 16),
    Board("A10G", 18, 22, 90, 300, 24),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Way:
    """How a GPU is used. `busy`: its engine while it serves; `day`: whether it rests at night; `full`: SM_ACTIVE and
    the other pipes are exported; `util`: GPU_UTIL is."""

    board: Board
    context: float  # watts at rest with the context
    busy: float
    day: bool = False
    full: bool = True
    util: bool = True
    held: bool = True


def drawn(rng: np.random.Generator, kind: str) -> Way:
    """A way of use of this kind: rest, light, poll (probes alone), free."""
    board = BOARDS[int(rng.integers(len(BOARDS)))]
    option = Way(board, rng.uniform(board.low, board.high), 0.0, full=bool(rng.random() < 0.5))
    if kind == "light":
        return replace(option, busy=rng.uniform(0.05, 0.3), day=bool(rng.random() < 0.7), util=bool(rng.random() < 0.8))
    if kind == "poll":
        return replace(option, busy=rng.uniform(0.002, 0.04))
    return replace(option, held=kind != "free", context=board.free if kind == "free" else option.context)


def rows(rng: np.random.Generator, option: Way, *, hours: int) -> dict[str, list[float]]:
    """Hourly columns of a GPU in such use: what a profiler, the driver and the board would say of the same work."""
    hour = np.arange(hours)
    level = np.full(hours, option.busy)
    if option.day:
        level = level * np.clip(0.6 + 0.8 * np.sin(2 * np.pi * hour / 24), 0, None)
    level = np.clip(level * (1 + 0.1 * rng.standard_normal(hours)), 0, 1)
    width = rng.uniform(0.2, 0.9)
    power = option.context + level * rng.uniform(0.2, 0.6) * option.board.limit + 0.6 * rng.standard_normal(hours) / 8
    columns = {
        "gpu_util": np.round(level, 4), "sm_active": level * width, "sm_occupancy": 0.4 * level * width,
        "tensor_active": level * rng.uniform(0.02, 0.3) * width, "dram_active": level * rng.uniform(0.05, 0.5),
        "fp32_active": 0.1 * level * width, "fp64_active": 0 * level, "power_watts": power,
        "sm_clock_hertz": np.full(hours, 1.5e9), "mem_clock_hertz": np.full(hours, 1.5e9),
        "mem_used_bytes": np.full(hours, (0.6 if option.held else 0.0005) * option.board.mem_gib * GIB),
    }  # fmt: skip
    gone = () if option.full else ("sm_active", "sm_occupancy", "fp32_active", "fp64_active")
    gone = gone if option.util else (*gone, "gpu_util")
    return {name: list(map(float, values)) for name, values in columns.items() if name not in gone}


def place(
    b: FrameBuilder, board: Board, columns: dict[str, list[float]], *, node: str, uuid: str, **about: object
) -> None:
    """A GPU on a node of its own, with these hours."""
    if node not in {str(n["node"]) for n in b.nodes}:
        b.node(node, gpus=0, gpu_count=1)
    b.gpus.append({
        "node": node, "gpu_uuid": uuid, "name": board.sku, "sku": board.sku, "kind": "gpu", "gpu_index": 0.0,
        "mem_total_bytes": board.mem_gib * GIB, "power_limit_watts": board.limit, "valid_from": START, **about,
    })  # fmt: skip
    for n in range(b.hours):
        row: dict[str, object] = {
            "node": node, "gpu_uuid": uuid, "gpu_index": 0.0, "ts": START + (n + 1) * HOUR, "interval_seconds": HOUR,
            "observed_seconds": HOUR, "mem_total_bytes": board.mem_gib * GIB, "power_watts_n": 60.0,
        }  # fmt: skip
        row |= {f"{name}_mean": values[n] for name, values in columns.items()}
        b.gpu_rows.append(row)


def one(option: Way, seed: int, *, hours: int = 48, columns: dict[str, list[float]] | None = None) -> Frame:
    """A frame of one GPU in such use, held by a workload where it is held."""
    b = FrameBuilder(hours=hours)
    rng = np.random.default_rng(seed)
    place(b, option.board, columns or rows(rng, option, hours=hours), node="n1", uuid="GPU-n1-0")
    if option.held:
        b.work("w", [("n1", "GPU-n1-0")])
    return b.frame()
