"""Removals from a frame, and what must never come of one: the property that caution grows with ignorance.

A removal takes data away or spoils it as real fleets do. From what is left no recommendation may claim cash that the
whole did not, no sum of cash may rise, no risk may fall, and no GPU that worked may become an idle one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.core.histogram_array import BinsArray
from skuwise.advisor.pipeline import AdviseOptions, advise
from skuwise.advisor.views.whatif_session import of_nodes
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.policy.thresholds import load_waste_rules
from skuwise.tests.support.frame_builder import DECODE, FREE, HELD, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook

METRICS = (
    "gpu_util", "sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active",
    "mem_used_bytes", "mem_total_bytes", "power_watts", "sm_clock_hertz", "mem_clock_hertz",
    "pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second", "nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second",
)  # fmt: skip
BLANKS = (9223372036854775794.0, 2147483632.0, 18446744073709551606.0)
_RISKS = ("very-low", "low", "medium", "high")
_CASH = ("cash-now", "cash-at")
Change = Callable[[Frame, np.random.Generator], Frame]


@dataclass(frozen=True)
class Removal:
    """One removal, with its name for people, and what it leaves."""

    name: str
    frame: Frame


CATALOG, RULES = load_catalog(), load_waste_rules()


def advice_of(frame: Frame) -> Advice:
    """The advice over a frame, the same for the same frame."""
    at = frame.window.end
    return advise(frame, rulebook(), AdviseOptions(at), np.random.default_rng(20))


def violations(whole: Advice, part: Advice) -> list[str]:
    """What was claimed of a part of the data that the whole does not bear out; empty: nothing was."""
    found = []
    claimed = {r.id for r in whole.recommendations if _claims(r)}
    found += [
        f"{r.action} {r.id} claims {r.saving_usd_per_month} ({r.text[:90]})"
        for r in part.recommendations
        if _claims(r) and r.id not in claimed
    ]
    before, after = whole.summary.recoverable_usd_per_month, part.summary.recoverable_usd_per_month
    if (after or 0.0) > (before or 0.0) * (1 + 1e-9) + 0.01:
        found.append(f"recoverable rose from {before} to {after}")
    risks = {r.id: r.risk for r in whole.recommendations}
    found += [
        f"{r.action} {r.id}: risk fell from {risks[r.id]} to {r.risk}"
        for r in part.recommendations
        if r.id in risks and _RISKS.index(r.risk) < _RISKS.index(risks[r.id])
    ]
    found += [f"{gpu} worked, and is called idle" for gpu in sorted(_idle(part) - _idle(whole)) if gpu in _known(whole)]
    return found


def _claims(r: object) -> bool:
    return (
        getattr(r, "realisation") in _CASH  # noqa: B009
        and not getattr(r, "blocked_by")  # noqa: B009
        and (saving := getattr(r, "saving_usd_per_month")) is not None  # noqa: B009
        and saving.p50 > 0
    )


def _idle(advice: Advice) -> set[str]:
    """GPUs that a finding calls idle, and those of workloads that are called so."""
    found = {gpu for f in advice.findings if f.rule in ("idle", "held-idle") for gpu in f.gpus}
    return found | {gpu for w in advice.workloads if w.kind.label == "idle" for gpu in w.gpus}


def _known(advice: Advice) -> set[str]:
    """GPUs that did some work, as far as the whole data tell."""
    return {gpu for w in advice.workloads if w.kind.label not in ("idle", "unknown") for gpu in w.gpus}


_PLACE = {"provider": "azure", "region": "eastus", "node_sku": "azure/Standard_ND96isr_H100_v5"}


def made_by_hand(hours: int = 40) -> Frame:
    """Two nodes of a service on a silent fabric, one that trains over its own, one that nobody uses, one that is held
    by what never works, and one half of which works for nobody that a label names."""
    b = FrameBuilder(hours=hours)
    decode = dict(DECODE) | {"tensor_active": 0.04, "dram_active": 0.3, "gpu_util": 0.5, "mem_used_bytes": 60e9}
    loads = {"serve-1": decode, "serve-2": decode, "train": TRAINING, "spare": FREE, "held": HELD, "odd": FREE}
    for n, (name, load) in enumerate(loads.items()):
        uuids = b.node(name, gpus=8)
        b.nodes[-1] |= _PLACE
        for k, uuid in enumerate(uuids):
            b.use(DECODE if name == "odd" and k < 4 else load, name, uuid, wave="dram_active" if n < 2 else "")
        for port in range(2):
            b.port(0.3 if name == "train" else 0.0003, name, f"mlx5_{port}")
        b.host_rows += [
            {"node": name, "ts": row["ts"], "interval_seconds": row["interval_seconds"], "observed_seconds": 3600.0,
             "cpu_util_mean": 0.1, "io_wait_mean": 0.0, "disk_write_bytes_per_second_mean": 1e5}
            for row in b.gpu_rows if row["gpu_uuid"] == uuids[0]
        ]  # fmt: skip
    for name, kind in (("serve-1", "vllm serve"), ("serve-2", "vllm serve"), ("train", "torchrun train.py"),
                       ("held", "sleep")):  # fmt: skip
        own = [(name, f"GPU-{name}-{k}") for k in range(8)]
        b.work(f"w-{name}", own, name=name.split("-")[0], series=name.split("-")[0], command=kind)
    return b.frame()


def removal(frame: Frame, rng: np.random.Generator) -> Removal:
    """One removal drawn at random, or several at once in one of five."""
    count = 1 if rng.random() < 0.8 else int(rng.integers(2, 4))
    names = []
    for _ in range(count):
        name = str(rng.choice(list(_WAYS)))
        frame, what = _WAYS[name](frame, rng)
        names.append(f"{name}: {what}")
    return Removal(" + ".join(names), frame)


def _scope(frame: Frame, rng: np.random.Generator) -> tuple[np.ndarray, str]:
    """Rows of the frame's `gpu` that a change is about: one GPU, one node, or all; in one of three for a part of the
    time."""
    gpu = frame.gpu
    which = rng.integers(3)
    if which == 0 and len(gpu):
        uuid = str(rng.choice(gpu["gpu_uuid"].unique()))
        rows, what = (gpu["gpu_uuid"] == uuid).to_numpy(), f"GPU {uuid}"
    elif which == 1 and len(gpu):
        node = str(rng.choice(gpu["node"].unique()))
        rows, what = (gpu["node"] == node).to_numpy(), f"node {node}"
    else:
        rows, what = np.ones(len(gpu), dtype=bool), "everywhere"
    if rng.random() < 1 / 3:
        moments, span = _moments(frame, rng)
        return rows & moments(gpu["ts"].to_numpy(float)), f"{what}, {span}"
    return rows, what


def _moments(frame: Frame, rng: np.random.Generator) -> tuple[Callable[[np.ndarray], np.ndarray], str]:
    """A set of moments of more than 1 % of the window: a stretch of it, or hours here and there."""
    start, end = frame.window.start, frame.window.end
    if rng.random() < 0.5:
        length = rng.uniform(0.02, 0.7) * (end - start)
        # Not from the very beginning on: that would be a fleet that is younger, which is no removal anybody can see.
        begin = rng.uniform(start + 0.05 * (end - start), end - length)
        return (lambda ts: (ts > begin) & (ts <= begin + length)), f"{length / 3600:.0f} h"
    share, seed = rng.uniform(0.02, 0.6), int(rng.integers(2**31))
    chosen = np.random.default_rng(seed).random(10_000) < share
    return (lambda ts: chosen[(ts / 3600).astype(np.int64) % 10_000]), f"{share:.0%} of the hours"


def _columns(frame: Frame, metric: str) -> list[str]:
    endings = (f"{metric}_m", f"{metric}_p95", f"{metric}_n")
    return [c for c in frame.gpu.columns if c == metric or c.startswith(endings)]


def _with_gpu(frame: Frame, rows: np.ndarray, changes: dict[str, object]) -> Frame:
    gpu = frame.gpu.copy()
    for column, value in changes.items():
        values = gpu[column].to_numpy(float, copy=True)
        values[rows] = value if np.isscalar(value) else np.asarray(value)[rows]
        gpu[column] = values
    return replace(frame, gpu=gpu)


def _without_bins(frame: Frame, rows: np.ndarray, metric: str) -> Frame:
    column = {"nvlink_tx_bytes_per_second": "nvlink_bins"}.get(metric, f"{metric}_bins")
    if column not in frame.gpu:
        return frame
    old = frame.gpu[column].array
    bins = old if isinstance(old, BinsArray) else BinsArray.of(frame.gpu[column])
    matrix = bins.matrix.astype(float, copy=True)
    matrix[rows] = np.nan
    return replace(frame, gpu=frame.gpu.assign(**{column: BinsArray(matrix)}))


def _metric(frame: Frame, rng: np.random.Generator) -> tuple[Frame, str]:
    metric = str(rng.choice(METRICS))
    rows, what = _scope(frame, rng)
    changed = _with_gpu(frame, rows, dict.fromkeys(_columns(frame, metric), np.nan))
    return _without_bins(changed, rows, metric), f"{metric} of {what}"


def _spoiled(value: Callable[[pd.DataFrame, str, np.random.Generator], object], name: str) -> Change:
    def change(frame: Frame, rng: np.random.Generator) -> tuple[Frame, str]:
        metric = str(rng.choice(METRICS))
        rows, what = _scope(frame, rng)
        columns = [c for c in _columns(frame, metric) if not c.endswith("_n")]
        # One draw for all columns: an exporter that repeats its last value repeats it in every statistic.
        seed = int(rng.integers(2**31))
        values = {c: value(frame.gpu, c, np.random.default_rng(seed)) for c in columns}
        changed = _with_gpu(frame, rows, values)
        return _without_bins(changed, rows, metric), f"{metric} of {what} {name}"

    return change  # type: ignore[return-value]


def _last(gpu: pd.DataFrame, column: str, rng: np.random.Generator) -> object:
    """The value of one moment, repeated from then on (before it, what it was)."""
    values = gpu[column].to_numpy(float)
    ts = gpu["ts"].to_numpy(float)
    since = rng.uniform(ts.min(), ts.max()) if len(ts) else 0.0
    mean = gpu[column.rsplit("_", 1)[0] + "_mean"] if column.rsplit("_", 1)[0] + "_mean" in gpu else gpu[column]
    held = mean.where(gpu["ts"] <= since).groupby(gpu["gpu_uuid"]).transform("last").to_numpy(float)
    return np.where(ts > since, held, values)


def _hours(frame: Frame, rng: np.random.Generator) -> tuple[Frame, str]:
    moments, what = _moments(frame, rng)
    nodes = frame.nodes["node"].tolist()
    some = nodes if rng.random() < 0.5 else [str(rng.choice(nodes))]

    def cut(rows: pd.DataFrame) -> pd.DataFrame:
        if rows.empty:
            return rows
        gone = rows["node"].isin(some).to_numpy() & moments(rows["ts"].to_numpy(float))
        return rows[~gone].reset_index(drop=True)

    where = "all nodes" if len(some) == len(nodes) else some[0]
    return replace(frame, gpu=cut(frame.gpu), fabric=cut(frame.fabric), host=cut(frame.host)), f"{what} of {where}"


def _gpu(frame: Frame, rng: np.random.Generator) -> tuple[Frame, str]:
    if frame.gpu.empty:
        return frame, "none"
    uuid = str(rng.choice(frame.gpu["gpu_uuid"].unique()))
    named = rng.random() < 0.5
    gpus = frame.gpus if named else frame.gpus[frame.gpus["gpu_uuid"] != uuid].reset_index(drop=True)
    uses = frame.uses if named else frame.uses[frame.uses["gpu_uuid"] != uuid].reset_index(drop=True)
    gpu = frame.gpu[frame.gpu["gpu_uuid"] != uuid].reset_index(drop=True)
    return replace(frame, gpu=gpu, gpus=gpus, uses=uses), f"{uuid}{' (still named)' if named else ''}"


def _node(frame: Frame, rng: np.random.Generator) -> tuple[Frame, str]:
    names = frame.nodes["node"].tolist()
    if len(names) < 2:
        return frame, "none"
    gone = str(rng.choice(names))
    return of_nodes(frame, [n for n in names if n != gone]), gone


def _exporter(frame: Frame, rng: np.random.Generator) -> tuple[Frame, str]:
    which = str(rng.choice(["fabric", "host", "gpu"]))
    table = getattr(frame, which)
    if table.empty:
        return frame, which
    everywhere = rng.random() < 0.5
    node = str(rng.choice(table["node"].unique()))
    left = table.iloc[:0] if everywhere else table[table["node"] != node].reset_index(drop=True)
    return replace(frame, **{which: left}), f"{which} of {'all nodes' if everywhere else node}"


def _ports(frame: Frame, rng: np.random.Generator) -> tuple[Frame, str]:
    if frame.fabric.empty:
        return frame, "none"
    rows = np.ones(len(frame.fabric), dtype=bool)
    what = "all ports"
    if rng.random() < 0.7:
        device = str(rng.choice(frame.fabric["device"].unique()))
        rows, what = (frame.fabric["device"] == device).to_numpy(), device
    if rng.random() < 0.5:
        return replace(frame, fabric=frame.fabric[~rows].reset_index(drop=True)), f"rows of {what}"
    fabric = frame.fabric.copy()
    column = str(rng.choice(["util", "tx_bytes_per_second", "rx_bytes_per_second", "line_rate_bytes_per_second"]))
    for name in [c for c in fabric.columns if c == column or c.startswith((f"{column}_m", f"{column}_p"))]:
        fabric.loc[rows, name] = np.nan
    return replace(frame, fabric=fabric), f"{column} of {what}"


def _labels(frame: Frame, rng: np.random.Generator) -> tuple[Frame, str]:
    which = rng.integers(4)
    if which == 0 and len(frame.workloads):
        one = str(rng.choice(frame.workloads["workload_id"]))
        uses = frame.uses[frame.uses["workload_id"] != one].reset_index(drop=True)
        return replace(frame, uses=uses), f"the uses of {one}"
    if which == 1:
        return replace(frame, uses=frame.uses.iloc[:0], workloads=frame.workloads.iloc[:0]), "all workloads"
    if which == 2 and len(frame.workloads):
        column = str(rng.choice(["namespace", "account", "user", "framework", "command", "pod"]))
        return replace(frame, workloads=frame.workloads.assign(**{column: None})), f"{column} of workloads"
    column = str(rng.choice(["region", "provider", "node_sku", "instance_type"]))
    rows = np.ones(len(frame.nodes), dtype=bool) if rng.random() < 0.5 else rng.random(len(frame.nodes)) < 0.5
    nodes = frame.nodes.copy()
    nodes.loc[rows, column] = None
    return replace(frame, nodes=nodes), f"{column} of {rows.sum()} nodes"


def _about(frame: Frame, rng: np.random.Generator) -> tuple[Frame, str]:
    column = str(rng.choice(["sku", "mem_total_bytes", "power_limit_watts", "nvlink_bytes_per_second", "gpu_index"]))
    value = None if column == "sku" else np.nan
    rows = np.ones(len(frame.gpus), dtype=bool) if rng.random() < 0.5 else rng.random(len(frame.gpus)) < 0.3
    gpus = frame.gpus.copy()
    gpus.loc[rows, column] = value
    return replace(frame, gpus=gpus), f"{column} of {rows.sum()} GPUs"


def _dynamics(frame: Frame, rng: np.random.Generator) -> tuple[Frame, str]:
    """What only fast data tell, or what an hour's mean hides."""
    endings: Sequence[str] = ("_p95", "_max", "_bins", "_correlation", "period_seconds", "period_strength", "duty")
    ending = str(rng.choice(list(endings)))
    gpu = frame.gpu.copy()
    for column in [c for c in gpu.columns if c.endswith(ending)]:
        gpu[column] = BinsArray.missing(len(gpu)) if ending == "_bins" else np.nan
    return replace(frame, gpu=gpu), f"*{ending}"


_WAYS = {
    "metric": _metric,
    "blanks": _spoiled(lambda gpu, column, rng: float(rng.choice(BLANKS)), "blank"),
    "stuck at 0": _spoiled(lambda gpu, column, rng: 0.0, "at 0"),
    "last value": _spoiled(_last, "repeated"),
    "hours": _hours,
    "GPU": _gpu,
    "node": _node,
    "exporter": _exporter,
    "ports": _ports,
    "labels": _labels,
    "about GPUs": _about,
    "dynamics": _dynamics,
}
