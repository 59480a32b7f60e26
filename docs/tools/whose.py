"""Prints the tables of docs/whose.md: advice on one simulated work behind Kubernetes, behind Slurm and without labels.

    python docs/tools/whose.py

Needs victoria-metrics. The work, its GPUs and their readings are the same three times; a job table stands beside Slurm.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from skuwise.tests.fleets import Fleet, series, truth
from skuwise.tests.fleets.description import DAY
from skuwise.tests.fleets.retold import WAYS, told, work_to_tell
from skuwise.tests.fleets.sacct import job_table
from skuwise.tests.support.prometheus_engines import victoria

TITLES = {"kubernetes": "Kubernetes", "slurm": "Slurm and sacct", "none": "no labels"}
Advice = Mapping[str, Any]


def main() -> None:
    fleet = work_to_tell()
    with tempfile.TemporaryDirectory() as name:
        told_by = {way: advice_on(told(fleet, way), way, Path(name) / way) for way in WAYS}
    print(tables(fleet, told_by))


def advice_on(fleet: Fleet, way: str, folder: Path) -> Advice:
    """What `skuwise advise` says of a server that holds the fleet."""
    with victoria(folder, series(fleet, np.random.default_rng(1))) as url:
        command = [sys.executable, "-m", "skuwise", "advise", "--prometheus", url, "--since", f"{fleet.days:g}d",
                   "--until", _moment(fleet.end), "--format", "json", "--no-ledger", "--no-cache"]  # fmt: skip
        if way == "slurm":
            jobs = folder / "jobs.txt"
            jobs.write_text(job_table(fleet))
            command += ["--jobs", str(jobs)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def _moment(at: float) -> str:
    return str(np.datetime64(int(at), "s")) + "Z"


def tables(fleet: Fleet, told_by: Mapping[str, Advice]) -> str:
    """Two tables in Markdown: the work, and the fleet's sums."""
    heads = [TITLES[way] for way in told_by]
    lines = [_row("true work", *heads), _row("---", *("---" for _ in heads))]
    uuids = {one.name: {held.uuid for held in one.held} for one in truth(fleet).workloads}
    for work in truth(fleet).workloads:
        hours = (work.end - work.begin) / DAY * 24 * len(work.held)
        what = f"{work.name}: {work.kind}, {len(work.held)} GPUs, {hours:,.0f} GPU-hours"
        lines.append(
            _row(what, *(_told(advice, uuids[work.name], work.begin, work.end) for advice in told_by.values()))
        )
    lines += ["", _row("fleet", *heads), _row("---", *("---" for _ in heads))]
    for title, figure in _FIGURES.items():
        lines.append(_row(title, *(figure(advice) for advice in told_by.values())))
    return "\n".join(lines)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _told(advice: Advice, gpus: set[str], begin: float, end: float) -> str:
    """The workloads that stand for most of a true one, as one line each."""
    near = [one for one in advice["workloads"] if gpus & set(one["gpus"]) and _common(one, begin, end) > 0.2]
    near.sort(key=lambda one: -float(one["gpu_hours"] or 0))
    shown = [_workload(one) for one in near[:3]]
    more = [f"and {len(near) - 3} more"] if len(near) > 3 else []
    return "<br>".join([*shown, *more]) or "none"


def _common(one: Advice, begin: float, end: float) -> float:
    """The share of a workload's time that lies within a span."""
    first, last = (
        float(np.datetime64(str(one[name]).rstrip("Z"), "ms").astype(np.int64)) / 1e3 for name in ("start", "end")
    )
    return max(min(last, end) - max(first, begin), 0.0) / max(last - first, 1.0)


def _workload(one: Advice) -> str:
    cost = f"${one['cost_usd']:,.0f}" if one["cost_usd"] is not None else "cost unknown"
    owner = next((one["owner"][key] for key in ("team", "account", "namespace", "user") if one["owner"].get(key)), None)
    kind, sure = one["kind"]["label"], one["kind"]["confidence"]
    said = f"{kind} ({sure:.2f})" if sure is not None else kind
    return f"`{one['name']}`, {owner or 'owner unknown'}: {said}, {one['gpu_hours']:,.0f} GPU-hours, {cost}"


def _counted(names: Iterable[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(Counter(names).items())) or "none"


def _dollars(value: float | None) -> str:
    return "not known" if value is None else f"${value:,.0f}"


_FIGURES = {
    "workloads": lambda advice: str(len(advice["workloads"])),
    "series": lambda advice: str(len({one["series_id"] for one in advice["workloads"]})),
    "GPU-hours of workloads": lambda advice: f"{sum(one['gpu_hours'] or 0 for one in advice['workloads']):,.0f}",
    "cost of the window": lambda advice: _dollars(advice["summary"]["cost_usd"]),
    "of it workloads": lambda advice: _dollars(advice["summary"]["reconciliation"]["workloads"]),
    "of it unallocated": lambda advice: _dollars(advice["summary"]["reconciliation"]["unallocated"]),
    "findings": lambda advice: _counted(one["rule"] for one in advice["findings"]),
    "recommendations": lambda advice: _counted(one["action"] for one in advice["recommendations"]),
    "recoverable a month": lambda advice: _dollars(advice["summary"]["recoverable_usd_per_month"]),
}


if __name__ == "__main__":
    main()
