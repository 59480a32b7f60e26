# pyright: reportArgumentType=false
"""No finding leaves the pipeline beside evidence, a limit or a kind of its own workload that says the opposite."""

from __future__ import annotations

from dataclasses import replace

import pytest
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.verdict_types import KindVerdict
from skuwise.tests.support.moves_builders import END, advice_of, gpus_of, node, usage, verdicts, workload


@pytest.mark.parametrize("code", ["shape-collectives", "nvlink-use"])
def test_a_link_that_evidence_speaks_of_is_not_called_silent(code: str) -> None:
    alone = workload(gpus=gpus_of("n1", 1))
    says = replace(alone, kind=replace(alone.kind, evidence=(CodedText(code, "said"),)))
    silent = node(fabric=None, nvlink_util_p995=0.004)
    assert "idle-nvlink" in {f.rule for f in advice_of(verdicts([silent], [alone])).findings}
    advice = advice_of(verdicts([silent], [says]))
    assert "idle-nvlink" not in {f.rule for f in advice.findings}
    (note,) = [n for n in advice.notes if n.code == "finding-contradicted"]
    assert note.fields == {"rule": "idle-nvlink", "workload": alone.id, "evidence": code}


@pytest.mark.parametrize(("days_at_rest", "held"), [(5, True), (1, False)])
def test_no_more_is_said_to_be_held_than_rested(days_at_rest: int, held: bool) -> None:
    """Two accounts of the same hours: allocated and idle for five days, at rest for so many."""
    job = workload(kind=KindVerdict("idle", 0.9), gpus=gpus_of("n1", 1))
    rows = usage(job, g=0.9, label="compute")
    left = rows["ts"] > END - days_at_rest * 86_400
    for name in ("u_c", "u_m", "u_n", "c", "m", "n", "g"):
        rows.loc[left, name] = 0.0
    rows.loc[left, "bottleneck"] = "idle"
    advice = advice_of(verdicts([node()], [job], uses=[rows], idle_hours={job.id: 120.0}))
    assert ("held-idle" in {f.rule for f in advice.findings}) is held
    against = [n.fields["evidence"] for n in advice.notes if n.code == "finding-contradicted"]
    assert against == ([] if held else ["worked-meanwhile"])
