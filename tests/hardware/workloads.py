"""Labelled GPU work whose truth can be computed: what ran, how many FLOPs and bytes, from when to when.

    python tests/hardware/workloads.py matmul --seconds 20
    python tests/hardware/workloads.py --list

Prints one line of JSON at the end. Needs PyTorch (and a GPU, or ``--device cpu --tiny`` to try the script); without
them it prints why not and exits with 3. Stands alone: it imports nothing of skuwise, so any Python with PyTorch runs
it. The figures count what the shapes require, never what a counter said.
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
from dataclasses import asdict, dataclass, field
from typing import Any

EXIT_NOTHING = 3
_BF16 = 2  # bytes
_MIB, _GIB = 2**20, 2**30
_SYNC_EVERY_SECONDS = 0.25


class UnavailableError(Exception):
    """This work cannot run here; the message says why."""


@dataclass(frozen=True)
class Bench:
    """Where work runs. `torch` is the module, None for work that does not need it."""

    torch: Any
    device: str
    tiny: bool

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def sync(self) -> None:
        if self.torch is not None and self.on_gpu:
            self.torch.cuda.synchronize()

    def random(self, *shape: int, device: str | None = None, scale: float = 1.0) -> Any:
        """Normal bf16 values: with zeros a GPU draws less power and clocks higher than real work lets it."""
        tensor = self.torch.empty(*shape, dtype=self.torch.bfloat16, device=device or self.device)
        return tensor.normal_(0.0, scale)


@dataclass(frozen=True)
class Prepared:
    """One step, and what it costs: `per_step` figures are multiplied by the steps run, `fixed` are not."""

    step: Callable[[], object]
    per_step: Mapping[str, float] = field(default_factory=dict)
    fixed: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, object] = field(default_factory=dict)
    totals: Callable[[], Mapping[str, float]] = dict
    sync_each_step: bool = False


@dataclass(frozen=True)
class Work:
    """A kind of work. `kind` and `bottleneck` are skuwise's labels, true by construction on a single GPU."""

    name: str
    kind: str
    bottleneck: str
    text: str
    prepare: Callable[[Bench], Prepared]
    gpus: int = 1
    needs_torch: bool = True


@dataclass(frozen=True)
class Transformer:
    """A decoder of `layers` blocks (attention of width d, MLP of 4 d), explicit attention, untied output."""

    layers: int = 8
    width: int = 2048
    heads: int = 16
    tokens: int = 1024
    batch: int = 8
    vocabulary: int = 16384

    def matmul_parameters(self) -> int:
        """Weights that multiply every token: 4 d^2 of attention, 8 d^2 of MLP a layer, and the output."""
        return self.layers * 12 * self.width**2 + self.width * self.vocabulary

    def forward_flops(self) -> int:
        """2 FLOPs a weight and token; scores and values cost 2 T d each a token and layer (no causal skipping)."""
        per_token = 2 * self.matmul_parameters() + self.layers * 2 * 2 * self.tokens * self.width
        return self.batch * self.tokens * per_token

    def step_flops(self) -> int:
        """Forward and backward: each product comes back as two. The optimiser's elementwise work is not counted."""
        return 3 * self.forward_flops()


def matmul_flops(m: int, n: int, k: int) -> int:
    return 2 * m * n * k


def _matmul(bench: Bench) -> Prepared:
    n = 64 if bench.tiny else 8192
    a, b = bench.random(n, n), bench.random(n, n)
    out = bench.torch.empty_like(a)
    flops = matmul_flops(n, n, n)
    return Prepared(
        lambda: bench.torch.matmul(a, b, out=out),
        {"flops": flops, "tensor_flops": flops},
        parameters={"m": n, "n": n, "k": n, "precision": "bf16"},
    )


