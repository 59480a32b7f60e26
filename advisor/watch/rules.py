"""The rules of the watch: a reading of the last hours in, what is certain of it out. Pure: the same reading gives the
same sightings."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from ..core.advice_types import Evidence, Severity
from ..core.formatting import counted
from ..core.incident_types import Mask, Recent, Sighting, Subject, WatchPass
from ..core.timestamps import minute, rfc3339, span
from .fleet import HOUR, MINUTE, Criteria, WatchedFleet, rests, who
from .signs import low_level


def evaluate(recent: Recent, criteria: Criteria) -> WatchPass:
    """Everything that is certain of a reading."""
    fleet = WatchedFleet(recent, criteria)
    gpus, holds, newest = fleet.gpus, fleet.holds, fleet.spans.since(fleet.end - fleet.rules.gap_minutes * MINUTE)

    def keys(chosen: Mask) -> frozenset[str]:
        return frozenset(f"workload:{recent.holds[n].workload_id}" for n in np.flatnonzero(chosen))

    every = keys(np.ones(len(recent.holds), dtype=np.bool_))
    if fleet.is_stale:
        return WatchPass(recent.now, fleet.end, tuple(find_silent(fleet)), every, notes=recent.notes)
    sightings = [s for find in (find_stopped, find_held_idle, find_silent_fabric, find_fault_clock, find_silent)
                 for s in find(fleet)]  # fmt: skip
    # A job that stopped is not held idle as well: it is one fault, and its hours and dollars count once.
    stopped = {s.subject.key for s in sightings if s.kind == "stopped"}
    once = {s.id: s for s in sightings if not (s.kind == "held-idle" and s.subject.key in stopped)}
    dearest = sorted(once.values(), key=lambda s: (-(s.cost_usd or 0.0), -s.gpu_hours, s.id))
    # What cannot be judged: its newest spans are missing or contradict.
    is_dark = np.logical_not((gpus.work | gpus.rest | gpus.spin)[:, newest].any(axis=1))
    dark = keys(np.logical_not((holds.work | holds.rest | holds.stall)[:, newest].any(axis=1))) | {
        f"gpu:{gpu.node}/{gpu.uuid}"
        for n, gpu in enumerate(recent.gpus)
        if is_dark[n] and gpu.node in fleet.fresh and gpu.last_seen is not None
    }
    # The same without progress: after a gap in the data an idle time is counted again, and what was open before it
    # stays as it is until there is work or the limit is reached again.
    newest = fleet.spans.since(fleet.end - fleet.rules.stall_minutes * MINUTE)
    undecided = keys(np.logical_not(holds.progress[:, newest].any(axis=1)))
    return WatchPass(
        recent.now, fleet.end, tuple(dearest), dark | undecided, fleet.fresh, len(recent.holds), recent.notes, every,
        len(dark),
    )  # fmt: skip


# From so many GPUs on an incident is a large one.
_MANY_GPUS = 8
_HELD, _LIMIT = "{gpus} held idle for {least}{lasted} by {who}.", "The limit is {limit}."
_HELD_TEXTS = {
    "no-process": f"{_HELD} No process has touched them since they were allocated. {_LIMIT}",
    "never-worked": f"{_HELD} They have not been used since the workload started. {_LIMIT}",
    "no-work-in-view": f"{_HELD} No activity in the data since {{since}}. {_LIMIT}",
    "worked-before": f"{_HELD} Last activity: {{last}}. {_LIMIT}",
}
_RELEASE = {
    "job": "Cancel the job or end its process if the work is done.",
    "notebook": "Shut down the kernel or the notebook server if it is not needed any more.",
    "service": "Scale the service down, or to zero, if no requests are expected.",
    "process": "End the process if the work is done.",
    "allocation": "Cancel the allocation: no process uses its GPUs.",
}


def find_held_idle(fleet: WatchedFleet) -> Iterator[Sighting]:
    """Workloads at rest for longer than their holder's kind may."""
    for n, rest in rests(fleet).items():
        hold, last, idle = fleet.recent.holds[n], rest.last_work, fleet.end - rest.since
        # An allocation of which no process ever held memory is one without a process, whatever its job is named.
        is_empty = hold.basis == "allocation" and rest.free and last is None and rest.in_view
        holder = "allocation" if is_empty else hold.holder
        limit = fleet.criteria.limits(holder)
        if idle < limit:
            continue
        code = "no-process" if is_empty else "never-worked" if rest.in_view else "no-work-in-view"
        code = code if last is None else "worked-before"
        subject, worked = fleet.subject_of(hold, holder), [] if last is None else [rfc3339(last)]
        yield fleet.sighting(
            "held-idle", code, subject, _HELD_TEXTS[code], (f"{holder}-release", _RELEASE[holder]), since=rest.since,
            severity="high" if subject.gpu_count >= _MANY_GPUS else "medium", last_work=last, gpus=hold.gpus,
            wasted_seconds=rest.idle_seconds, evidence=(
                Evidence("idle", idle / MINUTE, limit / MINUTE, "minutes"),
                Evidence("idle_observed", rest.idle_seconds / idle, fleet.rules.observed_min, "ratio"),
                *(Evidence("last_work", at, None, "time (UTC)") for at in worked),
                *([Evidence("requests_waiting", 0.0, None, "requests")] if hold.engine else []),
            ), limit=span(limit), least="at least " if rest.at_least else "",
            last=None if last is None else minute(last),
        )  # fmt: skip


