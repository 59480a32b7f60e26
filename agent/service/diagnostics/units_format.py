"""Measured values as people read them."""

from __future__ import annotations


def quantity(value: float | None, unit: str) -> str:
    """`value` in `unit` as people read it: ratios as per cent, bytes in powers of 1000 with their prefix, - if None."""
    if value is None:
        return "-"
    if unit == "ratio":
        return f"{value * 100:.1f} %"
    if unit == "bitmask":
        return f"{int(value):#x}"
    suffix = {"bytes": "B", "bytes per second": "B/s", "hertz": "Hz", "watts": "W", "joules": "J", "celsius": "°C"}.get(
        unit, unit
    )
    if unit in ("bytes", "bytes per second", "hertz"):
        for prefix in ("", "k", "M", "G"):
            if abs(value) < 1000:
                return f"{value:.4g} {prefix}{suffix}"
            value /= 1000
        return f"{value:.4g} T{suffix}"
    return f"{value:.4g} {suffix}"
