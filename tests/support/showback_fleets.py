"""Fleets for showback: one with known answers, and random ones that break off, share, stand idle and lack prices."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
from skuwise.advisor.billing.showback import Showback, showback_of
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.rules.catalog.types import Price
from skuwise.tests.support.frame_builder import DECODE, FREE, HELD, HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook

NOW = START + 4000 * HOUR
SKU = "azure/Standard_ND96isr_H100_v5"
RATE = 80.0  # of a node an hour
LEVELS = (TRAINING, DECODE, HELD, FREE)


def price(usd: float = RATE, basis: str = "negotiated", sku: str = SKU, until: str | None = None) -> Price:
    return Price(f"{sku}@global:{basis}", sku, "global", usd, basis, "contract 7", "2026-08-01", until)


def split(
    frame: Frame, *prices: Price, team_of: Callable[[WorkloadVerdict], str | None] = lambda w: w.owner.team
) -> Showback:
    return showback_of(frame, rulebook(prices=prices or (price(),)), now=NOW, team_of=team_of)


def known(
    hours: int = 48, *, fabric: float | None = None, namespace: str | None = None, account: str | None = None
) -> FrameBuilder:
    """A node of eight: four GPUs train, two are held idle, two are free. `fabric`: how busy its port is."""
    builder = FrameBuilder(hours=hours)
    uuids = builder.node("n1", gpus=8)
    for uuid, level in zip(uuids, (TRAINING,) * 4 + (HELD,) * 2 + (FREE,) * 2, strict=True):
        builder.use(level, "n1", uuid)
    trains, held = ([("n1", uuid) for uuid in some] for some in (uuids[:4], uuids[4:6]))
    builder.work("w-train", trains, name="train", series="s-train", namespace=namespace, account=account)
    builder.work("w-held", held, name="held", series="s-held", namespace="lab")
    if fabric is not None:
        builder.port(fabric, "n1")
    return builder


def with_tokens(frame: Frame, workload: str, per_hour: float, *, hours: range, node: str = "n1") -> Frame:
    """The frame with what an engine of the workload generated in these hours."""
    about = {"node": node, "workload_id": workload, "engine": "e", "seconds": HOUR, "generated_tokens": per_hour}
    return replace(frame, tokens=pd.DataFrame([{**about, "ts": START + (n + 1) * HOUR} for n in hours]))


def random_fleet(seed: int) -> tuple[Frame, tuple[Price, ...]]:
    """A few nodes over a few days: GPUs that begin late, have gaps, rows of unlike length and workloads in turns."""
    rng = np.random.default_rng(seed)
    builder = FrameBuilder(hours=int(rng.integers(5, 80)))
    for n in range(int(rng.integers(1, 5))):
        name = f"n{n}"
        count = int(rng.choice([1, 2, 8]))
        begins = int(rng.integers(0, builder.hours)) if rng.random() < 0.3 else 0
        # A node that should have more GPUs than were ever seen.
        missing = int(rng.integers(1, 3)) if count < 8 and rng.random() < 0.3 else 0
        uuids = builder.node(name, gpus=count, gpu_count=count + missing, first_seen=START + begins * HOUR)
        if rng.random() < 0.5:
            builder.port(float(rng.choice([0.0, 0.4])), name)
        for uuid in uuids:
            if rng.random() < 0.1:
                continue  # never observed
            interval = float(rng.choice([HOUR, HOUR, 900.0]))
            last = builder.hours - int(rng.integers(0, 3))
            at = begins
            while at < last:
                until = min(at + int(rng.integers(1, 30)), last)
                level = LEVELS[int(rng.integers(len(LEVELS)))]
                builder.use(level, name, uuid, start=at, end=until, interval=interval, observed=rng.choice([1.0, 0.7]))
                at = until + int(rng.integers(0, 6))
        for k in range(int(rng.integers(0, 5))):
            some = list(rng.choice(uuids, size=int(rng.integers(1, len(uuids) + 1)), replace=False))
            start = float(rng.uniform(0, builder.hours - 1))
            end = float(rng.uniform(start + 0.5, builder.hours))
            builder.work(
                f"w-{name}-{k}", [(name, str(uuid)) for uuid in some], start=start, end=end, name=f"job{k}",
                series=f"s-{k}", shared=int(rng.random() < 0.2), namespace=str(rng.choice(["a", "b"])),
            )  # fmt: skip
    return builder.frame(), (price(float(rng.uniform(1, 120))),)
