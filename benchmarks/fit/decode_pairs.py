"""Measured serving on two GPUs: tables of the columns of ``decode_pairs.csv``.

The table that ships are 492 matched configurations of ai-dynamo/aiconfigurator's silicon samples (Apache-2.0), medians
over runs of the same one. Times are means: to the first token, and of each token after it.

GPUs of a configuration: `tp_size`, except for mixtures of experts. There the table's tensor or attention parallelism is
in places the product of the parallelism of the experts (``tp_size`` 64 with experts over 8 x 8, with the times of the 8
GPUs of the line beside it), so that the experts' own figures show how many GPUs there are.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from skuwise.advisor.recommend.predict.sku_comparison import Question, sequences_held
from skuwise.advisor.recommend.prediction import PRECISIONS
from skuwise.rules.catalog.loader import Catalog
from skuwise.rules.models import load_served_models

from .sku_pairs import Pair, number_of, size_of
from .tables import read_table

DECODE_TABLE = Path(__file__).with_name("decode_pairs.csv")
REPOSITORY = "ai-dynamo/aiconfigurator"
NEEDED = (
    "model", "precision", "input_tokens", "output_tokens", "concurrency", "tp_size", "attention_dp_size", "moe_tp_size",
    "moe_ep_size", "gpu_a", "gpu_b", "ttft_ms_a", "ttft_ms_b", "tpot_ms_a", "tpot_ms_b",
)  # fmt: skip
# Parameters and those that one token passes through, of models that rules/served_models.yaml lacks. Of others
# the table has to give (`params`, `active_params`), or the name (70B).
MODELS: Mapping[str, tuple[float, float]] = {
    "minimax-m2": (229e9, 10e9),
    "kimi-k2": (1.04e12, 32e9),
    "qwen3-235b-a22b": (235e9, 22e9),
    "qwen3-30b-a3b": (30.5e9, 3.3e9),
    "glm-4.5": (355e9, 32e9),
}


def read_runs(path: Path, catalog: Catalog) -> tuple[list[Pair], dict[str, int]]:
    """Of each line the time of a token, and of the first token where no request waited for memory; and how many lines
    were refused for which reason. Raises UsageError where it is no such table."""
    runs, refused = read_table(path, NEEDED, lambda line, where: _run(line, catalog, where))
    return [pair for pairs in runs for pair in pairs], refused


def _run(line: dict[str, str], catalog: Catalog, where: str) -> tuple[Pair, ...] | str:
    a, b = (catalog.gpu(line[column]) for column in ("gpu_a", "gpu_b"))
    if a is None or b is None:
        return f"unknown GPU {line['gpu_a'] if a is None else line['gpu_b']}"
    if line["precision"] not in PRECISIONS:
        return f"unknown precision {line['precision']}"
    params, active = _parameters(line, where)
    if params is None:
        return f"unknown size of {line['model']}"
    numbers = {name: number_of(line, name, where) for name in (*NEEDED[2:9], *NEEDED[11:])}
    if not all(value and value > 0 for value in numbers.values()):
        return "a value that is missing, zero or negative"
    at = {name: value for name, value in numbers.items() if value is not None}
    gpus, copies = _layout(at, experts=bool(active and active < 0.9 * params))
    question = Question(
        phase="decode", precision=line["precision"], gpus=gpus, params=params, active_params=active,
        batch=int(at["concurrency"]), input_tokens=int(at["input_tokens"]), output_tokens=int(at["output_tokens"]),
        attention_copies=copies,
    )  # fmt: skip
    source = f"{REPOSITORY}/{line.get('backend') or 'unknown engine'} silicon samples, matched configurations"
    token = Pair(line["model"], source, question, a, b, math.log(at["tpot_ms_b"] / at["tpot_ms_a"]))
    if any(sequences_held(question, sku.mem_bytes) < (question.sequences or 1) for sku in (a, b)):
        return (token,)
    asked = replace(question, phase="prefill", output_tokens=1)
    return token, Pair(line["model"], source, asked, a, b, math.log(at["ttft_ms_b"] / at["ttft_ms_a"]))


def _layout(at: Mapping[str, float], *, experts: bool) -> tuple[int, int]:
    """GPUs of one copy, and copies of the attention layers on them."""
    tensor, copies = int(at["tp_size"]), int(at["attention_dp_size"])
    if not experts:
        return tensor, 1
    gpus = tensor if tensor == copies else max(int(at["moe_tp_size"]), int(at["moe_ep_size"]), 1)
    return gpus, gpus if copies > 1 else 1


def _parameters(line: dict[str, str], where: str) -> tuple[float | None, float | None]:
    params, active = (number_of(line, name, where) for name in ("params", "active_params"))
    if params is not None:
        return params, active
    name = line["model"].rsplit("/", 1)[-1].casefold()
    model_sizes = next((sizes for start, sizes in MODELS.items() if name.startswith(start)), None)
    if model_sizes is not None:
        return model_sizes
    served = load_served_models().of(name)
    if served is not None and served.params is not None:
        return served.params, served.active_params
    return size_of(name), None
