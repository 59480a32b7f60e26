"""Make labelled recordings on a GPU machine: every workload, watched at 1 s and at 0.1 s.

    python tests/hardware/record.py --out out/recordings [--only matmul --only idle] [--seconds 20]

Each recording is a small file (a header with the label, the truth and how it was made; a line a tick) without the
node's name, ids or UUIDs. Look at it (``zcat``), then copy it to tests/data/recordings/ and list it there.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import skuwise
from skuwise.agent.base.durations import parse_duration
from skuwise.rules.base.errors import NothingToDo, SkuwiseError
from skuwise.tests.hardware.export import export_window
from skuwise.tests.hardware.nvml_device import no_gpu_reason
from skuwise.tests.hardware.observe import agent, run_work
from skuwise.tests.hardware.recordings import TRUTH, Label, Made, read_recording, write_recording
from skuwise.tests.hardware.workloads import WORKS


def record(name: str, interval_seconds: float, seconds: float, python: str, folder: Path) -> Path:
    """Watch one workload and write its recording into `folder`. Raises SkuwiseError."""
    with tempfile.TemporaryDirectory(prefix="skuwise-record-") as scratch:
        database = Path(scratch) / "node.db"
        with agent(database, interval_seconds):
            truth = run_work(name, seconds, python=python)
        header, ticks = export_window(
            database,
            truth.figures["started_at"],
            truth.figures["ended_at"],
            label=Label(**truth.label),  # type: ignore[arg-type] - checked when it is written
            made=Made(
                "hardware",
                f"tests/hardware/record.py, workload {name} for {seconds:g} s, agent at {interval_seconds:g} s",
                datetime.now(UTC).isoformat(timespec="seconds"),
            ),
            interval_seconds=interval_seconds,
            truth={key: value for key, value in truth.figures.items() if key in TRUTH},
            versions={"skuwise": skuwise.__version__, **truth.versions},
        )
    model = re.sub(r"[^a-z0-9]+", "-", (header.gpus[0].sku or header.gpus[0].name).lower()) if header.gpus else "no-gpu"
    path = folder / f"{model.strip('-')}-{name}-{interval_seconds:g}s.jsonl.gz"
    write_recording(path, header, ticks)
    return path


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make labelled recordings on a GPU machine.")
    parser.add_argument("--out", type=Path, default=Path("out/recordings"))
    parser.add_argument("--only", action="append", choices=sorted(WORKS), help="this workload (repeatable)")
    parser.add_argument("--interval", action="append", help="1s, 100ms (repeatable; default both)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each workload runs")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    options = parser.parse_args(argv)
    try:
        return _record_all(options)
    except SkuwiseError as error:
        print(f"record: {error}", file=sys.stderr)
        return error.exit_status


def _record_all(options: argparse.Namespace) -> int:
    if reason := no_gpu_reason():
        raise NothingToDo(f"{reason}.", "Run this on a machine with an NVIDIA GPU.")
    options.out.mkdir(parents=True, exist_ok=True)
    done = 0
    for name in options.only or list(WORKS):
        for interval in options.interval or ("1s", "100ms"):
            try:
                path = record(name, parse_duration(interval), options.seconds, options.python, options.out)
            except NothingToDo as reason:
                print(f"left out {name}: {reason}", file=sys.stderr)
                break
            done += 1
            size, ticks = path.stat().st_size, len(read_recording(path).ticks)
            print(f"{path}  {ticks} ticks, {size} bytes")
    if not done:
        raise NothingToDo("No workload could run.", "Install PyTorch, or name a Python that has it: --python")
    return 0


if __name__ == "__main__":
    sys.exit(main())
