"""How often the bottleneck of a case whose limit is known is right.

    python -m skuwise.benchmarks.generators.limits --seeds 0-9 [--wrong]

The cases are physics written down, and the verdict's thresholds were set with them in sight: this shows mechanisms, not
how often a verdict is right on data of others (that is `skuwise.benchmarks.evaluation.evaluate`).
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict

import numpy as np
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.verdicts.judge import judge

from .cases import CASES
from .frames import START, VIEWS, frame_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--wrong", action="store_true", help="print every case that is judged wrong")
    parser.add_argument("--view", help="one of the views alone")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    book = load_rulebook(None, None, START)
    for view in (one for one in VIEWS if options.view in (None, one.name)):
        said: dict[str, Counter[str]] = defaultdict(Counter)
        for seed in range(int(first), int(last or first) + 1):
            for number, make in enumerate(CASES):
                case = make(np.random.default_rng([seed, number]))
                frame = frame_of(case, view, np.random.default_rng([seed, number, 1]))
                workload = judge(frame, book).workloads[0]
                found = workload.bottleneck.label
                said[case.label][found] += 1
                if options.wrong and found != case.label:
                    shares = dict(workload.bottleneck.time_shares)
                    means = {name: round(float(values.mean()), 2) for name, values in case.levels.items()}
                    print(
                        f"  {view.name}: {case.name} on {case.gpus} x {case.board.sku} is {case.label}, said {shares}"
                    )
                    print(f"    kind {workload.kind.label}, {means}, cpu {case.cpu:.2f}, clock {case.clock:.2f}")
        recalls = {label: own[label] / sum(own.values()) for label, own in said.items()}
        print(f"{view.name}: balanced accuracy {np.mean(list(recalls.values())):.3f} over {len(recalls)} limits")
        for label, own in sorted(said.items()):
            missed = ", ".join(f"{name} {count}" for name, count in own.most_common() if name != label)
            print(f"    {label:<14} {own[label]:>3} of {sum(own.values()):<3} {missed}")


if __name__ == "__main__":
    main()
