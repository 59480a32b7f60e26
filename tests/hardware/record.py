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
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pynvml
import skuwise
from skuwise.agent.base.durations import parse_duration
from skuwise.agent.model import Gpu, Tick
from skuwise.rules.base.errors import NothingToDo, SkuwiseError
from skuwise.tests.hardware import nvml_device
from skuwise.tests.hardware.export import export_window
from skuwise.tests.hardware.nvml_device import no_gpu_reason
from skuwise.tests.hardware.observe import Truth, agent, run_work
from skuwise.tests.hardware.recordings import TRUTH, Label, Made, RecordingHeader, read_recording, write_recording
from skuwise.tests.hardware.workloads import WORKS


@dataclass(frozen=True)
class Watched:
    """One workload as the agent saw it: only ticks that lie wholly inside the counted work.

    `gpu` is the GPU that worked, under its recorded (made-up) UUID; `power` knows it by its true one.
    """

    truth: Truth
    header: RecordingHeader
    ticks: list[Tick]
    gpu: Gpu
    power: nvml_device.PowerLog
    true_uuid: str

    @property
    def uuid(self) -> str:
        return self.gpu.uuid


Watch = Callable[[str, float], Watched]  # (workload, interval in seconds)


def watch_work(name: str, interval_seconds: float, seconds: float, python: str, folder: Path) -> Watched:
    """Run the agent over one workload. Raises NothingToDo where the work cannot run here."""
    database = folder / "node.db"
    with agent(database, interval_seconds), nvml_device.power_log() as power:
        truth = run_work(name, seconds, python=python)
    header, ticks = export_window(
        database,
        truth.figures["started_at"],
        truth.figures["ended_at"],
        label=Label(**truth.label),  # type: ignore[arg-type] - the workload's own labels
        made=Made(
            "hardware",
            f"tests/hardware/record.py, workload {name} for {seconds:g} s, agent at {interval_seconds:g} s",
            datetime.now(UTC).isoformat(timespec="seconds"),
        ),
        interval_seconds=interval_seconds,
        truth={key: value for key, value in truth.figures.items() if key in TRUTH},
        versions={"skuwise": skuwise.__version__, **truth.versions},
    )
    with nvml_device.device(truth.gpu_uuid) as handle:
        index, uuid = pynvml.nvmlDeviceGetIndex(handle), str(pynvml.nvmlDeviceGetUUID(handle))
    gpu = next(gpu for gpu in header.gpus if gpu.index == index)
    return Watched(truth, header, ticks, gpu, power, uuid)


def record(name: str, interval_seconds: float, seconds: float, python: str, folder: Path) -> Path:
    """Watch one workload and write its recording into `folder`. Raises SkuwiseError."""
    with tempfile.TemporaryDirectory(prefix="skuwise-record-") as scratch:
        watched = watch_work(name, interval_seconds, seconds, python, Path(scratch))
    model = re.sub(r"[^a-z0-9]+", "-", (watched.gpu.sku or watched.gpu.name).lower())
    path = folder / f"{model.strip('-')}-{name}-{interval_seconds:g}s.jsonl.gz"
    write_recording(path, watched.header, watched.ticks)
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
