"""The kinds of recommendation, in the order in which they are built and named here."""

from collections.abc import Mapping, Sequence

from ...core.advice_types import Recommendation
from ...core.formatting import listed
from ..move import Move
from .clocks import LowerClock, RestClocks
from .fewer_gpus import MigSlice, ReduceGpus
from .fix_first import FixFirst
from .move_sku import MoveSku
from .placement import Consolidate, SwapPlacement
from .release import Release, ScheduleOff

MOVES: tuple[Move, ...] = (
    FixFirst(), Release(), SwapPlacement(), ReduceGpus(), MigSlice(), MoveSku(), ScheduleOff(), LowerClock(),
    Consolidate(), RestClocks(),
)  # fmt: skip
BY_ACTION: Mapping[str, Move] = {action: move for move in MOVES for action in move.actions}


def title(r: Recommendation, workload: str | None, nodes: Sequence[str]) -> str:
    """The action with its object; of one that another version made, its action and what it is about. `workload`: its
    name, None: it is about no workload; `nodes`: that its findings name."""
    of, at = workload or listed(nodes) or "the fleet", f" on {listed(nodes)}" if nodes else ""
    move = BY_ACTION.get(r.action)
    fields = {name: value for change in r.changes for name, value in change.fields.items()}
    return move.title(r, of, at, fields) if move is not None else f"{of}: {r.action}"
