"""Dollars per hour from the section ``[prices]`` of the settings files, and from ``--gpu-hour-usd``.

```toml
[prices]
gpu_hour_usd = { "H100-SXM5" = 2.10 }
node_hour_usd = { "aws/p5.48xlarge" = 55.0 }
```
In the environment: ``SKUWISE_PRICES_GPU_HOUR_USD="H100-SXM5=2.10, A100-SXM4-80GB=1.30"``. What the site says of its
energy stands in the section ``[energy]`` (`rules/catalog/price_files.py`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...agent.config import SYSTEM_FILE, load_section
from ...rules.base.errors import UsageError
from ...rules.catalog.hour_prices import GPU_FLAG, GPU_HOUR, NODE_HOUR, StatedPrice, StatedPrices, parse_flags
from ...rules.catalog.price_files import ENERGY_FIGURES, SiteEnergy, SiteFigure, stated_energy
from ...rules.catalog.price_files import ENERGY_SECTION as ENERGY

if TYPE_CHECKING:
    from ..rulebook import Rulebook

SECTION = "prices"


def _said(value: object, what: str) -> tuple[StatedPrice, ...]:
    if isinstance(value, str):
        pairs = [part.rpartition("=") for part in value.split(",") if part.strip()]
        if not pairs or not all(equals and name.strip() for name, equals, _ in pairs):
            raise UsageError(f"{what} is not a list of SKU=PRICE.", 'Write "H100-SXM5=2.10".')
        return tuple(StatedPrice(name.strip(), usd.strip(), what) for name, _, usd in pairs)
    if not isinstance(value, dict):
        raise UsageError(f"{what} is not a table of prices.", 'Write { "H100-SXM5" = 2.10 }.')
    return tuple(StatedPrice(str(name), usd, what) for name, usd in value.items())


@dataclass(frozen=True, slots=True)
class _Prices:
    gpu: Sequence[StatedPrice] = field(default=(), metadata={"key": GPU_HOUR, "parse": _said})
    node: Sequence[StatedPrice] = field(default=(), metadata={"key": NODE_HOUR, "parse": _said})


@dataclass(frozen=True, slots=True)
class _Energy:
    usd_per_kwh: SiteFigure | None = field(default=None, metadata={"parse": partial(stated_energy, "usd_per_kwh")})
    pue: SiteFigure | None = field(default=None, metadata={"parse": partial(stated_energy, "pue")})
    co2_grams_per_kwh: SiteFigure | None = field(
        default=None, metadata={"parse": partial(stated_energy, "co2_grams_per_kwh")}
    )


def add_rules(parser: argparse.ArgumentParser, overridden: str = "ones") -> None:
    """The option --rules. `overridden`: what built-in files a site's own may override."""
    told = f"folder of site rules, which override the built-in {overridden}"
    parser.add_argument("--rules", type=Path, metavar="DIR", help=told)


def add_prices(parser: argparse.ArgumentParser) -> None:
    """The options that say what is really paid."""
    parser.add_argument(
        "--prices", type=Path, metavar="FILE", help="price file of your site; takes precedence over list prices"
    )
    parser.add_argument(
        GPU_FLAG, action="append", default=[], metavar="SKU=PRICE", dest="gpu_hour_usd",
        help="price of a GPU in US dollars per GPU-hour, as in H100-SXM5=2.10; repeatable "
        "(default: gpu_hour_usd in [prices] of skuwise.toml)",
    )  # fmt: skip


def said_prices(
    options: argparse.Namespace,
    environ: Mapping[str, str],
    *,
    system_file: Path = SYSTEM_FILE,
    config_home: Path | None = None,
) -> StatedPrices:
    """What the settings and `options` say. Raises UsageError for an unknown setting, or what is no price at all."""
    given = load_section(_Prices, SECTION, environ, system_file=system_file, config_home=config_home)
    site = load_section(_Energy, ENERGY, environ, system_file=system_file, config_home=config_home)
    energy = SiteEnergy(**{name: getattr(site, name) for name in ENERGY_FIGURES})
    return StatedPrices(given.gpu, given.node, parse_flags(options.gpu_hour_usd), energy)


def rulebook_of(options: argparse.Namespace, now: float) -> Rulebook:
    """What `options`, and the settings beside them, say that telemetry is judged by. `now`: Unix seconds."""
    from ..advise import load_rulebook  # noqa: PLC0415

    return load_rulebook(options.rules, options.prices, now, said_prices(options, os.environ))
