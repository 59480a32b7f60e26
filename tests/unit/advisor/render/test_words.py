"""Figures as people read them."""

from __future__ import annotations

import pytest
from skuwise.advisor.core.formatting import scheduled_words, whose_words
from skuwise.advisor.core.verdict_types import INFERRED, Owner, Scheduled
from skuwise.tests.support.moves_builders import workload


def test_work_without_a_name_says_whom_to_ask() -> None:
    assert whose_words(workload(owner=Owner(), basis=INFERRED)) == (
        "owner unknown, inferred from activity; ask the users of n1"
    )
    assert whose_words(workload(owner=Owner(), basis="allocation")) == "owner unknown"
    assert whose_words(workload(owner=Owner(user="ann", account="ml"))) == "user ann, account ml"


@pytest.mark.parametrize(
    ("scheduled", "told"),
    [
        (Scheduled(), ""),
        (Scheduled("slurm", job_id="42"), "Slurm job 42"),
        (
            Scheduled("slurm", "45", "40", "5", "gpu", "high", "COMPLETED", 2),
            "Slurm job 45 (array 40_5), partition gpu, QOS high, COMPLETED, requeued 2 times",
        ),
        (Scheduled("slurm", "45", partition="gpu", restarts=0), "Slurm job 45, partition gpu"),
        (Scheduled("kubernetes"), ""),
        (
            Scheduled("kubernetes", controller_kind="Deployment", image="vllm/vllm-openai:v0.11.0"),
            "Kubernetes Deployment, image vllm/vllm-openai:v0.11.0",
        ),
        (Scheduled("docker", image="x"), "Docker, image x"),
    ],
)
def test_what_a_scheduler_told_in_one_line(scheduled: Scheduled, told: str) -> None:
    assert scheduled_words(scheduled) == told
