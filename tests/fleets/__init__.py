"""Fleets of GPU nodes as a Prometheus holds them behind dcgm-exporter, node_exporter and kube-state-metrics, with the
truth about them: written from documented facts alone, apart from the code that reads such series.

    fleet = ready.mig(days=2, interval_s=300)
    found = series(fleet, np.random.default_rng(1))
    known = truth(fleet)
"""

from .blocks import Part, compose, only
from .description import Fleet, Hold, KubeState, Node, Observed, Slice, Workload
from .generate import series
from .ready import FLEETS
from .removal import Removal, removals
from .truth import Truth, truth

__all__ = [
    "FLEETS", "Fleet", "Hold", "KubeState", "Node", "Observed", "Part", "Removal", "Slice", "Truth", "Workload",
    "compose", "only", "removals", "series", "truth",
]  # fmt: skip
