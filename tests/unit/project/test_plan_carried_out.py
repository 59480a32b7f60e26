"""A plan carried out on the true fleet: replicas go where its steps say, and what cannot be done is named."""

from __future__ import annotations

import pytest
from skuwise.advisor.core.advice_types import Action, Interval
from skuwise.advisor.demo.skus import L4_1, L4_4, L40S_4
from skuwise.advisor.plan.result import Move, Plan, PlanStep, RentedNode, ReturnedNode, SolverFigures
from skuwise.benchmarks.evaluation.planning.execute import execute
from skuwise.benchmarks.evaluation.planning.traffic import Cost, Traffic
from skuwise.benchmarks.evaluation.planning.world import (
    Machine,
    Replica,
    Service,
    Session,
    World,
    cluster_of,
    service_series,
    session_series,
)

NODES = ("l40s-01", "l40s-02", "l40s-03")
NONE = Interval(0.0, 0.0, 0.0)
SERVICE = Service(
    key="s", namespace="nlp", deployment="rerank", command="tritonserver", silent=False, sku=L40S_4, first=3,
    gpus_first=2, replicas=(Replica(1, NODES[0], 2), Replica(2, NODES[0], 2), Replica(3, NODES[1], 2)),
    traffic=Traffic(1, 10.0, 0.3, 1.0, 12.0, 0.05, 0.1), cost=Cost(1e12, 1e9, 0.0, 0.0, 60e9), decode=None,
    context_power=0.4, cpu=0.05,
)  # fmt: skip
HOLDER = Session("h", "amara", True, NODES[2], 4)
WORLD = World(0, tuple(Machine(name, L40S_4) for name in NODES), (SERVICE,), (HOLDER,), ())
CLUSTER = cluster_of(L40S_4)


def _step(
    number: int, series: str, *moves: tuple[str | None, str | None], action: Action | None = "reduce-gpus"
) -> PlanStep:
    return PlanStep(
        number=number, kind="option" if action else "relocate", action=action, recommendation=None, series=series,
        workload=None, name="x", team=None, moves=tuple(Move("x", a, b, 2) for a, b in moves), frees=(), rents=(),
        after=(), risk=None, staging=None,
    )  # fmt: skip


def _plan(*steps: PlanStep, returned: tuple[str, ...] = (), rented: tuple[tuple[str, str], ...] = ()) -> Plan:
    return Plan(
        goal="nodes", generated_at=0.0, start=0.0, end=0.0, source={}, nodes_today=3, gpus_today=12, workloads=2,
        touched=1, nodes=NONE, gpus_freed=NONE, cash=(), energy_kwh_per_month=None, pools=(),
        returned=tuple(
            ReturnedNode(n, "p", L40S_4, "L40S", 4, None, None, "cash-now", None, None, False) for n in returned
        ),
        rented=tuple(RentedNode(name, "p", sku, None, 4, None, None) for name, sku in rented), missing=(), steps=steps,
        not_in_plan=(), beside=(), kept_nodes={}, solver=SolverFigures("nodes", 0, 0, 0, 0, True),
    )  # fmt: skip


OWN = service_series(SERVICE, CLUSTER)


def test_replicas_stop_and_move_and_holders_end() -> None:
    plan = _plan(
        _step(1, OWN, (NODES[0], None)),
        _step(2, OWN, (NODES[1], NODES[0]), action=None),
        _step(3, session_series(HOLDER, CLUSTER), (NODES[2], None), action="release"),
        returned=NODES[1:],
    )
    made = execute(WORLD, plan, {})
    assert made.faults == ()
    assert made.world.held() == {NODES[0]: 4, NODES[1]: 0, NODES[2]: 0}
    assert [r.node for r in made.world.services[0].replicas] == [NODES[0], NODES[0]]
    assert made.world.sessions == ()
    assert made.world.closed == set(NODES[1:])


def test_replicas_start_anew_on_nodes_that_are_rented() -> None:
    plan = _plan(
        _step(
            1,
            OWN,
            (None, "new l4 1"),
            (None, "new l4 2"),
            *((r.node, None) for r in SERVICE.replicas),
            action="move-sku",
        ),
        rented=(("new l4 1", L4_4), ("new l4 2", L4_4)),
    )
    made = execute(WORLD, plan, {})
    (service,) = made.world.services
    assert [made.world.sku(r.node) for r in service.replicas] == [L4_4, L4_4]
    assert service.first == 3
    # 60 GB of a replica are more than two L4 have.
    assert all("needs 30 GB a GPU" in fault for fault in made.faults)
    assert len(made.faults) == 1


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (_plan(returned=(NODES[1],)), "is given back, and 2 of its GPUs are held"),
        (_plan(_step(1, OWN, (NODES[2], None))), "none is there"),
        (_plan(_step(1, OWN, (NODES[1], NODES[0]))), "has 6 GPUs held of 4"),
        (_plan(_step(1, OWN, (NODES[1], "nowhere"))), "moves to nowhere, which is not there"),
        (_plan(_step(1, OWN, *((r.node, None) for r in SERVICE.replicas))), "leaves no replica"),
        (_plan(_step(1, "unknown", (NODES[1], None))), "which is not there"),
        (_plan(_step(1, OWN, (NODES[1], "new")), rented=(("new", L4_1),)), "has 2 GPUs held of 1"),
    ],
)
def test_what_cannot_be_done_is_named(plan: Plan, fault: str) -> None:
    assert [one for one in execute(WORLD, plan, {}).faults if fault in one]
