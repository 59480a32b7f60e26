"""The whole agent on a node where Slurm gave GPUs and somebody drained it: what the database says of it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from skuwise.tests.nvmlstub import stub_env
from skuwise.tests.support.sysfs_trees import dgx_like

PROLOG = Path(__file__).parents[4] / "systemd/slurm/prolog.sh"
SCENARIO = "[gpu 0-1]\nname = NVIDIA H100 80GB HBM3\nsm_active = 0\n"


@pytest.mark.slow
def test_an_allocated_gpu_that_nobody_uses_is_in_the_database_and_so_is_the_drain(tmp_path: Path) -> None:
    dgx_like(tmp_path / "sys")
    (tmp_path / "sys/block").mkdir(exist_ok=True)
    told = {"SKUWISE_ALLOCATIONS": str(tmp_path / "allocations"), "SKUWISE_DRAINED_MARKER": str(tmp_path / "drained")}
    # Slurm has the second GPU alone, which it counts from 0.
    (tmp_path / "gres.conf").write_text("Name=gpu File=/dev/nvidia1\n")
    told["SKUWISE_SLURM_CONF"] = str(tmp_path)
    job = {"SLURM_JOB_ID": "42", "SLURM_JOB_GPUS": "0", "SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_USER": "ada"}
    subprocess.run(["/bin/sh", str(PROLOG)], env=told | job, check=True, timeout=60)
    (tmp_path / "drained").write_text("bad DIMM\n")
    db = tmp_path / "node.db"
    options = ["--db", str(db), "--interval", "0.2s", "--duration", "1s", "--path.sysfs", str(tmp_path / "sys")]
    done = subprocess.run(
        [sys.executable, "-m", "skuwise", "agent", "run", *options],
        env=stub_env(tmp_path, SCENARIO) | told, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(db) as connection:
        uses = connection.execute(
            "SELECT w.scheduler, w.job_id, w.name, w.user, w.partition, g.gpu_index, u.basis, u.shared"
            " FROM workload_gpus u"
            " JOIN workloads w USING (workload_id) JOIN gpus g ON g.gpu_uuid = u.gpu_uuid"
        ).fetchall()
        absences = dict(connection.execute("SELECT reason, detail FROM absences WHERE scope = 'source'").fetchall())
    assert uses == [("slurm", "42", "job 42", "ada", "gpu", 1, "allocation", 0)]
    assert absences["drained"] == "The node is out of service: bad DIMM."
    assert "allocation-unknown" not in absences
