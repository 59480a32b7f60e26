"""How well trials find the true ratio of two kinds of replicas: simulated queues with known answers.

    python -m skuwise.benchmarks.evaluation.trials [--seeds 2] [--first-seed 0] [--replicas 4] [--days 1 3]

Each trial has a true ratio of times (0.6 to 1.5), a load, a balancer and what its telemetry reports. One replica runs
on the target beside the others on the source (tests/support/replica_queue.py: random arrivals along the day, continuous
batching). Requests are split evenly, go to the replica with the fewest, or a tenth of them to the one on the target.
Its prediction is x1.00 (0.90 to 1.12), so a true ratio beyond 0.86 to 1.18 (5 % are allowed) is better or worse.
Every GPU is off its model's speed by some 2 %, and every hour of engine time by 1 %.

Printed for each telemetry, balancer and load, after each number of days: trials with a ratio; how many 80 % intervals
contain the truth; the median error of the middle; verdicts that are wrong, verdicts that are the opposite of the truth,
and trials without a verdict.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from skuwise.advisor.core.advice_types import Configuration, Interval
from skuwise.advisor.core.work_hours import WorkHour
from skuwise.advisor.ledger.records import Trial
from skuwise.advisor.ledger.trials.outcome import TOLERANCE, TrialOutcome, outcome
from skuwise.advisor.moves.recommendation_kinds import KINDS
from skuwise.rules.base.errors import EXIT_DONE
from skuwise.tests.support.ledger_builders import ground, seen
from skuwise.tests.support.moves_builders import END, PLAIN, workload
from skuwise.tests.support.replica_queue import (
    HOUR,
    ONE_BY_ONE,
    Balancer,
    Engine,
    canary,
    evenly,
    least_requests,
    replicas,
)

RATIOS = (0.6, 0.75, 0.9, 1.0, 1.1, 1.3, 1.5)
PREDICTED = Interval(0.9, 1.0, 1.12)
# Share of a full batch's throughput in the busiest hour; None: a backlog, every batch is full.
LOADS: Mapping[str, tuple[Engine, float | None]] = {
    "light": (Engine(answer=360.0), 0.1),
    "medium": (Engine(answer=360.0), 0.4),
    "heavy": (Engine(answer=360.0), 0.75),
    "saturated": (Engine(answer=360.0), None),
    "one by one": (ONE_BY_ONE, 0.45),
}
TELEMETRY: Mapping[str, tuple[str, ...]] = {
    "tokens and queue": ("busy", "watts", "tokens", "requests", "running"),
    "tokens": ("busy", "watts", "tokens"),
    "requests and queue": ("busy", "requests", "running"),
    "requests": ("busy", "requests"),
    "power and queue, same GPU": ("busy", "watts", "running"),
    "queue": ("busy", "running"),
    "engine time": ("busy",),
    "engine time and power, same GPU": ("busy", "watts"),
}
BALANCERS: Mapping[str, Balancer] = {"even": evenly, "fewest requests": least_requests, "10 % canary": canary}


@dataclass(frozen=True, slots=True)
class Case:
    """One trial: what is true of it, and what was found."""

    load: str
    balancer: str
    telemetry: str
    days: int
    ratio: float
    found: TrialOutcome

    @property
    def truth(self) -> str:
        if self.ratio > PREDICTED.p90 * (1 + TOLERANCE):
            return "worse"
        return "better" if self.ratio < PREDICTED.p10 / (1 + TOLERANCE) else "as predicted"


def cases(ratio: float, load: str, balancer: str, seed: int, count: int, after: Sequence[int]) -> list[Case]:
    """One simulated fleet of so many replicas, evaluated by each telemetry after each number of days."""
    engine, share = LOADS[load]
    rng = np.random.default_rng([seed, int(100 * ratio), list(LOADS).index(load), list(BALANCERS).index(balancer)])
    peak = count * engine.most * share if share is not None else 0.0
    speeds = [(ratio if n == 0 else 1.0) * float(np.exp(rng.normal(0.0, 0.02))) for n in range(count)]
    engines = [replace(engine, slow=slow) for slow in speeds]
    fleet = []
    for hours in replicas(engines, peak, 24 * max(after), rng, BALANCERS[balancer], backlog=share is None):
        scale = float(np.exp(rng.normal(0.0, 0.02)))
        fleet.append([{**hour, "busy": hour["busy"] * 0.97 * float(np.exp(rng.normal(0.0, 0.01))),
                       "watts": hour["watts"] * scale} for hour in hours])  # fmt: skip
    return [
        Case(load, balancer, telemetry, days, ratio, _found(fleet, TELEMETRY[telemetry], days, engine))
        for telemetry, days in product(TELEMETRY, after)
    ]


def _found(
    fleet: Sequence[Sequence[Mapping[str, float]]], told: Sequence[str], days: int, engine: Engine
) -> TrialOutcome:
    start = END - days * 24 * HOUR
    runs = [
        workload("chat", (f"n{n}",), id=f"w-{n}", start=start, gpus=(f"GPU-{n}",),
                 features={"rest_watts": engine.rest_watts},
                 **({"node_sku": PLAIN} if n == 0 else {}))
        for n in range(len(fleet))
    ]  # fmt: skip
    work = {
        f"w-{n}": tuple(
            WorkHour(start + (hour + 1) * HOUR, HOUR, 1.0, **{name: values[name] for name in told})
            for hour, values in enumerate(own[: 24 * days])
        )
        for n, own in enumerate(fleet)
    }
    # Of another model of GPU, power tells nothing of the time.
    sku = "H100-SXM5" if "watts" in told and "tokens" not in told else "A100-SXM4-80GB"
    runs[0] = replace(runs[0], gpu_sku=sku)
    target = Configuration(sku, PLAIN, 1)
    observed = replace(seen(runs, start=start), work=lambda ids: {key: work[key] for key in ids})
    found = outcome(KINDS["move-sku"], ground(target=target, time_ratio=PREDICTED), Trial(), observed, start, seed=7)
    assert found is not None
    return found


def told(every: Sequence[Case], after: Sequence[int]) -> Iterator[str]:
    """The table in Markdown."""
    heads = ("telemetry", "balancer", "load", "days", "with a ratio", "80 % interval covers", "median error", "wrong",
             "opposite", "no verdict")  # fmt: skip
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for telemetry, balancer, load, days in product(TELEMETRY, BALANCERS, (*LOADS, "all"), after):
        own = [
            c for c in every
            if (c.telemetry, c.balancer, c.days) == (telemetry, balancer, days) and load in (c.load, "all")
        ]  # fmt: skip
        if not own:
            continue
        ratios = [(c.ratio, c.found.compared.ratio) for c in own if c.found.compared is not None]
        verdicts = [(c.truth, c.found.verdict) for c in own]
        covered = np.mean([one.p10 <= true <= one.p90 for true, one in ratios]) if ratios else None
        error = np.median([abs(one.p50 / true - 1) for true, one in ratios]) if ratios else None
        wrong = sum(verdict is not None and verdict != truth for truth, verdict in verdicts)
        opposite = sum({truth, str(verdict)} == {"better", "worse"} for truth, verdict in verdicts)
        none = sum(verdict is None for _, verdict in verdicts)
        cells = (
            telemetry, balancer, load, days, f"{len(ratios)} of {len(own)}", _share(covered), _share(error, 1), wrong,
            opposite, none,
        )  # fmt: skip
        yield f"| {' | '.join(map(str, cells))} |"


def _share(value: float | np.floating | None, digits: int = 0) -> str:
    return f"{100 * value:.{digits}f} %" if value is not None else "-"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seeds", type=int, default=2, help="fleets for each true ratio, load and balancer (default: 2)"
    )
    parser.add_argument("--first-seed", type=int, default=0, help="the constants were set on 0 to 2 (default: 0)")
    parser.add_argument("--replicas", type=int, default=4, help="replicas of the service (default: 4)")
    parser.add_argument("--days", type=int, nargs="+", default=[1, 3], help="evaluated after so many (default: 1 3)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    options = parser.parse_args(argv)
    fleets = list(product(RATIOS, LOADS, BALANCERS, range(options.first_seed, options.first_seed + options.seeds)))
    # With a backlog every batch is full, whoever sends the requests.
    fleets = [one for one in fleets if LOADS[one[1]][1] is not None or BALANCERS[one[2]] is evenly]
    with ProcessPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(cases, *fleet, options.replicas, options.days) for fleet in fleets]
        every = [case for one in waiting for case in one.result()]
    print("\n".join(told(every, options.days)))
    print(f"{len(fleets)} fleets, {len(every)} trials")
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
