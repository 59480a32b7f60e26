"""A card as the plain values of its JSON, and the compact form that is kept.

Written by hand, not by the codec: a card is printed at once, and the codec takes a tenth of a second to build. What
comes back from a file is hostile, and the codec reads it.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ..core.card_types import SCHEMA, Card
from ..core.timestamps import rfc3339

if TYPE_CHECKING:
    from ..core.codec import Codec

_MOMENTS = frozenset({"generated_at", "start", "end", "kept_at", "idle_since", "data_since"})
_DECIMALS = 6
# Of what is kept. A new one means that cards of before are no longer read (`store.py`, column `form`).
FORM = 2


def card_values(card: Card) -> dict[str, Any]:
    """The card as JSON has it: RFC 3339 in UTC, base units, null for what is missing."""
    return {"schema": SCHEMA, **_plain(card, dates=True)}


def packed(card: Card) -> bytes:
    """The card as it is kept: some hundred bytes."""
    text = json.dumps(_plain(card, dates=False), ensure_ascii=False, separators=(",", ":"))
    return zlib.compress(text.encode("utf-8", "backslashreplace"), 9)


def unpacked(kept: bytes, kept_at: float | None) -> Card:
    """The card of what was kept. Raises ValueError for what `packed` cannot have made."""
    from ..core.codec import MisfitError  # noqa: PLC0415 - a tenth of a second, for kept cards alone

    try:
        return _codec().decode(Card, {**json.loads(zlib.decompress(kept)), "kept_at": kept_at})
    except MisfitError as error:
        raise ValueError(f"{error.place} {error.what}") from error
    except (zlib.error, TypeError) as error:
        raise ValueError("it is damaged") from error


@cache
def _codec() -> Codec:
    from ..core.codec import Codec  # noqa: PLC0415

    return Codec(largest=1e18)


def _plain(value: Any, *, dates: bool) -> Any:  # noqa: ANN401
    if is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: rfc3339(item) if dates and f.name in _MOMENTS and item is not None else _plain(item, dates=dates)
            for f in fields(value)
            for item in (getattr(value, f.name),)
        }
    if isinstance(value, Mapping):
        return {str(key): _plain(one, dates=dates) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, dates=dates) for one in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    number = float(str(value))  # NumPy writes its scalars as Python does
    return round(number, _DECIMALS) if math.isfinite(number) else None
