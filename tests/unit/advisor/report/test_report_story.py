# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportCallIssue=false, reportOptionalOperand=false
from dataclasses import replace

import pytest
from skuwise.advisor.core.advice_types import Decision, Reconciliation
from skuwise.advisor.core.exclusions import counted_recommendations
from skuwise.advisor.report.by_team import outcomes_of, split_by_team
from skuwise.advisor.views.aggregates import DRAINED, NO_WORKLOAD, NOT_OBSERVED, holdings, hours_by_kind
from skuwise.advisor.views.document.report_content import story_of
from skuwise.tests.support.report_fixtures import END, WEEK, by_namespace, fleet, outcome


def test_every_workload_finding_and_way_out_is_somebodys_and_once():
    advice = fleet(4, 3)
    shared = split_by_team(advice, by_namespace, teams=("team-000", "nobody-here"))
    for name in ("workloads", "findings", "recommendations", "fabrics"):
        together = [one for part in shared.values() for one in getattr(part, name)]
        assert sorted(map(repr, together)) == sorted(map(repr, getattr(advice, name)))
    assert shared["nobody-here"].workloads == ()
    assert set(shared) == {"nobody-here", *(f"team-{n:03}" for n in range(4))}


def test_the_parts_money_adds_up_to_what_workloads_held_alone():
    advice = fleet(4, 3)
    parts = split_by_team(advice, by_namespace).values()
    assert sum(p.summary.cost_usd for p in parts) == pytest.approx(sum(w.cost_usd for w in advice.workloads))
    assert sum(p.summary.wasted_usd for p in parts) == pytest.approx(advice.summary.wasted_usd)
    assert sum(p.summary.recoverable_usd_per_month for p in parts) == pytest.approx(
        advice.summary.recoverable_usd_per_month
    )


def test_what_is_of_no_workload_is_its_nodes_teams_where_they_are_one_teams():
    advice = fleet(1, 1)
    bare = replace(advice.findings[0], id="f-bare", rule="idle", workload=None, nodes=("a-1", "a-2"))
    across = replace(bare, id="f-across", nodes=("a-1", "b-1"))
    advice = replace(
        advice, findings=(bare, across),
        recommendations=(replace(advice.recommendations[0], workload=None, findings=("f-bare",)),),
    )  # fmt: skip
    shared = split_by_team(advice, by_namespace, lambda node: node[0])
    assert [f.id for f in shared["a"].findings] == ["f-bare"]
    assert [f.id for f in shared[None].findings] == ["f-across"]
    assert len(shared["a"].recommendations) == 1


def test_moves_that_exclude_one_another_are_told_and_counted_once():
    advice = fleet(1, 2)
    small, large = advice.recommendations
    small = replace(small, excludes=(large.id,))
    large = replace(large, excludes=(small.id,))
    advice = replace(advice, recommendations=(large, small))
    assert [m.id for m in story_of(advice, None).moves] == [large.id]
    assert [r.id for r in counted_recommendations((small, large))] == [large.id]


@pytest.mark.parametrize(
    "change",
    [
        {"blocked_by": ("its input is late",)},
        {"decision": Decision("dismissed", END)},
        {"decision": Decision("accepted", END)},
        {"decision": Decision("done", END)},
        {"saving_usd_per_month": None, "freed_gpu_hours_per_month": 0.0},
    ],
)
def test_what_is_blocked_decided_or_gains_nothing_is_no_move_to_tell(change):
    advice = fleet(1, 2)
    first, *others = advice.recommendations
    told = story_of(replace(advice, recommendations=(replace(first, **change), *others)), None).moves
    assert [m.id for m in told] == [r.id for r in others]


def test_the_week_is_held_against_the_one_before():
    story = story_of(fleet(2, 2), fleet(2, 2, end=END - WEEK, scale=0.5))
    assert story.gpu_hours.ratio == pytest.approx(1.0)
    assert story.hours_by_kind["idle"].before == pytest.approx(story.hours_by_kind["idle"].now / 2)
    alone = story_of(fleet(2, 2), None)
    assert alone.gpu_hours.before is None
    assert alone.gpu_hours.ratio is None


def test_hours_of_no_workload_are_those_of_the_accounting_however_gpus_are_shared():
    advice = fleet(1, 2)
    held = advice.summary.gpu_hours
    uses = Reconciliation(held, 0.0, 0.0, 500.0, 40.0, 0.0, held + 540.0)
    roomy = replace(advice, summary=replace(advice.summary, gpu_hours=held + 540.0, gpu_hours_by_use=uses))
    shared = replace(roomy, workloads=tuple(replace(w, shared=True) for w in roomy.workloads))
    for one in (roomy, shared):
        told = hours_by_kind(one)
        assert (told[NO_WORKLOAD], told[DRAINED]) == (pytest.approx(500.0), pytest.approx(40.0))
        assert NOT_OBSERVED not in told
    assert NO_WORKLOAD not in hours_by_kind(advice)


def test_idle_gpus_are_summed_by_owner_and_unpriced_ones_are_not_free():
    advice = fleet(2, 2)
    bare = replace(advice.findings[1], id="f-bare", rule="idle", workload=None, nodes=("n9",), cost_usd=None)
    held = [replace(f, workload=advice.workloads[1].id) for f in advice.findings if f.rule == "held-idle"]
    told = {h.owner: h for h in holdings(replace(advice, findings=(bare, *held)))}
    assert told[None].names == ("n9",)
    assert told[None].cost_usd is None
    owner = told["user ann, namespace team-000"]
    assert owner.gpu_hours == pytest.approx(2 * 8 * 168)
    assert owner.cost_usd == pytest.approx(sum(f.cost_usd for f in held))


def test_outcomes_go_to_the_team_of_the_move_or_of_the_one_such_name():
    advice = fleet(2, 2)
    shared = split_by_team(advice, by_namespace)
    known = outcome(advice.recommendations[0].id, "anything")
    gone = outcome("r-gone", "chat-1-0")
    nobodys = outcome("r-nobody", "forgotten")
    every = (known, gone, nobodys)
    assert outcomes_of(every, shared, "team-000") == (known,)
    assert outcomes_of(every, shared, "team-001") == (gone,)
    assert outcomes_of(every, shared, None) == (nobodys,)
