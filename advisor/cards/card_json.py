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
_KEPT_DIGITS = 4
# No kept card is larger once it is unpacked: names are bounded, and its courses have a fixed number of spans.
MOST_BYTES = 64 << 10
# Deflate begins with what every card has: its keys, in their order. Changing it makes kept cards unreadable, so that a
# new one gets a new number (`store.py`, column `form`).
FORM = 1
_DICTIONARY = (
    b'"prometheus","kubernetes","slurm","process","ended","running","unknown","COMPLETED","allocation","counter"'
    b',"power","training","online-inference","batch-inference","fine-tuning","interactive","idle","compute","hbm'
    b'-bandwidth","nvlink","network","pcie","host-input","straggler","latency","throttled","mixed",at list price'
    b', 2026- per node-hour"not reported by this source","no NVLink counters","no host metrics in this source","'
    b'card-nothing","Nothing to change.","H100-SXM5","A100-SXM4-80GB","H200-SXM5"null,null,null,null,0.0,0.0,1.0'
    b',true,false,0.99,{"id":"w-","series_id":"s-","name":"","cluster":"","scheduler":"slurm","job_id":"","names'
    b'pace":null,"pod":null,"owner":{"team":null,"user":"","account":"","namespace":null},"generated_at":17,"sta'
    b'te":"ended","scheduler_state":null,"restarts":null,"start":17,"end":17,"elapsed_seconds":,"nodes":["gpu-"]'
    b',"gpu_sku":"","gpu_count":8,"gpu_part":1.0,"shared":false,"basis":"allocation","gpu_hours":,"asked":{"gpus'
    b'":8.0,"cpus":,"mem_bytes":,"reason":null},"judged":{"kind":"training","kind_confidence":0.9,"bottleneck":"'
    b'compute","bottleneck_confidence":0.9,"time_shares":{},"use":{"observed":1.0,"sm_active":0.,"tensor_active"'
    b':0.,"engine_active":0.9,"mem_peak_bytes":,"mem_total_bytes":8,"fabric":0.,"nvlink":0.,"cpu":0.,"io_wait":0'
    b'.0,"disk_read_bytes_per_second":,"disk_write_bytes_per_second":,"idle_gpu_hours":0.0,"idle_since":null,"un'
    b'used":0},"course":{"start":17,"step_seconds":,"sm_active":[0.9,0.8,0.7,"tensor_active":[0.5,0.4,0.3,0.2,0.'
    b'1]},"kwh":,"energy_basis":"counter","cost_usd":,"idle_usd":0.0,"price":{"id":"","usd_per_gpu_hour":,"basis'
    b'":"list","source":"","as_of":"2026-","text":"$"},"compared":{"runs":,"gpu_hours":,"sm_active":0.,"cost_usd'
    b'":},"next_step":{"code":"card-","text":"","fields":{"share":0.}},"missing":{"fabric":"","kept_at":null}'
)


def card_values(card: Card) -> dict[str, Any]:
    """The card as JSON has it: RFC 3339 in UTC, base units, null for what is missing."""
    return {"schema": SCHEMA, **_plain(card, dates=True, digits=_DECIMALS)}


def card_text(card: Card) -> str:
    """One card as a JSON document."""
    return json.dumps(card_values(card), ensure_ascii=False, indent=2) + "\n"


def packed(card: Card) -> bytes:
    """The card as it is kept: some hundred bytes."""
    values = _plain(card, dates=False, digits=_KEPT_DIGITS)
    values.pop("kept_at")
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), sort_keys=False)
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, _DICTIONARY)
    return squeeze.compress(text.encode("utf-8", "backslashreplace")) + squeeze.flush()


def unpacked(kept: bytes, kept_at: float | None) -> Card:
    """The card of what was kept. Raises ValueError for what `packed` cannot have made."""
    from ..core.codec import MisfitError  # noqa: PLC0415 - a tenth of a second, for kept cards alone

    expand = zlib.decompressobj(-15, _DICTIONARY)
    try:
        text = expand.decompress(kept, MOST_BYTES)
    except zlib.error as error:
        raise ValueError("it is damaged") from error
    if not expand.eof:
        raise ValueError("it is damaged")
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("it is no card")
    try:
        return _codec().decode(Card, {**values, "kept_at": kept_at})
    except MisfitError as error:
        raise ValueError(f"{error.place} {error.what}") from error


@cache
def _codec() -> Codec:
    from ..core.codec import Codec  # noqa: PLC0415

    return Codec(largest=1e18)


def _plain(value: Any, *, dates: bool, digits: int) -> Any:  # noqa: ANN401
    if is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: _moment(item) if dates and f.name in _MOMENTS and item is not None
            else _plain(item, dates=dates, digits=_digits_of(f.name, digits))
            for f in fields(value) for item in (getattr(value, f.name),)
        }  # fmt: skip
    if isinstance(value, Mapping):
        return {str(key): _plain(one, dates=dates, digits=digits) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, dates=dates, digits=digits) for one in value]
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value
    number = float(str(value))  # NumPy writes its scalars as Python does
    return None if not math.isfinite(number) else round(number, digits)


def _moment(value: float) -> str:
    return rfc3339(value)


def _digits_of(name: str, digits: int) -> int:
    """Bytes and seconds have no parts that anybody reads; a course is drawn in eight levels."""
    if digits != _KEPT_DIGITS:
        return digits
    if name.endswith(("_bytes", "_per_second")) or name in _MOMENTS:
        return 0
    return 2 if name in ("sm_active", "tensor_active", "time_shares") else digits
