"""Waiting jobs in plans: each GPU once, each job whole, those that wait longest first."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skuwise.advisor.classify.types import RestingGpu, Verdicts
from skuwise.advisor.core.advice_json import document
from skuwise.advisor.plan.build import awaited
from skuwise.advisor.plan.problem import Layout, PlanRequest
from skuwise.advisor.plan.result import SCHEMA, Plan
from skuwise.advisor.plan.solve import solve
from skuwise.advisor.plan.starts import start_jobs, with_steps
from skuwise.advisor.plan.steps import sequence
from skuwise.advisor.recommend.waiting import queue_of
from skuwise.advisor.show.pages.plan import plan_document
from skuwise.advisor.show.writers.text import document_text
from skuwise.tests.support.frame_builder import START, FrameBuilder, queue
from skuwise.tests.support.moves_builders import END, gpus_of, node, usage, verdicts
from skuwise.tests.support.plan_builders import busy, halves, plain_node, planner, replica
from skuwise.tests.support.plan_checker import broken_rules, score, wrong_starts, wrong_steps
from skuwise.tests.support.plan_fleets import small_problem, with_queue
from skuwise.tests.support.schemas import validate


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.booleans())
def test_no_gpu_is_promised_twice(fleet_seed: int, queue_seed: int, keeps_reserve: bool) -> None:
    problem = with_queue(small_problem(fleet_seed), queue_seed)
    problem = awaited(problem if keeps_reserve else replace(problem, reserve={}))
    layouts: list[Layout] = []
    layouts.append(solve(problem, 0.2, time.perf_counter, layouts.append))
    assert layouts[1].bound >= layouts[1].value >= layouts[0].value
    for layout in layouts:
        started = start_jobs(problem, layout)
        kept = replace(layout, kept=layout.kept | {node.node for start in started for node in start.nodes})
        steps = sequence(problem, kept)
        starts = with_steps(problem, layout, steps, started)
        assert broken_rules(problem, kept) == []
        assert wrong_steps(problem, kept, steps) == []
        assert score(problem, layout) == pytest.approx(layout.value, abs=0.02 * len(problem.nodes))
        assert wrong_starts(problem, layout, steps, starts) == []


def planned(given: Verdicts, *rows: Mapping[str, object], **request: Any) -> tuple[Plan, str]:
    """The plan with these jobs waiting, and its page. GPUs that no workload holds are at rest."""
    taken = {gpu for w in given.workloads for gpu in w.gpus}
    free = [(n.node, gpu) for n in given.nodes for gpu in gpus_of(n.node, n.gpu_count) if gpu not in taken]
    resting = (*given.resting, *(RestingGpu(node, gpu, 1.0, False) for node, gpu in free))
    frame = replace(FrameBuilder().frame(), waiting=queue(*rows), waiting_at=END)
    makes = planner(replace(given, resting=resting), queue=queue_of(frame))
    plan = makes.plan(PlanRequest(**{"goal": "capacity", "reserve_nodes": 0, **request}))
    written = document(SCHEMA, plan)
    assert json.dumps(written["starts"]) and written["waiting"]["jobs"] == sum(int(row.get("jobs", 1)) for row in rows)  # type: ignore[call-overload]
    validate(written, "fleet-plan")
    return plan, document_text(plan_document(plan, makes.reasoned.advice))


def starts(plan: Plan) -> list[tuple[int, dict[str, int], int | None]]:
    return [(s.jobs, {node.node: node.gpus for node in s.nodes}, s.step) for s in plan.starts]


def test_a_release_starts_the_jobs_that_wait_and_their_node_is_not_returned() -> None:
    """Two services on half a node each, and a free node: a job of 8 GPUs starts on that, the next once one is empty."""
    plan, page = planned(halves(3), {"gpus": 8.0, "jobs": 3})
    assert [(jobs, sum(nodes.values()), step) for jobs, nodes, step in starts(plan)] == [(1, 8, None), (1, 8, 1)]
    assert plan.returned == () and [step.frees for step in plan.steps] == [()]
    assert starts(plan)[0][1] == {"n3": 8} and starts(plan)[1][1].keys() == plan.steps[0].sources
    assert page.startswith("Plan: start 2 of 3 waiting jobs\n") and "Waiting jobs that start" in page
    assert [p.reserve_gpus for p in plan.pools] == [0]


@pytest.mark.parametrize(
    ("rows", "request_", "expected"),
    [
        # By turns, each job whole; what does not fit lets the next one pass.
        ([{"gpus": 6.0, "since": START}, {"id": "2", "gpus": 4.0, "since": START + 1}], {}, [(1, {"n2": 6}, None)]),
        ([{"gpus": 6.0, "since": START + 1}, {"id": "2", "gpus": 4.0, "since": START}], {}, [(1, {"n2": 4}, None)]),
        ([{"gpus": 9.0}, {"id": "2", "gpus": 1.0, "jobs": 2}], {}, [(2, {"n2": 2}, None)]),
        ([{"gpus": 16.0, "nodes": 2.0}], {}, []), ([{"gpus": 1.0, "gpu_type": "a100"}], {}, []),
        # A MIG instance is no GPU, and what waits for something else is not served.
        ([{"gpus": 1 / 7, "gpu_type": "1g.10gb"}], {}, []),
        ([{"gpus": 4.0, "jobs": 3}], {}, [(2, {"n2": 8}, None)]),
        # The reserve stays free, a node that is excluded takes nothing, other goals start none.
        ([{"gpus": 4.0}], {"reserve_nodes": 1}, []), ([{"gpus": 4.0}], {"exclude": frozenset({"n2"})}, []),
        ([{"gpus": 4.0}], {"goal": "nodes"}, []), ([{"gpus": 4.0}], {"goal": "cash"}, []),
    ],
)  # fmt: skip
def test_gpus_that_are_free_today_are_given_in_turns(
    rows: list[Mapping[str, object]], request_: Mapping[str, Any], expected: list[object]
) -> None:
    a = replica("a", "n1", range(8))
    plan, _ = planned(verdicts([plain_node("n1"), plain_node("n2")], [a], uses=[busy(a)]), *rows, **request_)
    assert starts(plan) == expected


def test_with_few_moves_those_win_where_jobs_wait() -> None:
    """A change on H100 nodes frees as many GPUs as one on A100 nodes, and another one more; a job waits for A100."""
    other = {"node_sku": "azure/Standard_ND96amsr_A100_v4", "gpu_sku": "A100-SXM4-80GB"}
    nodes = [plain_node("n1"), plain_node("n2"), *(
        node(name, other["node_sku"], gpu_sku=other["gpu_sku"], gpu_name="NVIDIA A100-SXM4-80GB", fabric=None)
        for name in ("n3", "n4"))]  # fmt: skip
    work = [
        replica("a", "n1", range(6), kind="idle"), replica("b", "n3", range(4), of="old", kind="idle", **other),
        replica("c", "n4", range(8), of="busy", **other), replica("d", "n2", range(8), of="chat2"),
    ]  # fmt: skip
    idle = {w.id: w.gpu_hours for w in work[:2]}
    uses = [usage(w, u_c=0, u_m=0, g=0, label="idle") for w in work[:2]] + [busy(w) for w in work[2:]]
    given = verdicts(nodes, work, uses=uses, idle_hours=idle)
    chosen = {}
    for gpu_type, gpus in (("a100", 8.0), ("h100", 8.0)):
        plan, _ = planned(given, {"gpus": gpus, "gpu_type": gpu_type}, max_moves=1)
        chosen[gpu_type] = [step.name for step in plan.steps], starts(plan)
    assert chosen == {"a100": (["old"], [(1, {"n3": 8}, 1)]), "h100": (["chat"], [(1, {"n1": 8}, 1)])}


@pytest.mark.parametrize("ends", [[END], [END - 1200, END]])
def test_a_job_at_rest_that_is_released_makes_room(ends: list[float]) -> None:
    """It trained, and holds the GPUs since; so did another one, until it took them over. Two jobs wait for them."""
    runs = [replica(name, "n1", range(8), kind="training", of=f"train-{name}", end=end)
            for name, end in zip("ab", ends, strict=False)]  # fmt: skip
    uses = [usage(run, label="compute") for run in runs]
    for rows in uses:
        rest = rows["ts"] > END - 60 * 3600
        rows.loc[rest, ["u_c", "u_m", "g", "duty"]] = 0.0
        rows.loc[rest, "bottleneck"] = "idle"
    given = verdicts([plain_node("n1")], runs, uses=uses, idle_hours={run.id: 480.0 for run in runs})
    given = replace(given, resting=tuple(RestingGpu("n1", gpu, 1.0, True) for gpu in runs[0].gpus))
    plan, _ = planned(given, {"gpus": 8.0, "jobs": 2}, risk="high")
    assert [step.action for step in plan.steps] == ["release"] * len(runs)
    assert [(jobs, nodes) for jobs, nodes, _ in starts(plan)] == [(1, {"n1": 8})]
