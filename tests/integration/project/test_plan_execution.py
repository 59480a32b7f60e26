"""Plans of small fleets, carried out in simulation and measured anew."""

from __future__ import annotations

import pytest
from skuwise.benchmarks.evaluation.planning.outcome import Outcome, outcomes
from skuwise.benchmarks.evaluation.planning.told import shown, table, totals
from skuwise.benchmarks.evaluation.planning.world import PATIENCE_HOURS

pytestmark = pytest.mark.slow

SEEDS = (2, 3)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    folder = tmp_path_factory.mktemp("fleets")
    return [one for seed in SEEDS for one in outcomes(seed, ["nodes"], folder, days=7, small=True)]


def test_the_nodes_that_were_promised_are_empty_afterwards(found: list[Outcome]) -> None:
    promised = sum(o.promised for o in found)
    assert promised > 0
    assert sum(o.measured for o in found) >= 0.95 * promised


def test_every_step_could_be_carried_out_as_it_was_written(found: list[Outcome]) -> None:
    assert [fault for o in found for fault in o.faults] == []


def test_services_are_above_their_headroom_no_more_often_than_days_like_those_before_would_bring(
    found: list[Outcome],
) -> None:
    assert [s for o in found for s in o.services if s.touched and s.beyond_interval] == []


def test_jobs_wait_no_longer_than_nodes_are_left_closed_for(found: list[Outcome]) -> None:
    for o in found:
        assert o.waited_with <= o.waited_without + PATIENCE_HOURS * o.jobs * 2


def test_the_figures_are_told(found: list[Outcome]) -> None:
    text = "\n".join([table(found), *totals(found), *(line for o in found for line in shown(o))])
    assert "nodes returned" in text
    assert all(f"Fleet {o.seed}, goal nodes" in text for o in found)
