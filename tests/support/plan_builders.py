"""Plans on hand-built verdicts: fleets whose best plan is known."""

import numpy as np
import pandas as pd
from skuwise.advisor.classify.types import Verdicts
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.core.verdict_types import Owner
from skuwise.advisor.pipeline import reason_on
from skuwise.advisor.plan.figures import Planner
from skuwise.advisor.plan.problem import NO_CHANGE, FleetChange, PlanRequest
from skuwise.advisor.plan.result import Plan
from skuwise.advisor.recommend.waiting import Queue
from skuwise.tests.support.moves_builders import (
    PLAIN,
    bare,
    catalog,
    drawing,
    gpus_of,
    node,
    usage,
    verdicts,
    workload,
)
from skuwise.tests.support.rulebooks import rulebook

NOTHING = pd.DataFrame()


def planner(
    given: Verdicts, prices=(), *, host: pd.DataFrame = NOTHING, decisions=None, queue: Queue | None = None
) -> Planner:
    """A planner of verdicts. Who holds what follows from the workloads themselves."""
    reasoned = reason_on(
        given, rulebook(catalog(), prices=prices), given.window.end, 1,
        source={"kind": "sqlite", "databases": ["fleet.db"]}, decisions=decisions, queue=queue,
    )  # fmt: skip
    held = [(w.id, g.split("-")[1], g, w.end) for w in given.workloads for g in w.gpus]
    uses = pd.DataFrame(held, columns=["workload_id", "node", "gpu_uuid", "ts_end"])
    frame = Frame(given.window, NOTHING, NOTHING, NOTHING, NOTHING, host, NOTHING, uses, NOTHING, {"kind": "sqlite"})
    return Planner(reasoned, frame, 5.0, lambda: 0.0)


def plan_of(given: Verdicts, prices=(), change: FleetChange = NO_CHANGE, **request) -> Plan:
    return planner(given, prices).plan(PlanRequest(**{"reserve_nodes": 0, **request}), change)


def plain_node(name: str, **changes):
    """A node without a fabric."""
    return node(name, PLAIN, **{"fabric": None, **changes})


def replica(name: str, where: str, gpus: range, *, of: str = "chat", team: str | None = None, **changes):
    """One replica of a service on some GPUs of one node."""
    return workload(
        of, (where,), id=f"w-{name}", series_id=f"s-{of}",
        gpus=tuple(gpus_of(where)[i] for i in gpus), owner=Owner(team=team, user="ann"),
        **{"node_sku": PLAIN, **changes},
    )  # fmt: skip


def halves(nodes: int = 2, team: str | None = None) -> Verdicts:
    """Two services, each on half of another node, so that one can be emptied, and nodes that are empty."""
    a, b = replica("a", "n1", range(4), team=team), replica("b", "n2", range(4), of="search", team="two")
    return verdicts([plain_node(f"n{k + 1}") for k in range(nodes)], [a, b], uses=[busy(a), busy(b)])


def busy(w, level: float = 0.6):
    """Use at a level that no smaller count of GPUs could carry."""
    return usage(w, u_c=0.1, u_m=level)


def random_fleet(seed: int) -> Verdicts:
    """Nodes with and without a fabric that is silent; services of a few replicas, idle holders, and nodes that are
    free."""
    rng = np.random.default_rng(seed)
    nodes, work, uses, free = [], [], [], []
    for i in range(int(rng.integers(3, 9))):
        name = f"n{i}"
        nodes.append(node(name) if rng.random() < 0.5 else plain_node(name))
        sku, kind = nodes[-1].node_sku, rng.choice(["idle", "busy", "busy", "held"])
        if kind == "idle":
            free += [bare(name, k) for k in range(8)]
            continue
        size = int(rng.choice([4, 8]))
        w = replica(f"{i}", name, range(size), of=f"svc{int(rng.integers(3))}-{sku}", node_sku=sku)
        level = float(rng.uniform(0.1, 0.7))
        work.append(w)
        uses.append(usage(w, u_c=0, u_m=0, g=0, label="idle") if kind == "held" else usage(w, u_c=0.1, u_m=level))
    if not work:
        return random_fleet(seed + 1000)
    return drawing(verdicts(nodes, work, uses=uses, bare_gpus=free), tokens_a_joule=2.0)
