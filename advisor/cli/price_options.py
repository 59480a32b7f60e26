"""Dollars per hour from the section ``[prices]`` of the settings files, and from ``--gpu-hour-usd``.

```toml
[prices]
gpu_hour_usd = { "H100-SXM5" = 2.10 }
node_hour_usd = { "aws/p5.48xlarge" = 55.0 }
```
In the environment: ``SKUWISE_PRICES_GPU_HOUR_USD="H100-SXM5=2.10, A100-SXM4-80GB=1.30"``. What the site says of its
energy stands in the section ``[energy]`` (`rules/catalog/site_energy.py`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...agent.config import SYSTEM_FILE
from ...agent.settings_reader import read_section
from ...rules.base.errors import UsageError
from ...rules.catalog.hour_prices import GPU_FLAG, GPU_HOUR, NODE_HOUR, StatedPrice, StatedPrices, parse_flags
from ...rules.catalog.site_energy import NAMES, SiteEnergy, stated_energy
from ...rules.catalog.site_energy import SECTION as ENERGY

if TYPE_CHECKING:
    from ..rulebook import Rulebook

SECTION = "prices"


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
    keys = {GPU_HOUR: ("gpu", _said), NODE_HOUR: ("node", _said)}
    given = read_section(SECTION, keys, environ, system_file=system_file, config_home=config_home)
    energy = {name: (name, partial(stated_energy, name)) for name in NAMES}
    site = read_section(ENERGY, energy, environ, system_file=system_file, config_home=config_home)
    return StatedPrices(**given, gpu_flags=parse_flags(options.gpu_hour_usd), energy=SiteEnergy(**site))


def rulebook_of(options: argparse.Namespace, now: float) -> Rulebook:
    """What `options`, and the settings beside them, say that telemetry is judged by. `now`: Unix seconds."""
    from ..advise import load_rulebook  # noqa: PLC0415

    return load_rulebook(options.rules, options.prices, now, said_prices(options, os.environ))


def _said(value: object, what: str) -> tuple[StatedPrice, ...]:
    if isinstance(value, str):
        pairs = [part.rpartition("=") for part in value.split(",") if part.strip()]
        if not pairs or not all(equals and name.strip() for name, equals, _ in pairs):
            raise UsageError(f"{what} is not a list of SKU=PRICE.", 'Write "H100-SXM5=2.10".')
        return tuple(StatedPrice(name.strip(), usd.strip(), what) for name, _, usd in pairs)
    if not isinstance(value, dict):
        raise UsageError(f"{what} is not a table of prices.", 'Write { "H100-SXM5" = 2.10 }.')
    return tuple(StatedPrice(str(name), usd, what) for name, usd in value.items())