# Share of the stall in which ranks must spin for it to be called a spin.
_SPIN_SHARE = 0.5
# Work before the stall must fill this share of the time since it began: intermittent work has no pattern.
_DUTY_MIN = 0.5
# A job of one GPU has no collective to hang in, and is more often a batch between two pieces, unless it has worked for
# hours without a pause.
_ALONE_TIMES = 2.5
_STEADY_ALONE_TIMES, _STEADY_SECONDS, _STEADY_DUTY, _STEADY_PAUSE_SECONDS = 1.375, 2 * HOUR, 0.95, 120.0
_FABRIC_ALIVE = 0.01
_STOPPED = "{first_who} stopped working {lasted} ago on {gpus}: its GPUs"
_STOPPED_TEXTS = {
    "pattern-ended": f"{_STOPPED} rest and its hosts are quiet. Last progress: {{since}}.",
    "collectives-spin": f"{_STOPPED} run a kernel that neither computes nor moves data, as ranks do that wait in a "
    "collective. Last progress: {since}.",
}
_CHECK_STOP = "Check the newest lines of its log and its stacks (py-spy dump) on {node}. Restart it if it hangs."


def find_stopped(fleet: WatchedFleet) -> Iterator[Sighting]:
    """Jobs that have made no progress for longer than any pause of theirs: their pattern ended, or their ranks spin in
    a collective. Hosts at work make it a pause: a checkpoint writes, an evaluation computes, a download receives."""
    spans, holds, rules, end = fleet.spans, fleet.holds, fleet.rules, fleet.end
    for n, hold in enumerate(fleet.recent.holds):
        is_job, at = hold.holder == "job", np.flatnonzero(holds.progress[n])
        may_stop = (is_job or (hold.holder == "process" and len(hold.gpus) > 1)) and not hold.shared
        if not may_stop or not len(at) or not fleet.is_fresh(hold):
            continue
        ends, seconds = spans.ends[at], spans.seconds[at]
        since, lasted, worked = float(ends[-1]), float(ends[-1] - ends[0] + seconds[0]), float(seconds.sum())
        # In longer spans a pause may have been half a span longer.
        pauses = np.diff(ends) - seconds[1:]
        pauses += np.where((pauses > 1.0) & (seconds[1:] > MINUTE), 0.5 * seconds[1:], 0.0)
        pause = float(pauses.max(initial=0.0))
        least = rules.stall_minutes if holds.host_known[n] else rules.blind_stall_minutes
        if len(hold.gpus) == 1:
            is_steady = worked >= max(_STEADY_SECONDS, _STEADY_DUTY * lasted) and pause <= _STEADY_PAUSE_SECONDS
            least = max(rules.stall_minutes * _STEADY_ALONE_TIMES, least) if is_steady else least * _ALONE_TIMES
        needed, after, lost = max(least * MINUTE, rules.stall_times * pause), spans.since(since), end - since
        alive = spans.ends[holds.progress[n] | holds.host[n] | (holds.fabric[n] >= _FABRIC_ALIVE)][-1]
        observed, spun = (float(spans.seconds[mask[n] & after].sum()) for mask in (holds.stall, holds.spin))
        spins = spun >= _SPIN_SHARE * lost
        has_worked = worked >= max(rules.worked_minutes * MINUTE, _DUTY_MIN * lasted)
        has_ended = lost >= needed and end - alive >= least * MINUTE
        is_observed = observed >= rules.observed_min * lost - 2 * MINUTE
        # What is not known to be a job may serve requests, and rests when none come.
        if not has_worked or not has_ended or not is_observed or not (spins or is_job):
            continue
        subject, code = fleet.subject_of(hold), "collectives-spin" if spins else "pattern-ended"
        yield fleet.sighting(
            "stopped", code, subject, _STOPPED_TEXTS[code], ("stop-check", _CHECK_STOP), since=since, last_work=since,
            severity="high" if len(hold.gpus) > 1 else "medium", wasted_seconds=lost, gpus=hold.gpus, evidence=(
                Evidence("no_progress", lost / MINUTE, needed / MINUTE, "minutes"),
                Evidence("last_work", rfc3339(since), None, "time (UTC)"),
                Evidence("longest_pause_before", pause / MINUTE, None, "minutes"),
            ), first_who=who(subject)[:1].upper() + who(subject)[1:],
        )  # fmt: skip


