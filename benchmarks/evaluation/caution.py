"""Thousands of random removals from simulated fleets: what is claimed of the rest that the whole does not bear out.

    python -m skuwise.benchmarks.evaluation.caution [COUNT] [FIRST_SEED] [SCENARIO]

Prints each violation with the seed that shows it, and how many removals there were by way.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.views.whatif_session import of_nodes
from skuwise.benchmarks.generators.first import simulate
from skuwise.tests.support.removals import advice_of, made_by_hand, removal, violations

UNTIL = 1_790_000_000.0
# Scenario -> days. Moves that rest on habits of the day need a week.
SCENARIOS = {
    "mixed": 9.0, "founding": 4.0, "small": 4.0, "idle": 4.0, "mig": 4.0, "light": 5.0, "standby": 4.0,
    "notebooks": 9.0, "telemetry-fault": 3.0, "batch": 3.0, "ethernet": 3.0, "launch-bound": 3.0,
}  # fmt: skip
BY_HAND = "by-hand"  # six nodes of constant use: a case takes a fraction of the time
NODES_MOST = 6  # small fleets show the same faults in a fraction of the time
EACH = 40  # removals from one cut of a fleet


def fleet(folder: Path, scenario: str, seed: int) -> Frame:
    """A scenario's frame, by the simulator's own databases."""
    if scenario == BY_HAND:
        return made_by_hand()
    path = folder / f"{scenario}-{seed}.db"
    simulate(scenario, path, days=SCENARIOS[scenario], seed=seed, until=UNTIL, progress=lambda _: None)
    return read_frame([path])


def main() -> int:
    """Removals in batches, each from another cut of another fleet."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    asked = sys.argv[3] if len(sys.argv) > 3 else None
    ways: Counter[str] = Counter()
    found: Counter[str] = Counter()
    claims = done = 0
    began = time.monotonic()
    frames: dict[tuple[str, int], Frame] = {}
    with tempfile.TemporaryDirectory() as folder:
        while done < count:
            rng = np.random.default_rng(seed)
            # The fleet in which every kind of move pays comes as often as all others together.
            scenario = "mixed" if rng.random() < 0.5 else str(rng.choice(list(SCENARIOS)))
            scenario = asked or scenario
            key = scenario, seed % 3
            if key not in frames:
                frames[key] = fleet(Path(folder), *key)
            whole = frames[key]
            names = whole.nodes["node"].tolist()
            first = int(rng.integers(len(names)))
            cut = of_nodes(whole, (names + names)[first : first + min(NODES_MOST, len(names))])
            base = advice_of(cut)
            claims += sum(r.counts for r in base.recommendations)
            for n in range(min(EACH, count - done)):
                one = removal(cut, np.random.default_rng([seed, n]))
                ways[one.name.split(":")[0]] += 1
                try:
                    told = violations(base, advice_of(one.frame))
                except Exception as error:
                    told = [f"{type(error).__name__}: {error}"]
                for what in told:
                    found[what.split(" ")[0]] += 1
                    print(f"[{seed}, {n}] {scenario}: {one.name}\n    {what}", flush=True)
                done += 1
            seed += 1
    print(f"{done} removals in {time.monotonic() - began:.0f} s: {sum(found.values())} violations {dict(found)}")
    print(f"cash claims in the fleets as they were: {claims}; ways: {dict(ways.most_common())}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
