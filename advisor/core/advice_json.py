"""The plain values of the JSON, schema ``skuwise.advice/1``: RFC 3339 UTC, base units, null for missing, never NaN."""

import dataclasses
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args, get_type_hints

from ...rules.base.typed import Moment
from .advice_types import Advice, Rejected
from .timestamps import rfc3339

SCHEMA = "skuwise.advice/1"


def to_dict(advice: Advice) -> dict[str, Any]:
    """The advice as plain values, in the order of the contract."""
    values = document(SCHEMA, advice)
    if values["market"] is None:
        del values["market"]
    return values


def document(schema: str, value: object) -> dict[str, Any]:
    """A value with a window (`generated_at`, `start`, `end`) as a document of this schema."""
    values = plain(value)
    generated_at, start, end = (values.pop(name) for name in ("generated_at", "start", "end"))
    return {"schema": schema, "generated_at": generated_at, "window": {"start": start, "end": end}, **values}


def plain(value: Any) -> Any:  # noqa: ANN401
    """A value as mappings, lists, texts and numbers of six decimals; NaN and infinities are None, NumPy's scalars are
    Python's. A field has its own name, or that in its metadata as ``json``; None there leaves it out."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return round(float(value), 6) if math.isfinite(value) else None
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if isinstance(value, Rejected):  # the parts of the reason follow the SKU
        reason = value.reason
        return {"sku": value.sku, "code": reason.code, "reason": reason.text, "fields": plain(reason.fields)}
    if dataclasses.is_dataclass(value):
        values: dict[str, Any] = {}
        for name, key, is_moment in _fields(type(value)):
            part = getattr(value, name)
            values[key] = rfc3339(part) if is_moment and part is not None else plain(part)
        return values
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    return plain(value.item()) if hasattr(value, "item") else sorted(value)


@cache
def _fields(kind: Any) -> tuple[tuple[str, str, bool], ...]:  # noqa: ANN401
    hints = get_type_hints(kind, include_extras=True)
    keys = {field.name: field.metadata.get("json", field.name) for field in dataclasses.fields(kind)}
    return tuple(
        (name, key, Moment in (hints[name], *get_args(hints[name]))) for name, key in keys.items() if key is not None
    )
