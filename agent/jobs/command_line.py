"""What of a command line may be kept, and which framework it shows.

It may hold secrets anywhere: kept are base names of programs, scripts and modules, and an allow-list of flags. A value
that has not the form of its flag is ``***``. The code behind ``sh -c`` and ``python -c``, and what follows, is not
read.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..base.safe_text import clean_text

MASK = "***"
_WORDS_MAX = 512
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_SHELL = re.compile(r"(?:ba|da|z|k)?sh")
# Programs that run another one -> their options that take a value.
_WRAPPERS = {
    "env": "uC", "nohup": "", "numactl": "imNCpPw", "taskset": "cp", "nice": "n", "ionice": "cn", "setsid": "",
    "stdbuf": "ioe", "time": "fo", "timeout": "ks",
}  # fmt: skip
_OPTIONS_WITH_VALUE = frozenset({
    "--unset", "--chdir", "--input", "--output", "--error", "--format", "--signal", "--kill-after", "--rcfile",
    "--init-file", "--check-hash-based-pycs",
})  # fmt: skip
_NUMBERS = re.compile(r"\d[\da-fx,:.-]*[smhd]?")  # the CPUs of taskset, the duration of timeout
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
_PROGRAM = re.compile(r"[\w.][\w.+-]{0,63}(?:::[A-Za-z][\w.+-]{0,63})?")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)
_LAUNCHER = re.compile(
    r"torchrun|torch\.distributed\.(?:run|launch)|accelerate(?:-launch|\..*)?|deepspeed.*"
    r"|mpirun|mpiexec(?:\.hydra)?|orterun|prterun|prun|orted|prted|hydra_pmi_proxy|srun"
)
# First arguments that name what is done, the words of rules/kind_priors.yaml among them.
_TASKS = frozenset({
    "serve", "server", "launch", "run", "start", "worker", "train", "training", "pretrain", "finetune", "fine-tune",
    "sft", "dpo", "grpo", "rlhf", "lora", "bench", "chat", "eval", "evaluate", "generate", "run-batch", "api_server",
    "lab", "notebook", "infinity", "mdrun",
})  # fmt: skip
# Behind these the model stands without a flag.
_SERVES = frozenset({"serve", "api_server", "trtllm-serve"})

_NUMBER = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,4})?(?::[0-9]{1,4})?|auto|gpu", re.ASCII)
_WORD = re.compile(
    r"auto|none|no|half|float|b?float16|float32|bf16|fp16|fp32|tf32|(?:fp8|int8|nvfp4|mxfp4|fp4|int4)(?:_\w{1,8})?"
    r"|(?:bf|fp)?(?:16|32)(?:-mixed|-true)?|fbgemm_fp8|modelopt(?:_fp4)?|w8a8(?:_fp8|_int8)?|w4a16|ptpc_fp8|experts_int8|eetq"
    r"|awq(?:_marlin)?|gptq(?:_marlin)?|marlin|bitsandbytes(?:-nf4|-fp4)?|gguf|compressed-tensors|squeezellm|torchao|hqq"
    r"|full_shard|shard_grad_op|hybrid_shard|no_shard|auto_wrap|offload|prefill|decode|null",
    re.IGNORECASE | re.ASCII,
)
_CONFIG = re.compile(r"[\w.-]{1,80}\.(?:ya?ml|json|toml|py|cfg|ini)", re.ASCII)
_MODEL = re.compile(r"[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_CACHED_MODEL = re.compile(r"models--[\w.-]{1,95}", re.ASCII)  # of the cache of Hugging Face
# Flag without dashes in front, with "-" for "_" -> the form of its value.
_FLAGS = {
    name: form
    for form, names in (
        ("model", "model model-path model-id model-name-or-path"),
        ("number",
         "tensor-parallel-size tp tp-size num-shard pipeline-parallel-size pp pp-size data-parallel-size dp dp-size "
         "expert-parallel-size ep-size context-parallel-size tensor-model-parallel-size pipeline-model-parallel-size "
         "nnodes nproc-per-node num-processes num-machines num-gpus num-nodes np ntasks batch-size micro-batch-size "
         "global-batch-size train-batch-size eval-batch-size per-device-train-batch-size per-device-eval-batch-size "
         "gradient-accumulation-steps max-num-seqs max-num-batched-tokens max-batch-size max-model-len seq-length "
         "context-length gpu-memory-utilization mem-fraction-static zero-stage lora-r lora-rank port"),
        ("word",
         "dtype torch-dtype precision mixed-precision kv-cache-dtype quantization quantize q fsdp disaggregation-mode"),
        ("config", "config config-file config-name deepspeed deepspeed-config deepspeed-config-file"),
        ("switch",
         "bf16 fp16 fp8 tf32 use-deepspeed use-fsdp use-peft use-lora qlora load-in-4bit load-in-8bit pty "
         "enable-expert-parallel enable-ep-moe is-prefill-worker kv-transfer-config"),
    )
    for name in names.split()
}  # fmt: skip
_FLAG = re.compile(r"--?([A-Za-z][\w-]{1,40}|q)", re.ASCII)

# In programs, scripts and modules, the more telling first: entry points as the projects' documentation names them. Then
# flags that a script or launcher takes only for the framework they name; last what starts others.
_ENGINES = {
    "vllm": r"^vllm(?:$|[.:_-])",
    "sglang": r"^(?:sglang|sgl)(?:$|[.:_-])",
    "tensorrt-llm": r"^(?:trtllm|tensorrt[_-]llm)",
    "triton": r"^tritonserver$|^triton_python_backend",
    "text-generation-inference": r"^text[-_]generation[-_](?:server|launcher|router|inference)",
    "deepspeed": r"^deepspeed(?:$|[.])",
    "megatron": r"^(?:megatron(?:$|[.])|pretrain_(?:gpt|bert|t5|llama|mamba|vlm|vision\w*)(?:\.py)?$)",
    "jax": r"^(?:jax|maxtext|t5x|paxml)(?:$|[.])",
}
_BY_FLAG = {
    "deepspeed": r"^--(?:use_)?deepspeed(?:_config(?:_file)?)?$",
    "pytorch-fsdp": r"^--(?:use[_-])?fsdp(?:[_-]\w+)?$|^(?!-)(?:.*[_.-])?fsdp\d?(?:[_.-]|$)",
}
_STARTERS = {
    "accelerate": r"^accelerate(?:$|[.-])",
    "torchrun": r"^(?:torchrun|torch\.distributed\.(?:run|launch))$",
    "ray": r"^(?:ray(?:$|[.:])|raylet$)",
}

_SETTING = re.compile(r"[\d.e+-]{1,12}", re.ASCII)
_NOT_A_NAME = re.compile(r"://|[@'\"`{}$\\]")
_RUN = re.compile(r"[A-Za-z0-9]{12,}", re.ASCII)
_LETTERS = re.compile(r"[A-Z]?[a-z]{3,}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """`text`: all of it that may be kept, in one line; None: nothing. `program`: what is run, as a person names it,
    with the model; None: the command says nothing, or it is a shell's. `executed`: the program, and the module or
    script that it runs through interpreters, wrappers and launchers."""

    text: str | None = None
    program: str | None = None
    executed: tuple[str, ...] = ()


def parse_command(argv: Sequence[str]) -> CommandLine:
    """The parts of a command line that may be kept."""
    executed, rest = _executed([word for word in argv[:_WORDS_MAX] if word])
    if not executed:
        return CommandLine()
    program = executed[-1]
    if _LAUNCHER.fullmatch(program):
        scripts = (_base_name(word) for word in rest if word.endswith((".py", ".sh")) and word[0] != "-")
        executed += filter(None, [next(filter(None, scripts), None)])
    # A first argument that is a known word.
    tasks = rest[:1] if rest and rest[0] in _TASKS else []
    if rest[:2] == ["serve", "api_server"]:  # of lmdeploy
        tasks, rest = rest[1:2], rest[1:]
    rest = rest[len(tasks) :]
    flags = _flags(rest)
    model = next((value for name, (_, value) in flags.items() if _FLAGS[name] == "model"), None)
    written = [flag if value is None else f"{flag}={value}" for flag, value in flags.values()]
    if model is None and (tasks or [program])[0] in _SERVES and rest and rest[0][0] != "-":
        model = _checked("model", rest[0])
        written.insert(0, model)
    title = executed[-1] if model in (None, MASK) else f"{executed[-1]} {model}"
    is_shells = _SHELL.fullmatch(program) is not None
    return CommandLine(" ".join((*executed, *tasks, *written)), None if is_shells else title, tuple(executed))


def _executed(words: list[str]) -> tuple[list[str], list[str]]:
    """The names of what is executed, and the arguments behind them; none where code follows that is not read."""
    executed: list[str] = []
    # Of the program before: letters of options that take a value, of those that end the options; whether it runs any.
    takes, ends, wraps, has_options = "", "", True, False
    while words:
        word, words = words[0], words[1:]
        if has_options and word[0] in "-+" and word != "-":
            letter = next((flag for flag in word[1:] if flag in takes + ends), "") if word[:2] != "--" else ""
            value = word.partition(letter)[2] if letter else word
            if letter and letter in ends:
                module = value or "".join(words[:1])
                if letter != "m" or not _MODULE.fullmatch(module) or is_opaque(module):
                    return executed, []
                return [*executed, module], words if value else words[1:]
            has_options = word != "--"
            words = words[1:] if not value or word in _OPTIONS_WITH_VALUE else words
            continue
        is_assignment = _ASSIGNMENT.fullmatch(word) is not None
        if wraps and (is_assignment or (has_options and _NUMBERS.fullmatch(word))):
            has_options = has_options and not is_assignment
            continue
        name = _base_name(word)
        executed += [name] if name else []
        if name is None or (wraps and len(word.split()) > 1):  # a title that the process gave itself
            return executed, []
        if not wraps:
            return executed, words
        has_options = True
        if _PYTHON.fullmatch(name):
            takes, ends, wraps = "WXQ", "cm", False
        elif _SHELL.fullmatch(name):
            takes, ends, wraps = "oO", "cs", False
        elif name in _WRAPPERS:
            takes, ends = _WRAPPERS[name], "S"
        else:
            return executed, words
    return executed, []


def _base_name(word: str) -> str | None:
    first = "".join(word.split()[:1])
    if (first != word and "/" in word) or any(mark in word for mark in ("://", "@", "=")):
        return None
    match = _PROGRAM.match(first.rsplit("/", 1)[-1].lstrip("-"))
    return None if match is None or is_opaque(match[0]) else match[0]


def _flags(words: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """Name -> the flags of the allow-list as they are written, with their values; the first of a name stands."""
    values: dict[str, tuple[str, str | None]] = {}
    for word, after in pairwise([*words, "-"]):
        flag, equals, value = word.partition("=")
        name = flag.lstrip("-").replace("_", "-").lower() if _FLAG.fullmatch(flag) else ""
        form = _FLAGS.get(name)
        if form is None or name in values:
            continue
        given = value if equals else "" if after.startswith("-") else after
        if form == "switch":
            if given.lower() != "false":
                values[name] = (flag, None)
        elif given or form == "config":
            values[name] = (flag, _checked(form, given) if given else None)
    return values


def _checked(form: str, value: str) -> str:
    """`value` where it has its form. A model is ``ORGANISATION/NAME`` or a name; of a path its last part, or the part
    that the cache of Hugging Face names. Of a configuration's path the last part is kept."""
    separator, parts, pattern = ",", value.split(), _NUMBER if form == "number" else _WORD
    if form == "config":
        parts, pattern = [value.rsplit("/", 1)[-1]], _CONFIG
    elif form == "model":
        separator, parts, pattern = "/", [part for part in value.split("/") if part], _MODEL
        cached = [part for part in parts if _CACHED_MODEL.fullmatch(part)]
        if cached or len(parts) != 2 or value[0] in "/.~":
            parts = cached[:1] or parts[-1:]
        parts = [] if "://" in value else parts
    opaque = form in ("config", "model") and any(map(is_opaque, parts))
    return separator.join(parts) if parts and not opaque and all(map(pattern.fullmatch, parts)) else MASK


