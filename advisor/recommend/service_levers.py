"""What a lower precision would change for a service: fewer GPUs a copy, by its weights and cache. No sum includes a
lever: no counter shows whether answers stay good."""

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...rules.catalog.types import GpuSku
from ...rules.models import ServedModels
from ...rules.policy.labels import ON_DEMAND_KINDS
from ..core.advice_types import Action, Recommendation
from ..core.coded_text import CodedText, coded
from ..core.verdict_types import WorkloadVerdict
from .constraints import has_precision, room_bytes
from .fleet import Fleet
from .groups import Group
from .prediction import BYTES, rates_of

SERVING = (*ON_DEMAND_KINDS, "batch-inference")
# Recommendations about which GPUs, and how many: levers are shown beside these.
BESIDE: tuple[Action, ...] = ("move-sku", "reduce-gpus", "mig-slice", "consolidate")

# The agent leaves this where a model's name may not be kept (agent/jobs/command_line.py).
_MASKED = "***"
_MODEL_FLAGS = ("model", "model-path", "model-id", "model-name-or-path")
_COPY_FLAGS = (("tensor-parallel-size", "tp", "tp-size", "num-shard"), ("pipeline-parallel-size", "pp", "pp-size"))
_QUANTIZATION_FLAGS = ("quantization", "q", "quantize")
# Programs that serve language models, and where in their command the model stands without a flag.
_SERVES = re.compile(
    r"(?:^|/)(?:vllm|trtllm-serve|lmdeploy|text-generation-launcher|sglang[\w.]*)$|vllm\.entrypoints|sglang\.", re.ASCII
)
_AFTER = {"serve", "trtllm-serve", "api_server"}
ENGINES = frozenset({"vllm", "sglang", "tgi", "text-generation-inference", "tensorrt-llm", "trtllm", "lmdeploy"})
# What engines call a way of quantizing -> bits of the weights. Others (gguf, compressed-tensors ...) may be any.
_WAYS: Mapping[str, str] = {
    "fp8": "fp8", "fbgemm_fp8": "fp8", "modelopt": "fp8", "w8a8_fp8": "fp8", "ptpc_fp8": "fp8", "eetq": "int8",
    "w8a8_int8": "int8", "experts_int8": "int8", "awq": "int4", "awq_marlin": "int4", "gptq": "int4",
    "gptq_marlin": "int4", "marlin": "int4", "modelopt_fp4": "fp4", "nvfp4": "fp4", "mxfp4": "fp4",
}  # fmt: skip
_DTYPES: Mapping[str, str] = {
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "half": "fp16", "fp16": "fp16", "float32": "fp32",
    "float": "fp32",
}  # fmt: skip
# Words in the names of quantized copies.
_MARKS: Mapping[str, str] = {
    "fp8": "fp8", "w8a8": "int8", "int8": "int8", "8bit": "int8", "awq": "int4", "gptq": "int4", "int4": "int4",
    "w4a16": "int4", "4bit": "int4", "nvfp4": "fp4", "fp4": "fp4", "mxfp4": "fp4",
}  # fmt: skip
_NO_MARKS = frozenset({"gguf", "exl2", "ggml", "bnb", "quantized", "hqq", "aqlm"})
_SIZE = re.compile(r"(?<![a-z0-9.])(a?)(\d{1,4}(?:\.\d{1,3})?)b(?![a-z0-9])", re.ASCII)
# Experts of a size each (8x7b), or beside an active size (17b-16e): neither says how large the whole is.
_EXPERTS = re.compile(r"\d+x\d|\d+b-\d+e(?![a-z0-9])", re.ASCII)
_CACHED = re.compile(r"models--[^/]*?--([^/]+)")
_WORD = re.compile(r"[^a-z0-9.]+")
_NAME_MAX = 120
# Below each precision those that engines serve in, the least change first.
_SMALL = ("fp8", "int8", "fp4", "int4")
_LOWER = {"fp32": ("bf16", *_SMALL), "bf16": _SMALL, "fp16": _SMALL, "fp8": _SMALL[2:], "int8": _SMALL[2:]}
# What arithmetic cannot show. Every lever includes it.
_CHECK = "First check the quality of its answers on your own tasks, and its latency at peak. No savings are counted"
# Of one series: what a lower precision would change, or why that is not known. Empty: nothing is gained.
Levers = tuple[CodedText, ...] | CodedText


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a command says of the model it serves. `copy_gpus`: GPUs of one copy; None: unknown."""

    name: str
    params: float
    precision: str
    copy_gpus: int | None


@dataclass(frozen=True, slots=True)
class _Held:
    """What one copy holds. `cache_bytes`: what its peak needs beside the weights; `cache_told`: by its engine."""

    model: ServedModel
    gpus: int
    sku: GpuSku
    cache_bytes: float
    cache_told: bool

    def weights(self, precision: str) -> float:
        return self.model.params * BYTES[precision]

    def least(self, precision: str) -> int:
        """The least GPUs that hold a copy, a power of two or today's; more than these: it does not fit."""
        needed, room = self.weights(precision) + self.cache_bytes, room_bytes(self.sku.mem_bytes)
        counts = sorted({*(1, 2, 4, 8), self.gpus})
        return next((n for n in counts if n <= self.gpus and needed <= n * room), self.gpus + 1)


