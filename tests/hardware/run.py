"""Everything there is to do on a GPU machine, in one command: tests, recordings, impact. Results go to out/hardware.

    python tests/hardware/run.py [--python PYTHON_WITH_TORCH] [--out out/hardware] [--quick]

Runs every part whatever the others say, and ends with 1 if one of them failed, with 3 if there is no GPU.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from skuwise.tests.hardware.nvml_device import no_gpu_reason

HERE = Path(__file__).resolve().parent
EXIT_NOTHING = 3


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the hardware tests, make recordings, measure the impact.")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--out", type=lambda text: Path(text).resolve(), default=Path("out/hardware").resolve())
    parser.add_argument("--quick", action="store_true", help="short runs, to see that all works")
    options = parser.parse_args(argv)
    if reason := no_gpu_reason():
        print(f"run: {reason}. Run this on a machine with an NVIDIA GPU.", file=sys.stderr)
        return EXIT_NOTHING
    options.out.mkdir(parents=True, exist_ok=True)
    seconds, rounds = ("5", "3") if options.quick else ("20", "10")
    torch = ["--python", options.python]
    parts = {
        "tests": ["-m", "pytest", str(HERE), "-m", "hardware", "-rs", "-p", "no:cacheprovider"],
        "recordings": [str(HERE / "record.py"), "--out", str(options.out / "recordings"), "--seconds", seconds, *torch],
        "impact": [str(HERE / "impact.py"), "--out", str(options.out / "impact.json"), "--rounds", rounds, *torch],
    }
    settings = {"HARDWARE_OUT": str(options.out), "HARDWARE_PYTHON": options.python, "HARDWARE_SECONDS": seconds}
    failed: list[str] = []
    for name, command in parts.items():
        print(f"== {name}", flush=True)
        done = subprocess.run(
            [sys.executable, *command], env={**os.environ, **settings}, cwd=HERE.parents[1], check=False
        )
        if done.returncode:
            failed.append(name)
    print(f"Results are in {options.out}. " + (f"Failed: {', '.join(failed)}." if failed else "All parts passed."))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
