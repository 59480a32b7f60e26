"""What every row of a GPU drew, and where every GPU-hour and joule of the window went.

A counter counts what flowed between two readings; where it missed a part of a row (first reading, reset, restart), the
rest is mean power times time. A counter that shows more than the GPU can have drawn is not believed in that row.
Without counter and power nothing is known, and that is never 0.

A node's hours run from max(window start, first seen) to the window's end. Hours without data are unobserved; hours that
a workload held without use are allocated idle and keep its id; hours without work on a node out of service are drained,
not waste.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.advice_types import Reconciliation
from ...core.energy_types import EnergyPhase
from ...core.frame import Frame
from ...core.segments import Floats
from ...core.verdict_types import Phase, WorkloadVerdict
from ..features.soundness import WATTS_MOST
from ..types import NodePower, TokenEnergy
from ..workloads.attribution import Attribution
from ..workloads.inventory import Inventory
from ..workloads.sku_lookup import GpuIndex, whole_gpus

PLACE = ["node", "gpu_uuid", "class", "workload_id"]
COLUMNS = [*PLACE, "gpu_hours"]
HOUR, DAY = 3600.0, 86400.0
# Boards exceed their limit for moments, never over a row of minutes: so much room, of the limit.
LIMIT_ROOM = 1.2
# Power that is read once a minute misses bursts; a counter beyond so many times of it belongs to another GPU, or to a
# step back that was taken for growth.
POWER_ROOM = 1.5
_COUNTS = ("gpu_util_n", "tensor_active_n", "dram_active_n", "power_watts_n", "energy_joules_n")
# `hour`: of the day, UTC. `idle`: whether the GPU stood idle. `phase`: what a workload did then (`phase_name`).
KEYS = [*PLACE, "idle", "phase", "hour"]
SUMS = ["gpu_hours", "measured_hours", "joules", "counted_joules"]
TOKENS = ("workload_id", "node", "day", "generated_tokens", "gpu_hours")
BOTH_MIN = 0.9
_WORK = ["workload_id", "hour"]
# The frameworks that generate by tokens (agent/jobs/command_line.py).
GENERATES = frozenset({"vllm", "sglang", "tensorrt-llm", "text-generation-inference"})
_HALVES: dict[str, EnergyPhase] = {"compute": "prefill", "hbm-bandwidth": "decode"}
_PHASES: dict[str, EnergyPhase] = {
    "training": "training", "fine-tuning": "training", "interactive": "interactive", "idle": "idle",
}  # fmt: skip


def occupancy(places: pd.DataFrame, frame: Frame, inventory: Inventory) -> pd.DataFrame:
    """`COLUMNS`: a node's rows sum to GPU count x span hours. `places`: what was observed (`energy_by_place`)."""
    observed = places.groupby(PLACE, dropna=False, sort=True)["gpu_hours"].sum().reset_index()
    seen = observed.groupby(["node", "gpu_uuid"])["gpu_hours"].sum().to_dict()
    totals = observed.groupby("node")["gpu_hours"].sum().to_dict()
    gpus: dict[str, list[str]] = {}
    for node, uuid in whole_gpus(frame):
        gpus.setdefault(node, []).append(uuid)
    rest: list[tuple[str, str, str, None, float]] = []
    for node, counted in inventory.nodes.items():
        missing = counted.gpu_count * counted.span_hours - totals.get(node, 0.0)
        for uuid in (*gpus.get(node, ()), ""):  # the rest is of GPUs without a name
            gap = min(max(counted.span_hours - seen.get((node, uuid), 0.0), 0.0), missing) if uuid else missing
            if gap > 1e-9:
                rest.append((node, uuid, "unobserved", None, gap))
                missing -= gap
    tables = [table for table in (observed, pd.DataFrame(rest, columns=COLUMNS)) if not table.empty]
    return pd.concat(tables, ignore_index=True)[COLUMNS] if tables else pd.DataFrame(columns=COLUMNS)


