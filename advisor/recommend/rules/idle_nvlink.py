"""NVLink that nothing crosses: work on single GPUs of a node that was built, and is paid, for more."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ....rules.policy.labels import TRAINING_KINDS
from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Finding
from ...core.formatting import dated, usd
from ..finding import as_percent
from ..fleet import Fleet
from ..groups import Group
from ..pricing import nvlink_premium
from ..rule import Verdict, Why, WorkloadRule, seen_at_work, seen_too_short

# At a mean so small a share of the limit, a link is above the limit for half a per cent of the seconds at most.
_REST = 0.005


class IdleNvlink(WorkloadRule):
    """Work on nodes whose NVLink was silent in all but a few seconds, or between whose own GPUs it
    was. Training on several GPUs is out of its scope: another bottleneck may keep its NVLink silent."""

    id = "idle-nvlink"
    fact = "NVLink unused"
    answered_by = {"move-sku": 2}
    waste = "nvlink"
    asks_neighbours, contradicting_limit = True, "nvlink"
    contradicted_by = frozenset({
        "shape-collectives", "shape-links-with-compute", "shape-links-against-compute", "nvlink-use",
        "limited-by-nvlink", "communication-nvlink",
    })  # fmt: skip
    line = ("NVLink sent", "util_p995_max", "idle NVLink up to")

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        return (
            group
            for group in super().scope(fleet)
            if all(fleet.nvlink(n) for n in group.nodes)
            and not (group.kind in TRAINING_KINDS and group.gpus_per_replica > 1)
        )

    def refuted(self, fleet: Fleet, group: Group, finding: Finding) -> str | None:  # noqa: ARG002
        return "nvlink-carries-its-work" if group.exchanges else None

    def judge(self, fleet: Fleet, group: Group, limits: WasteRule) -> Verdict:
        limit, floor = limits.value("util_p995_max"), limits.value("coverage_hours")
        peaks = [n.nvlink_util_p995 for n in group.nodes]
        measured = [p for p in peaks if p is not None]
        # Where the node's NVLink is another's, its own GPUs may be silent still, if that was measured all along.
        use, average_use = group.use, None
        held = use.seconds > 0
        if group.gpus_per_replica > 1 and held.any() and np.isfinite(use.u_n[held]).all():
            average_use = float(np.average(use.u_n[held], weights=use.seconds[held]))
        silent = bool(measured) and max(measured) <= limit
        alone = average_use is not None and average_use <= limit * _REST
        # Some hundred MB/s are below a hundredth of it, and all that experts or a small model's shards exchange.
        if group.exchanges or (len(measured) == len(peaks) and not silent and not alone):
            return None
        if len(measured) < len(peaks):
            return Why.NVLINK_NOT_MEASURED
        if group.kind == "unknown" and group.gpus_per_replica > 1:  # it may be training
            return Why.KIND_UNKNOWN
        if not seen_at_work(group, limits):
            return Why.ON_STANDBY
        observed = min(n.hours_observed for n in group.nodes)
        if not fleet.waste_ready(group) or min(n.evidence_hours for n in group.nodes) < floor:
            return seen_too_short(floor)
        util = max(measured) if silent else limit
        share, cost, text, premium = None, None, "Price share of NVLink: unknown.", None
        premiums = [p for n in group.nodes if (p := nvlink_premium(fleet.book, n)) is not None]
        if len(premiums) == len(group.nodes):
            premium, share = premiums[0], sum(p.share for p in premiums) / len(premiums)
            whole = fleet.cost(group.gpu_hours, group.nodes)
            cost = None if whole is None else whole * share
        if premium is not None and cost is not None:
            paid = f"{usd(cost)} in the window, {dated((premium.price,))}"
            of = f"{premium.share * 100:.0f} % of the node's price, {paid}"
            text = f"NVLink adds an assumed {of} (from node pairs at other providers)."
            if premium.twin is not None:
                text = f"NVLink adds {of}, compared with {premium.twin.sku} (PCIe card, a slower GPU as well)."
        most = "less than 0.1 %" if util < 0.001 else f"at most {as_percent(util)}"
        carried = f"used {most} of one direction" if util > 0 else "carried no traffic"
        return self.found(
            fleet, group,
            evidence=(
                ("nvlink_util_p995", util, "util_p995_max", "ratio of one-way NVLink") if silent
                else ("nvlink_util_mean", average_use, limit * _REST, "ratio of what NVLink sustains"),
                ("hours_observed", observed, "coverage_hours", "hours"),
                *([("nvlink_premium", share, None, "ratio of the node's price")] if premium is not None else ()),
            ),
            gpu_hours=group.gpu_hours, cost=cost,
            values={
                "util": as_percent(util), "traffic": f"{carried} in 99.5 % of seconds",
                "whose": "whatever ran there" if silent else "between its GPUs",
            },
            sure=1.0 if group.gpus_per_replica == 1 else group.lead.kind.confidence,
            after=text, premium=premium,
        )  # fmt: skip
