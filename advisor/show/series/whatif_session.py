"""One workload prepared for what-if questions: its group, its baseline and the power of its GPUs, computed once."""

from collections.abc import Sequence
from dataclasses import dataclass

from ....rules.catalog.types import MEMORY_SLICES
from ...classify.judge import judge
from ...core.frame import Frame, of_nodes
from ...core.verdict_types import WorkloadVerdict
from ...pipeline import fleet_of
from ...recommend.fleet import Baseline, Fleet, baseline_for
from ...recommend.predict.calibration import NO_SITE, Site
from ...recommend.predict.clock_model import Draw, power_at_work
from ...recommend.whatif import SEED, WhatIfChoice, WhatIfResult, survey, what_if
from ...rulebook import Rulebook


@dataclass(frozen=True)
class Workbench:
    """`profiles`: the MIG instances of its GPU by name, the smallest first. `targets`: each node of the catalog as if
    it alone were chosen; those of its provider, then priced ones of others.
    """

    workload: str
    fleet: Fleet
    base: Baseline
    drawn: Draw | None
    profiles: tuple[str, ...]
    targets: tuple[WhatIfResult, ...]

    def ask(self, choice: WhatIfChoice) -> WhatIfResult:
        return what_if(self.fleet, self.base, choice, self.drawn)


def workbench(
    frame: Frame, workloads: Sequence[WorkloadVerdict], id_: str, book: Rulebook, at: float, *, site: Site = NO_SITE
) -> Workbench | None:
    """The workbench of a workload. `workloads`: all of the frame's window; `at`: now, Unix seconds; `site`: corrections
    of predictions from moves done here. None: the frame has no workload with this id.

    Only the nodes of its series are judged: judging the fleet would take too long.
    """
    series = {w.series_id for w in workloads if w.id == id_}
    if not series:
        return None
    nodes = {node for w in workloads if w.series_id in series for node in w.nodes}
    verdicts = judge(of_nodes(frame, nodes), book)
    fleet = fleet_of(verdicts, book, at, SEED, site=site)
    group = next((g for g in fleet.groups if any(w.id == id_ for w in g.workloads)), None)
    if group is None:
        return None
    base = baseline_for(fleet, group)
    sku = book.catalog.gpu(group.lead.gpu_sku) if group.lead.gpu_sku else None
    profiles = sorted(sku.mig_profiles, key=lambda p: (p.memory_slices, p.sm_count)) if sku is not None else ()
    parts = tuple(p.name(sku.mem_bytes) for p in profiles if sku is not None and p.memory_slices < MEMORY_SLICES)
    here = group.nodes[0].provider if group.nodes else None
    nodes_sold = book.catalog.nodes.values()
    same_provider = [n for n in nodes_sold if n.provider == here and n.name != group.lead.node_sku]
    elsewhere = [n for n in nodes_sold if n.provider != here and n.prices]
    targets = (*survey(fleet, base, same_provider), *survey(fleet, base, elsewhere))
    return Workbench(id_, fleet, base, power_at_work(verdicts, group, fleet.hours_of(group)), parts, targets)
