"""Draws docs/rooflines/*.svg: one workload of each bottleneck from simulated fleets. Run by `make picture`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.render.roofline import render_svg, render_text
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.verdicts.judge import judge
from skuwise.advisor.views.roofline import roofline
from skuwise.benchmarks.generators.first import simulate
from skuwise.rules.catalog.loader import load_catalog

FOLDER = Path("docs/rooflines")
UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z: the pictures are the same whenever they are drawn
DAYS = 2.0
# bottleneck -> the scenario whose first workload with this verdict is drawn, and the GPU it is held against
DRAWN = {
    "compute": ("training", "B200-SXM"),
    "hbm-bandwidth": ("decode", "H100-SXM5"),
    "nvlink": ("nvlink-bound", "H100-SXM5"),
    "network": ("small", "H200-SXM"),
    "pcie": ("pcie-bound", "L40S"),
    "host-input": ("input-bound", "L40S"),
    "straggler": ("straggler", "H200-SXM"),
    "latency": ("launch-bound", "L40S"),
    "throttled": ("throttled", "H200-SXM"),
}


def main() -> None:
    catalog = load_catalog()
    FOLDER.mkdir(exist_ok=True)
    for bottleneck, (scenario, against) in DRAWN.items():
        found = _first(scenario, bottleneck)
        if found is None:
            raise SystemExit(f"No workload of the scenario {scenario} is judged {bottleneck}.")
        own = catalog.gpu(found.gpu_sku) if found.gpu_sku else None
        drawn = roofline(found, own, [catalog.gpus[against]])
        if drawn.place is None:
            raise SystemExit(f"{bottleneck}: {' '.join(drawn.missing)}")
        (FOLDER / f"{bottleneck}.svg").write_text(render_svg(drawn))
        print(f"{bottleneck}: {render_text(drawn).splitlines()[0]}")


def _first(scenario: str, bottleneck: str) -> WorkloadVerdict | None:
    """The largest workload of the scenario with this verdict and a place under its roof."""
    with tempfile.TemporaryDirectory() as name:
        fleet = Path(name) / "fleet.db"
        simulate(scenario, fleet, days=DAYS, seed=0, until=UNTIL)
        workloads = judge(read_frame([fleet]), load_rulebook(None, None, UNTIL)).workloads
    placed = {"tensor_per_engine", "hbm_per_engine"}
    fits = (w for w in workloads if w.bottleneck.label == bottleneck and placed <= w.features.keys())
    return max(fits, key=lambda w: (w.gpu_hours, w.id), default=None)


if __name__ == "__main__":
    main()
