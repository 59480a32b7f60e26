"""The watch over a simulated week of node databases, with hangs and lingering processes laid into it.

    skuwise simulate fleet --db WEEK --days 7 --minutes 168h --seed N
    python -m skuwise.benchmarks.evaluation.watch_week WEEK --seed 1000 --times 5

The week is that of ``skuwise simulate`` (checkpoints, data stalls, restarts, nights, notebooks, outages of telemetry).
Into it are laid, at drawn moments of drawn workloads: jobs whose GPUs come to rest or spin in a collective (NCCL's
kernels keep the engine busy with no tensor, memory or link activity: advice.md "spin"), and services and notebooks
without any use. Then the watch is asked every five minutes, as it would have been. A finding about a job, a batch or a
service that nothing was laid into is a false alarm, and so is one about a notebook that its raw minutes contradict.
The author of this file has read the watch: it is no independent judge, only a repeatable one.
"""

from __future__ import annotations

import argparse
import math
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.core.recent import Detail, Hold, Recent, RecentGpu, RecentNode, Rows, Values
from skuwise.advisor.incidents.settings import WatchSettings
from skuwise.advisor.telemetry.recent import sqlite as reading
from skuwise.advisor.telemetry.recent.columns import columns_of
from skuwise.advisor.telemetry.recent.grids import SpanGrid
from skuwise.advisor.telemetry.recent.sqlite_files import FileRows
from skuwise.advisor.telemetry.recent.work import TableRows, holds_of
from skuwise.advisor.telemetry.source import Databases
from skuwise.advisor.telemetry.sqlite.opening import open_database
from skuwise.advisor.watch.evaluate import evaluate
from skuwise.advisor.watch.limits import Criteria
from skuwise.agent.store.reading import queries, watch_queries
from skuwise.rules.policy.watch import load_watch_rules

DAY, HOUR, STEP = 86400.0, 3600.0, 300.0
LOOKBACK = 13.5 * HOUR
TOLERANCE = 900.0


@dataclass(frozen=True)
class Span:
    """Something laid into a workload's week. `what`: rest or spin."""

    workload: str
    holder: str
    what: str
    start: float
    end: float


@dataclass(frozen=True)
class Week:
    """A week by the minute. `lives`: of each hold, its spans of time; `kinds`: what the simulator made it."""

    start: float
    end: float
    gpus: tuple[RecentGpu, ...]
    nodes: tuple[RecentNode, ...]
    holds: tuple[Hold, ...]
    lives: tuple[tuple[tuple[float, float], ...], ...]
    gpu: dict[str, Values]
    node: dict[str, Values]
    service: dict[str, Values]
    kinds: Mapping[str, str]

    def at(self, ts: float) -> int:
        return round((ts - self.start) / 60)


def laid(week: Week, rng: np.random.Generator) -> list[Span]:
    """Lay hangs and idle holders into the arrays of a week; gives where."""
    spans: list[Span] = []
    taken = np.zeros(len(week.gpus), dtype=np.bool_)
    for n in rng.permutation(len(week.holds)):
        hold, lives = week.holds[n], week.lives[n]
        if taken[list(hold.gpus)].any() or hold.holder == "process":
            continue
        begin, end = max(lives, key=lambda one: one[1] - one[0])
        begin, end = max(begin, week.start + LOOKBACK), min(end, week.end)
        is_job = hold.holder == "job"
        length = float(
            rng.uniform(0.4, min(10, max(0.5, (end - begin) / HOUR - 4))) * HOUR
            if is_job
            else rng.uniform(1.1, 2.5) * _limit(hold)
        )
        first, last = begin + 2 * HOUR, end - length - HOUR
        if last <= first:
            continue
        starts = [math.floor(rng.uniform(first, last) / 60) * 60.0 for _ in range(20)]
        start = next(
            (
                one
                for one in starts
                if not _shared(week, n, one - HOUR, one + length) and (not is_job or _works(week, hold, week.at(one)))
            ),
            None,
        )
        if start is None:
            continue
        a, b = week.at(start), week.at(start + length)
        what = "spin" if is_job and len(hold.gpus) > 1 and rng.random() < 0.5 else "rest"
        _lay(week, hold, slice(a, b), what, rng)
        taken[list(hold.gpus)] = True
        spans.append(Span(hold.workload_id, hold.holder, what, start, start + length))
    return spans


def _limit(hold: Hold) -> float:
    return WatchSettings().limit_seconds(hold.holder)


