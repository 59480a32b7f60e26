"""What the jobs of the Slurm test run: ``payload.py SECONDS [STATUS]``, by the container's own Python.

It finds out which GPUs the kernel lets it open, as a program with CUDA would, says what it holds to the stub driver,
and writes down what it saw: that is the truth which skuwise's rows are compared with. There is no driver behind the
device files, so an open that is allowed ends with ENXIO, and one that the device cgroup refuses with EPERM.
"""

import errno
import json
import os
import sys
import time
from pathlib import Path

TRUTH = Path("/opt/truth")
PROCESSES = Path("/opt/nvml/processes")
BYTES = 8 << 30


def may_open(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return error.errno == errno.ENXIO
    return True


def main() -> int:
    seconds = float(sys.argv[1])
    status = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    # A device that gres.conf does not list is open to every job, but of none.
    listed = json.loads((TRUTH / "gpus.json").read_text())
    gpus = [minor for minor in listed if may_open(f"/dev/nvidia{minor}")]
    pid = os.getpid()
    held = PROCESSES / str(pid)
    held.write_text("".join(f"{minor} {BYTES}\n" for minor in gpus))
    seen = {name: os.environ.get(f"SLURM_{name}") for name in ("JOB_ID", "STEP_ID", "RESTART_COUNT", "ARRAY_TASK_ID")}
    record = {"gpus": gpus, "pid": pid, "started": time.time(), **seen}
    (TRUTH / f"{seen['JOB_ID']}.{pid}.json").write_text(json.dumps(record))
    time.sleep(seconds)
    held.unlink()
    return status


if __name__ == "__main__":
    sys.exit(main())
