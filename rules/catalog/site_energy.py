"""What a site says of its energy: the price of power, its PUE, and the carbon of its grid. Nothing is assumed for it.

The same in a price file (``--prices FILE``, under ``energy:``) and in skuwise.toml (``[energy]``):

```yaml
energy:
  usd_per_kwh: {value: 0.085, source: "utility bill, October", as_of: 2026-11-01}
  pue: {value: 1.25, source: facility meter, as_of: 2026-10-01}
  co2_grams_per_kwh:                # one value, or 24 from 00:00 UTC on
    by_hour_utc: [310, 305, 300, 300, 305, 320, 340, 330, 290, 240, 200, 180,
                  170, 175, 190, 230, 290, 350, 380, 380, 370, 350, 335, 320]
    source: grid operator, mean of 2026
    as_of: 2026-11-01
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

from ..base.errors import RulesError, UsageError
from ..base.sanitize import quoted
from ..base.typed_fields import Fields
from ..base.yaml_loader import Items, Table

HOURS = 24
# No grid sells a kWh for more: what is above this is per MWh, or in another currency's small coin.
USD_PER_KWH_MAX = 5.0
# All that a site draws over what its machines draw: 1 is a site without cooling, 3 the worst halls that were published
# (Uptime Institute's surveys of data centers have means from 1.5 to 2.5).
PUE_MIN, PUE_MAX = 1.0, 3.0
# Lignite comes to some 1,200 g: beyond twice that it is grams per MJ of fuel, or of something else.
GRAMS_PER_KWH_MAX = 2500.0
NAMES = ("usd_per_kwh", "pue", "co2_grams_per_kwh")
SECTION = "energy"
_MOST = {"usd_per_kwh": USD_PER_KWH_MAX, "pue": PUE_MAX, "co2_grams_per_kwh": GRAMS_PER_KWH_MAX}
_EXAMPLE = 'Write {{ value = {value}, source = "...", as_of = "2026-11-01" }}.'
_VALUES = {"usd_per_kwh": "0.12", "pue": "1.3", "co2_grams_per_kwh": "380"}


@dataclass(frozen=True, slots=True)
class SiteFigure:
    """One figure: one value, or 24 by the hour of the day (UTC, from 00:00 on). `as_of`: ISO date."""

    values: tuple[float, ...]
    source: str
    as_of: str

    def at(self, hour: int) -> float:
        """The figure at an hour of the day, UTC, 0 to 23."""
        return self.values[hour % HOURS] if len(self.values) == HOURS else self.values[0]


@dataclass(frozen=True, slots=True)
class SiteEnergy:
    """What a site says. None: it did not say, and then no dollar, or no carbon, is told; without `pue` both are of the
    GPUs' energy alone."""

    usd_per_kwh: SiteFigure | None = None
    pue: SiteFigure | None = None
    co2_grams_per_kwh: SiteFigure | None = None

    def over(self, other: SiteEnergy) -> SiteEnergy:
        """Each figure of this one, else the other's."""
        return SiteEnergy(
            self.usd_per_kwh or other.usd_per_kwh, self.pue or other.pue,
            self.co2_grams_per_kwh or other.co2_grams_per_kwh,
        )  # fmt: skip


def read_site_energy(fields: Fields) -> SiteEnergy:
    """The figures of one mapping. Raises RulesError, with its line, for a figure that cannot be or has no source."""
    return SiteEnergy(**{name: _figure(fields, name) for name in NAMES})


def stated_energy(key: str, value: object, where: str) -> SiteFigure:
    """One figure of ``[energy]`` in skuwise.toml, by the same checks. Raises UsageError. `where`: the setting, in
    errors."""
    if not isinstance(value, dict):
        raise UsageError(f"{where} is no table of a value with its source.", _EXAMPLE.format(value=_VALUES[key]))
    top = Table(0)
    top[key] = _plain(value)
    try:
        fields = Fields(where, top, SECTION)
        found = _figure(fields, key)
        fields.done()
    except RulesError as error:
        raise UsageError(error.message, error.remedy) from None
    assert found is not None
    return found


def _figure(fields: Fields, name: str) -> SiteFigure | None:
    if name in fields.table and not isinstance(fields.table[name], Table):
        raise fields.fault(
            name, f"{quoted(name)} is no mapping of a value with its source", _EXAMPLE.format(value=_VALUES[name])
        )
    one = fields.table_or_none(name, name)
    if one is None:
        return None
    fixed, hours = one.number_or_none("value"), one.numbers_or_none("by_hour_utc")
    if (fixed is None) == (hours is None):
        raise one.fault(None, "give either 'value' or 'by_hour_utc'", "Keep one of the two.")
    if hours is not None and len(hours) != HOURS:
        raise one.fault(
            "by_hour_utc", f"'by_hour_utc' has {len(hours)} values", "Give 24, one for each hour from 00:00 UTC on."
        )
    key, values = ("value", (fixed,)) if fixed is not None else ("by_hour_utc", tuple(hours or ()))
    for value in values:
        _check(one, name, key, value)
    return SiteFigure(values, one.text("source"), one.date("as_of"))


def _check(one: Fields, name: str, key: str, value: float) -> None:
    most = _MOST[name]
    if name == "pue":
        wrong, bounds = not PUE_MIN <= value <= most, f"from {PUE_MIN:g} to {most:g}"
        remedy = "Give what the site draws over what its machines draw."
    else:
        # 0 would tell of free power, or of power without carbon: nobody's grid has that, and left out it is not told.
        wrong, bounds = not 0 < value <= most, f"above 0 and at most {most:g}"
        remedy = "Leave out the figure if it is unknown."
    if wrong:
        raise one.fault(key, f"{value:g} is no {name}: it is {bounds}", remedy)


def _plain(value: Mapping[object, object]) -> Table:
    """A table of TOML as the checks read one; nothing in it knows its line."""
    table = Table(0)
    for key, item in value.items():
        # TOML has dates of its own, YAML's are text here.
        day = item.isoformat() if isinstance(item, date) and not isinstance(item, datetime) else item
        table[str(key)] = _items(day) if isinstance(day, list) else day
    return table


def _items(values: list[object]) -> Items:
    items = Items(0)
    items.extend(values)
    items.lines = [0] * len(values)
    return items