_USED_SPANS_MIN = 10
_SILENT_FABRIC = (
    "The fabric under {who} on {gpus} has carried nothing for {lasted}, since {since}; it usually carries {usual:.0%} "
    "of line rate. The GPUs still work."
)
_CHECK_FABRIC = "Check the ports (ibstat) and NCCL's log: it may have fallen back to TCP, or the ranks work apart."


def find_silent_fabric(fleet: WatchedFleet) -> Iterator[Sighting]:
    """Jobs on several nodes whose fabric fell silent while their GPUs work."""
    spans, rules = fleet.spans, fleet.rules
    newest = spans.since(spans.end - rules.fabric_minutes * MINUTE)
    for n, hold in enumerate(fleet.recent.holds):
        nodes = {fleet.recent.gpus[gpu].node for gpu in hold.gpus}
        if len(nodes) < 2 or hold.holder not in ("job", "process") or not fleet.is_fresh(hold):
            continue
        share, progress = fleet.holds.fabric[n], fleet.holds.progress[n]
        at = np.flatnonzero((share > rules.fabric_silent_max) & spans.since(hold.since))
        is_silent = (progress & (share <= rules.fabric_silent_max))[newest].all()
        usual = float(np.median(share[at])) if len(at) >= _USED_SPANS_MIN else 0.0
        if not is_silent or usual < rules.fabric_used_min:
            continue
        rows = [row for row, node in enumerate(fleet.recent.nodes) if node.node in nodes]
        active = float(np.nanmin(fleet.recent.node["fabric_up"][rows][:, newest], initial=1.0))
        code, more = ("port-down", " A port of its nodes is not active.") if active < 1.0 else ("fabric-silent", "")
        yield fleet.sighting(
            "fabric-silent", code, fleet.subject_of(hold), _SILENT_FABRIC + more, ("fabric-check", _CHECK_FABRIC),
            severity="high", since=float(spans.ends[at[-1]]), last_work=fleet.end, gpus=hold.gpus, usual=usual,
            evidence=(
                Evidence("fabric", float(np.mean(share[newest])), rules.fabric_silent_max, "ratio of line rate"),
                Evidence("fabric_usual", usual, None, "ratio of line rate"),
                Evidence("ports_active", active, 1.0, "ratio"),
            ),
        )  # fmt: skip


