"""Advice on a source of telemetry, with its rules, prices and ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, make_dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..agent.config import load_section
from ..rules.base.errors import UsageError
from ..rules.base.heap import give_back, no_garbage_collection
from ..rules.catalog import price_files as files
from ..rules.catalog.loader import load_catalog
from ..rules.catalog.price_files import SiteEnergy, StatedPrice, StatedPrices, TeamPrices
from ..rules.models import load_kind_model, load_move_model, load_resting_power, load_served_models
from ..rules.policy.kind_priors import load_kind_priors
from ..rules.policy.labels import WORKING_KINDS
from ..rules.policy.latency_classes import load_latency_classes
from ..rules.policy.teams import load_exceptions
from ..rules.policy.thresholds import load_custom_rules, load_levels, load_waste_rules
from .rulebook import Rulebook
from .telemetry.source import Databases, Source

if TYPE_CHECKING:
    from .core.frame import Frame
    from .pipeline import Reasoned
    from .state.fleets import StateBeside

SEED = 20  # of all runs: the same data give the same intervals


def parse_prices(value: object, what: str) -> tuple[StatedPrice, ...]:
    """A table of prices by SKU, or text as in ``H100-SXM5=2.10, L40S=0.9``. Raises UsageError for anything else."""
    if isinstance(value, str):
        pairs = [part.rpartition("=") for part in value.split(",") if part.strip()]
        if not pairs or not all(equals and name.strip() for name, equals, _ in pairs):
            raise UsageError(f"{what} is not a list of SKU=PRICE.", 'Write "H100-SXM5=2.10".')
        return tuple(StatedPrice(name.strip(), usd.strip(), what) for name, _, usd in pairs)
    if not isinstance(value, dict):
        raise UsageError(f"{what} is not a table of prices.", 'Write { "H100-SXM5" = 2.10 }.')
    return tuple(StatedPrice(str(name), usd, what) for name, usd in value.items())


def stated_prices(gpu_hour_usd: Sequence[str], environ: Mapping[str, str], **places: Path) -> StatedPrices:
    """The prices and energy of the settings, and those of --gpu-hour-usd over them. `places`: of the settings, as of
    `load_section`. Raises UsageError for an unknown setting and for a word that is no price."""

    def section(name: str, **parsers: Callable[..., object]) -> dict[str, Any]:
        figures = [(key, Any, field(default=None, metadata={"parse": parse})) for key, parse in parsers.items()]
        return vars(load_section(make_dataclass(name, figures), name, environ, **places))

    prices = section("prices", **dict.fromkeys((files.GPU_HOUR, files.NODE_HOUR), parse_prices))
    names = SiteEnergy.__struct_fields__
    energy = section(files.ENERGY_SECTION, **{name: partial(files.stated_energy, name) for name in names})
    gpu, node = prices[files.GPU_HOUR] or (), prices[files.NODE_HOUR] or ()
    return StatedPrices(gpu, node, files.parse_flags(gpu_hour_usd), SiteEnergy(**energy))


def load_rulebook(
    rules_dir: Path | None, prices: Path | None, now: float, hourly: StatedPrices | None = None
) -> Rulebook:
    """The shipped rules, overridden by a site's own rules and prices.

    `now`: Unix seconds; later prices are refused. `hourly`: hourly prices and energy figures of flags and settings.
    Raises RulesError with file, line and remedy, and UsageError for an invalid hourly price.
    """
    from .classify.kinds.shapes import SHAPES, fingerprint  # noqa: PLC0415 - imports numpy and pandas

    catalog = load_catalog(rules_dir)
    today = datetime.fromtimestamp(now, UTC).date()
    rules, custom = load_waste_rules(rules_dir), load_custom_rules(rules_dir)
    stated = hourly or StatedPrices()
    team = files.load_prices(prices, catalog.nodes.keys(), today=today) if prices is not None else TeamPrices()
    return Rulebook(
        catalog=catalog,
        rules=rules,
        custom=custom,
        exceptions=load_exceptions(rules_dir, known_rules=(*rules, *custom.ids)),
        kinds=load_levels("kinds.yaml", rules_dir),
        bottlenecks=load_levels("bottlenecks.yaml", rules_dir),
        reporting=load_levels("reporting.yaml", rules_dir),
        kind_priors=load_kind_priors(rules_dir),
        latency_classes=load_latency_classes(rules_dir),
        kind_model=load_kind_model(WORKING_KINDS, [shape.name for shape in SHAPES], fingerprint(SHAPES)),
        resting_power=load_resting_power(),
        rest=load_levels("rest.yaml", rules_dir),
        move_model=load_move_model(),
        served_models=load_served_models(),
        team=team,
        hourly=files.resolve_prices(stated, catalog, today),
        energy=team.energy.over(stated.energy),
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
    """The frame of a source (a list: databases) and the advice with its basis.

    `since`: seconds before `until` (Unix seconds; None: the newest data). `ledger`: of decisions and measured moves.
    `with_market`: also evaluate other providers. `read` is called after the first data, before judging. `keeps_rows`:
    keep the frame's rows of GPUs, ports and hosts; otherwise groups of nodes are read and judged in turn, in less
    memory.
    """
    from .classify.judge import judge_groups  # noqa: PLC0415 - the watch and other commands load only the rulebook
    from .core.fleet_identity import fleet_of  # noqa: PLC0415
    from .core.frame import parts_of, together  # noqa: PLC0415
    from .pipeline import reason_on  # noqa: PLC0415
    from .recommend.waiting import queue_of  # noqa: PLC0415
    from .state.ledger import decisions_of  # noqa: PLC0415
    from .state.outcomes import site_of  # noqa: PLC0415

    source = Databases(tuple(source)) if isinstance(source, list) else source
    question = {"since": since, "until": until, "now": now}
    outlines: list[Frame] = []
    frame = source.read(book.catalog, **question) if keeps_rows else None
    parts = parts_of(frame) if frame is not None else source.read_groups(book.catalog, **question)

    def announced() -> Iterator[Frame]:
        for n, part in enumerate(parts):
            give_back()
            if n == 0:
                read()
            if frame is None:
                # Its small tables, and a row of each port.
                ports = part.fabric.drop_duplicates(["node", "device", "port"]) if len(part.fabric) else part.fabric
                gpu, host = part.gpu.iloc[:0].copy(), part.host.iloc[:0].copy()
                outlines.append(replace(part, fabric=ports, gpu=gpu, host=host))
            yield part
            del part  # not held while the next group is read

    verdicts = judge_groups(announced(), book, between=give_back)
    frame = together(outlines) if frame is None else frame
    fleet, ledger_values = fleet_of(frame), dict[str, Any]()
    if ledger is not None:
        entries = ledger.of(fleet).entries()
        ledger_values = {"decisions": decisions_of(entries, now), "site": site_of(entries, now)}
    return frame, reason_on(
        verdicts, book, now, SEED, source=frame.source, with_market=with_market, identity=fleet,
        queue=queue_of(frame), **ledger_values,
    )  # fmt: skip