def framework_of(*commands: Sequence[str]) -> str | None:
    """The framework of the first command that shows one, by what is executed, never by mere arguments; None: none is
    recognised. A mere launcher gives way to what another command shows to be launched."""
    rounds: list[tuple[dict[str, str], Sequence[str]]] = []
    for argv in commands:
        executed = parse_command(argv).executed
        # Flags stand before the script's arguments, put there by the launcher or its user.
        flags = [word.split("=")[0] for word in argv[1:] if word.startswith("--")]
        rounds += [(_ENGINES, executed), (_BY_FLAG, (*executed, *flags))]
    rounds += [(_STARTERS, words) for table, words in rounds if table is _ENGINES]
    for table, words in rounds:
        for name, pattern in table.items():
            if any(re.search(pattern, word, re.IGNORECASE) for word in words):
                return name
    return None


def plain_name(text: str) -> str:
    """A name that a person gave to work, up to where it looks like a command line or a secret; may be empty."""
    kept: list[str] = []
    for word in clean_text(text).split():
        name, equals, value = word.partition("=")
        is_option = (word.startswith("-") and len(word) > 1) or (equals and not _SETTING.fullmatch(value))
        if is_option or _NOT_A_NAME.search(word) or is_opaque(name):
            break
        kept.append(word)
    return " ".join(kept)


def is_opaque(name: str) -> bool:
    """Whether a name looks like a key: a UUID, or a long run of letters and digits that are no words."""
    if _UUID.search(name):
        return True
    for run in _RUN.findall(name):
        kinds = sum(any(map(test, run)) for test in (str.isdigit, str.islower, str.isupper))
        in_words = sum(map(len, _LETTERS.findall(run)))
        if in_words <= 0.6 * len(run) and (kinds == 3 or (kinds == 2 and len(run) >= 16)):
            return True
    return False
