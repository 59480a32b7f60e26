"""From a frame to verdicts (their shapes are in `facts`): the one way through this room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...rules.models.kind_model import KindModel
from ...rules.policy.thresholds import Threshold, load_bottleneck_thresholds, load_kind_thresholds
from ..core.advice_types import INFERRED, BottleneckVerdict, Coverage, KindVerdict, Owner, Phase, WorkloadVerdict
from ..core.coded_text import UNSPECIFIED, CodedText, coded
from ..core.frame import Frame, parents
from ..core.records import records
from ..core.timestamps import minute, span
from ..core.unobservable import blind_nodes
from .accounting.gpu_hour_accounting import occupancy
from .accounting.instances import instances
from .accounting.nodes import bare_gpus, node_facts
from .bottlenecks.bottleneck_verdict import judge_bottleneck
from .bottlenecks.kv_cache import capacity_of, tokens_of, with_capacity
from .features.features import Columns, FlatRule, columns_of, features
from .features.inferred import inferred
from .kinds.kinds import judge_kind, shipped_model
from .measured_rows import measured_rows
from .phases.change_points import turns
from .phases.phase_verdicts import DEMANDED, Ask, Judgement, judge_phases
from .phases.series import series_hours, with_series
from .types import BareGpu, FabricFacts, NodeFacts, Verdicts
from .workloads.attribution import Attribution, Session
from .workloads.sku_lookup import GpuCatalog, GpuIndex

__all__ = ["BareGpu", "FabricFacts", "NodeFacts", "Verdicts", "judge"]

# Hours of data below which no waste is claimed (the product's floor; rules/waste states the same).
WASTE_FLOOR_HOURS = 30.0
_USAGE = (
    "c", "m", "n", "i", "p", "u_c", "u_m", "u_n", "u_p", "g", "sm", "o", "duty", "i_share", "n_share", "p_share",
    "tensor_nvlink_correlation", "tensor_fabric_correlation", "power", "clock_ratio", "idle",
    "g_max", "lost",
)  # fmt: skip
# What a verdict wants to see of a workload, the measure that shows it, and the columns it comes from.
_WANTED = {
    "gpu_util": "g",
    "sm_active": "sm",
    "tensor_active": "c",
    "dram_active": "m",
    "power_watts": "power",
    "mem_used_bytes": "mem",
}


@dataclass(frozen=True)
class _Context:
    """What is the same for all workloads of a frame."""

    frame: Frame
    index: GpuIndex
    rows: pd.DataFrame
    gpu_columns: Columns
    row_columns: Columns
    labels: pd.Series
    kinds: Mapping[str, Threshold]
    kind_model: KindModel
    facts: Mapping[str, NodeFacts]
    floor_hours: float
    dominant_share: float
    kv_full: float  # from which use of its KV cache on a service is short of memory
    series_hours: Mapping[str, float]
    shared_rows: npt.NDArray[np.bool_]
    parts: npt.NDArray[np.float64]  # of a GPU, by row
    instances: frozenset[tuple[str, str]]


def judge(
    frame: Frame,
    catalog: GpuCatalog,
    kinds: Mapping[str, Threshold] | None = None,
    bottlenecks: Mapping[str, Threshold] | None = None,
    *,
    floor_hours: float = WASTE_FLOOR_HOURS,
) -> Verdicts:
    """Everything the frame says about its workloads, nodes and GPUs.

    `kinds`, `bottlenecks`: thresholds (rules/kinds.yaml, rules/bottlenecks.yaml; the packaged ones where None).
    Linear in the rows of the frame.
    """
    kinds = kinds if kinds is not None else load_kind_thresholds()
    bottlenecks = bottlenecks if bottlenecks is not None else load_bottleneck_thresholds()
    measured = measured_rows(frame, catalog, bottlenecks)
    frame, inventory, index, rows = measured.frame, measured.inventory, measured.index, measured.rows
    labels, parts, attribution, doubts = measured.labels, measured.parts, measured.attribution, measured.doubts
    facts = node_facts(frame, inventory, index, attribution)
    dominant = bottlenecks["dominant_share_min"].value
    sessions = {session.workload_id: session for session in attribution.sessions}
    ends = frame.gpu["ts"].to_numpy(float)[attribution.mine["row"].to_numpy(int)]
    observed = series_hours(attribution.sessions, attribution.mine, ends)
    context = _Context(
        frame, index, rows, columns_of(frame.gpu), columns_of(rows), labels, kinds, shipped_model(),
        {fact.node: fact for fact in facts}, floor_hours, dominant,
        bottlenecks["capacity_kv_p95_min"].value, observed, _shared_rows(frame, attribution),
        parts, frozenset(parents(frame)),
    )  # fmt: skip
    groups = {str(k): v for k, v in attribution.mine.groupby("workload_id", sort=False)}
    empty = attribution.mine.iloc[:0]
    verdicts = [_workload(session, groups.get(session.workload_id, empty), context) for session in attribution.sessions]
    verdicts = with_series(verdicts, sessions, groups, lambda about, own: _judged(about, own, context))
    verdicts.sort(key=lambda verdict: (-verdict.gpu_hours, verdict.id))
    notes = [*frame.notes]
    notes.extend(
        coded(
            "gpu-without-figures",
            "The catalog has no GPU named {name}: what it sustains is not known, so its advice is limited.",
            name=name,
        )
        for name in index.unknown
    )
    # Where no count is known, nothing can be listed as not observed.
    notes.extend(
        CodedText(
            "gpus-cannot-be-read",
            f"The GPUs of {node} cannot be read: {why.words}",
            {"node": node, "because": why.reason},
        )
        for node, why in sorted(blind_nodes(frame.absences).items())
        if node in inventory.nodes and inventory.nodes[node].gpu_count == 0
    )
    return Verdicts(
        window=frame.window,
        workloads=tuple(verdicts),
        nodes=facts,
        bare=tuple(
            one
            for one in bare_gpus(frame, index, attribution, rows, parts, doubts=doubts)
            # Under its old name nothing of a renamed node can be given back.
            if inventory.nodes[one.node].moved_to is None
        ),
        occupancy=occupancy(frame, inventory, attribution, rows["idle"], parts),
        usage=_usage(frame, rows, labels, attribution.mine),
        waste_ready={v.id: observed.get(v.series_id, 0.0) >= floor_hours for v in verdicts},
        notes=tuple(notes),
        inventory=inventory,
        instances=instances(frame, attribution, index.sku),
        doubts=doubts,
    )


def _workload(session: Session, mine: pd.DataFrame, context: _Context) -> WorkloadVerdict:
    skus = [context.index.sku(*key) for key in session.gpus]
    names = {sku.name for sku in skus if sku is not None}

    def ask(about: Session, own: pd.DataFrame) -> Judgement:
        return _judged(about, own, context)

    whole = ask(session, mine)
    coverage = _coverage(session, mine, whole.found, context)
    whole, phases = _phases(session, mine, whole, ask, context)
    found = whole.found
    kind = _with_floor(whole.kind, session, context)
    bottleneck = _explained(whole.bottleneck, coverage)
    bottleneck = with_capacity(bottleneck, capacity_of(context.frame.serving, session.workload_id), context.kv_full)
    tokens = tokens_of(context.frame.serving, session.workload_id)
    if tokens is not None:
        found = {**found, "generated_tokens": tokens}
    own_facts = [context.facts[node] for node in session.nodes if node in context.facts]
    node_skus = {f.node_sku for f in own_facts}
    part = _part(session, mine, context)
    return WorkloadVerdict(
        id=session.workload_id,
        series_id=session.series_id,
        name=session.name,
        owner=Owner(session.team, session.user, session.account, session.namespace),
        nodes=session.nodes,
        gpus=tuple(uuid for _, uuid in session.gpus),
        gpu_sku=next(iter(names)) if len(names) == 1 and all(skus) else None,
        node_sku=next(iter(node_skus)) if len(node_skus) == 1 else None,
        start=session.start,
        end=session.end,
        gpu_hours=found.get("hours", 0.0) * part,
        cost_usd=None,
        kind=kind,
        bottleneck=bottleneck,
        phases=phases,
        coverage=coverage,
        features=found,
        basis=session.basis,
        shared=session.shared,
        gpu_part=part,
        framework=session.framework,
        command=session.command,
        scheduled=session.scheduled,
    )


def _part(session: Session, mine: pd.DataFrame, context: _Context) -> float:
    """The part of a GPU that each of its instances is, on average over its time; 1 for whole GPUs."""
    if not any(key in context.instances for key in session.gpus):
        return 1.0
    seconds = mine["seconds"].to_numpy(float)
    parts = context.parts[mine["row"].to_numpy(int)]
    return float(np.average(parts, weights=seconds)) if seconds.sum() > 0 else 1.0


def _judged(session: Session, mine: pd.DataFrame, context: _Context) -> Judgement:
    """What the judge says of these rows of a workload: all of them, or those of one phase."""
    skus = [sku for sku in (context.index.sku(*key) for key in session.gpus) if sku is not None]
    achieved = skus[0].achieved if skus and len({sku.name for sku in skus}) == 1 else None
    etas = (
        achieved.bf16_gemm if achieved and achieved.bf16_gemm else float("nan"),
        achieved.mem if achieved and achieved.mem else float("nan"),
    )
    t = context.kinds
    flat = FlatRule(*(t[name].value for name in ("mem_flat_cv_max", "mem_flat_level_min", "mem_flat_level_max")))
    found = features(session, context.frame, context.gpu_columns, context.row_columns, mine, etas=etas, flat=flat)
    own_facts = [context.facts[node] for node in session.nodes if node in context.facts]
    peaks = [f.fabric.util_p995 for f in own_facts if f.fabric and f.fabric.util_p995 is not None]
    if peaks:
        found["i_p995"] = max(peaks)
    kind = judge_kind(session, found, t, context.kind_model, _since_seen(session, mine, context))
    bottleneck = judge_bottleneck(
        context.labels, context.rows, mine, kind=kind.label, coverage=_fraction(session, mine),
        dominant=context.dominant_share,
    )  # fmt: skip
    if session.basis == INFERRED:
        kind, bottleneck = inferred(kind, bottleneck, t["abstain_below"].value)
    return Judgement(found, kind, bottleneck)


def _fraction(session: Session, mine: pd.DataFrame) -> float:
    """Share of what it held that was observed; a part of the rows is taken for as well observed as the whole."""
    observed = float(mine["seconds"].sum())
    return min(1.0, observed / session.held_seconds) if session.held_seconds > 0 else 0.0


def _since_seen(session: Session, mine: pd.DataFrame, context: _Context) -> float:
    """The same of what it held since its nodes were first observed: what was before that is no gap."""
    known = [context.facts[node].first_seen for node in session.nodes if node in context.facts]
    begin = min(known, default=session.start)
    held = session.held_seconds - max(begin - session.start, 0.0) * len(session.gpus)
    return min(1.0, float(mine["seconds"].sum()) / held) if held > 0 else 1.0


def _phases(
    session: Session, mine: pd.DataFrame, whole: Judgement, ask: Ask, context: _Context
) -> tuple[Judgement, tuple[Phase, ...]]:
    at = mine["row"].to_numpy(int)
    if not len(at):
        return whole, ()
    ts = context.frame.gpu["ts"].to_numpy(float)[at]
    labels = context.labels.to_numpy()[at]
    # What several held at once, or a row that another's time is part of, says nothing of what this one did.
    whole_row = mine["whole"].to_numpy(bool)
    blurred = context.shared_rows[at] | (~whole_row & whole_row.any())
    turned = turns(
        ts,
        mine["seconds"].to_numpy(float),
        np.where(blurred, "unknown", labels),
        _fabric_use(session, at, context),
        waits=whole.kind.label in DEMANDED,
        start=session.start,
        end=session.end,
    )
    return judge_phases(session, mine, ts, turned, whole=whole, ask=ask)


def _shared_rows(frame: Frame, attribution: Attribution) -> npt.NDArray[np.bool_]:
    """The rows in which several workloads held the GPU at once."""
    places = attribution.places
    out = np.zeros(len(frame.gpu), dtype=np.bool_)
    if not places.empty:
        out[places.loc[places["shared"].to_numpy(bool), "row"].to_numpy(int)] = True
    return out


def _fabric_use(session: Session, at: npt.NDArray[np.intp], context: _Context) -> npt.NDArray[np.float64]:
    """Per row 1 where its node's fabric is in use, 0 where silent; NaN: unknown, or others may be on the node."""
    held = Counter(node for node, uuid in session.gpus if (node, uuid) not in context.instances)
    alone = all(node in context.facts and count >= context.facts[node].gpu_count for node, count in held.items())
    i = context.rows["i"].to_numpy(float)[at]
    if not alone:
        return np.full(len(at), np.nan)
    return np.where(np.isnan(i), np.nan, i >= context.kinds["fabric_used_min"].value)