def with_levers(workload: WorkloadVerdict, by_workload: Mapping[str, Levers]) -> WorkloadVerdict:
    """The workload with the levers of its series. `by_workload`: by the id of its newest."""
    levers = by_workload.get(workload.id, ())
    return replace(workload, **{"levers_unknown" if isinstance(levers, CodedText) else "levers": levers})


def beside(r: Recommendation, by_workload: Mapping[str, Levers]) -> Recommendation:
    """The recommendation with the levers of its work, where it is about which GPUs."""
    levers = by_workload.get(r.workload or "", ())
    return r if isinstance(levers, CodedText) or r.action not in BESIDE else replace(r, levers=levers)


def service_levers(fleet: Fleet, group: Group, served_models: ServedModels) -> Levers:
    """The levers of a series. Nothing for what serves no language model, shares its GPUs, or is gone."""
    framework, command = group.lead.framework, group.lead.command
    engine = (framework or "").lower() in ENGINES or any(_SERVES.search(word) for word in _words(command or "")[:12])
    if not engine or group.kind not in SERVING or not group.current or group.shared or group.sliced:
        return ()
    model = served_model(command, served_models)
    held = model if isinstance(model, CodedText) else _held(fleet, group, model)
    if isinstance(held, CodedText):
        return held
    # Fewer GPUs, where they would not do in today's precision.
    before, fewer = min(held.least(held.model.precision), held.gpus), list[CodedText]()
    has = [lower for lower in _LOWER.get(held.model.precision, ()) if has_precision(held.sku, lower)]
    # One a size: integers only where there is no float of that size.
    for precision in (lower for lower in has if {"int8": "fp8", "int4": "fp4"}.get(lower) not in has):
        if (least := held.least(precision)) < before:
            fewer.append(_lever(held, precision, least))
            before = least
    return tuple(fewer)


def _held(fleet: Fleet, group: Group, model: ServedModel) -> _Held | CodedText:
    if (sku := fleet.gpu_of(group)) is None:
        return coded("gpus-of-several-kinds", "its GPUs have several models, or are not in the catalog")
    gpus = model.copy_gpus or (1 if group.gpus_per_replica == 1 else None)
    if gpus is None or gpus > group.gpus_per_replica:
        return coded("gpus-of-a-copy-unknown", "number of GPUs per copy of {model} unknown", model=model.name)
    if group.mem_used_max is None:
        return coded("memory-in-use-unknown", "no data on GPU memory in use")
    used = group.mem_used_max * sku.mem_bytes * gpus
    weights = model.params * BYTES[model.precision]
    # Memory in use may be this much below what the weights need by size: sizes are rounded, and some layers are shared.
    if weights * 0.95 > used:
        text = f"{model.name} in {model.precision.upper()} needs {weights / 1e9:.0f} GB for its weights, but only "
        text += f"{used / 1e9:.0f} GB of {gpus} GPUs are in use; its size or precision is different"
        fields = {"model": model.name, "weights_bytes": weights, "used_bytes": used, "gpus": gpus}
        return CodedText("memory-contradicts-size", text, fields)
    full = group.feature("kv_cache_used_p95")
    return _Held(model, gpus, sku, max(used - weights, 0.0) * (1.0 if full is None else full), full is not None)


