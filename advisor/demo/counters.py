"""What the counters show of a load: ratios, traffic, power, clocks and temperature that agree with one another.

Which of them a node can read is `sensing`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .hardware import SimNode
from .load import Load
from .mig import of_whole_gpus
from .seeded_rng import stream
from .telemetry_profiles import sensed

Array = npt.NDArray[np.float32]

# Power over idle at full use, as a share of the limit. With a sustained GEMM (compute 1, memory 0.3) this reaches the
# limit on SXM parts, and memory-bound decode lands at 35-45 % of it: H200 decode was measured at 137-300 of 700 W.
_POWER_COMPUTE, _POWER_MEMORY, _POWER_VECTOR, _POWER_LINK = 0.62, 0.22, 0.05, 0.05
# Power over idle goes with f V^2, that is about f^2.3: a capped GPU finds the clock at which it keeps its limit.
_POWER_OF_CLOCK = 2.3
# SM clock given up between half and full power: H100 runs large GEMMs near 1.7 of 1.98 GHz at 700 W.
_CLOCK_DROP = 0.16
_CLOCK_STEP_HERTZ = 15e6
_IDLE_CLOCK_SHARE = 0.17  # 345 of 1980 MHz without a context
_TENSOR_MAX = 0.93  # the tensor pipe's counter does not get beyond this
_DRAM_MAX = 0.97
_THERMAL_LAG_SECONDS = 20  # a causal mean over so long stands for the heat sink's time constant
_TIB = 1024**4
SW_POWER_CAP = 0x4
GPU_IDLE = 0x1

GpuCounters = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Counters:
    """Values by metric: GPUs (g, n), fabric ports (p, n), host (n,). A metric that is not there is missing."""

    gpus: GpuCounters
    fabric: dict[str, Array]
    host: dict[str, Array]


def observe(
    load: Load, node: SimNode, rng: np.random.Generator, window_seconds: int, *, scraped: bool = False
) -> Counters:
    """The counters of one node under `load`; `window_seconds`: length of each stretch in it, which is contiguous unless
    it was `scraped`."""
    if node.has_slices:
        of_whole_gpus(load, node)
    gpus = sensed(_gpus(load, node, rng, window_seconds), node, window_seconds, scraped=scraped)
    return Counters(gpus, _fabric(load, node, rng), _host(load, node, rng))


def _gpus(load: Load, node: SimNode, rng: np.random.Generator, window_seconds: int) -> GpuCounters:
    gpu, sku = node.gpu, node.gpu.sku
    shape = load.compute.shape
    first, second, third = (rng.standard_normal(shape, dtype=np.float32) for _ in range(3))
    # GPUs of a node differ a little in silicon and cooling, and stay as they are.
    silicon = stream(0, node.node.node, "silicon")
    gain = (1 + 0.012 * silicon.standard_normal((shape[0], 1))).astype(np.float32)
    cooling = silicon.uniform(25, 33, (shape[0], 1)).astype(np.float32)

    compute = np.clip(load.compute * (1 + 0.02 * first) * gain, 0, 1) * (1 - load.clock_loss)
    memory = np.clip(load.memory * (1 + 0.02 * second), 0, _DRAM_MAX / gpu.eta_memory)
    nvlink_tx = load.nvlink * (1 + 0.01 * third)
    nvlink_rx = load.nvlink * (1 + 0.01 * second)
    limit = np.float32(sku.tdp_watts) * (1 - load.cap_loss)
    link = nvlink_tx / np.float32(gpu.nvlink) if gpu.nvlink else np.float32(0)
    wanted = (
        np.float32(gpu.idle_watts) * (1 + load.context_power * load.resident) * gain
        + np.float32(sku.tdp_watts * gpu.power_scale)
        * (_POWER_COMPUTE * compute + _POWER_MEMORY * memory + _POWER_VECTOR * load.vector + _POWER_LINK * link)
        + np.float32(0.0115 * gpu.idle_watts) * third
    )
    squeezed = _squeeze(wanted, limit, gpu.idle_watts, load.cap_loss)
    compute, power = compute * squeezed, np.clip(wanted, 1, limit)
    squeezed = squeezed * (1 - load.clock_loss)
    clock = np.float32(sku.boost_hertz) * (1 - _CLOCK_DROP * np.clip(2 * power / limit - 1, 0, 1))
    clock = np.where(load.resident > 0, clock * squeezed, np.float32(_IDLE_CLOCK_SHARE * sku.boost_hertz))
    clock = np.round(clock / _CLOCK_STEP_HERTZ) * np.float32(_CLOCK_STEP_HERTZ)
    tensor = np.clip(compute * np.float32(gpu.eta_compute * sku.tensor_reference_hertz) / clock, 0, _TENSOR_MAX)
    throttle = np.where(wanted > limit, SW_POWER_CAP, 0) | load.throttle.astype(np.int32)
    throttle = np.where(load.engine <= 0.001, GPU_IDLE, throttle)
    seen = 1 - load.blind
    counters = {
        "gpu_util": np.round(np.clip(load.engine * (1 + 0.005 * first), 0, 1), 2),
        "sm_active": np.clip(load.sm * (1 + 0.015 * first), 0, 1) * seen,
        "sm_occupancy": np.clip(load.occupancy * (1 + 0.02 * second), 0, 1) * seen,
        "tensor_active": tensor * seen,
        "dram_active": memory * np.float32(gpu.eta_memory) * seen,
        "fp64_active": np.zeros(shape, dtype=np.float32),
        "fp32_active": np.clip(load.vector * (1 + 0.02 * second), 0, 1) * seen,
        "fp16_active": np.clip(0.2 * load.vector * (1 + 0.02 * first), 0, 1) * seen,
        "mem_used_bytes": load.mem_used_bytes,
        "power_watts": power,
        "energy_joules": power * np.float32(1.0),
        "sm_clock_hertz": clock,
        "mem_clock_hertz": np.full(shape, gpu.mem_clock_hertz, dtype=np.float32),
        "temperature_celsius": np.round(
            cooling + load.heat + 42 * _lagged(power / np.float32(sku.tdp_watts), window_seconds)
        ),
        "throttle_reasons": throttle.astype(np.float32),
        "pcie_tx_bytes_per_second": load.pcie_tx * np.clip(1 + 0.03 * third, 0, 1.1) + 1e5,
        "pcie_rx_bytes_per_second": load.pcie_rx * np.clip(1 + 0.03 * first, 0, 1.1) + 1e5,
    }
    if gpu.nvlink:
        counters["nvlink_tx_bytes_per_second"] = np.clip(nvlink_tx, 0, None)
        counters["nvlink_rx_bytes_per_second"] = np.clip(nvlink_rx, 0, None)
    return {name: values.astype(np.float32, copy=False) for name, values in counters.items()}


def _squeeze(
    wanted: npt.NDArray[np.floating], limit: npt.NDArray[np.floating], idle_watts: float, cap_loss: Array
) -> Array:
    """Share of the clock that is left where somebody set the limit below the SKU's: 1 elsewhere, because the sustained
    rate of a SKU already holds what its own limit takes."""
    room = np.maximum(limit - np.float32(idle_watts), 1)
    over = np.maximum((wanted - np.float32(idle_watts)) / room, 1)
    return np.where(cap_loss > 0, over ** np.float32(-1 / _POWER_OF_CLOCK), 1).astype(np.float32)


def _lagged(values: npt.NDArray[np.floating], window_seconds: int) -> Array:
    """The mean over the last seconds of each stretch; before its first second the stretch's first value held."""
    gpus = values.shape[0]
    stretch = values.reshape(gpus, -1, window_seconds).astype(np.float64)
    lag = min(_THERMAL_LAG_SECONDS, window_seconds)
    padded = np.concatenate([np.repeat(stretch[..., :1], lag, axis=2), stretch], axis=2)
    total = np.cumsum(padded, axis=2)
    return ((total[..., lag:] - total[..., :-lag]) / lag).reshape(values.shape).astype(np.float32)


