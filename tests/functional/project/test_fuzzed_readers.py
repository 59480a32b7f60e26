"""A short fuzz run of every reader, drawn anew each time; the long one is `python -m skuwise.benchmarks.fuzzing`."""

from __future__ import annotations

import secrets

import pytest
from skuwise.benchmarks.fuzzing.supervise import run_target
from skuwise.benchmarks.fuzzing.targets import TARGETS
from skuwise.tests.support.forked import alone

MUTATIONS = 1500
# What begins processes, or makes tables of everything, for each mutation.
FEWER = {"folder": 30, "reading": 300, "catalog": 300}


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_whatever_is_read_is_read_or_refused_in_a_sentence(name: str) -> None:
    seed = secrets.randbelow(2**31)
    report = alone(run_target, TARGETS[name], FEWER.get(name, MUTATIONS), seed)
    told = "; ".join(f"{count} x {signature}" for signature, count in report.kinds())
    first = next((f"benchmarks.fuzzing replay {name} {seed} {fault['number']}" for fault in report.faults), "")
    assert report.good, f"random seed {seed}: {told or f'grew by {report.growth_bytes / 2**20:.0f} MiB'}. {first}"
    assert report.mutations == FEWER.get(name, MUTATIONS), f"random seed {seed}"
    assert report.read > 0, f"random seed {seed}: whatever is spoiled so much that none is read tries little"