def _copy(bench: Bench) -> Prepared:
    size = _MIB if bench.tiny else 4 * _GIB  # far above any L2 cache, so that every byte crosses the HBM
    source = bench.random(size // _BF16)
    target = bench.torch.empty_like(source)
    return Prepared(
        lambda: target.copy_(source), {"bytes_read": size, "bytes_written": size}, parameters={"buffer_bytes": size}
    )


def _decode(bench: Bench) -> Prepared:
    width, layers, batch = (64, 2, 4) if bench.tiny else (8192, 8, 4)
    up = [bench.random(width, 4 * width, scale=width**-0.5) for _ in range(layers)]
    down = [bench.random(4 * width, width, scale=(4 * width) ** -0.5) for _ in range(layers)]
    token = bench.random(batch, width)
    weights = layers * 8 * width**2

    def step() -> None:
        x = token
        for grow, shrink in zip(up, down, strict=True):
            x = (x @ grow) @ shrink

    return Prepared(
        step,
        {"flops": 2 * batch * weights, "bytes_read": weights * _BF16},
        parameters={"width": width, "layers": layers, "batch": batch, "weight_bytes": weights * _BF16},
    )


def _train(bench: Bench) -> Prepared:
    torch = bench.torch
    shape = Transformer(2, 32, 4, 16, 2, 64) if bench.tiny else Transformer()
    d, heads, head = shape.width, shape.heads, shape.width // shape.heads

    def weight(rows: int, columns: int) -> Any:
        return bench.random(rows, columns, scale=rows**-0.5).requires_grad_(True)

    table = weight(shape.vocabulary, d)
    blocks = [(weight(d, 3 * d), weight(d, d), weight(d, 4 * d), weight(4 * d, d)) for _ in range(shape.layers)]
    output = weight(d, shape.vocabulary)
    optimiser = torch.optim.AdamW([table, output, *(w for block in blocks for w in block)], lr=1e-4)
    data = torch.randint(shape.vocabulary, (shape.batch, shape.tokens + 1), device=bench.device)

    def attention(x: Any, qkv: Any, merge: Any) -> Any:
        parts = (x @ qkv).view(shape.batch, shape.tokens, 3, heads, head).permute(2, 0, 3, 1, 4)
        query, key, value = parts[0], parts[1], parts[2]
        scores = torch.softmax(query @ key.transpose(-1, -2) / math.sqrt(head), dim=-1)
        return (scores @ value).transpose(1, 2).reshape(shape.batch, shape.tokens, d) @ merge

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

    flops = shape.step_flops()
    return Prepared(step, {"flops": flops, "tensor_flops": flops}, parameters=asdict(shape) | {"precision": "bf16"})


def _input(bench: Bench) -> Prepared:
    torch = bench.torch
    torch.set_num_threads(1)
    count, n = (4096, 64) if bench.tiny else (2_000_000, 2048)
    host = torch.empty(count, dtype=torch.float32, pin_memory=bench.on_gpu)
    a, b = bench.random(n, n), bench.random(n, n)
    events: list[tuple[Any, Any]] = []

    def step() -> None:
        host.copy_(torch.sort(torch.rand(count)).values)  # stands for decoding and augmenting on one core
        if not bench.on_gpu:
            return _use(host.to(bench.device))
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        _use(host.to(bench.device, non_blocking=True))
        end.record()
        events.append((begin, end))
        return None

    def _use(moved: Any) -> None:
        torch.matmul(a, b).add_(moved.sum())

    def totals() -> Mapping[str, float]:
        return {"gpu_busy_seconds": sum(x.elapsed_time(y) for x, y in events) / 1e3} if bench.on_gpu else {}

    flops = matmul_flops(n, n, n)
    return Prepared(
        step,
        {"flops": flops, "tensor_flops": flops, "host_to_device_bytes": count * 4},
        parameters={"sorted_values": count, "n": n},
        totals=totals,
        sync_each_step=True,
    )


def _pcie(bench: Bench) -> Prepared:
    size = _MIB if bench.tiny else 256 * _MIB
    host = bench.torch.empty(size, dtype=bench.torch.uint8, pin_memory=bench.on_gpu)
    target = bench.torch.empty(size, dtype=bench.torch.uint8, device=bench.device)
    return Prepared(
        lambda: target.copy_(host, non_blocking=True),
        {"host_to_device_bytes": size},
        parameters={"buffer_bytes": size, "pinned": bench.on_gpu},
    )


def _nvlink(bench: Bench) -> Prepared:
    cuda = bench.torch.cuda
    if not bench.on_gpu or cuda.device_count() < 2:
        raise UnavailableError("it copies from one GPU to another, and there are not two here")
    if not cuda.can_device_access_peer(0, 1):
        raise UnavailableError("GPU 0 cannot reach GPU 1 directly")
    size = _MIB if bench.tiny else _GIB
    source = bench.random(size // _BF16, device="cuda:0")
    target = bench.torch.empty_like(source, device="cuda:1")
    return Prepared(lambda: target.copy_(source), {"device_to_device_bytes": size}, parameters={"buffer_bytes": size})


def _held(bench: Bench) -> Prepared:
    size = _MIB if bench.tiny else 8 * _GIB
    block = bench.torch.zeros(size, dtype=bench.torch.uint8, device=bench.device)
    bench.sync()

    def wait() -> None:
        time.sleep(0.05)
        assert block is not None  # the closure keeps the allocation alive

    return Prepared(wait, fixed={"held_bytes": size, "flops": 0}, sync_each_step=True)


def _idle(_: Bench) -> Prepared:
    return Prepared(lambda: time.sleep(0.05), fixed={"flops": 0}, sync_each_step=True)


WORKS: Mapping[str, Work] = {
    work.name: work
    for work in (
        Work("matmul", "unknown", "compute", "one large bf16 matrix product after another", _matmul),
        Work("copy", "unknown", "hbm-bandwidth", "device-to-device copies of 4 GiB", _copy),
        Work("decode", "batch-inference", "hbm-bandwidth", "small-batch products with 8 GiB of weights", _decode),
        Work("train", "training", "compute", "a small transformer, forward, backward and AdamW", _train),
        Work("input", "training", "host-input", "preprocessing on one core, then a small kernel", _input),
        Work("pcie", "unknown", "pcie", "copies from pinned host memory", _pcie),
        Work("nvlink", "unknown", "nvlink", "copies from GPU 0 to GPU 1", _nvlink, gpus=2),
        Work("held", "idle", "idle", "8 GiB allocated and left alone", _held),
        Work("idle", "idle", "idle", "nothing at all, no CUDA context", _idle, needs_torch=False),
    )
}


def unavailable(name: str, device: str) -> str | None:
    """Why `name` cannot run here, or None. Looks, but allocates nothing."""
    work = WORKS[name]
    if not work.needs_torch:
        return None
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed in this Python"
    torch: Any = importlib.import_module("torch")
    if device.startswith("cuda") and not torch.cuda.is_available():
        return "PyTorch sees no CUDA device"
    if work.gpus > 1 and torch.cuda.device_count() < work.gpus:
        return f"it needs {work.gpus} GPUs"
    return None


def run(name: str, seconds: float, device: str, tiny: bool) -> dict[str, object]:
    """Warm up, run for at least `seconds`, and give the line of truth. Raises `UnavailableError`."""
    work = WORKS[name]
    if reason := unavailable(name, device):
        raise UnavailableError(reason)
    torch: Any = importlib.import_module("torch") if work.needs_torch else None
    if torch is not None:
        torch.manual_seed(0)
    bench = Bench(torch, device, tiny)
    prepared = work.prepare(bench)
    for _ in range(1 if prepared.sync_each_step else 3):
        prepared.step()
    bench.sync()
    before = dict(prepared.totals())
    together = 1 if prepared.sync_each_step else _steps_between_syncs(prepared.step, bench.sync)
    started_at, began, steps = time.time(), time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        for _ in range(together):
            prepared.step()
        bench.sync()
        steps += together
    passed, ended_at = time.perf_counter() - began, time.time()
    totals = {key: value - before.get(key, 0.0) for key, value in prepared.totals().items()}
    counted = {key: value * steps for key, value in prepared.per_step.items()}
    clock = {"seconds": passed, "started_at": started_at, "ended_at": ended_at, "iterations": float(steps)}
    return {
        "workload": name,
        "label": {"kind": work.kind, "bottleneck": work.bottleneck, "work": work.text},
        "truth": clock | counted | dict(prepared.fixed) | totals,
        "parameters": dict(prepared.parameters),
        "device": _describe(torch, device),
        "versions": _versions(torch),
    }


def _steps_between_syncs(step: Callable[[], object], sync: Callable[[], None]) -> int:
    """As many steps as take about a quarter second, so that waiting for the GPU costs it next to nothing."""
    began = time.perf_counter()
    for _ in range(3):
        step()
    sync()
    each = max((time.perf_counter() - began) / 3, 1e-6)
    return max(1, min(10_000, int(_SYNC_EVERY_SECONDS / each)))


def _versions(torch: Any) -> dict[str, str]:
    if torch is None:
        return {}
    return {"torch": str(torch.__version__)} | ({"cuda": str(torch.version.cuda)} if torch.version.cuda else {})


def _describe(torch: Any, device: str) -> dict[str, object]:
    if torch is None or not device.startswith("cuda"):
        return {"type": "none" if torch is None else "cpu"}
    facts = torch.cuda.get_device_properties(device)
    uuid = str(getattr(facts, "uuid", "") or "")
    return {
        "type": "cuda",
        "name": facts.name,
        "gpu_uuid": f"GPU-{uuid}" if uuid else None,
        "sms": facts.multi_processor_count,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run one piece of labelled work and print its truth as JSON.")
    parser.add_argument("name", nargs="?", choices=sorted(WORKS))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--device", default="cuda:0", help="cuda:N or cpu")
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try the script itself")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args(argv)
    if options.list or options.name is None:
        print("\n".join(f"{work.name:8} {work.text}" for work in WORKS.values()))
        return 0 if options.list else 2
    try:
        line = run(options.name, options.seconds, options.device, options.tiny)
    except UnavailableError as reason:
        print(json.dumps({"workload": options.name, "skipped": str(reason)}))
        return EXIT_NOTHING
    print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
