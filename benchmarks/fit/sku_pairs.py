"""Tables of published pairs: one workload measured on two GPUs. The format is in docs/method.md.

Columns that must be there: model, workload, precision, gpu_a, gpu_b, metric, value_a, value_b, source; values are
rates, higher is faster. Optional: params, active_params, gpus, batch, input_tokens, output_tokens; where they are
absent, what the model's text says is taken (70B, TP8, 128/2048, ISL2048 bs1). Nothing else is known of a line.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from skuwise.advisor.recommend.predict.sku_comparison import PhaseAsked, Question, gpus_of_a_copy
from skuwise.advisor.recommend.prediction import PRECISIONS
from skuwise.rules.base.errors import UsageError
from skuwise.rules.catalog.loader import Catalog
from skuwise.rules.catalog.types import GpuSku

from .tables import read_table

TABLE = Path(__file__).with_name("sku_pairs.csv")
NEWER_TABLE = Path(__file__).with_name("sku_pairs_newer.csv")
TABLES = (TABLE, NEWER_TABLE)
# What a line says of itself where the two systems did not do quite the same: such lines are scored, never fitted on.
_UNLIKE = (" other parallelism", " other microbatch", " other software", " own batch each")
_FAMILY = re.compile(r"[a-z]{2,}?(?=v?\d|[^a-z]|$)")
NEEDED = ("model", "workload", "precision", "gpu_a", "gpu_b", "metric", "value_a", "value_b", "source")
# MLPerf names no precision for training: FP8 where the library has it, else BF16.
PRECISION_NAMES = {"mlperf-default(fp8/bf16)": "bf16"}
_SIZE = re.compile(r"(?<![\w.])[\w-]*?(\d+(?:\.\d+)?)([bm])(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Pair:
    """One line: the question as `skus compare` would be asked it, both GPUs, and the log of b's time over a's."""

    model: str
    source: str
    question: Question
    a: GpuSku
    b: GpuSku
    observed: float

    @property
    def alike(self) -> bool:
        """Whether both GPUs did the same work in the same way, as far as the line says."""
        return not any(said in self.model for said in _UNLIKE)

    @property
    def steady(self) -> bool:
        """Whether the 90th percentile of the time of a token was at most 1.3 times its median on both GPUs."""
        return not self.model.endswith(" unsteady")

    @property
    def origin(self) -> str:
        """The whole source: all tables of one repository, of one engine where it measured several."""
        return self.source.split()[0]

    @property
    def family(self) -> str:
        """The model's family, whatever its version and size: llama of `meta-llama/Llama-3.1-70B`."""
        name = self.model.split()[0].rsplit("/", 1)[-1].casefold()
        match = _FAMILY.search(name)
        return match[0] if match else name


def read_pairs(path: Path, catalog: Catalog) -> tuple[list[Pair], dict[str, int]]:
    """The lines of a table, and how many were refused for which reason. Raises UsageError where it is no such table."""
    return read_table(path, NEEDED, lambda line, where: _pair(line, catalog, where))


def read_published(catalog: Catalog, tables: Iterable[Path] = TABLES) -> tuple[list[Pair], dict[str, int]]:
    """The lines of several tables, as `read_pairs` has those of one."""
    pairs: list[Pair] = []
    refused: Counter[str] = Counter()
    for table in tables:
        accepted, reasons = read_pairs(table, catalog)
        pairs += accepted
        refused.update(reasons)
    return pairs, dict(refused)


def _pair(line: dict[str, str], catalog: Catalog, where: str) -> Pair | str:
    gpus = [catalog.gpu(line[column]) for column in ("gpu_a", "gpu_b")]
    for name, sku in zip((line["gpu_a"], line["gpu_b"]), gpus, strict=True):
        if sku is None:
            return f"unknown GPU {name}"
    a, b = gpus
    assert a is not None
    assert b is not None
    phase = line["workload"].removeprefix("inference_")
    precision = PRECISION_NAMES.get(line["precision"], line["precision"])
    if phase not in get_args(PhaseAsked):
        return f"unknown workload {line['workload']}"
    if precision not in PRECISIONS:
        return f"unknown precision {line['precision']}"
    values = [number_of(line, column, where) for column in ("value_a", "value_b")]
    if not all(v and v > 0 for v in values):
        return "a value that is missing, zero or negative"
    value_a, value_b = values
    assert value_a is not None
    assert value_b is not None
    question = _question(line, phase, precision, where, (a, b))  # type: ignore[arg-type]
    return Pair(line["model"], line["source"], question, a, b, math.log(value_a / value_b))


def _question(
    line: dict[str, str], phase: PhaseAsked, precision: str, where: str, gpus: tuple[GpuSku, GpuSku]
) -> Question:
    text = line["model"]
    parallel = re.search(r"\bTP(\d+)|(\d+)xGPU", text)
    tokens, prompt = re.search(r"\s(\d+)/(\d+)\b", text), re.search(r"\bISL(\d+)\b", text)
    batch = re.search(r"\bbs(\d+)\b", text)
    fields = {
        "params": size_of(text),
        "gpus": float(parallel[1] or parallel[2]) if parallel else None,
        "batch": float(batch[1]) if batch else None,
        "input_tokens": float((tokens or prompt)[1]) if tokens or prompt else None,  # type: ignore[index]
        "output_tokens": float(tokens[2]) if tokens else 1.0 if prompt else None,
    }

    def known(column: str) -> float | None:
        given = number_of(line, column, where)
        return fields.get(column) if given is None else given

    def whole(column: str) -> int | None:
        value = known(column)
        return None if value is None else int(value)

    return Question(
        phase=phase,
        precision=precision,
        gpus=whole("gpus") or gpus_of_a_copy(known("params"), precision, *gpus, training=phase == "training"),
        params=known("params"),
        active_params=known("active_params"),
        batch=whole("batch"),
        input_tokens=whole("input_tokens"),
        output_tokens=whole("output_tokens"),
    )


def size_of(text: str) -> float | None:
    """Parameters as a model's name gives them (70B); None: it gives none."""
    size = _SIZE.search(text)
    return float(size[1]) * (1e9 if size[2] in "bB" else 1e6) if size else None


def number_of(line: dict[str, str], column: str, where: str) -> float | None:
    """A cell's number; None: it is empty. Raises UsageError for text and what is not finite."""
    text = line.get(column) or ""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"{where}: {column} is {text!r}, which is no number.", "Correct the line.") from None
    if not math.isfinite(value):
        raise UsageError(f"{where}: {column} is {text!r}, which is not finite.", "Correct the line.")
    return value