def hours_by_use(occupancy: pd.DataFrame) -> Reconciliation:
    """Where the GPU-hours of all nodes went; the parts sum to the total."""
    hours = occupancy.groupby("class")["gpu_hours"].sum()
    uses = ("workload", "shared", "allocated_idle", "unallocated", "drained", "unobserved")
    return Reconciliation(*(float(hours.get(use, 0.0)) for use in uses), total=float(hours.sum()))


def placed_rows(frame: Frame, attribution: Attribution, idle: pd.Series, parts: Floats) -> pd.DataFrame:
    """Every observed moment once: `COLUMNS`, whether it stood ``idle``, and its ``row`` in the frame's `gpu`; instances
    under their GPU. `idle`, `parts`: of every row, whether the GPU stood idle, and the part of a GPU whose hours it
    stands for (`mig.row_parts`)."""
    places, keys = attribution.places, frame.gpu_keys
    nodes, names = keys.nodes()
    under, physical = [frame.parents.get(key, key) for key in keys.keys], whole_gpus(frame)
    is_physical = np.array([uuid in physical for uuid in under], dtype=np.bool_)
    gpus = np.array([uuid for _, uuid in under], dtype=object)
    at = places["row"].to_numpy(int)
    hours = places["seconds"].to_numpy(float) * parts[at] / 3600
    counted = is_physical[keys.number[at]] & (hours > 0)
    places, at = places[counted], at[counted]
    owned, still = places["workload_id"].notna().to_numpy(), idle.to_numpy(bool)[at]
    states = [places["shared"].to_numpy(bool), places["drained"].to_numpy(bool), owned & still, owned]
    uses = np.array(["shared", "drained", "allocated_idle", "workload", "unallocated"], dtype=object)
    return pd.DataFrame(
        {
            "node": names[nodes[at]], "gpu_uuid": gpus[keys.number[at]],
            "class": uses[np.select(states, [0, 1, 2, 3], default=4)],
            "workload_id": places["workload_id"].to_numpy(), "gpu_hours": hours[counted], "idle": still, "row": at,
        }
    )  # fmt: skip


def row_energy(frame: Frame, index: GpuIndex) -> pd.DataFrame:
    """Of every row of the frame's `gpu`: ``watts``, mean power over what was measured of it (NaN: nothing);
    ``measured``, that as a share of its observed time; ``counted``, of its energy the share that a counter measured. A
    MIG instance has no counter: its row has its GPU's power."""
    gpu = frame.gpu
    row_power = of_rows(gpu["observed_seconds"].to_numpy(float), gpu, index["power_limit"].to_numpy(float))
    keys = frame.gpu_keys
    cut = keys.among(frame.parents)
    if not cut.any():
        return row_power
    number = {key: n for n, key in enumerate(keys.keys)}
    whole = np.array([number.get(frame.parents.get(key, key), -1) for key in keys.keys])[keys.number]
    moment = pd.MultiIndex.from_arrays([whole, gpu["ts"], gpu["interval_seconds"]])
    uncut = row_power[~cut].set_axis(moment[~cut])
    row_power.loc[cut] = uncut[~uncut.index.duplicated()].reindex(moment[cut]).to_numpy()
    return row_power.fillna({"measured": 0.0, "counted": 0.0})


