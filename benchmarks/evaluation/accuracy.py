"""How often kind and bottleneck are right, over seeds of a labelled fleet.

    python -m skuwise.benchmarks.evaluation.accuracy --seeds 0-19            names and metadata as they are, then hidden
    python -m skuwise.benchmarks.evaluation.accuracy --seeds 100-119 --wrong show every workload that is judged wrong

Rules are tuned on seeds 100-119 and reported on 0-19. An abstention ("unknown") counts as wrong. The truth is the
simulator's own table; "hidden" takes away names, commands, frameworks and schedulers, so that only the shape speaks;
"coarse" keeps the names and only what dcgm-exporter's defaults give, every 30 s.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.core.advice_types import Finding
from skuwise.advisor.demo.fleet_plan import Truth
from skuwise.advisor.pipeline import AdviseOptions, advise_on
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.verdicts.judge import judge
from skuwise.benchmarks.generators.first import simulate

from ..withheld import coarse, hidden

ABOUT_NODES = ("idle", "idle-fabric")
UNTIL = 1_790_000_000.0  # a fixed moment (2026-09-21): the same fleets every time


def parse_seeds(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def confusion(pairs: Mapping[tuple[str, str], int], what: str) -> Iterable[str]:
    """Rows: truth; columns: verdict."""
    truths = sorted({truth for truth, _ in pairs})
    verdicts = sorted({verdict for _, verdict in pairs})
    width = max(len(name) for name in (*truths, *verdicts, what)) + 2
    yield f"{what:<{width}}" + "".join(f"{verdict:>{width}}" for verdict in verdicts)
    for truth in truths:
        cells = "".join(f"{pairs.get((truth, verdict), 0) or '.':>{width}}" for verdict in verdicts)
        yield f"{truth:<{width}}{cells}"
    total = sum(pairs.values())
    right = sum(count for (truth, verdict), count in pairs.items() if truth == verdict)
    yield f"right: {right} of {total} = {right / max(total, 1):.1%}"


@dataclasses.dataclass
class Flags:
    """How one waste rule did: workloads that deserve it and got it, deserve it and did not, do not and did."""

    right: int = 0
    missed: int = 0
    false: int = 0
    on_training: int = 0

    def count(
        self, truths: Sequence[Truth], nodes: Mapping[str, Sequence[str]], found: Sequence[Finding], rule: str
    ) -> None:
        """`nodes`: those of each workload. A finding flags the workload it names, or all that is on its nodes."""
        flagged = {node for f in found if f.rule == rule for node in (*f.nodes, f.node)}
        named = {f.workload for f in found if f.rule == rule}
        for truth in truths:
            if rule == "idle" and not truth.workload_id.startswith("node:"):
                continue  # a node may truly stand idle for days between its jobs; that says nothing of the jobs
            got = truth.workload_id in named or bool(
                rule in ABOUT_NODES and flagged.intersection(nodes.get(truth.workload_id, ()))
            )
            deserved = rule in truth.waste
            self.right += got and deserved
            self.missed += deserved and not got
            self.false += got and not deserved
            self.on_training += got and truth.kind in ("training", "fine-tuning")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-19")
    parser.add_argument("--scenario", default="small")
    parser.add_argument("--days", type=float, default=14)
    parser.add_argument("--wrong", action="store_true", help="print every workload that is judged wrong")
    options = parser.parse_args()
    book = load_rulebook(None, None, UNTIL)
    waste = {rule: Flags() for rule in ("idle", "held-idle", "idle-fabric")}
    kinds: dict[str, Counter[tuple[str, str]]] = {
        "with names": Counter(),
        "names hidden": Counter(),
        "coarse": Counter(),
    }
    limits: dict[str, Counter[tuple[str, str]]] = {
        "with names": Counter(),
        "names hidden": Counter(),
        "coarse": Counter(),
    }
    for seed in parse_seeds(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "fleet.db"
            made = simulate(options.scenario, path, days=options.days, seed=seed, until=UNTIL)
            frame = read_frame([path])
        truths = {truth.workload_id: truth for truth in made.truths}
        judged = judge(frame, book)
        money = advise_on(judged, book, AdviseOptions(UNTIL), np.random.default_rng(seed), source={})
        nodes = {w.id: w.nodes for w in judged.workloads}
        nodes |= {t: (t.removeprefix("node:"),) for t in truths if t.startswith("node:")}
        for rule, flags in waste.items():
            flags.count(tuple(truths.values()), nodes, money.findings, rule)
        for view, shown in (("with names", frame), ("names hidden", hidden(frame)), ("coarse", coarse(frame))):
            judged = judge(shown, book)
            missed = [t for t in truths if t not in {w.id for w in judged.workloads} and not t.startswith("node:")]
            for workload in judged.workloads:
                truth = truths[workload.id]
                kinds[view][truth.kind, workload.kind.label] += 1
                limits[view][truth.bottleneck, workload.bottleneck.label] += 1
                if options.wrong and (truth.kind, truth.bottleneck) != (workload.kind.label, workload.bottleneck.label):
                    print(
                        f"seed {seed} {view}: {workload.name} is {truth.kind}/{truth.bottleneck}, judged "
                        f"{workload.kind.label} {workload.kind.confidence} {workload.kind.alternatives} / "
                        f"{workload.bottleneck.label} {dict(workload.bottleneck.time_shares)}"
                    )
                    print("   ", {name: round(value, 3) for name, value in workload.features.items()})
            for workload_id in missed:
                kinds[view][truths[workload_id].kind, "not seen"] += 1
                limits[view][truths[workload_id].bottleneck, "not seen"] += 1
        print(f"seed {seed}: {len(judged.workloads)} workloads", flush=True)
    for view, table in kinds.items():
        print(f"\n== {view}: kind (truth down, verdict across)")
        print("\n".join(confusion(table, "kind")))
        print(f"\n== {view}: bottleneck")
        print("\n".join(confusion(limits[view], "bottleneck")))
    print("\n== waste: workloads by rule")
    for rule, flags in waste.items():
        print(
            f"{rule}: {flags.right} rightly flagged, {flags.missed} missed, {flags.false} falsely flagged, "
            f"{flags.on_training} of all flagged are training or fine-tuning"
        )


if __name__ == "__main__":
    main()
