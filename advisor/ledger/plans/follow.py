"""What telemetry tells of a plan: nodes that became empty, are gone or filled again, replicas that left, new nodes.

A node that is gone while a new one of its type came is replaced, not returned: the fleet has as many as before. Nothing
is concluded from what a window cannot show: one that is too short, or that lay in a part of the plan's places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...core.advice_types import NodeStanding
from ...core.formatting import listed
from ...core.gone import GONE_SECONDS
from ...core.timestamps import minute
from ...core.verdict_types import WorkloadVerdict
from ...moves.context.recommendation_kind import DONE_HOURS
from ...moves.tracking.observation import Observation
from ..entries import BY_ITSELF
from .records import KeptNode, KeptPlan, KeptStep, PlanAct, PlanEvent

_DAY = 86400.0
# Of the nodes that a plan leaves in the fleet so many must be there for a window to show the same fleet.
SAME_FLEET_SHARE = 0.8
# Nobody's work is on a node of which that is known, or none of the plan's where it was put to other use.
FREE: tuple[PlanAct, ...] = ("empty", "returned", "reused")
_Told = tuple[PlanAct, float, str | None]


def plan_events(plan: KeptPlan, seen: Observation, now: float, done: Collection[str] = frozenset()) -> list[PlanEvent]:
    """The events that a window of telemetry adds to a plan at `now` (Unix seconds). `done`: recommendations that are
    done by the ledger."""
    return _Follower(plan, seen, now, done).events() if _tells(plan, seen, now) else []


def _tells(plan: KeptPlan, seen: Observation, now: float) -> bool:
    """Whether a window is newer than what is known, and shows the plan's fleet: what a part does not show is not gone.

    What is dated later than now was dated by a clock that ran ahead, and counts for nothing.
    """
    if not seen.shows_part_of(plan.source):
        return False
    known = [plan.seen_until, *(e.seen_until for e in plan.events if e.seen_until is not None)]
    if seen.end < max((at for at in known if at <= now + _DAY), default=0.0):
        return False
    going = {n.node for n in plan.to("return")}
    return len(set(seen.nodes) - going) >= SAME_FLEET_SHARE * (plan.nodes_today - len(going))


@dataclass(frozen=True)
class _Follower:
    plan: KeptPlan
    seen: Observation
    now: float
    done: Collection[str]

    def events(self) -> list[PlanEvent]:
        read = self.seen.shows_all_of(self.plan.source)
        shown = {n.node: told for n, told in self._returning.items() if read or n.node in self.seen.nodes}
        nodes = [
            *(self._noted(told, node=node) for node, told in shown.items()),
            *(self._noted(told, node=n.node) for n, told in self._rented.items()),
        ]
        steps = [self._noted(told, step=s.number) for s in self.plan.steps if (told := self._step(s)) is not None]
        return [event for event in (*nodes, *steps) if event is not None]

    def _noted(self, told: _Told, *, step: int | None = None, node: str | None = None) -> PlanEvent | None:
        """None: it is what is known already. Who uses a node is noted once."""
        act, since, why = told
        last = self.plan.last(step=step, node=node)
        if last is not None and last.act == act and (last.why or act != "in-use" or why is None):
            return None
        if last is None and act == "missing":
            return None
        return PlanEvent(act, self.now, BY_ITSELF, why, step, node, since, self.seen.end)

    # ---- nodes

    def _gone(self, node: str) -> bool:
        """Whether a node is gone. One that the window does not show may lie in a place that was not read."""
        return self.seen.gone(node) and (node in self.seen.nodes or self._whole)

    @cached_property
    def _whole(self) -> bool:
        """Whether the window shows all that there is of the plan's fleet, and for long enough that the rest is gone."""
        return self.seen.tells_gone and self.seen.shows_all_of(self.plan.source)

    @cached_property
    def _returning(self) -> dict[KeptNode, _Told]:
        found = {n: self._node(n) for n in self.plan.to("return")}
        rented = {told[2] for told in self._rented.values()}
        came = Counter(_type(n.node_sku, n.gpu_count) for n in self._arrived if n.node not in rented)
        came.subtract(_type(n.node_sku, n.gpus) for n, told in found.items() if told[0] == "replaced")
        # Those that were replaced already stay so; else the last that left stands for the new one.
        left = sorted(
            (n for n, told in found.items() if told[0] == "returned"),
            key=lambda n: (self._last_known(n.node) != "replaced", -found[n][1], n.node),
        )
        for n in left:
            kind = _type(n.node_sku, n.gpus)
            if came[kind] > 0:
                came[kind] -= 1
                found[n] = "replaced", found[n][1], None
        return found

    def _node(self, n: KeptNode) -> _Told:
        seen, name = self.seen, n.node
        if self._gone(name):
            return "returned", seen.last_seen(name), None
        holders = seen.holders(name)
        if holders:
            return self._held(n, holders)
        last = self.plan.last(node=name)
        if name not in seen.nodes and last is not None:
            return last.act, last.since if last.since is not None else seen.start, last.why
        if name not in seen.nodes or seen.silent(name):
            return "silent", seen.last_seen(name), None
        return "empty", max((w.end for w in seen.on_node.get(name, ())), default=seen.start), None

    def _last_known(self, node: str) -> PlanAct | None:
        """What was last noted of a node while it sent data, or once it was gone; None: nothing was."""
        return next((e.act for e in reversed(self.plan.events) if e.node == node and e.act != "silent"), None)

    def _held(self, n: KeptNode, holders: Sequence[WorkloadVerdict]) -> _Told:
        since = max(min(w.start for w in holders), self.seen.start)
        leaving = {s.series for s in self.plan.steps if n.node in s.parts.leaves}
        others = [w for w in holders if w.series_id not in leaving]
        was_free = self._last_known(n.node) in FREE
        if others and len(others) == len(holders):
            if n.realisation == "capacity-freed" and was_free:
                return "reused", since, _runs(others)
            return "in-use", since, _runs(others)
        return "in-use", since, _runs(holders) if was_free else None

    @cached_property
    def _arrived(self) -> tuple[NodeStanding, ...]:
        """Nodes that came since the plan was kept and are still there, in the order of their coming."""
        there = {n.node for n in self.plan.nodes if n.role != "rent"}
        new = (s for s in self.seen.nodes.values() if s.node not in there and not self._gone(s.node))
        return tuple(sorted(new, key=lambda s: (s.first_seen, s.node)))

    @cached_property
    def _rented(self) -> dict[KeptNode, _Told]:
        """Nodes that appeared since, by their SKU: the first to come stands for the first that was planned."""
        new: dict[str | None, list[NodeStanding]] = {}
        for standing in self._arrived:
            new.setdefault(standing.node_sku, []).append(standing)
        found: dict[KeptNode, _Told] = {}
        for n in sorted(self.plan.to("rent"), key=lambda n: (n.step or 0, n.node)):
            came = new.get(n.node_sku, []) if n.node_sku is not None else []
            last = self.plan.last(node=n.node)
            if came:
                first = came.pop(0)
                found[n] = ("rented", first.first_seen, first.node)
            elif last is not None and last.act == "rented" and last.why is not None and not self._gone(last.why):
                found[n] = ("rented", last.since if last.since is not None else self.seen.start, last.why)
            else:
                found[n] = ("missing", self.seen.end, None)
        return found

    # ---- steps

    def _step(self, step: KeptStep) -> _Told | None:
        """What is new of a step; None: nothing is. A recommendation's own state is the ledger's; of its step only
        whether what it emptied stays empty is told here."""
        refilled = [(n, told) for n, told in self._freed(step) if told[0] == "in-use" and self._was_free(n.node)]
        last = self.plan.last(step=step.number)
        was_done = any(e.step == step.number and e.act == "done" for e in self.plan.events)
        if refilled and step.kind != "give-up" and (was_done or step.recommendation in self.done):
            node, (_, since, why) = refilled[0]
            return "regressed", since, f"{node.node} is in use again since {minute(since)}: {why or 'its work is back'}"
        if step.kind in ("rent", "give-up"):
            return None  # by its nodes alone
        if step.recommendation is not None:
            mended = last is not None and last.act == "regressed"
            return ("done", self.seen.end, None) if mended and self._all_free(step) else None
        return self._relocated(step, last)

    def _relocated(self, step: KeptStep, last: PlanEvent | None) -> _Told | None:
        seen, runs = self.seen, self.seen.series(step.series)
        if not runs or runs[-1].end < seen.end - GONE_SECONDS:
            if not self._whole:
                return None
            since = runs[-1].end if runs else seen.start
            was_done = last is not None and last.act == "done"
            return None if was_done else ("obsolete", since, f"no run of {step.name} in the last 3 days")
        held = seen.now(step.series)
        if not held or not step.parts.leaves:
            return None
        back = _beyond(step, held)
        if back is None:
            left = self._left(step, runs, held)
            if (seen.end - left) / 3600 >= DONE_HOURS and self._all_free(step):
                return "done", left, None
        elif last is not None and last.act == "done":
            node, since = back
            if (seen.end - since) / 3600 >= DONE_HOURS:
                return "regressed", since, f"{step.name} is on {node} again since {minute(since)}"
        return ("open", seen.end, None) if last is not None and last.act == "obsolete" else None

    def _left(self, step: KeptStep, runs: Sequence[WorkloadVerdict], held: Sequence[WorkloadVerdict]) -> float:
        """From when on no more replicas are on the nodes to leave than are to stay (Unix seconds)."""
        current = {w.id for w in held}
        gone = [w.end for w in runs if w.id not in current and not set(w.nodes).isdisjoint(step.parts.leaves)]
        return max(gone) if gone else max(self.seen.start, min(w.start for w in runs))

    def _freed(self, step: KeptStep) -> list[tuple[KeptNode, _Told]]:
        return [(n, told) for n, told in self._returning.items() if n.step == step.number or n.node in step.parts.frees]

    def _all_free(self, step: KeptStep) -> bool:
        return all(told[0] in FREE for _, told in self._freed(step))

    def _was_free(self, node: str) -> bool:
        return any(e.node == node and e.act in FREE for e in self.plan.events)


def _beyond(step: KeptStep, held: Iterable[WorkloadVerdict]) -> tuple[str, float] | None:
    """A node with more replicas of the step's series than are to stay, and from when on (Unix seconds); None: none."""
    held = list(held)
    for node, staying in step.parts.leaves.items():
        here = sorted(w.start for w in held if node in w.nodes)
        if len(here) > staying:
            return node, here[staying]
    return None


def _type(node_sku: str | None, gpus: int) -> str:
    """What two nodes have in common of which one can take the other's place."""
    return node_sku or f"{gpus} GPUs"


def _runs(holders: Iterable[WorkloadVerdict]) -> str:
    return f"runs {listed(sorted({w.name for w in holders}))}"
