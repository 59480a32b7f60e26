"""Which model a command serves, how large it is, and in which precision: only what the command says."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....rules.models.served_models import ServedModels
from ...core.coded_text import CodedText, coded

# The agent leaves this where a model's name may not be kept (agent/inventory/processes/command_line.py).
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
_SIZE = re.compile(r"(?<![a-z0-9.])(\d{1,4}(?:\.\d{1,3})?)b(?![a-z0-9])", re.ASCII)
_ACTIVE = re.compile(r"(?<![a-z0-9.])a(\d{1,4}(?:\.\d{1,3})?)b(?![a-z0-9])", re.ASCII)
# Experts of a size each (8x7b), or beside an active size (17b-16e): neither says how large the whole is.
_EXPERTS = re.compile(r"\d+x\d|\d+b-\d+e(?![a-z0-9])", re.ASCII)
_CACHED = re.compile(r"models--[^/]*?--([^/]+)")
_WORD = re.compile(r"[^a-z0-9.]+")
_NAME_MAX = 120


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a command tells of the model it serves. `copy_gpus`: GPUs of one copy; None: not told.

    `precision`: of the weights, of `sustained_rates.BYTES`.
    """

    name: str
    params: float
    precision: str
    copy_gpus: int | None


def serves_language_model(framework: str | None, command: str | None) -> bool:
    """Whether an engine for language models runs, by the framework that was seen or by the command."""
    if framework is not None and framework.lower() in ENGINES:
        return True
    return any(_SERVES.search(word) for word in _words(command)[:12])


def served_model(command: str | None, known: ServedModels) -> ServedModel | CodedText:
    """The model of a serving command, or why it is not known, as a clause."""
    if command is None:
        return coded("command-not-known", "serving command unknown, so the model is unknown")
    words = _words(command)
    flags = _flags(words)
    told = next((flags[name] for name in _MODEL_FLAGS if name in flags), None) or _positional(words)
    if told is None or _MASKED in told:
        return coded("model-not-named", "its command names no model")
    name = model_name(told)
    family = known.of(name)
    params = family.params if family is not None and family.params is not None else _size(name)
    if params is None:
        return coded("model-size-unknown", "the name of {model} does not contain its size", model=name)
    precision = _precision(name, flags, family.precision if family is not None else None)
    if precision is None:
        return coded("model-precision-unknown", "serving precision of {model} unknown", model=name)
    return ServedModel(name, params, precision, _copy_gpus(flags))


def model_name(told: str) -> str:
    """A model's name as it is compared: without organisation and folder, lower case, one dash between words."""
    cached = _CACHED.search(told)
    last = cached.group(1) if cached else next((p for p in reversed(told.split("/")) if p), "")
    return _WORD.sub("-", last[:_NAME_MAX].casefold()).strip("-.")


def _words(command: str | None) -> list[str]:
    if command is None:
        return []
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _flags(words: Sequence[str]) -> dict[str, str]:
    """Flags that have a value, under their names without dashes in front; the first of a name stands."""
    found: dict[str, str] = {}
    for word, after in zip(words, (*words[1:], ""), strict=True):
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not equals:
            value = "" if after.startswith("-") else after
        if value:
            found.setdefault(name.replace("_", "-").lower(), value)
    return found


def _positional(words: Sequence[str]) -> str | None:
    for n, word in enumerate(words[:-1]):
        if word.rpartition("/")[2] in _AFTER and not words[n + 1].startswith("-"):
            return words[n + 1]
    return None


def _size(name: str) -> float | None:
    if _EXPERTS.search(name):
        return None
    sizes = {float(one) for one in _SIZE.findall(name)}
    if len(sizes) != 1:
        return None
    size = sizes.pop()
    active = [float(one) for one in _ACTIVE.findall(name)]
    return size * 1e9 if 0 < size <= 5000 and all(one <= size for one in active) else None


def _precision(name: str, flags: Mapping[str, str], published: str | None) -> str | None:
    """Of the weights: what the command says, then what the name says, then as it is published; None: not told."""
    way = next((flags[one].lower() for one in _QUANTIZATION_FLAGS if one in flags), "none")
    marked = _marked(name)
    if way != "none":
        return _WAYS.get(way.replace("-", "_"), marked)
    if marked is not None or _NO_MARKS & set(name.split("-")):
        return marked
    dtype = _DTYPES.get(flags.get("dtype", flags.get("torch-dtype", "auto")).lower())
    # Published weights may be smaller than the type that is computed in.
    return published if published is not None and BITS[published] < 16 else dtype or published


def _marked(name: str) -> str | None:
    found = {_MARKS[part] for part in name.split("-") if part in _MARKS}
    return found.pop() if len(found) == 1 else None


BITS: Mapping[str, int] = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4}


def _copy_gpus(flags: Mapping[str, str]) -> int | None:
    counts = []
    for names in _COPY_FLAGS:
        told = next((flags[name] for name in names if name in flags), None)
        if told is None:
            counts.append(None)
        elif re.fullmatch(r"[1-9]\d{0,3}", told, re.ASCII):
            counts.append(int(told))
        else:
            return None
    if counts[0] is None and counts[1] is None:
        return None
    return math.prod(one or 1 for one in counts)
