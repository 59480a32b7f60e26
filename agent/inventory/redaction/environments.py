"""Environments given on a command line: names stay, values go, unless both say that they are settings of a run.

`--env`, `-e`, `--setenv`, Slurm's `--export`, PBS's `-v` and the program `env` pass whole environments. A variable's
name seldom says that its value is harmless, so values are shown by allow-list: variables of libraries and launchers
that are documented as settings, numbers, switches and paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .secret_names import is_secret_name, words_of

MASK = "***"
_ONE_VALUE = frozenset({
    "-e", "-E", "-x", "--env", "--environment", "--env-add", "--build-arg", "--from-literal", "--secret",
})  # fmt: skip
# Of these the options of one letter mean something else to many programs: words that are no assignment stay.
_ALSO_OTHERS = frozenset({"-e", "-E", "-x"})
# Options whose value is a list of NAME=VALUE, with the names of variables handed on between them.
_LISTS = frozenset({"--export", "-v"})
_LIST = re.compile(r"--(?:[a-z]{1,16}-){0,3}env(?:s|-vars?|ironment-variables)|--(?:[a-z]{1,16}-){1,3}env(?:ironment)?")
_NAME_THEN_VALUE = frozenset({"--setenv", "-genv", "-env"})
_OPTIONS = _ONE_VALUE | _LISTS | _NAME_THEN_VALUE
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w{0,127})=(.*)", re.DOTALL)
_SHELL_ASSIGNMENT = re.compile(r"([A-Z_][A-Z0-9_]{0,127})\+?=(.*)", re.DOTALL)
_GLUED = re.compile(r"(-[eEvx])([A-Z_][A-Z0-9_]{0,127}=.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w{0,127}")
# Programs and words of a shell behind which assignments stand before a command.
_LEADERS = frozenset({"env", "printenv", "sudo", "export", "do", "then", "exec"})
_SHORT_OPTION = re.compile(r"-[A-Za-z]")

# Variables that set how libraries and launchers run, by the prefixes their documentation gives them.
_SETTINGS = re.compile(
    r"(?:CUDA|NCCL|RCCL|NVIDIA|NVSHMEM|NVTE|CUBLAS|CUDNN|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|NUMEXPR|OMPI|PRTE|PMIX|I_MPI|MPICH"
    r"|UCX|UCC|FI|GLOO|ROCR|HIP|HSA|ROCM|AMD|TORCH|PYTORCH|TORCHINDUCTOR|TF|XLA|JAX|TRITON|VLLM|SGLANG|SGL|TRANSFORMERS"
    r"|DS|DEEPSPEED|ACCELERATE|RAY|DASK|SLURM|SBATCH|SRUN|PBS|LD|PYTHON|LC|KOKKOS|GMX|JULIA|OPENMM|TOKENIZERS|HOROVOD)_\w+"
    r"|MASTER_(?:ADDR|PORT)|(?:WORLD|LOCAL_WORLD)_SIZE|(?:LOCAL_|NODE_|GROUP_)?RANK|NNODES|NPROC(?:_PER_NODE)?"
    r"|HF_(?:HOME|HUB_(?:CACHE|OFFLINE|ENABLE_HF_TRANSFER|DOWNLOAD_TIMEOUT)|DATASETS_\w+|ENDPOINT)"
    r"|WANDB_(?:MODE|PROJECT|ENTITY|DIR|DISABLED|NAME|SILENT|RUN_GROUP|JOB_TYPE|CACHE_DIR|BASE_URL)"
    r"|MLFLOW_EXPERIMENT_NAME|PYTHON(?:PATH|UNBUFFERED|HASHSEED|FAULTHANDLER|NOUSERSITE|HOME)|PATH|HOME|USER|SHELL|LANG"
    r"|LANGUAGE|TERM|DISPLAY|TZ|TMPDIR|XDG_\w+|DEBUG|VERBOSE"
)
# What the last word of a variable's name says: where something is, or which or how many of a kind.
_ABOUT = words_of(
    "DIR PATH FILE HOME ROOT HOST HOSTS HOSTNAME PORT ADDR ADDRESS URL URI ENDPOINT NAME MODE LEVEL LEVELS BACKEND "
    "SIZE COUNT NUM NUMBER VERSION ARCH DEVICE DEVICES SEED EPOCHS STEPS FORMAT TYPE DTYPE NODES GPUS THREADS WORKERS"
)
_HARMLESS = re.compile(
    r"(?i:0|[1-9][0-9]{0,4}0{0,9}|[0-9]{0,3}\.[0-9]{1,4}|[1-9](?:\.[0-9]{1,4})?e-?[0-9]{1,2}|true|false|yes|no|on|off|none|all"
    r"|auto|default|train(?:ing)?|test|val(?:id)?|eval|dev|debug|info|warn(?:ing)?|error|offline|online|disabled|enabled"
    r"|cpu|gpu|cuda|nccl|gloo|mpi|bf16|fp16|fp32|fp8|float16|bfloat16|float32|compute|utility|graphics)"
    r"|(?:\.{0,2}/|[\w-]{1,64}/(?=[\w./-]*\.[a-z0-9]{1,12}$))[\w.-]*(?:/[\w.-]+){0,15}/?"
)


def ends_command(word: str) -> bool:
    """Whether a shell begins another command after this word."""
    return word in ("&&", "||", "|", "&") or word.endswith(";")


def without_environments(argv: Sequence[str]) -> Iterator[str]:
    """`argv` with the values of every environment in it masked. Words are otherwise untouched."""
    option = ""  # the option whose value comes next
    variable: str | None = None  # of --setenv NAME VALUE, where the value comes next
    leading = True  # before the command itself: NAME=VALUE words are its environment
    behind_leader = False
    previous = ""
    for word in argv:
        name, equals, value = word.partition("=")
        if word.rpartition("/")[2] in _LEADERS:  # -v is qsub's, but not nice's
            option = ""
        if variable is not None:
            yield word if is_shown(variable, word) else MASK
            variable = None
        elif option in _NAME_THEN_VALUE and not equals:
            yield word
            option, variable = "", word
        elif option:
            yield _list(word) if _is_list(option) else _one(word, or_else=word if option in _ALSO_OTHERS else MASK)
            option = ""
        elif word in _OPTIONS or _is_list(word):
            yield word
            option = word
        elif equals and (name in _OPTIONS or _is_list(name)):
            yield f"{name}={_list(value) if _is_list(name) else _one(value)}"
        elif glued := _GLUED.fullmatch(word):
            yield glued[1] + (_list(glued[2]) if glued[1] in _LISTS else _one(glued[2]))
        elif leading and (assigned := (_ASSIGNMENT if behind_leader else _SHELL_ASSIGNMENT).fullmatch(word)):
            yield _pair(assigned[1], assigned[2])
        else:
            is_option = word.startswith("-") or _SHORT_OPTION.fullmatch(previous) is not None
            behind_leader = word.rpartition("/")[2] in _LEADERS or (behind_leader and is_option)
            leading = behind_leader or (leading and is_option)
            yield word
        if ends_command(word):
            leading, behind_leader = True, False
        previous = word


def _is_list(option: str) -> bool:
    return option in _LISTS or (option.startswith("--") and _LIST.fullmatch(option) is not None)


def is_shown(name: str, value: str) -> bool:
    """Whether the value of a variable is a setting that may be read."""
    if is_secret_name(name):
        return False
    about = name.upper().rpartition("_")[2] in _ABOUT
    return about or _SETTINGS.fullmatch(name) is not None or _HARMLESS.fullmatch(value) is not None


def _pair(name: str, value: str) -> str:
    end = ";" if value.endswith(";") else ""
    return f"{name}={value}" if is_shown(name, value.removesuffix(";")) else f"{name}={MASK}{end}"


def _one(value: str, or_else: str = MASK) -> str:
    """``NAME=***`` where the value is one assignment; a name or a path alone stays, of all else `or_else`."""
    assigned = _ASSIGNMENT.fullmatch(value)
    if assigned is not None:
        return _pair(assigned[1], assigned[2])
    return value if _NAME.fullmatch(value) or _HARMLESS.fullmatch(value) else or_else


def _list(value: str) -> str:
    """``ALL,A=***,B=***``: a piece without a name belongs to the value before it, which may hold commas."""
    kept: list[str] = []
    hiding = False
    for piece in value.split(","):
        assigned = _ASSIGNMENT.fullmatch(piece.strip())
        if assigned is not None:
            hiding = not is_shown(assigned[1], assigned[2])
            kept.append(f"{assigned[1]}={MASK}" if hiding else piece)
        elif not hiding:
            kept.append(piece)
    return ",".join(kept)
