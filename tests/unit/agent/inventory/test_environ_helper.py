"""The opt-in helper that reads environments: what it answers, to whom, and what it keeps to itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.agent.inventory.processes.environ_helper import answer
from skuwise.tests.support.sysfs_trees import Procfs

SLURM = "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"
ENVIRON = {"SLURM_JOB_ID": "42", "SLURM_JOB_GPUS": "0,1", "SLURM_JOB_NAME": "a\x1b[31m\tb", "HF_TOKEN": "hf_secret"}


@pytest.fixture
def proc(tmp_path: Path) -> Procfs:
    tree = Procfs(tmp_path / "proc")
    tree.process(700, cgroup=SLURM, environ=ENVIRON)
    tree.process(701, environ=ENVIRON)
    return tree


def test_allow_listed_variables_of_a_slurm_process_and_no_others(proc: Procfs) -> None:
    assert answer(proc.root, b"700\n") == (
        b'{"SLURM_JOB_ID": "42", "SLURM_JOB_GPUS": "0,1", "SLURM_JOB_NAME": "a[31m b"}\n'
    )


@pytest.mark.parametrize(
    "question", [b"", b"\n", b"701\n", b"999\n", b"-1\n", b"0\n", b"../700\n", b"9" * 16, "٧٠٠".encode(), b"\xff\n"]
)
def test_any_other_question_is_answered_with_nothing(proc: Procfs, question: bytes) -> None:
    assert answer(proc.root, question) == b"{}\n"