def _lever(held: _Held, precision: str, gpus: int) -> CodedText:
    model, sku, weights, now = held.model, held.sku, held.weights(precision), held.weights(held.model.precision)
    needed = weights + held.cache_bytes
    here, there = rates_of(sku, model.precision), rates_of(sku, precision)
    read = matrix = None
    assumed, text = True, ""
    if here is not None and there is not None:
        read = needed / (gpus * there.memory) * held.gpus * here.memory / (now + held.cache_bytes)
        matrix = gpus * there.matrix / (held.gpus * here.matrix)
        assumed = bool(here.assumed or there.assumed)
        rates = f"Reading all of it takes {read:.2f}x the time; matrix products run at {matrix:.2f}x the rate"
        text = f" {rates}{' (some rates assumed)' if assumed else ''}."
    cached = "with its peak cache" if held.cache_told else "with its full cache (use unknown)"
    return CodedText(
        "lever-precision",
        f"if served in {precision.upper()}: {gpus} x {sku.name} per copy instead of {held.gpus}. "
        f"The weights of {model.name} need {weights / 1e9:.0f} GB instead of {now / 1e9:.0f} GB, {needed / 1e9:.0f} GB "
        f"{cached}.{text} {_CHECK}",
        {
            "precision": precision, "precision_now": model.precision, "model": model.name, "params": model.params,
            "sku": sku.name, "gpus": gpus, "sku_now": sku.name, "gpus_now": held.gpus, "weights_bytes": weights,
            "weights_bytes_now": now, "cache_bytes": held.cache_bytes, "cache_use_measured": held.cache_told,
            "room_bytes": gpus * room_bytes(sku.mem_bytes), "read_time_ratio": read, "matrix_rate_ratio": matrix,
            "rates_assumed": assumed,
        },
    )  # fmt: skip


def served_model(command: str | None, served_models: ServedModels) -> ServedModel | CodedText:
    """The model of a serving command, or why it is not known, as a clause."""
    if command is None:
        return coded("command-not-known", "serving command unknown, so the model is unknown")
    words = _words(command)
    # Flags that have a value, the first of a name; and the model where it stands without a flag.
    flags: dict[str, str] = {}
    plain = None
    for word, after in zip(words, [*words[1:], "-"], strict=False):
        name, equals, value = word.lstrip("-").partition("=")
        value = value if equals else "" if after.startswith("-") else after
        if word.startswith("-") and value:
            flags.setdefault(name.replace("_", "-").lower(), value)
        if plain is None and word.rpartition("/")[2] in _AFTER and not after.startswith("-"):
            plain = after
    model_name = next((flags[name] for name in _MODEL_FLAGS if name in flags), plain)
    if model_name is None or _MASKED in model_name:
        return coded("model-not-named", "its command names no model")
    # As it is compared: without organisation and folder, lower case, one dash between words.
    cached = _CACHED.search(model_name)
    last = cached.group(1) if cached else next((p for p in reversed(model_name.split("/")) if p), "")
    name = _WORD.sub("-", last[:_NAME_MAX].casefold()).strip("-.")
    family = served_models.of(name)
    params = family.params if family is not None and family.params is not None else _size(name)
    if params is None:
        return coded("model-size-unknown", "the name of {model} does not contain its size", model=name)
    if (precision := _precision(name, flags, family.precision if family is not None else None)) is None:
        return coded("model-precision-unknown", "serving precision of {model} unknown", model=name)
    counts = [next((flags[name] for name in names if name in flags), None) for names in _COPY_FLAGS]
    told_counts = [count for count in counts if count is not None]
    whole = all(re.fullmatch(r"[1-9]\d{0,3}", count, re.ASCII) for count in told_counts)
    return ServedModel(name, params, precision, math.prod(map(int, told_counts)) if told_counts and whole else None)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quotation that is never closed
        return command.split()


def _size(name: str) -> float | None:
    """Parameters by the only size in a name (30b-a3b: of which 3 B are active); None: it has none, or several."""
    numbers = [(bool(active), float(size)) for active, size in _SIZE.findall(name)]
    sizes = {size for active, size in numbers if not active}
    if _EXPERTS.search(name) or len(sizes) != 1:
        return None
    size = sizes.pop()
    return size * 1e9 if 0 < size <= 5000 and all(part <= size for _, part in numbers) else None


def _precision(name: str, flags: Mapping[str, str], published: str | None) -> str | None:
    """Of the weights: what the command says, then what the name says, then as it is published; None: unknown."""
    words = name.split("-")
    marks = {_MARKS[word] for word in words if word in _MARKS}
    marked = marks.pop() if len(marks) == 1 else None
    method = next((flags[flag].lower() for flag in _QUANTIZATION_FLAGS if flag in flags), "none")
    if method != "none":
        return _WAYS.get(method.replace("-", "_"), marked)
    if marked is not None or _NO_MARKS.intersection(words):
        return marked
    dtype = _DTYPES.get(flags.get("dtype", flags.get("torch-dtype", "auto")).lower())
    # Published weights may be smaller than the type that is computed in.
    return published if published is not None and BYTES[published] < BYTES["bf16"] else dtype or published