def _shared(week: Week, n: int, start: float, end: float) -> bool:
    """Whether another workload holds one of a hold's GPUs in a span."""
    own = set(week.holds[n].gpus)
    return any(
        m != n and own & set(other.gpus) and any(a < end and b > start for a, b in week.lives[m])
        for m, other in enumerate(week.holds)
    )


def _works(week: Week, hold: Hold, at: int) -> bool:
    """Whether a job worked for most of the hour before."""
    before = week.gpu["engine"][list(hold.gpus), at - 60 : at]
    return bool((np.nan_to_num(before).max(axis=0) > 0.3).mean() > 0.8)


def _lay(week: Week, hold: Hold, when: slice, what: str, rng: np.random.Generator) -> None:
    own, there = list(hold.gpus), when.stop - when.start
    noise = rng.uniform(0, 0.003, (len(own), there)).astype(np.float32)
    spin = what == "spin"
    rest_watts = rng.uniform(0.13, 0.17)
    shown = {
        "engine": np.full_like(noise, 1.0) - noise if spin else noise, "engine_max": np.full_like(noise, 1.0) if spin
        else 3 * noise, "util": np.full_like(noise, 1.0) if spin else noise * 0,
        "sm": noise + (rng.uniform(0.02, 0.15) if spin else 0), "tensor": noise * 0, "dram": noise * (5 if spin else 1),
        "links_bytes_per_second": np.full_like(noise, 2e5), "throttled": noise * 0,
    }  # fmt: skip
    for name, values in shown.items():
        if name in week.gpu:
            known = np.isfinite(week.gpu[name][own, when])
            week.gpu[name][own, when] = np.where(known, values, np.nan)
    for n in own:
        limit = week.gpus[n].power_limit_watts or 300.0
        part = rng.uniform(0.25, 0.4) if spin else rest_watts
        known = np.isfinite(week.gpu["power_watts"][n, when])
        week.gpu["power_watts"][n, when] = np.where(known, limit * part, np.nan)
    at = {node.node: n for n, node in enumerate(week.nodes)}
    begin, end = week.start + when.start * 60.0, week.start + when.stop * 60.0
    others = {
        gpu
        for m, other in enumerate(week.holds)
        if other is not hold and any(a < end and b > begin for a, b in week.lives[m])
        for gpu in other.gpus
    }
    for node in {week.gpus[n].node for n in own}:
        ranks = len([n for n in own if week.gpus[n].node == node])
        beside = len([n for n in others if week.gpus[n].node == node])
        quiet = {
            "cpu_util": 0.01 * ranks * (spin or 0.1), "disk_bytes_per_second": 3e5, "network_bytes_per_second": 1e5,
            "fabric_bytes_per_second": 4e3,
        }  # fmt: skip
        for name, value in quiet.items():
            # What the workloads beside it did stays: their GPUs' share.
            was = week.node[name][at[node], when]
            week.node[name][at[node], when] = value + was * beside / (ranks + beside)
    number = next(n for n, one in enumerate(week.holds) if one is hold)
    for values in week.service.values():
        values[number, when] = np.where(np.isfinite(values[number, when]), 0.0, np.nan)


def recent_at(week: Week, coarse: Sequence[Mapping[str, Values]], ts: float, last: np.ndarray) -> Recent:
    """The reading as of a moment. `last`: of each GPU and minute, the newest minute that was observed."""
    i = week.at(ts)
    c = i // 5
    current = [n for n, lives in enumerate(week.lives) if any(a < ts - 60 and b >= ts - 60 for a, b in lives)]
    users = Counter(gpu for n in current for gpu in week.holds[n].gpus)
    holds = tuple(
        replace(
            week.holds[n], since=max(a for a, b in week.lives[n] if a < ts - 60 and b >= ts - 60),
            shared=any(users[gpu] > 1 for gpu in week.holds[n].gpus),
        )
        for n in current
    )  # fmt: skip

    def detail(whole: Mapping[str, Values], five: Mapping[str, Values], rows: Sequence[int] | None = None) -> Detail:
        def pick(values: Values) -> Values:
            return values if rows is None else values[list(rows)]

        return Detail(
            Rows(ts - 7200, 60.0, 120, {name: pick(one)[:, i - 120 : i] for name, one in whole.items()}),
            Rows(ts - LOOKBACK, STEP, 162, {name: pick(one)[:, c - 162 : c] for name, one in five.items()}),
        )

    seen = [week.start + (at + 1) * 60 if i - at <= 810 else None for at in last[:, i - 1].tolist()]
    newest: dict[str, float] = {}
    for gpu, moment in zip(week.gpus, seen, strict=True):
        if moment is not None:
            newest[gpu.node] = max(moment, newest.get(gpu.node, 0.0))
    return Recent(
        ts + 60, ts, tuple(replace(gpu, last_seen=one) for gpu, one in zip(week.gpus, seen, strict=True)),
        tuple(replace(node, last_seen=newest.get(node.node)) for node in week.nodes), holds,
        detail(week.gpu, coarse[0]), detail(week.node, coarse[1]), detail(week.service, coarse[2], current),
    )  # fmt: skip


