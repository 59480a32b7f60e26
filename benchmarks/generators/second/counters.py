"""From activity to what counters show: noise, power, clocks, temperature, and what a part does not count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .activity import CHANNELS, Activity, F
from .hardware import Machine

_RATIOS = {"gpu_util": "engine", "sm_active": "sm", "sm_occupancy": "occupancy", "fp32_active": "fp32"}
SW_POWER_CAP, GPU_IDLE = 0x4, 0x1


@dataclass(slots=True)
class Counted:
    """Values by metric: GPUs (g, s), ports (p, s), host (s,)."""

    gpus: dict[str, F]
    fabric: dict[str, F]
    host: dict[str, F]


class Node:
    """Adds up what its workloads do, by seconds, and reads the counters."""

    def __init__(self, machine: Machine, seconds: int) -> None:
        gpus = len(machine.gpus)
        self.machine, self.seconds = machine, seconds
        self.work = {name: np.zeros((gpus, seconds), dtype=np.float32) for name in CHANNELS}
        self.memory = np.zeros((gpus, seconds), dtype=np.float32)
        self.clock = np.ones((gpus, seconds), dtype=np.float32)
        self.throttle = np.zeros((gpus, seconds), dtype=np.float32)
        self.context = np.zeros((gpus, seconds), dtype=bool)
        self.host = {
            name: np.zeros(seconds, dtype=np.float32) for name in ("cpu", "io_wait", "read", "write", "storage")
        }

    def place(self, activity: Activity, gpus: tuple[int, ...], at: int) -> None:
        """Put a workload on GPUs from second `at` on; what does not fit in the time is left out."""
        stop = min(self.seconds, at + activity.seconds)
        span, own, rows = slice(at, stop), slice(0, stop - at), np.array(gpus)

        def values(array: F) -> F:
            wide = (
                array
                if array.shape[0] == 1
                else array[rows if array.shape[0] == len(self.machine.gpus) else slice(None)]
            )
            return wide[:, own]

        for name, array in activity.gpu.items():
            self.work[name][rows, span] += values(array)
        if activity.memory is not None:
            self.memory[rows, span] += values(activity.memory)
        if activity.clock is not None:
            self.clock[rows, span] = values(activity.clock)
        if activity.throttle is not None:
            self.throttle[rows, span] = values(activity.throttle)
        self.context[rows, span] = True
        for name, array in activity.host.items():
            self.host[name][span] += array[own]

    def count(self, rng: np.random.Generator) -> Counted:
        """The counters of every second."""
        part, work = self.machine.host.part, self.work
        shape = self.memory.shape

        def noisy(values: F, scale: float) -> F:
            return values * (1 + scale * rng.standard_normal(shape, dtype=np.float32))

        chip = (1 + 0.02 * rng.standard_normal((shape[0], 1))).astype(np.float32)
        compute, memory = np.clip(work["compute"] * chip, 0, 1.05), np.clip(work["memory"], 0, 1.05)
        drawn = (
            0.52 * compute**0.9 + 0.25 * memory + 0.1 * work["sm"] + 0.06 * np.maximum(work["nv_tx"], work["fab_tx"])
        )
        context = np.where(self.context, 0.07, 0.0)
        limit = part.watts
        wanted = part.idle_watts * chip + limit * (context + drawn * self.clock**1.5)
        power = np.clip(noisy(wanted, 0.012), 0.5 * part.idle_watts, limit * 1.01)
        headroom = np.clip((wanted / limit - 0.7) / 0.5, 0, 1)
        clock = part.boost_hertz * np.minimum(1 - 0.17 * headroom, self.clock)
        clock = np.where(self.context, clock, 0.2 * part.boost_hertz)
        # The same work at a lower clock: the pipe is busier by as much as it is slower, until it is full.
        tensor = np.clip(
            noisy(compute, 0.02) * part.eta_compute * part.reference_hertz / np.maximum(clock, 0.35 * part.boost_hertz),
            0,
            0.95,
        )
        reasons = np.where(wanted > limit, SW_POWER_CAP, 0).astype(np.int64) | self.throttle.astype(np.int64)
        reasons |= np.where(work["engine"] <= 0.001, GPU_IDLE, 0)
        gpus: dict[str, F] = {name: np.clip(noisy(work[channel], 0.012), 0, 1) for name, channel in _RATIOS.items()}
        gpus["gpu_util"] = np.round(gpus["gpu_util"], 2)
        gpus |= {
            "tensor_active": tensor,
            "dram_active": np.clip(noisy(memory, 0.02) * part.eta_memory, 0, 0.98),
            "fp64_active": np.zeros(shape, dtype=np.float32),
            "fp16_active": np.clip(noisy(work["fp32"], 0.05) * 0.3, 0, 1),
            "mem_used_bytes": np.where(self.context, np.clip(self.memory + 5e8, 0, part.mem_bytes * 0.99), 1e7),
            "power_watts": power,
            "energy_joules": power,
            "sm_clock_hertz": np.round(clock / 15e6) * 15e6,
            "mem_clock_hertz": np.full(shape, part.mem_hertz),
            "temperature_celsius": np.round(28 + 45 * _smooth(power / limit, 25)),
            "throttle_reasons": reasons.astype(float),
            "pcie_tx_bytes_per_second": np.clip(noisy(work["pcie_tx"], 0.04), 0, 1) * part.pcie + 2e5,
            "pcie_rx_bytes_per_second": np.clip(noisy(work["pcie_rx"], 0.04), 0, 1) * part.pcie + 3e5,
        }
        if part.nvlink:
            gpus["nvlink_tx_bytes_per_second"] = np.clip(noisy(work["nv_tx"], 0.015), 0, 1) * part.nvlink
            gpus["nvlink_rx_bytes_per_second"] = np.clip(noisy(work["nv_rx"], 0.015), 0, 1) * part.nvlink
        return Counted({k: v.astype(np.float32) for k, v in gpus.items()}, self._fabric(rng), self._host(rng))

    def _fabric(self, rng: np.random.Generator) -> dict[str, F]:
        ports = self.machine.ports
        if not ports:
            return {}
        tx, rx = np.zeros((len(ports), self.seconds)), np.zeros((len(ports), self.seconds))
        compute = [i for i, port in enumerate(ports) if port.role == "compute"]
        for place, index in enumerate(compute):
            mine = slice(place, place + 1) if len(compute) == len(self.machine.gpus) else slice(None)
            rate = ports[index].line_rate_bytes_per_second or 0.0
            tx[index] = self.work["fab_tx"][mine].mean(axis=0) * rate
            rx[index] = self.work["fab_rx"][mine].mean(axis=0) * rate
        for index, port in enumerate(ports):
            rate = port.line_rate_bytes_per_second or 0.0
            if port.role != "compute":
                rx[index] = np.minimum(self.host["storage"], 0.92 * rate)
                tx[index] = rx[index] * 0.03
            hum = rng.gamma(2.0, 900.0, (2, self.seconds))  # subnet manager, keep-alives
            tx[index] = np.clip(tx[index] * rng.normal(1, 0.01, self.seconds) + hum[0], 0, rate)
            rx[index] = np.clip(rx[index] * rng.normal(1, 0.01, self.seconds) + hum[1], 0, rate)
        rates = np.array([[p.line_rate_bytes_per_second or np.inf] for p in ports])
        wait = np.clip(tx / rates - 0.65, 0, None) * 3e8
        return {"tx_bytes_per_second": tx, "rx_bytes_per_second": rx, "xmit_wait_per_second": wait}

    def _host(self, rng: np.random.Generator) -> dict[str, F]:
        noise = rng.standard_normal((2, self.seconds))
        return {
            "cpu_util": np.clip(self.host["cpu"] * (1 + 0.06 * noise[0]) + 0.006, 0, 1),
            "io_wait": np.clip(self.host["io_wait"] * (1 + 0.1 * noise[1]) + 0.001, 0, 1),
            "mem_used_bytes": np.full(self.seconds, 2e11),
            "disk_read_bytes_per_second": self.host["read"] * np.clip(1 + 0.2 * noise[0], 0, 2),
            "disk_write_bytes_per_second": self.host["write"] * np.clip(1 + 0.2 * noise[1], 0, 2) + 2e5,
        }


def _smooth(values: F, seconds: int) -> F:
    total = np.cumsum(np.concatenate([np.repeat(values[:, :1], seconds, axis=1), values], axis=1), axis=1)
    return (total[:, seconds:] - total[:, :-seconds]) / seconds
