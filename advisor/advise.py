"""From a source of telemetry to advice on it, with the rules, prices and ledger that stand beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..rules.base.heap import give_back, no_garbage_collection
from .telemetry.source import Databases, Source

if TYPE_CHECKING:
    from ..rules.catalog.hour_prices import StatedPrices
    from .core.frame import Frame
    from .pipeline import Reasoned
    from .rulebook import Rulebook
    from .state.beside import StateBeside

# One seed for all runs: the same data give the same intervals.
SEED = 20


def load_rulebook(
    rules_dir: Path | None, prices: Path | None, now: float, hourly: StatedPrices | None = None
) -> Rulebook:
    """Read what telemetry is judged by: what ships, a site's own rules and its prices over it.

    `now`: Unix seconds; a price of a later day is refused. `hourly`: prices by the hour as somebody wrote them, with
    what the settings say of energy. Raises RulesError with file, line and remedy, and UsageError for a price by the
    hour that cannot be.
    """
    from ..rules.catalog.hour_prices import StatedPrices, resolve_prices  # noqa: PLC0415
    from ..rules.catalog.loader import load_catalog  # noqa: PLC0415
    from ..rules.catalog.price_files import TeamPrices, load_prices  # noqa: PLC0415
    from ..rules.models.published import load_resting_power, load_served_models  # noqa: PLC0415
    from ..rules.models.weights import load_kind_model, load_move_model  # noqa: PLC0415
    from ..rules.policy import thresholds  # noqa: PLC0415
    from ..rules.policy.custom import load_custom_rules  # noqa: PLC0415
    from ..rules.policy.exceptions import load_exceptions  # noqa: PLC0415
    from ..rules.policy.kind_priors import load_kind_priors  # noqa: PLC0415
    from ..rules.policy.labels import WORKING_KINDS  # noqa: PLC0415
    from ..rules.policy.latency_classes import load_latency_classes  # noqa: PLC0415
    from ..rules.policy.thresholds import load_rest_rules  # noqa: PLC0415
    from .classify.kinds.shapes import SHAPES, fingerprint  # noqa: PLC0415
    from .rulebook import Rulebook  # noqa: PLC0415

    catalog = load_catalog(rules_dir)
    today = datetime.fromtimestamp(now, UTC).date()
    rules, custom = thresholds.load_waste_rules(rules_dir), load_custom_rules(rules_dir)
    stated = hourly or StatedPrices()
    own = load_prices(prices, catalog.nodes.keys(), today=today) if prices is not None else TeamPrices()
    return Rulebook(
        catalog=catalog,
        rules=rules,
        custom=custom,
        exceptions=load_exceptions(rules_dir, known_rules=(*rules, *custom.ids)),
        kinds=thresholds.load_thresholds("kinds.yaml", rules_dir),
        bottlenecks=thresholds.load_thresholds("bottlenecks.yaml", rules_dir),
        reporting=thresholds.load_thresholds("reporting.yaml", rules_dir),
        kind_priors=load_kind_priors(rules_dir),
        latency_classes=load_latency_classes(rules_dir),
        kind_model=load_kind_model(WORKING_KINDS, [shape.name for shape in SHAPES], fingerprint(SHAPES)),
        resting_power=load_resting_power(),
        rest=load_rest_rules(rules_dir),
        move_model=load_move_model(),
        served_models=load_served_models(),
        own=own,
        hourly=resolve_prices(stated, catalog, today),
        energy=own.energy.over(stated.energy),
    )


@no_garbage_collection()
def read_and_reason(
    source: Source | list[Path],
    book: Rulebook,
    *,
    now: float,
    since: float = 14 * 86400.0,
    until: float | None = None,
    ledger: StateBeside | None = None,
    with_market: bool = False,
    read: Callable[[], None] = lambda: None,
    keeps_rows: bool = False,
) -> tuple[Frame, Reasoned]:
    """The frame of a source and the advice over it, with what the advice was made of. `since`: seconds before `until`
    (Unix seconds; None: the newest data there is). `read` is called when the first of the frame is there and nothing
    is judged yet.

    `source`: a list of paths stands for databases. `ledger`: where decisions and measured moves of the fleet stand;
    which is its own is known when it was read. `with_market`: whether other providers are looked at, too.
    `keeps_rows`: whether the frame has its rows of GPUs, ports and hosts; without them a large fleet is read and
    judged group by group, in less memory.
    """
    import numpy as np  # noqa: PLC0415

    from .classify.judge import judge_groups  # noqa: PLC0415
    from .core.fleet_identity import fleet_of  # noqa: PLC0415
    from .core.frame_groups import Outline, parts_of  # noqa: PLC0415
    from .pipeline import AdviseOptions, reason_on  # noqa: PLC0415

    source = Databases(tuple(source)) if isinstance(source, list) else source
    asked = {"since": since, "until": until, "now": now}
    outline = Outline()
    frame = source.read(book.catalog, **asked) if keeps_rows else None
    groups = outline.passing(source.read_groups(book.catalog, **asked)) if frame is None else parts_of(frame)
    verdicts = judge_groups(_announced(groups, read), book, between=give_back)
    frame = outline.frame() if frame is None else frame
    fleet = fleet_of(frame)
    own = ledger.of(fleet) if ledger is not None else None
    options = AdviseOptions(now, with_market=with_market)
    if own is not None:
        options = replace(options, decisions=own.decisions(now), site=own.site(now))
    found = reason_on(verdicts, book, options, np.random.default_rng(SEED), source=frame.source)
    return frame, replace(found, advice=replace(found.advice, fleet=fleet))


def _announced(frames: Iterable[Frame], read: Callable[[], None]) -> Iterator[Frame]:
    """The frames; `read` is called when the first is there."""
    for n, frame in enumerate(frames):
        give_back()
        if n == 0:
            read()
        yield frame
        del frame  # not held while the next group is read
