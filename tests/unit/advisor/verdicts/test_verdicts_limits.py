"""Work whose limit is known from physics (benchmarks/generators/limits), as an agent and as exporters tell it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from skuwise.advisor.verdicts.judge import judge
from skuwise.benchmarks.generators.limits.cases import CASES, Case
from skuwise.benchmarks.generators.limits.frames import VIEWS, View, frame_of
from skuwise.rules.catalog.loader import Catalog, load_catalog
from skuwise.tests.support.rulebooks import rulebook

Make = Callable[[np.random.Generator], Case]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def _open(case: Case, view: View) -> bool:
    """Whether collectives over an NVLink that nobody measured may be the limit: then nothing is named."""
    inside = case.gpus > 1 and case.board.nvlink is not None and not view.nvlink
    return inside and case.label in ("nvlink", "latency")


@pytest.mark.parametrize("view", [VIEWS[0], VIEWS[3]], ids=lambda view: view.name)
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_the_limit_that_physics_sets_is_named(catalog: Catalog, make: Make, view: View) -> None:
    case = make(np.random.default_rng(7))
    frame = frame_of(case, view, np.random.default_rng(8))
    verdict = judge(frame, rulebook(catalog)).workloads[0].bottleneck
    assert verdict.label == ("unknown" if _open(case, view) else case.label), verdict.time_shares