def _coverage(session: Session, mine: pd.DataFrame, found: Mapping[str, float], context: _Context) -> Coverage:
    at = mine["row"].to_numpy(int)
    missing: dict[str, CodedText] = {}
    for metric, measure in _WANTED.items():
        if np.isnan(context.rows[measure].to_numpy(float)[at]).all():
            missing[metric] = _reason(session, metric, context)
    nodes = [context.facts[node] for node in session.nodes if node in context.facts]
    unread = [
        CodedText(n.fabric.code or UNSPECIFIED, f"{n.node}: {n.fabric.reason}")
        for n in nodes
        if n.fabric and n.fabric.reason
    ]
    if unread:
        missing["fabric"] = unread[0]
    for key in session.gpus:
        sku = context.index.sku(*key)
        if sku is None:
            name = context.index.table["name"].get(key, "unknown") if len(context.index.table) else "unknown"
            missing["sku"] = coded(
                "sku-not-in-catalog",
                "The catalog has no GPU named {name}, so what it sustains is not known.",
                name=str(name),
            )
            break
        if sku.achieved.bf16_gemm is None:
            missing["u_c"] = _never_measured("compute", sku.name)
        if sku.achieved.mem is None:
            missing["u_m"] = _never_measured("bandwidth", sku.name)
    lengths = context.frame.gpu["interval_seconds"].to_numpy(float)[at]
    resolution = found.get("resolution_seconds", float(np.median(lengths)) if len(lengths) else 0.0)
    texts = {name: one.text for name, one in missing.items()}
    codes = {name: one.code for name, one in missing.items()}
    return Coverage(round(_fraction(session, mine), 4), resolution, texts, codes)