def of_rows(seconds: Floats, gpu: pd.DataFrame, limit_watts: Floats) -> pd.DataFrame:
    """Columns as of `row_energy`. `seconds`: observed; `gpu`: the frame's; `limit_watts`: NaN: not known."""
    power, samples = gpu["power_watts_mean"].to_numpy(float), gpu["energy_joules_n"].to_numpy(float)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # All in watts over the row's time: a product with seconds and its division lose digits where seconds are tiny.
        counter = gpu["energy_joules_mean"].to_numpy(float) * samples / seconds
        every = np.fmax.reduce([gpu[name].to_numpy(float) for name in _COUNTS])
        # A counter that steps more rarely than it is read covers more than its samples: as long as it took at that
        # power.
        covered = np.fmin(np.fmax(samples / every, np.where(power > 0, counter / power, 0.0)), 1.0)
        most = np.where(limit_watts > 0, LIMIT_ROOM * limit_watts, WATTS_MOST) * covered
        counted = (counter > 0) & (seconds > 0) & (counter <= most) & ~(counter > POWER_ROOM * power)
        covered = np.where(counted, covered, 0.0)
        powered = np.isfinite(power) & (power > 0) & (seconds > 0)
        by_counter = np.where(counted, counter, 0.0)
        total = by_counter + np.where(powered, power * (1.0 - covered), 0.0)
        measured = np.where(powered, 1.0, covered)
        watts = np.where(measured > 0, total / measured, np.nan)
        share = np.where(total > 0, by_counter / total, 0.0)
    return pd.DataFrame({"watts": watts, "measured": measured, "counted": share})


