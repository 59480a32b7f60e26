"""Which framework runs, from what is executed: the program, its script or its module. Never from mere arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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
_MPI = re.compile(r"mpirun|mpiexec(?:\.hydra)?|orterun|prterun|prun|orted|prted|hydra_pmi_proxy|srun")
_INTERPRETER = re.compile(
    r"(?:python[\d.]*|pypy[\d.]*|ba?sh|dash|zsh|env|nohup|numactl|taskset|nice|setsid|stdbuf|time)$"
)
_LAUNCHER = re.compile(r"torchrun|torch\.distributed\.(?:run|launch)|accelerate(?:-launch)?|accelerate\..*|deepspeed.*")
_MODEL_FLAGS = frozenset({"--model", "--model-path", "--model-id", "--model_name_or_path"})
_NUMBERS = re.compile(r"[\d,:-]+")  # the CPUs and nodes that taskset and numactl take


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


def program_of(argv: Sequence[str]) -> str | None:
    """What is run, as a person names it: the script that a launcher starts, the module, the script or the program.

    A served model is part of the name. None: the command says nothing.
    """
    executed = list(_executed(argv))
    if not executed:
        return None
    name = executed[-1]
    if _is_launcher(name):
        name = _launched(argv) or name
    model = _model_of(argv)
    return f"{name} {model}" if model else name


def _model_of(argv: Sequence[str]) -> str | None:
    for index, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag in _MODEL_FLAGS:
            value = value if equals else "".join(argv[index + 1 : index + 2])
        elif word == "serve" and 0 < index <= 2:
            value = "".join(argv[index + 1 : index + 2])
        else:
            continue
        if value and not value.startswith("-"):
            return "/".join(value.rstrip("/").rsplit("/", 2)[-2:])
    return None


def _recognise(argv: Sequence[str]) -> str | None:
    executed = list(_executed(argv))
    launched = _launched(argv) if executed and _is_launcher(executed[-1]) else None
    words = [*executed, *([launched] if launched else [])]
    found = next((name for name, pattern in _FRAMEWORKS if any(pattern.search(word) for word in words)), None)
    if found is None or found in _STARTERS:
        # Flags of their own, put before the script's arguments by the launcher or its user.
        flags = [word.split("=")[0] for word in argv[1:] if word.startswith("--")]
        told = next((name for name, pattern in _FLAGS if any(pattern.fullmatch(flag) for flag in flags)), None)
        if told is None and any(_FSDP_SCRIPT.search(word.removesuffix(".py")) for word in words):
            told = "pytorch-fsdp"
        found = told or found
    return found


def _is_launcher(program: str) -> bool:
    return _LAUNCHER.fullmatch(program) is not None or _MPI.fullmatch(program) is not None


def _launched(argv: Sequence[str]) -> str | None:
    """The script that a launcher starts, by its ending; None: its command names none."""
    return next((word.rsplit("/", 1)[-1] for word in argv[1:] if word.endswith((".py", ".sh"))), None)


def _executed(argv: Sequence[str]) -> Iterator[str]:
    """The program and, through interpreters and wrappers, the module or script that it runs."""
    words = [word for word in argv if word]
    index = 0
    while index < len(words):
        program = words[index].rsplit("/", 1)[-1]
        yield program
        index += 1
        if not _INTERPRETER.fullmatch(program):
            return
        while index < len(words) and (
            words[index].startswith("-") or "=" in words[index] or _NUMBERS.fullmatch(words[index])
        ):
            option = words[index]
            index += 1
            if option == "-m" and index < len(words):
                yield words[index]
                return
            if option == "-c" and program.startswith(("python", "pypy")):
                return
            if option in ("-X", "-W") and program.startswith(("python", "pypy")):
                index += 1
