"""Figures as people read them."""

from __future__ import annotations

import pytest
from skuwise.advisor.core.formatting import price_note, scheduled_words, whose_words
from skuwise.advisor.core.verdict_types import INFERRED, Owner, Scheduled
from skuwise.rules.catalog.types import Price
from skuwise.tests.support.moves_builders import workload


@pytest.mark.parametrize(
    ("as_of", "told"),
    [
        (["2026-07-20"], "at list price, 2026-07-20"),
        (["2026-09-19", "2026-07-20", "2026-08-26"], "at list price, 2026-07-20 to 2026-09-19"),
        (["2026-07-20", "commit 3f5f6971"], "at list price, 2026-07-20 and commit 3f5f6971"),
        (["commit 3f5f6971"], "at list price, commit 3f5f6971"),
        ([], "no price known"),
    ],
)
def test_a_range_of_days_ends_in_a_day(as_of: list[str], told: str) -> None:
    prices = [Price(f"p{n}", "sku", "r", 1.0, "list", "source", when) for n, when in enumerate(as_of)]
    assert price_note(prices) == told


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