def _never_measured(what: str, sku: str) -> CodedText:
    return coded(
        "sustained-rate-unknown", "What {what} a {sku} sustains has not been measured; use is held against nothing.",
        what=what, sku=sku,
    )  # fmt: skip


def _reason(session: Session, metric: str, context: _Context) -> CodedText:
    """Why a metric is missing, as the agent noted it: in its words, by its code."""
    absences = context.frame.absences
    if not absences.empty:
        uuids = {uuid for _, uuid in session.gpus}
        own = absences[
            absences["node"].isin(session.nodes)
            & absences["metric"].isin([metric, "*"])
            & ((absences["scope"] == "source") | absences["gpu_uuid"].isin(uuids))
        ]
        for row in records(own):
            reason, detail = str(row["reason"]), row["detail"]
            return CodedText(reason, detail if isinstance(detail, str) and detail else reason)
    return coded("not-measured", "It was not measured on these GPUs, and no reason was left.")


def _with_floor(kind: KindVerdict, session: Session, context: _Context) -> KindVerdict:
    """Say from when a verdict on waste will be possible, where it is not yet. Hours of all runs of its series count."""
    hours = context.series_hours.get(session.series_id, 0.0)
    if hours >= context.floor_hours:
        return kind
    fields = {"hours": hours, "needed_hours": context.floor_hours}
    if session.last_seen < context.frame.window.end - 3600:
        floor = f"{context.floor_hours:.0f} h"
        said = CodedText(
            "ended-too-early",
            f"It ended after {span(hours * 3600)} of data: too little for a verdict on waste ({floor}).",
            fields,
        )
    elif context.frame.window.hours < context.floor_hours <= (context.frame.window.end - session.first_seen) / 3600:
        said = CodedText(
            "window-too-short",
            f"A window of {span(context.frame.window.seconds)} is too short for a verdict on waste; over "
            f"{context.floor_hours:.0f} h or more (--since) one may be possible.",
            {**fields, "window_seconds": context.frame.window.seconds},
        )
    else:
        ready = context.frame.window.end + (context.floor_hours - hours) * 3600
        said = CodedText(
            "waste-not-judged-yet",
            f"{span(hours * 3600)} of data are too little for a verdict on waste; at {context.floor_hours:.0f} h, from "
            f"{minute(ready)} on if it keeps running, one will be possible.",
            {**fields, "ready_ts": ready},
        )
    return KindVerdict(kind.label, kind.confidence, (*kind.evidence, said), kind.alternatives)


