"""The Prometheus of the tutorial: a small cluster behind exporters alone, with two whole weeks of series up to now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from skuwise.tests.fleets import compose, hardware, series
from skuwise.tests.fleets.blocks import founding, idle, office, serving, training
from skuwise.tests.fleets.description import Fleet, Observed
from skuwise.tests.support.prometheus_engines import prometheus

DAYS, INTERVAL_S = 15.0, 300.0
LABELED = Observed(node_labels=True, more_prof=True)


def fleet(start: float, days: float = DAYS) -> Fleet:
    """Seven nodes: two that train, one that serves on InfiniBand nodes, small services, an office and an idle node."""
    return replace(
        compose(
            "tutorial",
            training("train", "train_network", hardware.ND_H100, 2, observed=LABELED),
            founding("serve-01", hardware.ND_H100, LABELED),
            serving("light-01", "light", hardware.G6, observed=LABELED),
            office("office-01", hardware.LAMBDA_H100),
            idle("spare-01", hardware.ND_H100, LABELED),
            days=days, interval_s=INTERVAL_S,
        ),
        start=start,
    )  # fmt: skip


@contextmanager
def tutorial_server(folder: Path, seed: int = 11) -> Iterator[str]:
    """The address of a Prometheus whose newest sample is a few minutes old, as in a cluster that runs."""
    start = time.time() // INTERVAL_S * INTERVAL_S - DAYS * 86400
    with prometheus(folder, series(fleet(start), np.random.default_rng(seed))) as url:
        yield url