def folded(values: Mapping[str, Values]) -> dict[str, Values]:
    """Rows of five minutes."""
    out: dict[str, Values] = {}
    for name, one in values.items():
        rows = one.reshape(len(one), one.shape[1] // 5, 5)
        known = np.isfinite(rows)
        count = known.sum(axis=2)
        if name == "observed":
            five = np.nan_to_num(rows).mean(axis=2)
        elif name == "engine_max":
            five = np.where(count > 0, np.where(known, rows, -1).max(axis=2), np.nan)
        else:
            five = np.where(count > 0, np.nan_to_num(rows).sum(axis=2) / np.maximum(count, 1), np.nan)
        out[name] = five.astype(np.float32)
    return out


def _files(folder: Path, start: float, end: float) -> tuple[reading._Believed, ...]:
    """Everything that the databases hold of a span, by the minute."""
    span = {"start": start, "end": end, "step": 60.0}
    asked = {
        "gpus": queries.GPUS, "uses": queries.USES, "workloads": queries.WORKLOADS, "absences": queries.ABSENCES,
        "gpu_fine": watch_queries.GPU_FINE, "ports_fine": watch_queries.PORTS, "hosts_fine": watch_queries.HOSTS,
        "engines_fine": watch_queries.ENGINES, "jobs": queries.SLURM_JOBS,
    }  # fmt: skip
    found = []
    for path in sorted(folder.glob("*.db")):
        with open_database(path) as reader:
            tables = {name: columns_of(reader.columns(query, span), query) for name, query in asked.items()}
            tables["nodes"] = columns_of(reader.columns(queries.NODES, {}), queries.NODES)
        found.append(FileRows(path, end, tables))
    return reading._believed(found, end)[0]


def read_week(folder: Path, days: float) -> Week:
    """The week that simulated databases hold."""
    book = load_rulebook(None, None, time.time())
    end = Databases((folder,)).newest(time.time())
    assert end is not None
    end = math.floor(end / STEP) * STEP
    start = end - days * DAY
    whole = _files(folder, start, end)
    grid = SpanGrid(end, 60.0, round(days * 1440))
    last = reading._last_seen(whole, end)
    gpus = reading.gpus_of(reading._gpu_rows(whole), book.catalog, last)
    nodes = reading._nodes(whole, last, gpus)
    places = {(gpu.node, gpu.uuid): n for n, gpu in enumerate(gpus)}
    rows = [TableRows(one.file.tables, one.nodes) for one in whole]
    holds = holds_of(rows, places, {node.node: 0.0 for node in nodes}, book.kind_priors, 0.0, lambda frame: frame)
    spans: dict[str, set[tuple[float, float]]] = {}
    for one in whole:
        uses = one.file.tables["uses"]
        for n in range(uses.count):
            spans.setdefault(uses.text("workload_id", n) or "", set()).add(
                (uses.number("ts_start", n) or start, uses.number("ts_end", n) or end)
            )
    kinds: dict[str, str] = {}
    for file in folder.glob("*.db"):
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as db:
            kinds |= dict(db.execute("SELECT workload_id, kind FROM truth").fetchall())
    return Week(
        start, end, gpus, nodes, holds, tuple(tuple(sorted(spans[hold.workload_id])) for hold in holds),
        reading._gpu_values(whole, grid, "gpu_fine", places),
        reading._node_values(whole, grid, "fine", {node.node: n for n, node in enumerate(nodes)}),
        reading._service_values(whole, grid, "engines_fine", {hold.workload_id: n for n, hold in enumerate(holds)}),
        kinds,
    )  # fmt: skip


def idle_by_minutes(week: Week, hold: Hold, ts: float, limit: float) -> bool:
    """Whether the raw minutes show no use of a workload's GPUs for as long as its limit."""
    own, since = list(hold.gpus), max(week.at(ts - limit), 0)
    used = np.nan_to_num(week.gpu["engine"][own, since : week.at(ts)])
    return bool((used < 0.05).all())


@dataclass
class Tally:
    """What several weeks gave. `hits`: of each kind of span, whether each was found in time."""

    held: dict[str, list[bool]]
    hangs: dict[str, list[bool]]
    falls: Counter[str]
    lines: list[str]
    days: float = 0.0
    workloads: int = 0


def judged(week: Week, spans: Sequence[Span], settings: WatchSettings, criteria: Criteria, tally: Tally) -> None:
    """One laid week: every pass, then every span."""
    coarse = [folded(week.gpu), folded(week.node), folded(week.service)]
    index = np.where(np.nan_to_num(week.gpu["observed"]) > 0, np.arange(week.gpu["observed"].shape[1]), -10_000)
    last = np.maximum.accumulate(index, axis=1)
    shown: dict[tuple[str, str], list[float]] = {}
    seen: set[str] = set()
    ts, passes, began = math.ceil((week.start + LOOKBACK) / STEP) * STEP, 0, time.monotonic()
    by_id = {hold.workload_id: hold for hold in week.holds}
    while ts <= week.end - STEP:
        told = evaluate(recent_at(week, coarse, ts, last), criteria)
        for one in told.sightings:
            work = one.subject.workload_id
            if one.kind not in ("held-idle", "stopped") or work is None:
                continue
            shown.setdefault((one.kind, work), []).append(ts)
            if one.id in seen or any(s.workload == work and s.start <= ts <= s.end + TOLERANCE for s in spans):
                continue
            limit = settings.limit_seconds(one.subject.holder or "job") - 600
            if one.kind == "held-idle" and idle_by_minutes(week, by_id[work], ts, limit):
                continue
            tally.falls[f"{one.kind} of {week.kinds.get(work, '?')}"] += 1
            tally.lines.append(
                f"  false {time.strftime('%d %H:%M', time.gmtime(ts))} {one.kind}/{one.code}: {one.text.text}"
            )
        seen = {one.id for one in told.sightings}
        ts, passes = ts + STEP, passes + 1
    seconds = time.monotonic() - began
    days = sum(min(b, week.end) - max(a, week.start + LOOKBACK) for lives in week.lives for a, b in lives) / DAY
    print(f"{len(week.holds)} workloads, {len(spans)} spans laid, {days:.0f} workload-days, {passes} passes of "
          f"{seconds / passes * 1000:.0f} ms", flush=True)  # fmt: skip
    tally.days += days
    tally.workloads += len(week.holds)
    for span in spans:
        limit = _limit(by_id[span.workload])

        def found(by: float, *kinds: str, of: Span = span) -> bool:
            moments = [moment for kind in kinds for moment in shown.get((kind, of.workload), ())]
            ok = any(of.start < moment <= of.start + by for moment in moments)
            if not ok:
                tally.lines.append(f"  missed {' and '.join(kinds)} by {by / 60:.0f} min: {of}")
            return ok

        if span.holder == "job" and span.end - span.start >= 1200:
            tally.hangs.setdefault(span.what, []).append(found(900, "stopped"))
        if span.what == "rest" and span.end - span.start > limit + 600:
            tally.held.setdefault(span.holder, []).append(found(limit + 600, "held-idle", "stopped"))


def told(name: str, hits: Mapping[str, Sequence[bool]]) -> None:
    """Print what was found of what there was."""
    print(f"{name}: {sum(map(sum, hits.values()))} of {sum(map(len, hits.values()))}")
    for kind, own in sorted(hits.items()):
        print(f"  {kind}: {sum(own)} of {len(own)}")


def main() -> None:
    """Lay, watch, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--times", type=int, default=1, help="how often other spans are laid into the week")
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--worst", type=int, default=20)
    options = parser.parse_args()
    book, settings = load_rulebook(None, None, time.time()), WatchSettings()
    criteria = Criteria(settings, load_watch_rules(), book.resting_power)
    whole = read_week(options.folder, options.days)
    tally = Tally({}, {}, Counter(), [])
    for seed in range(options.seed, options.seed + options.times):
        week = replace(whole, **{name: {key: one.copy() for key, one in getattr(whole, name).items()}
                                 for name in ("gpu", "node", "service")})  # fmt: skip
        judged(week, laid(week, np.random.default_rng(seed)), settings, criteria, tally)
    told("held-idle spans over the limit, reported within 10 min", tally.held)
    told("hangs found within 15 min", tally.hangs)
    print(f"false alarms: {tally.falls.total()}, {tally.falls.total() / tally.days * 1000:.2f} a 1,000 workload-days "
          f"({tally.workloads} workloads, {tally.days:.0f} days) {dict(tally.falls)}")  # fmt: skip
    print("\n".join(tally.lines[: options.worst]))


if __name__ == "__main__":
    main()
