"""Labelled GPU work whose truth can be computed: what ran, how many FLOPs and bytes, from when to when.

    python tests/hardware/workloads.py matmul --seconds 20

Prints one line of JSON at the end. Needs PyTorch and a GPU; without them it prints why not and exits with 3. Stands
alone: it imports nothing of skuwise, so any Python with PyTorch runs it. The figures count what the shapes require,
never what a counter said.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

EXIT_NOTHING = 3
_BF16 = 2  # bytes
_MIB, _GIB = 2**20, 2**30


class UnavailableError(Exception):
    """This work cannot run here; the message says why."""


DEVICE = "cuda:0"


@dataclass(frozen=True)
class Prepared:
    """One step, and what it costs: `per_step` figures are multiplied by the steps run, `fixed` are not."""

    step: Callable[[], object]
    per_step: Mapping[str, float] = field(default_factory=dict)
    fixed: Mapping[str, float] = field(default_factory=dict)
    totals: Callable[[], Mapping[str, float]] = dict
    sync_each_step: bool = False


def _random(torch: Any, *shape: int, device: str = DEVICE, scale: float = 1.0) -> Any:
    """Normal bf16 values: with zeros a GPU draws less power and clocks higher than real work lets it."""
    return torch.empty(*shape, dtype=torch.bfloat16, device=device).normal_(0.0, scale)


def _matmul(torch: Any) -> Prepared:
    """One large bf16 matrix product after another."""
    n = 8192
    a, b = _random(torch, n, n), _random(torch, n, n)
    out = torch.empty_like(a)
    flops = 2 * n**3
    return Prepared(lambda: torch.matmul(a, b, out=out), {"flops": flops, "tensor_flops": flops})


def _copy(torch: Any) -> Prepared:
    """Copies within the device."""
    size = 4 * _GIB  # far above any L2 cache, so that every byte crosses the HBM
    source = _random(torch, size // _BF16)
    target = torch.empty_like(source)
    return Prepared(lambda: target.copy_(source), {"bytes_read": size, "bytes_written": size})


def _decode(torch: Any) -> Prepared:
    """Small-batch products with 8 GiB of weights."""
    width, layers, batch = 8192, 8, 4
    up = [_random(torch, width, 4 * width, scale=width**-0.5) for _ in range(layers)]
    down = [_random(torch, 4 * width, width, scale=(4 * width) ** -0.5) for _ in range(layers)]
    token = _random(torch, batch, width)
    weights = layers * 8 * width**2

    def step() -> None:
        x = token
        for grow, shrink in zip(up, down, strict=True):
            x = (x @ grow) @ shrink

    return Prepared(step, {"flops": 2 * batch * weights, "bytes_read": weights * _BF16})


def _train(torch: Any) -> Prepared:
    """A small transformer (attention of width d, MLP of 4 d, untied output): forward, backward and AdamW."""
    layers, d, heads, tokens, batch, vocabulary = 8, 2048, 16, 1024, 8, 16384

    def weight(rows: int, columns: int) -> Any:
        return _random(torch, rows, columns, scale=rows**-0.5).requires_grad_(True)

    table = weight(vocabulary, d)
    blocks = [(weight(d, 3 * d), weight(d, d), weight(d, 4 * d), weight(4 * d, d)) for _ in range(layers)]
    output = weight(d, vocabulary)
    optimiser = torch.optim.AdamW([table, output, *(w for block in blocks for w in block)], lr=1e-4)
    data = torch.randint(vocabulary, (batch, tokens + 1), device=DEVICE)

    def attention(x: Any, qkv: Any, merge: Any) -> Any:
        query, key, value = (x @ qkv).view(batch, tokens, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
        scores = torch.softmax(query @ key.transpose(-1, -2) / math.sqrt(d // heads), dim=-1)
        return (scores @ value).transpose(1, 2).reshape(batch, tokens, d) @ merge

    def step() -> None:
        x = table[data[:, :-1]]
        for qkv, merge, up, down in blocks:
            x = x + attention(torch.nn.functional.rms_norm(x, (d,)), qkv, merge)
            x = x + torch.nn.functional.gelu(torch.nn.functional.rms_norm(x, (d,)) @ up) @ down
        logits = torch.nn.functional.rms_norm(x, (d,)) @ output
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), data[:, 1:].flatten())
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()

    # 2 FLOPs a token and weight (4 d^2 of attention and 8 d^2 of MLP a layer, and the output); scores and values cost
    # 2 T d each a token and layer (no causal skipping). Backward each product comes back as two. The optimiser's
    # elementwise work is not counted.
    weights = layers * 12 * d**2 + d * vocabulary
    flops = 3 * batch * tokens * (2 * weights + layers * 2 * 2 * tokens * d)
    return Prepared(step, {"flops": flops, "tensor_flops": flops})


def _input(torch: Any) -> Prepared:
    """Preprocessing on one core, then a small kernel."""
    torch.set_num_threads(1)
    count, n = 2_000_000, 2048
    host = torch.empty(count, dtype=torch.float32, pin_memory=True)
    a, b = _random(torch, n, n), _random(torch, n, n)
    events: list[tuple[Any, Any]] = []

    def step() -> None:
        host.copy_(torch.sort(torch.rand(count)).values)  # stands for decoding and augmenting on one core
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        torch.matmul(a, b).add_(host.to(DEVICE, non_blocking=True).sum())
        end.record()
        events.append((begin, end))

    flops = 2 * n**3
    return Prepared(
        step,
        {"flops": flops, "tensor_flops": flops, "host_to_device_bytes": count * 4},
        totals=lambda: {"gpu_busy_seconds": sum(x.elapsed_time(y) for x, y in events) / 1e3},
        sync_each_step=True,
    )


def _pcie(torch: Any) -> Prepared:
    """Copies from pinned host memory."""
    size = 256 * _MIB
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(size, dtype=torch.uint8, device=DEVICE)
    return Prepared(lambda: target.copy_(host, non_blocking=True), {"host_to_device_bytes": size})


def _nvlink(torch: Any) -> Prepared:
    """Copies from GPU 0 to GPU 1."""
    if torch.cuda.device_count() < 2:
        raise UnavailableError("it copies from one GPU to another, and there are not two here")
    if not torch.cuda.can_device_access_peer(0, 1):
        raise UnavailableError("GPU 0 cannot reach GPU 1 directly")
    source = _random(torch, _GIB // _BF16)
    target = torch.empty_like(source, device="cuda:1")
    return Prepared(lambda: target.copy_(source), {"device_to_device_bytes": _GIB})


def _held(torch: Any) -> Prepared:
    """Memory allocated and left alone."""
    block = torch.zeros(8 * _GIB, dtype=torch.uint8, device=DEVICE)
    torch.cuda.synchronize()

    def wait() -> None:
        time.sleep(0.05)
        assert block is not None  # the closure keeps the allocation alive

    return Prepared(wait, fixed={"held_bytes": 8 * _GIB}, sync_each_step=True)


def _idle(_: None) -> Prepared:
    """Nothing at all, no CUDA context."""
    return Prepared(lambda: time.sleep(0.05), sync_each_step=True)


WORKS: Mapping[str, Callable[[Any], Prepared]] = {
    "matmul": _matmul, "copy": _copy, "decode": _decode, "train": _train, "input": _input, "pcie": _pcie,
    "nvlink": _nvlink, "held": _held, "idle": _idle,
}  # fmt: skip


def _torch() -> Any:
    """PyTorch with a GPU. Raises `UnavailableError`."""
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError("PyTorch is not installed in this Python")
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise UnavailableError("PyTorch sees no CUDA device")
    torch.manual_seed(0)
    return torch


def run(name: str, seconds: float) -> dict[str, object]:
    """Warm up, run for at least `seconds`, and give the line of truth. Raises `UnavailableError`."""
    torch = None if name == "idle" else _torch()

    def sync() -> None:
        if torch is not None:
            torch.cuda.synchronize()

    prepared = WORKS[name](torch)
    for _ in range(1 if prepared.sync_each_step else 3):
        prepared.step()
    sync()
    before = dict(prepared.totals())
    together = 1 if prepared.sync_each_step else _steps_between_syncs(prepared.step, sync)
    started_at, began, steps = time.time(), time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        for _ in range(together):
            prepared.step()
        sync()
        steps += together
    passed, ended_at = time.perf_counter() - began, time.time()
    totals = {key: value - before.get(key, 0.0) for key, value in prepared.totals().items()}
    counted = {key: value * steps for key, value in prepared.per_step.items()}
    clock = {"seconds": passed, "started_at": started_at, "ended_at": ended_at, "iterations": float(steps)}
    uuid = "" if torch is None else str(getattr(torch.cuda.get_device_properties(DEVICE), "uuid", "") or "")
    truth = clock | counted | dict(prepared.fixed) | totals
    return {"workload": name, "truth": truth, "gpu_uuid": f"GPU-{uuid}" if uuid else None}


def _steps_between_syncs(step: Callable[[], object], sync: Callable[[], None]) -> int:
    """As many steps as take about a quarter second, so that waiting for the GPU costs it next to nothing."""
    began = time.perf_counter()
    for _ in range(3):
        step()
    sync()
    each = max((time.perf_counter() - began) / 3, 1e-6)
    return max(1, min(10_000, int(0.25 / each)))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run one piece of work and print its truth as JSON.")
    parser.add_argument("name", choices=sorted(WORKS))
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args(argv)
    try:
        line = run(options.name, options.seconds)
    except UnavailableError as reason:
        print(json.dumps({"workload": options.name, "skipped": str(reason)}))
        return EXIT_NOTHING
    print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
