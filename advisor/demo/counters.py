"""What the counters show of a load: ratios, traffic, power, clocks and temperature that agree with one another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt

from .hardware import SimNode
from .load import Load
from .seeded_rng import TABLES, stream

Array = npt.NDArray[np.float32]

_C = SimpleNamespace(**TABLES["counters"])
_SW_POWER_CAP, _GPU_IDLE = 0x4, 0x1  # NVML's clocks event reasons


@dataclass(frozen=True, slots=True)
class Counters:
    """Values by metric: GPUs (g, n), fabric ports (p, n), host (n,). A metric that is not there is missing."""

    gpus: dict[str, Array]
    fabric: dict[str, Array]
    host: dict[str, Array]

    def each(self, change: Callable[[Array], Array]) -> Counters:
        """The same with every array changed."""
        return Counters(*({k: change(v) for k, v in part.items()} for part in (self.gpus, self.fabric, self.host)))


def observe(load: Load, node: SimNode, rng: np.random.Generator, window_seconds: int) -> Counters:
    """The counters of one node under `load`; `window_seconds`: length of each contiguous stretch in it."""
    return Counters(_gpus(load, node, rng, window_seconds), _fabric(load, node, rng), _host(load, node, rng))


def _gpus(load: Load, node: SimNode, rng: np.random.Generator, window_seconds: int) -> dict[str, Array]:
    gpu, sku = node.gpu, node.gpu.sku
    shape = load.compute.shape
    first, second, third = (rng.standard_normal(shape, dtype=np.float32) for _ in range(3))
    # GPUs of a node differ a little in silicon and cooling, and stay as they are.
    silicon = stream(0, node.node.node, "silicon")
    gain = (1 + 0.012 * silicon.standard_normal((shape[0], 1))).astype(np.float32)
    cooling = silicon.uniform(25, 33, (shape[0], 1)).astype(np.float32)

    compute = np.clip(load.compute * (1 + 0.02 * first) * gain, 0, 1) * (1 - load.clock_loss)
    memory = np.clip(load.memory * (1 + 0.02 * second), 0, _C.dram_max / gpu.eta_memory)
    nvlink_tx = load.nvlink * (1 + 0.01 * third)
    nvlink_rx = load.nvlink * (1 + 0.01 * second)
    limit = np.float32(sku.tdp_watts) * (1 - load.cap_loss)
    link = nvlink_tx / np.float32(gpu.nvlink) if gpu.nvlink else np.float32(0)
    wanted = (
        np.float32(gpu.idle_watts) * (1 + load.context_power * load.resident) * gain
        + np.float32(sku.tdp_watts * gpu.power_scale)
        * (_C.power_compute * compute + _C.power_memory * memory + _C.power_vector * load.vector + _C.power_link * link)
        + np.float32(0.0115 * gpu.idle_watts) * third
    )
    # Share of the clock that is left where somebody set the limit below the SKU's: 1 elsewhere, because the sustained
    # rate of a SKU already holds what its own limit takes.
    idle_watts = np.float32(gpu.idle_watts)
    over = np.maximum((wanted - idle_watts) / np.maximum(limit - idle_watts, 1), 1)
    squeezed = np.where(load.cap_loss > 0, over ** np.float32(-1 / _C.power_of_clock), 1).astype(np.float32)
    compute, power = compute * squeezed, np.clip(wanted, 1, limit)
    clock = np.float32(sku.boost_hertz) * (1 - _C.clock_drop * np.clip(2 * power / limit - 1, 0, 1))
    resting = np.float32(_C.idle_clock_share * sku.boost_hertz)
    clock = np.where(load.resident > 0, clock * (squeezed * (1 - load.clock_loss)), resting)
    clock = np.round(clock / _C.clock_step_hertz) * np.float32(_C.clock_step_hertz)
    tensor = np.clip(compute * np.float32(gpu.eta_compute * sku.tensor_reference_hertz) / clock, 0, _C.tensor_max)
    throttle = np.where(wanted > limit, _SW_POWER_CAP, 0) | load.throttle.astype(np.int32)
    warmth, seen = _lagged(power / np.float32(sku.tdp_watts), window_seconds), 1 - load.blind
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
        "temperature_celsius": np.round(cooling + load.heat + 42 * warmth),
        "throttle_reasons": np.where(load.engine <= 0.001, _GPU_IDLE, throttle),
        "pcie_tx_bytes_per_second": load.pcie_tx * np.clip(1 + 0.03 * third, 0, 1.1) + 1e5,
        "pcie_rx_bytes_per_second": load.pcie_rx * np.clip(1 + 0.03 * first, 0, 1.1) + 1e5,
    }
    if gpu.nvlink:
        counters["nvlink_tx_bytes_per_second"] = np.clip(nvlink_tx, 0, None)
        counters["nvlink_rx_bytes_per_second"] = np.clip(nvlink_rx, 0, None)
    return {name: values.astype(np.float32, copy=False) for name, values in counters.items()}


def _lagged(values: npt.NDArray[np.floating], window_seconds: int) -> Array:
    """The mean over the last seconds of each stretch; before its first second the stretch's first value held."""
    stretch = values.reshape(len(values), -1, window_seconds).astype(np.float64)
    lag = min(_C.thermal_lag_seconds, window_seconds)
    padded = np.concatenate([np.repeat(stretch[..., :1], lag, axis=2), stretch], axis=2)
    total = np.cumsum(padded, axis=2)
    return ((total[..., lag:] - total[..., :-lag]) / lag).reshape(values.shape).astype(np.float32)


