"""The line of judging: each stage takes what those before it made, and hands on a table of its own.

Telemetry that cannot be believed goes; GPUs are counted; rows find their workloads; each row is measured and labelled;
each workload is judged by its rows, whole and behaviour by behaviour; every GPU-hour is accounted for.
"""

from __future__ import annotations

from collections.abc import Callable

from ..core.coded_text import CodedText, coded
from ..core.frame import Frame
from ..rulebook import Rulebook
from .accounting.bare_gpus import bare_gpus
from .accounting.energy_accounting import energy_by_place
from .accounting.gpu_hour_accounting import occupancy
from .accounting.instances import instances
from .accounting.latency import with_latency
from .accounting.measured_energy import row_energy
from .accounting.node_power import node_power
from .accounting.nodes import node_facts
from .accounting.rest_levels import rest_levels
from .accounting.token_energy import token_energy
from .accounting.workload_verdicts import series_hours, usage_of, workload_verdicts
from .bottlenecks.judgement import JudgementInputs, judge_pieces, pieces_of
from .measured_rows import MeasuredRows, measured_rows
from .phases.change_points import cut_pieces
from .phases.phase_verdicts import judge_phases
from .phases.series import short_runs, with_series
from .types import Verdicts


def judge(frame: Frame, book: Rulebook, between: Callable[[], None] = lambda: None) -> Verdicts:
    """Everything the frame says about its workloads, nodes and GPUs. Linear in the rows of the frame. `between` is
    called where much that was made on the way is no longer needed."""
    measured = measured_rows(frame, book)
    between()
    return judge_rows(measured, book, between)


def judge_rows(measured: MeasuredRows, book: Rulebook, between: Callable[[], None] = lambda: None) -> Verdicts:
    """The same of rows that are measured already, for who needs them beside the verdicts."""
    frame, inventory, index = measured.frame, measured.inventory, measured.index
    attribution, rows, parts, doubts = measured.attribution, measured.rows, measured.parts, measured.doubts
    workload_rows, places = attribution.workload_rows, attribution.places
    nodes = node_facts(frame, inventory, index, attribution, rows)

    inputs = JudgementInputs.of(frame, index, rows, nodes, book)
    pieces = pieces_of(attribution)
    between()
    wholes = judge_pieces(pieces, inputs)
    cuts = cut_pieces(pieces, wholes, places, inputs)
    between()
    phases = judge_phases(cuts, wholes, judge_pieces((p for cut in cuts for p in cut.pieces.values()), inputs))
    hours = series_hours(attribution, frame.gpu["ts"])
    workloads = workload_verdicts(pieces, wholes, phases, parts, hours, inputs)
    runs = short_runs(workloads, pieces)
    workloads = with_series(workloads, runs, judge_pieces((r.piece for r in runs if r.piece is not None), inputs))

    workloads = with_latency(workloads, frame.serving, book.latency_classes)
    energy = row_energy(frame, index)

    notes = list(frame.notes)
    notes.extend(
        coded(
            "gpu-without-figures",
            "GPU {name} is not in the catalog: its sustained rates are unknown, and its recommendations are limited.",
            name=name,
        )
        for name in index.unknown
    )
    # Where no count is known, nothing can be listed as not observed.
    notes.extend(
        CodedText(
            "gpus-cannot-be-read", f"GPUs of {node} cannot be read: {why.words}", {"node": node, "because": why.reason}
        )
        for node, why in sorted(measured.blind.items())
        if node in inventory.nodes and inventory.nodes[node].gpu_count == 0
    )
    return Verdicts(
        window=frame.window,
        workloads=tuple(workloads),
        nodes=nodes,
        bare=bare_gpus(frame, index, attribution, rows, parts, doubts=doubts),
        occupancy=occupancy(frame, inventory, attribution, rows["idle"], parts),
        usage=usage_of(workload_rows, inputs),
        energy=energy_by_place(frame, inventory, attribution, rows["idle"], parts, energy, workloads),
        tokens=token_energy(frame, attribution, parts, energy),
        power=node_power(frame, inventory, index, energy),
        waste_ready={v.id: hours.get(v.series_id, 0.0) >= book.floor_hours for v in workloads},
        notes=tuple(notes),
        inventory=inventory,
        instances=instances(frame, attribution, index),
        doubts=doubts,
        rest_levels=rest_levels(frame, index, rows),
    )
