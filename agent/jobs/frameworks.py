"""Which framework runs, from what is executed: the program, its script or its module. Never from mere arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .command_line import parse_command

# (name, pattern over programs, scripts and modules), the more telling first: an engine started by a launcher is the
# engine. Entry points as the projects' documentation names them.
_FRAMEWORKS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("vllm", r"^vllm(?:$|[.:_-])"),
        ("sglang", r"^(?:sglang|sgl)(?:$|[.:_-])"),
        ("tensorrt-llm", r"^(?:trtllm|tensorrt[_-]llm)"),
        ("triton", r"^tritonserver$|^triton_python_backend"),
        ("text-generation-inference", r"^text[-_]generation[-_](?:server|launcher|router|inference)"),
        ("deepspeed", r"^deepspeed(?:$|[.])"),
        ("megatron", r"^(?:megatron(?:$|[.])|pretrain_(?:gpt|bert|t5|llama|mamba|vlm|vision\w*)(?:\.py)?$)"),
        ("accelerate", r"^accelerate(?:$|[.-])"),
        ("torchrun", r"^(?:torchrun|torch\.distributed\.(?:run|launch))$"),
        ("ray", r"^(?:ray(?:$|[.:])|raylet$)"),
        ("jax", r"^(?:jax|maxtext|t5x|paxml)(?:$|[.])"),
    )
)
# What starts other frameworks: the name of one of these stands only where nothing more telling is seen.
_STARTERS = frozenset({"accelerate", "torchrun", "ray"})
# Flags that a script or launcher takes only for the framework they name.
_FLAGS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("deepspeed", re.compile(r"--(?:use_)?deepspeed(?:_config(?:_file)?)?")),
    ("pytorch-fsdp", re.compile(r"--(?:use[_-])?fsdp(?:[_-]\w+)?")),
)
_FSDP_SCRIPT = re.compile(r"(?:^|[_.-])fsdp\d?(?:[_.-]|$)", re.IGNORECASE)


def framework_of(*commands: Sequence[str]) -> str | None:
    """The framework of the first command that shows one; None: none is recognised.

    A mere launcher (torchrun, accelerate, Ray) gives way to what another command shows to be launched.
    """
    starter = None
    for argv in commands:
        found = _recognise(argv)
        if found is not None and found not in _STARTERS:
            return found
        starter = starter or found
    return starter


def _recognise(argv: Sequence[str]) -> str | None:
    command = parse_command(argv)
    words = [*command.executed, *filter(None, [command.launched])]
    found = next((name for name, pattern in _FRAMEWORKS if any(pattern.search(word) for word in words)), None)
    if found is None or found in _STARTERS:
        # Flags of their own, put before the script's arguments by the launcher or its user.
        flags = [word.split("=")[0] for word in argv[1:] if word.startswith("--")]
        told = next((name for name, pattern in _FLAGS if any(pattern.fullmatch(flag) for flag in flags)), None)
        if told is None and any(_FSDP_SCRIPT.search(word.removesuffix(".py")) for word in words):
            told = "pytorch-fsdp"
        found = told or found
    return found