def _fabric(load: Load, node: SimNode, rng: np.random.Generator) -> dict[str, Array]:
    """Traffic of every port: the GPUs' on compute ports (GPU k's on the ports beside it), storage on the others."""
    if not node.ports:
        return {}
    gpus, seconds = load.compute.shape
    compute = node.compute_ports
    chatter = rng.uniform(0, 2000, (len(node.ports), seconds)).astype(np.float32)  # keep-alives and monitoring
    noise = 1 + 0.01 * rng.standard_normal((2, len(node.ports), seconds), dtype=np.float32)
    tx, rx, wait = (np.zeros((len(node.ports), seconds), dtype=np.float32) for _ in range(3))
    for position, port in enumerate(node.ports):
        rate = np.float32(port.line_rate_bytes_per_second or 0)
        if position in compute:
            beside = slice(None)  # all GPUs share the ports
            if len(compute) >= gpus:
                beside = slice(first := compute.index(position) * gpus // len(compute), first + 1)
            sent, received = load.fabric_tx[beside].mean(axis=0), load.fabric_rx[beside].mean(axis=0)
            wait[position] = np.clip(sent - 0.6, 0, None) * 2e8 * np.abs(noise[0, position])
            flows = sent * rate * noise[0, position], received * rate * noise[1, position]
        else:
            most = 0.9 * rate
            storage = (load.storage_tx, load.storage_rx)
            flows = [np.minimum(flow, most) * noise[way, position] + 2e5 for way, flow in enumerate(storage)]
        tx[position], rx[position] = (np.clip(flow + chatter[position], 0, rate) for flow in flows)
    counters = {"tx_bytes_per_second": tx, "rx_bytes_per_second": rx}
    if all(port.link_layer != "EFA" for port in node.ports):  # EFA has no port_xmit_wait
        counters["xmit_wait_per_second"] = wait
    return counters


def _host(load: Load, node: SimNode, rng: np.random.Generator) -> dict[str, Array]:
    total = node.host_mem_bytes
    noise = 1 + 0.05 * rng.standard_normal((4, len(load.cpu)), dtype=np.float32)
    return {
        "cpu_util": np.clip((load.cpu + 0.004) * noise[0], 0, 1),
        "io_wait": np.clip((load.io_wait + 0.0005) * noise[1], 0, 1),
        "mem_used_bytes": np.clip((load.host_mem + 0.03) * total, 0, 0.98 * total).astype(np.float32),
        "disk_read_bytes_per_second": np.clip(load.disk_read * noise[2], 0, None),
        "disk_write_bytes_per_second": np.clip((load.disk_write + 3e5) * noise[3], 0, None),
    }