def energy_by_place(  # noqa: PLR0917
    frame: Frame, inventory: Inventory, attribution: Attribution, idle: pd.Series, parts: Floats,
    energy: pd.DataFrame, workloads: Sequence[WorkloadVerdict],
) -> pd.DataFrame:  # fmt: skip
    """`KEYS` and `SUMS`: what was observed and measured of each GPU, use, workload, phase and hour of the day. `joules`
    is of `measured_hours`, and of them `counted_joules` by a counter. Where more was observed than a node's span holds
    (a replaced GPU), all of it is scaled down. `idle`, `parts`: as of `placed_rows`; `energy`: of `row_energy`."""
    watts, measured, counted = (energy[name].to_numpy() for name in ("watts", "measured", "counted"))
    table = placed_rows(frame, attribution, idle, parts)
    at = table["row"].to_numpy(int)
    middle = (frame.gpu["ts"] - frame.gpu["interval_seconds"] / 2).to_numpy(float)[at]
    phase = phases_of_rows(table["workload_id"], middle, table["idle"].to_numpy(bool), {w.id: w for w in workloads})
    hours = table["gpu_hours"].to_numpy() * measured[at]
    joules = np.where(measured[at] > 0, watts[at], 0.0) * hours * HOUR
    table = table.assign(
        hour=(middle // HOUR % 24).astype(int), phase=phase, measured_hours=hours, joules=joules,
        counted_joules=joules * counted[at],
    )  # fmt: skip
    table = table.groupby(KEYS, dropna=False)[SUMS].sum().reset_index()
    held = {name: node.gpu_count * node.span_hours for name, node in inventory.nodes.items()}
    scale = table["node"].map(held).astype(float) / table.groupby("node")["gpu_hours"].transform("sum")
    if (scale < 1).any():
        table[SUMS] = table[SUMS].mul(scale.fillna(1.0).clip(upper=1.0), axis=0)
    return table


def phase_name(phase: Phase, *, generates: bool) -> EnergyPhase:
    """What a phase of a verdict is called. `generates`: the workload runs an engine for language models: then prefill
    where computing limits it, and decode where memory bandwidth does. Other inference is not distinguished."""
    if any(reason.code == "evaluates" for reason in phase.evidence):
        return "evaluation"
    if phase.kind in ("online-inference", "batch-inference"):
        return _HALVES.get(phase.bottleneck, "inference") if generates else "inference"
    return _PHASES.get(phase.kind, "not-told")


def phases_of_rows(
    workload_ids: pd.Series, middle: Floats, idle: npt.NDArray[np.bool_], workloads: Mapping[str, WorkloadVerdict]
) -> npt.NDArray[np.object_]:
    """The phase of every row by the middle of its time (Unix seconds); "" where it is no workload's. `workloads`: by
    id. A row at rest is idle, whatever the phase around it; one between phases has none."""
    out = np.full(len(workload_ids), "", dtype=object)
    for key, at in workload_ids.reset_index(drop=True).groupby(workload_ids.to_numpy(), sort=False).indices.items():
        w = workloads.get(str(key))
        phases = sorted(w.phases, key=lambda phase: phase.start) if w is not None else []
        generates = w is not None and (w.framework in GENERATES or "generated_tokens" in w.features)
        names = np.array([*(phase_name(phase, generates=generates) for phase in phases), "not-told"], dtype=object)
        place = np.searchsorted([phase.start for phase in phases], middle[at], side="right") - 1
        ends = np.array([*(phase.end for phase in phases), -np.inf])
        out[at] = names[np.where(middle[at] <= ends[place], place, len(phases))]
        out[at[idle[at]]] = "idle"
    return out


def node_power(frame: Frame, inventory: Inventory, index: GpuIndex, energy: pd.DataFrame) -> Mapping[str, NodePower]:
    """What the GPUs of each node of the inventory drew together, against what they are rated for. An interval counts
    where each GPU that the node has was measured in it: what is missing would make the node look lighter than it is."""
    keys, gpu = frame.gpu_keys, frame.gpu
    whole = whole_gpus(frame)
    limit_of = index.table["power_limit"].to_dict()
    limits: dict[str, list[float]] = {}
    for key in whole:
        limits.setdefault(key[0], []).append(limit_of.get(key, np.nan))
    measured = np.flatnonzero(~np.isnan(energy["watts"].to_numpy()) & keys.among(whole))
    nodes, names = keys.nodes()
    rows = pd.DataFrame(
        {
            "node": nodes[measured], "ts": gpu["ts"].to_numpy(float)[measured],
            "seconds": gpu["interval_seconds"].to_numpy(float)[measured], "gpu": keys.number[measured],
            "watts": energy["watts"].to_numpy()[measured],
        }
    )  # fmt: skip
    # A GPU that has two rows for one interval is one GPU.
    rows["gpus"] = ~rows.duplicated(["node", "ts", "seconds", "gpu"])
    moments = rows.groupby(["node", "ts", "seconds"])[["watts", "gpus"]].sum().reset_index()
    moments = moments.sort_values(["node", "watts"], kind="stable")
    place, drawn, gpus, lengths = (moments[name].to_numpy() for name in ("node", "watts", "gpus", "seconds"))
    number, out = {str(name): n for n, name in enumerate(names)}, {}
    for node, counted in inventory.nodes.items():
        node_limits, n = limits.get(node, []), number.get(node, len(names))
        complete = len(node_limits) == counted.gpu_count > 0 and not np.isnan(node_limits).any()
        rated = float(sum(node_limits)) if complete else None
        at = np.arange(*np.searchsorted(place, [n, n + 1]))
        at = at[gpus[at] >= counted.gpu_count]
        watts, seconds = drawn[at], lengths[at]
        if not len(at) or counted.gpu_count <= 0:
            out[node] = NodePower(None, None, None, rated, None)
            continue
        passed = np.cumsum(seconds)
        p95 = watts[np.searchsorted(passed, 0.95 * passed[-1])]
        mean = np.average(watts, weights=seconds)
        out[node] = NodePower(float(mean), float(p95), float(watts[-1]), rated, float(seconds.max()))
    return out


def token_energy(frame: Frame, attribution: Attribution, parts: Floats, energy: pd.DataFrame) -> dict[str, TokenEnergy]:
    """Workload -> what it generated and drew, without those whose engines reported nothing, or in no hour enough."""
    rows = _counted_rows(frame, attribution, parts, energy["measured"].to_numpy(), np.nan_to_num(energy["watts"]))
    hours = rows.groupby(_WORK).agg({"generated_tokens": "sum", "joules": "sum", "wall": "max"})
    return {
        str(key): TokenEnergy(float(tokens), float(joules), float(wall) / HOUR)
        for key, tokens, joules, wall in hours.groupby(level=0).sum().itertuples()
        if tokens > 0 and joules > 0
    }


def token_hours(frame: Frame, attribution: Attribution, parts: Floats) -> pd.DataFrame:
    """`TOKENS`: of each workload whose engines reported tokens, by node and day (its beginning, Unix seconds). A node
    whose engine does not report has GPU-hours and no tokens. Workloads of which no hour counts are left out."""
    rows = _counted_rows(frame, attribution, parts, np.ones(len(frame.gpu)), np.zeros(len(frame.gpu)))
    rows["gpu_hours"] = rows["measured"] / HOUR
    return rows.groupby(list(TOKENS[:3]), sort=True)[list(TOKENS[3:])].sum().reset_index()


def _counted_rows(
    frame: Frame, attribution: Attribution, parts: Floats, measured: Floats, watts: Floats
) -> pd.DataFrame:
    """Of the hours that count, ``workload_id, hour, node, day``: what engines reported (``generated_tokens``), what was
    the workload's alone (``measured`` GPU-seconds and their ``joules``), and ``wall``, the hour's seconds. `parts`,
    `measured`, `watts`: of every row of the frame's `gpu`. An hour counts where engines reported, and the GPUs were the
    workload's alone and measured, for nine tenths of it."""
    gpu, tokens = frame.gpu, frame.tokens
    tokens = tokens[tokens["generated_tokens"].notna()] if not tokens.empty else tokens
    if tokens.empty:
        return pd.DataFrame(columns=[*TOKENS[:4], "hour", "measured", "joules", "wall"], dtype=float)
    ids = set(tokens["workload_id"].astype(str))
    # Rows of some servers are longer than an hour, and so are the moments of their tokens.
    step = np.fmax(HOUR, gpu["interval_seconds"].max())

    def hour_of(ts: pd.Series) -> Floats:
        return np.ceil(ts.to_numpy(float) / step - 1e-9)

    def rows_of(table: pd.DataFrame) -> tuple[pd.DataFrame, npt.NDArray[np.intp]]:
        chosen = table[table["workload_id"].isin(ids)]
        at = chosen["row"].to_numpy(np.intp)
        rows = {"workload_id": chosen["workload_id"].astype(str), "ts": gpu["ts"].to_numpy(float)[at]}
        rows |= {"node": gpu["node"].astype(str).to_numpy()[at], "seconds": chosen["seconds"].to_numpy(float)}
        return pd.DataFrame({**rows, "hour": hour_of(gpu["ts"])[at]}), at

    held, at = rows_of(attribution.workload_rows)
    # The GPUs of a moment have as many rows with its end: the longest of them is how long it was.
    moments = held.assign(held=held["seconds"] * parts[at]).groupby([*_WORK, "ts"])
    hours = moments.agg(held=("held", "sum"), wall=("seconds", "max")).groupby(level=_WORK).sum()
    row_places, at = rows_of(attribution.places)
    row_places["measured"] = row_places["seconds"] * parts[at] * measured[at]
    row_places["joules"] = row_places["measured"] * watts[at]
    tokens = tokens.assign(workload_id=tokens["workload_id"].astype(str), node=tokens["node"].astype(str))
    tokens["hour"] = hour_of(tokens["ts"])
    engines = tokens[["workload_id", "node", "engine"]].drop_duplicates().groupby("workload_id").size()
    hours["engines"] = engines.reindex(hours.index.get_level_values(0)).to_numpy(float)
    hours["told"] = tokens.groupby(_WORK)["seconds"].sum()
    hours["alone"] = row_places.groupby(_WORK)["measured"].sum()
    good = hours["told"] >= BOTH_MIN * hours["engines"] * hours["wall"]
    good &= hours["alone"] >= BOTH_MIN * hours["held"]
    rows = pd.concat([tokens.reindex(columns=[*_WORK, "node", "generated_tokens"]), row_places])
    rows = rows.join(hours.loc[good, ["wall"]], on=_WORK, how="inner")
    # The hour's middle, so that one which ends at midnight is of the day before.
    day = np.floor((rows["hour"].to_numpy(float) - 0.5) * step / DAY) * DAY
    return rows.assign(day=day).fillna({"generated_tokens": 0.0, "measured": 0.0, "joules": 0.0})