_BUSY_ENGINE, _USUAL = 0.5, 0.9
# Busy spans of the newest minutes that must show it.
_SLOW_SHARE = 0.8
_PEERS_MIN = 4
_HERTZ = 1e6
_SLOW = "{name} has been busy at {clock:.0f} MHz for {lasted} (since {since}), "
_THAN = " Its usual clock under load is {usual:.0f} MHz."
_SLOW_TEXTS = {
    "slowdown-throttle": f"{_SLOW}with a hardware slowdown reported.{_THAN}",
    "clock-stuck-low": f"{_SLOW}without a throttle reason that explains it.{_THAN}",
}
_CHECK_CLOCK = "Check power, cooling and 'nvidia-smi -q -d PERFORMANCE' on {node}. Drain it if a reset does not help."


def find_fault_clock(fleet: WatchedFleet) -> Iterator[Sighting]:
    """GPUs that have been busy for the newest minutes at a clock that only a fault explains: a hardware slowdown, a
    power brake, a clock that is stuck."""
    recent, spans, rules, gpu = fleet.recent, fleet.spans, fleet.rules, fleet.recent.gpu
    clock, busy = gpu["sm_clock_hertz"], (fleet.gpus.work | fleet.gpus.spin) & (gpu["engine"] >= _BUSY_ENGINE)
    newest = spans.since(spans.end - rules.fault_minutes * MINUTE)
    running = busy & newest
    is_running = running.sum(axis=1) >= _SLOW_SHARE * newest.sum()
    now = pd.Series(low_level(clock, 0.5, running)).where(is_running)
    throttled = (gpu["throttled"] >= rules.fault_throttled_min) & running
    is_throttled = throttled.sum(axis=1) >= _SLOW_SHARE * running.sum(axis=1)
    of_sku = now.groupby([g.sku or g.uuid for g in recent.gpus])
    peers = of_sku.transform("median").where(of_sku.transform("count") > _PEERS_MIN)
    usual = np.fmax(low_level(clock, _USUAL, busy & ~newest), peers)
    # What was set on purpose is set for all GPUs of a workload, or of a node.
    workload = {n: hold.workload_id for hold in recent.holds for n in hold.gpus}
    others = now.groupby([workload.get(n, g.node) for n, g in enumerate(recent.gpus)]).transform("median")
    # NaN, an unknown clock, is not slow.
    limit = rules.fault_clock_share_max * usual
    slow = (now <= limit) & (is_throttled | (now <= rules.fault_clock_share_max * others))
    for n in map(int, np.flatnonzero(slow)):
        if recent.gpus[n].node not in fleet.fresh or recent.gpus[n].part < 1:
            continue
        code, most = "slowdown-throttle" if is_throttled[n] else "clock-stuck-low", float(limit[n])
        since = spans.last_end(busy[n] & (clock[n] > most))
        yield fleet.sighting(
            "fault-clock", code, fleet.gpu_subject(n), _SLOW_TEXTS[code], ("clock-check", _CHECK_CLOCK),
            severity="high", since=since, gpus=(n,), wasted_seconds=float(1 - now[n] / usual[n]) * (fleet.end - since),
            evidence=(
                Evidence("sm_clock", float(now[n]) / _HERTZ, most / _HERTZ, "MHz"),
                Evidence("usual_clock", float(usual[n]) / _HERTZ, None, "MHz"),
            ), clock=float(now[n]) / _HERTZ, usual=float(usual[n]) / _HERTZ,
        )  # fmt: skip


