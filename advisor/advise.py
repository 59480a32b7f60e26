"""From a source of telemetry to advice on it, with the rules, prices and ledger that stand beside it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .telemetry.source import Databases, Source

if TYPE_CHECKING:
    from ..rules.catalog.hour_prices import StatedPrices
    from .core.advice_types import Advice
    from .core.frame import Frame
    from .ledger.sync import LedgerSync

# One seed for all runs: the same data give the same intervals.
SEED = 20


def read_and_advise(
    source: Source | list[Path],
    *,
    now: float,
    since: float = 14 * 86400.0,
    until: float | None = None,
    rules_dir: Path | None = None,
    prices: Path | None = None,
    hourly: StatedPrices | None = None,
    ledger: LedgerSync | None = None,
    with_market: bool = False,
    read: Callable[[], None] = lambda: None,
) -> tuple[Frame, Advice]:
    """The frame of a source and the advice over it. `since`: seconds before `until` (Unix seconds; None: the newest
    data there is). `read` is called between the two: when the frame is there and nothing is judged yet.

    `source`: a list of paths stands for databases. `ledger`: where decisions and measured moves of the fleet stand;
    which is its own is known when it was read. `with_market`: whether other providers are looked at, too. `hourly`:
    prices by the hour, as settings and flags say them (None: none).
    """
    import numpy as np  # noqa: PLC0415

    from .pipeline import advise  # noqa: PLC0415
    from .rulebook import load_rulebook  # noqa: PLC0415
    from .telemetry.fleet_identity import fleet_of  # noqa: PLC0415

    book = load_rulebook(rules_dir, prices, now, hourly)
    source = Databases(tuple(source)) if isinstance(source, list) else source
    frame = source.read(book.catalog, since=since, until=until, now=now)
    read()
    fleet = fleet_of(frame)
    own = ledger.of(fleet) if ledger is not None else None
    advice = advise(
        frame, book.catalog, book.rules, book.own.prices, generated_at=now, rng=np.random.default_rng(SEED),
        kinds=book.kinds, bottlenecks=book.bottlenecks, power=book.own.power, hourly=book.hourly, custom=book.custom,
        exceptions=book.exceptions, decisions=own.decisions(now) if own is not None else None,
        with_market=with_market, site=own.site(now) if own is not None else None,
    )  # fmt: skip
    return frame, replace(advice, fleet=fleet)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A run ends before its garbage matters, and looking for it among millions of cells took a sixth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
