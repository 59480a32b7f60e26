"""What sentences call a series."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from skuwise.advisor.moves.base.workload_groups import Group
from skuwise.advisor.moves.context.finding_context import series_label
from skuwise.tests.support.moves_builders import workload


def group(*names: str, kind: str = "idle") -> Group:
    now = tuple(workload(name, kind=kind) for name in names)
    return cast(Group, SimpleNamespace(lead=now[0], now=now, kind=kind))


def test_a_job_that_has_a_number_alone_is_called_a_job_once() -> None:
    assert series_label(group("job 41016")) == "The idle job 41016 (ann)"
    assert series_label(group("job 7", kind="batch-inference")) == "The batch inference job 7 (ann)"
    assert series_label(group("job 7", kind="online-inference")) == "The online inference service job 7 (ann)"


def test_a_series_of_several_names_says_how_many_more_there_are() -> None:
    assert series_label(group("held-0", "held-1", "held-2")) == "The idle job held-0 (ann, 2 similar)"
    assert series_label(group("api", "api", kind="online-inference")) == "The online inference service api (ann)"