# Power must contradict the counters in this share of the newest spans.
_STUCK_SHARE = 0.9
# Text, code and sentence of the next step. Missing data is no idleness: each says what is not known.
_SILENT = {
    "source-stale": (
        "The newest telemetry is {age} old ({since}). Nothing can be evaluated until data arrive.",
        "Check the agents, the Prometheus server and this machine's clock.",
    ),
    "node-silent": (
        "No telemetry from {name} ({count}) for {age}, since {since}.{held}",
        "Check that {node} is up, and that its agent or exporter runs.",
    ),
    "gpu-missing": (
        "{name} has reported nothing for {age}, since {since}, while its node reports.",
        "Check dmesg on {node} for XID errors, and whether nvidia-smi lists the GPU.",
    ),
}
_STUCK = (
    "{name} draws {power:.0f} W, but its activity counters have shown no work since {since}. "
    "This is a telemetry fault, and its activity is unknown."
)
_RESTART = "Restart the DCGM host engine or the exporter on {node}; counters stop after some XID errors."


def find_silent(fleet: WatchedFleet) -> Iterator[Sighting]:
    """Nodes and GPUs that report nothing any more, and GPUs whose counters stand still; the source alone where its
    newest data are old: nothing else can be judged then."""
    recent, spans, end, fresh_seconds = fleet.recent, fleet.spans, fleet.end, fleet.rules.fresh_minutes * MINUTE

    def silent(
        code: str, subject: Subject, last: float, severity: Severity, *gpus: int, count: str = "", held: str = ""
    ) -> Sighting:
        age, (text, step) = (recent.now if fleet.is_stale else end) - last, _SILENT[code]
        evidence = (
            Evidence("last_data", rfc3339(last), None, "time (UTC)"),
            Evidence("silent_for", age / MINUTE, fleet.rules.fresh_minutes, "minutes"),
        )
        return fleet.sighting(
            "telemetry-dead", code, subject, text, (f"{code}-check", step), severity=severity, since=last, gpus=gpus,
            evidence=evidence, age=span(age), count=count, held=held,
        )  # fmt: skip

    if fleet.is_stale:
        yield silent("source-stale", Subject("source", "the telemetry source"), end, "high")
        return
    for node in recent.nodes:
        if node.node in fleet.fresh or node.drained or node.last_seen is None:
            continue
        gpus = tuple(n for n, gpu in enumerate(recent.gpus) if gpu.node == node.node)
        holds = [hold for hold in recent.holds if set(gpus).intersection(hold.gpus)]
        running = who(fleet.subject_of(holds[0])) if len(holds) == 1 else f"{len(holds)} workloads"
        count, ids = node.gpus_expected or len(gpus), tuple(recent.gpus[n].uuid for n in gpus)
        subject = Subject(f"node:{node.node}", node.node, (node.node,), ids, float(count), node_sku=node.sku)
        held = f" It was running {running}." if holds else ""
        severity = "medium" if holds else "low"
        yield silent("node-silent", subject, node.last_seen, severity, *gpus, count=counted(count, "GPU"), held=held)
    newest, contradicted = spans.since(end - fresh_seconds), fleet.gpus.contradicted
    is_stuck = contradicted[:, newest].mean(axis=1) >= _STUCK_SHARE  # since its newest span without contradiction
    for n, gpu in enumerate(recent.gpus):
        if gpu.node not in fleet.fresh:
            continue
        if gpu.last_seen is not None and end - gpu.last_seen > fresh_seconds and not fleet.nodes[gpu.node].drained:
            yield silent("gpu-missing", fleet.gpu_subject(n), gpu.last_seen, "high", n)
        if is_stuck[n]:
            power = float(np.nanmean(recent.gpu["power_watts"][n, newest]))
            yield fleet.sighting(
                "telemetry-dead", "counters-stuck", fleet.gpu_subject(n), _STUCK, ("counters-stuck-restart", _RESTART),
                severity="medium",
                since=spans.last_end(~contradicted[n]), gpus=(n,), power=power,
                evidence=(Evidence("power", power, None, "watts"), Evidence("engine_active", 0.0, None, "ratio")),
            )  # fmt: skip
