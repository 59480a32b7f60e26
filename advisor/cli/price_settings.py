"""Dollars per hour from the section ``[prices]`` of the settings files, and from ``--gpu-hour-usd``.

```toml
[prices]
gpu_hour_usd = { "H100-SXM5" = 2.10 }
node_hour_usd = { "aws/p5.48xlarge" = 55.0 }
```
In the environment: ``SKUWISE_PRICES_GPU_HOUR_USD="H100-SXM5=2.10, A100-SXM4-80GB=1.30"``. The site's energy is the
section ``[energy]``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from functools import partial
from pathlib import Path

from ...agent.config import load_section
from ...rules.base.errors import UsageError
from ...rules.catalog import price_files as files
from ...rules.catalog.price_files import SiteEnergy, SiteFigure, StatedPrice, StatedPrices


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


@dataclass(frozen=True, slots=True)
class _Prices:
    gpu: Sequence[StatedPrice] = field(default=(), metadata={"key": files.GPU_HOUR, "parse": parse_prices})
    node: Sequence[StatedPrice] = field(default=(), metadata={"key": files.NODE_HOUR, "parse": parse_prices})


def stated_prices(gpu_hour_usd: Sequence[str], environ: Mapping[str, str], **places: Path) -> StatedPrices:
    """The prices and energy of the settings, and those of --gpu-hour-usd over them. `places`: of the settings, as of
    `load_section`. Raises UsageError for an unknown setting and for a word that is no price."""
    figures = (
        (name, SiteFigure | None, field(default=None, metadata={"parse": partial(files.stated_energy, name)}))
        for name in SiteEnergy.__struct_fields__
    )
    stated = load_section(_Prices, "prices", environ, **places)
    energy = load_section(make_dataclass("Energy", figures), files.ENERGY_SECTION, environ, **places)
    return StatedPrices(stated.gpu, stated.node, files.parse_flags(gpu_hour_usd), SiteEnergy(**vars(energy)))