def _fabric(load: Load, node: SimNode, rng: np.random.Generator) -> dict[str, Array]:
    """Traffic of every port: the GPUs' on compute ports (GPU k's on the ports beside it), storage on the others."""
    seconds = load.compute.shape[1]
    compute = node.compute_ports
    gpus = load.compute.shape[0]
    if not node.ports:
        return {}
    chatter = rng.uniform(0, 2000, (len(node.ports), seconds)).astype(np.float32)  # keep-alives and monitoring
    noise = 1 + 0.01 * rng.standard_normal((2, len(node.ports), seconds), dtype=np.float32)
    tx, rx, wait = (np.zeros((len(node.ports), seconds), dtype=np.float32) for _ in range(3))
    for position, port in enumerate(node.ports):
        rate = np.float32(port.line_rate_bytes_per_second or 0)
        if position in compute:
            share_tx, share_rx = load.fabric_tx, load.fabric_rx
            if len(compute) >= gpus:
                beside = compute.index(position) * gpus // len(compute)
                sent, received = share_tx[beside], share_rx[beside]
            else:
                sent, received = share_tx.mean(axis=0), share_rx.mean(axis=0)
            tx[position] = sent * rate * noise[0, position]
            rx[position] = received * rate * noise[1, position]
            wait[position] = np.clip(sent - 0.6, 0, None) * 2e8 * np.abs(noise[0, position])
        else:
            tx[position] = np.minimum(load.storage_tx, 0.9 * rate) * noise[0, position] + 2e5
            rx[position] = np.minimum(load.storage_rx, 0.9 * rate) * noise[1, position] + 2e5
        tx[position] = np.clip(tx[position] + chatter[position], 0, rate)
        rx[position] = np.clip(rx[position] + chatter[position], 0, rate)
    counters = {"tx_bytes_per_second": tx, "rx_bytes_per_second": rx}
    if all(port.link_layer != "EFA" for port in node.ports):  # EFA has no port_xmit_wait
        counters["xmit_wait_per_second"] = wait
    return counters


def _host(load: Load, node: SimNode, rng: np.random.Generator) -> dict[str, Array]:
    total = host_memory(node)
    noise = 1 + 0.05 * rng.standard_normal((4, len(load.cpu)), dtype=np.float32)
    return {
        "cpu_util": np.clip((load.cpu + 0.004) * noise[0], 0, 1),
        "io_wait": np.clip((load.io_wait + 0.0005) * noise[1], 0, 1),
        "mem_used_bytes": np.clip((load.host_mem + 0.03) * total, 0, 0.98 * total).astype(np.float32),
        "disk_read_bytes_per_second": np.clip(load.disk_read * noise[2], 0, None),
        "disk_write_bytes_per_second": np.clip((load.disk_write + 3e5) * noise[3], 0, None),
    }


def host_memory(node: SimNode) -> float:
    """The host's memory, bytes; 1 TiB where the catalog does not know, the middle of 8-GPU nodes."""
    return float(node.sku.host_mem_bytes or _TIB)