def _explained(verdict: BottleneckVerdict, coverage: Coverage) -> BottleneckVerdict:
    """Where it is unknown because something is missing, say what."""
    if verdict.label != "unknown" or not coverage.missing:
        return verdict
    said = tuple(
        CodedText(
            "metric-missing",
            f"{metric} is missing: {reason}",
            {"metric": metric, "because": coverage.missing_codes.get(metric)},
        )
        for metric, reason in coverage.missing.items()
    )
    return BottleneckVerdict(verdict.label, verdict.confidence, verdict.time_shares, (*verdict.evidence, *said))


def _usage(frame: Frame, rows: pd.DataFrame, labels: pd.Series, mine: pd.DataFrame) -> pd.DataFrame:
    at = mine["row"].to_numpy(int)
    gpu = frame.gpu
    own = rows.iloc[at]
    table = {
        "workload_id": mine["workload_id"].to_numpy(),
        "node": gpu["node"].to_numpy()[at],
        "gpu_uuid": gpu["gpu_uuid"].to_numpy()[at],
        "ts": gpu["ts"].to_numpy(float)[at],
        "seconds": mine["seconds"].to_numpy(float),
        "whole": mine["whole"].to_numpy(bool),
        "shared": mine["shared"].to_numpy(bool),
        "bottleneck": labels.to_numpy()[at],
        "mem_used_ratio": own["mem"].to_numpy(float),
        "power_watts": own["power"].to_numpy(float),
        # Work on several nodes without RDMA uses their Ethernet.
        "u_i": own["exchange"].to_numpy(float),
    }
    table.update({name: own[name].to_numpy() for name in _USAGE if name != "power"})
    return pd.DataFrame(table)
