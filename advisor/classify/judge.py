"""The stages of judging: telemetry that cannot be believed goes; GPUs are counted; rows find their workloads; each row
is measured and labelled; each workload is judged whole and by behaviour; every GPU-hour is accounted for. A fleet is
judged in groups of whole series (`core/frame_groups.py`), so that memory does not grow with it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..core.coded_text import CodedText, coded
from ..core.column_rows import ColumnRows
from ..core.frame import Blind, Frame, blind_nodes
from ..rulebook import Rulebook
from .accounting.energy import KEYS, energy_by_place, node_power, occupancy, row_energy, token_energy
from .accounting.nodes import bare_gpus, instances, node_facts, rest_levels, resting_gpus
from .accounting.workload_verdicts import series_hours, usage_of, with_latency, workload_verdicts
from .bottlenecks.bottlenecks import label_rows
from .bottlenecks.links import lateness, links_of
from .features.rest import at_rest
from .features.soundness import examine
from .features.utilization import measures, port_traffic
from .phases.change_points import cut_pieces
from .phases.phase_verdicts import judge_phases, with_series
from .pieces import JudgementInputs, judge_pieces, pieces_of
from .types import Doubt, Verdicts
from .workloads.attribution import Attribution, attribute
from .workloads.inventory import Inventory, inventory_of, merged_inventory
from .workloads.sku_lookup import GpuIndex, index_gpus, row_parts


@dataclass(frozen=True)
class MeasuredRows:
    """`frame`: without what was not believed (`doubts`). `rows` (measures, and the bottleneck as `label`) and `parts`
    (of a GPU) stand for the rows of its `gpu`, in their order. `blind`: nodes whose GPUs cannot be read, and why."""

    frame: Frame
    inventory: Inventory
    index: GpuIndex
    rows: pd.DataFrame
    parts: npt.NDArray[np.float64]
    attribution: Attribution
    doubts: tuple[Doubt, ...]
    blind: Mapping[str, Blind]


def judge_groups(frames: Iterable[Frame], book: Rulebook, between: Callable[[], None] = lambda: None) -> Verdicts:
    """The verdicts on a fleet that is given group by group; `between`: as for `judge`."""
    verdictses: list[Verdicts] = []
    for frame in frames:
        verdicts = judge(frame, book, between)
        # Of a part of a fleet the rows in use are copied, so that the telemetry behind them is released.
        whole = frame.telemetry_span is None
        verdictses.append(verdicts if whole else replace(verdicts, usage=_compact(verdicts.usage)))
        del frame, verdicts  # not held while the next group is read
        between()
    return merged(verdictses)


def judge(frame: Frame, book: Rulebook, between: Callable[[], None] = lambda: None) -> Verdicts:
    """Everything the frame says about its workloads, nodes and GPUs. Linear in the rows of the frame. `between` is
    called where much that was made on the way is no longer needed."""
    measured = measured_rows(frame, book)
    between()
    return judge_rows(measured, book, between)


def measured_rows(frame: Frame, book: Rulebook) -> MeasuredRows:
    """The first stages: every row of telemetry believed or not, attributed, measured and labelled."""
    sound = examine(frame)
    frame = sound.frame
    blind = blind_nodes(frame.absences)
    # What was not believed was not observed either.
    counts = {name: sku.gpu_count for name, sku in book.catalog.nodes.items()}
    inventory = inventory_of(frame, counts.get, blind)
    index = index_gpus(frame, book.catalog)
    attribution = attribute(frame)
    rows, ports = measures(frame, index, port_traffic(frame, book), book)
    rows, power_doubts = at_rest(frame, index, rows, book, sound.contradicted)
    links = links_of(frame, index, rows, ports, attribution, book)
    del ports  # of a large fleet they are a tenth of all memory
    ranks = lateness(frame.gpu, rows, attribution.workload_rows, book.bottlenecks)
    rows = label_rows(frame.gpu, rows, ranks, links, book.bottlenecks)
    doubts = (*sound.doubts, *power_doubts)
    return MeasuredRows(frame, inventory, index, rows, row_parts(frame, index), attribution, doubts, blind)


def judge_rows(measured: MeasuredRows, book: Rulebook, between: Callable[[], None] = lambda: None) -> Verdicts:
    """As `judge`, of rows that are measured already, for who needs them beside the verdicts."""
    frame, inventory, index = measured.frame, measured.inventory, measured.index
    attribution, rows, parts, doubts = measured.attribution, measured.rows, measured.parts, measured.doubts
    nodes = node_facts(frame, inventory, index, attribution, rows)
    inputs = JudgementInputs.of(frame, index, rows, nodes, book)
    pieces = pieces_of(attribution)
    between()
    judged = partial(judge_pieces, inputs=inputs)
    wholes = judged(pieces)
    cuts = cut_pieces(pieces, wholes, attribution.places, inputs)
    between()
    phases = judge_phases(cuts, wholes, judged)
    hours = series_hours(attribution, frame.gpu["ts"])
    workloads = workload_verdicts(pieces, wholes, phases, parts, inputs)
    workloads = with_latency(with_series(workloads, pieces, judged), frame.serving, book.latency_classes)

    energy, floor_hours = row_energy(frame, index), book.floor_hours
    places = energy_by_place(frame, inventory, attribution, rows["idle"], parts, energy, workloads)
    return Verdicts(
        window=frame.window, workloads=tuple(workloads), nodes=nodes,
        bare=bare_gpus(frame, index, attribution, rows, parts, doubts),
        occupancy=occupancy(places, frame, inventory), energy=places,
        usage=usage_of(attribution.workload_rows, inputs), tokens=token_energy(frame, attribution, parts, energy),
        power=node_power(frame, inventory, index, energy), notes=(*frame.notes, *_notes(measured)),
        waste_ready={v.id: hours.get(v.series_id, 0.0) >= floor_hours for v in workloads},
        inventory=inventory, instances=instances(frame, attribution, index), doubts=doubts,
        rest_levels=rest_levels(frame, index, rows), resting=resting_gpus(frame, index, attribution, rows, parts),
    )  # fmt: skip


def _notes(measured: MeasuredRows) -> Iterator[CodedText]:
    unknown = "GPU {name} is not in the catalog: its sustained rates are unknown, and its recommendations are limited."
    for name in measured.index.unknown:
        yield coded("gpu-without-figures", unknown, name=name)
    for node, why in sorted(measured.blind.items()):
        # Where no count is known, nothing can be listed as not observed.
        if node in measured.inventory.nodes and measured.inventory.nodes[node].gpu_count == 0:
            said = f"GPUs of {node} cannot be read: {why.words}"
            yield CodedText("gpus-cannot-be-read", said, {"node": node, "because": why.reason})


def merged(groups: Sequence[Verdicts]) -> Verdicts:
    """The verdicts of all nodes. `groups`: of disjoint sets of nodes, over the same window; at least one."""
    if len(groups) == 1:
        return groups[0]

    def rows(name: str, key: Callable[[Any], object]) -> tuple[Any, ...]:
        return tuple(sorted((row for group in groups for row in getattr(group, name)), key=key))  # type: ignore[arg-type]

    def entries(name: str) -> dict[str, Any]:
        return {key: value for verdicts in groups for key, value in getattr(verdicts, name).items()}

    def table(name: str) -> pd.DataFrame:
        return pd.concat([t for verdicts in groups if len(t := getattr(verdicts, name))] or [getattr(groups[0], name)])

    return Verdicts(
        window=groups[0].window, workloads=rows("workloads", lambda w: (-w.gpu_hours, w.id)),
        nodes=rows("nodes", lambda node: node.node), bare=rows("bare", lambda gpu: gpu.node),
        occupancy=table("occupancy").reset_index(drop=True), usage=_joined([verdicts.usage for verdicts in groups]),
        waste_ready=entries("waste_ready"), notes=tuple(dict.fromkeys(note for v in groups for note in v.notes)),
        energy=table("energy").sort_values(KEYS, ignore_index=True), tokens=entries("tokens"), power=entries("power"),
        inventory=merged_inventory([verdicts.inventory for verdicts in groups]),
        doubts=rows("doubts", lambda doubt: (doubt.node, doubt.gpu_uuid)),
        instances=rows("instances", lambda instance: (instance.node, instance.parent_uuid, instance.gpu_uuid)),
        rest_levels=rows("rest_levels", lambda level: (level.node, level.gpu_uuid)),
        resting=rows("resting", lambda gpu: (gpu.node, gpu.gpu_uuid)),
    )  # fmt: skip


def _compact(usage: ColumnRows) -> ColumnRows:
    """The rows in use with readings in seven digits, half the memory."""
    columns = {name: usage[name] for name in (*usage.table, *usage.behind)}
    for name, column in columns.items():
        if column.dtype == np.float64 and name not in ("ts", "seconds"):
            columns[name] = _or_nothing(column.astype(np.float32))
    return ColumnRows(columns, np.arange(len(usage)))


def _joined(parts: list[ColumnRows]) -> ColumnRows:
    """All rows under one another, a column at a time; the parts' own columns are released on the way."""
    tables = [dict(part.table) for part in parts]
    count = sum(map(len, parts))
    parts.clear()
    joined = {name: _or_nothing(np.concatenate([table.pop(name) for table in tables])) for name in list(tables[0])}
    return ColumnRows(joined, np.arange(count))


def _or_nothing(column: npt.NDArray) -> npt.NDArray:
    """The column; where all of it is missing, one number for all rows: what is not exported takes no memory."""
    missing = column.dtype == np.float32 and bool(np.isnan(column).all())
    return np.broadcast_to(np.float32(np.nan), column.shape) if missing else column
