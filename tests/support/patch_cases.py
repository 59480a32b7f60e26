"""What tests of patches share: accepted recommendations of every action, and their patches."""

from dataclasses import replace
from pathlib import Path

from skuwise.advisor.core.advice_types import Configuration, SavingsBaseline
from skuwise.advisor.patches.build import patch_for
from skuwise.advisor.patches.change import GivenFile, Target
from skuwise.advisor.recommend.progress import Measure, WorkloadAddress
from skuwise.advisor.state.ledger import LedgerEntry, LedgerEvent
from skuwise.tests.support.ledger_builders import entry_of, ground, recommendation
from skuwise.tests.support.moves_builders import IB, PLAIN, catalog

NOW = 1_790_000_000.0
ID = "r-0123456789ab"
H100 = Configuration("H100-SXM5", IB, 16)
SERVICE = WorkloadAddress("kubernetes", "chat", "llm", "Deployment", account="nlp", container="server", replicas=2)

# Action -> what its prediction rests on, beside the common part; nothing for others.
GROUNDS = {
    "move-sku": {"target": Configuration("H100-SXM5", PLAIN, 16)},
    "swap-placement": {
        "target": Configuration("H100-SXM5", PLAIN, 16), "yardstick": SavingsBaseline(partner="pretrain"),
    },
    "reduce-gpus": {"target": replace(H100, gpu_count=8)},
    "mig-slice": {
        "source": replace(H100, gpu_count=2), "target": replace(H100, gpu_count=1), "nodes": ("n1",),
        "yardstick": SavingsBaseline(mig_profile="1g.10gb"),
    },
    "release": {"target": Configuration(None, None, 0)},
    "consolidate": {
        "series_id": None, "address": None, "nodes": (), "target": replace(H100, gpu_count=8),
        "yardstick": SavingsBaseline(nodes=("n1", "n2"), freed=("n2",)),
    },
    "rest-clocks": {"yardstick": SavingsBaseline(rest_watts=70.0)},
    "lower-clock": {
        "yardstick": SavingsBaseline(clock_share=0.8), "before": Measure(16.0, 11_680.0, clock_ratio=1.0),
    },
}  # fmt: skip


def accepted(action: str, about: str = "chat", text: str = "What was measured.", **changes) -> LedgerEntry:
    """A recommendation as the ledger has it after it was accepted. `changes`: of its ground."""
    snapshot = ground(**{"target": H100, "address": SERVICE, **GROUNDS.get(action, {}), **changes})
    events = (LedgerEvent("proposed", NOW - 60, "skuwise"), LedgerEvent("accepted", NOW, "ann"))
    made = recommendation(ID, action=action, text=text)
    return entry_of(made, *events, snapshot=snapshot, about=about, at=NOW - 60)


def patch_of(action: str, target: Target, *manifest: tuple[str, str], entry: LedgerEntry | None = None, **typed):
    """A patch as the command makes it. `manifest`: name and text; `typed`: what is asked on the command line."""
    for name, text in manifest:
        typed["manifest"] = GivenFile(Path("/srv") / name, text.encode("utf-8", "surrogatepass"))
    return patch_for(entry or accepted(action), target, catalog(), typed)
