"""A class's fields are its JSON: names, moments, numbers."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from skuwise.advisor.core.advice_json import document, plain
from skuwise.advisor.core.advice_types import Rejected
from skuwise.advisor.core.coded_text import CodedText
from skuwise.rules.base.typed import Moment, Share


@dataclass(frozen=True, slots=True)
class Part:
    share: Share
    until: Moment | None = None


@dataclass(frozen=True, slots=True)
class Toy:
    """Whatever a class of ours has."""

    start: Moment
    end: Moment
    generated_at: Moment
    source: Part = field(metadata={"json": "from"})
    parts: tuple[Part, ...]
    rejected: Rejected
    fields: Mapping[str, object]
    value: Any
    hidden: Mapping[str, float] = field(default_factory=dict, metadata={"json": None})


def test_fields_are_the_json_in_their_order() -> None:
    no = Rejected("a/b", CodedText("no-price", "It has no price.", {"sku": "a/b"}))
    toy = Toy(0.0, 60.5, 90.0, Part(0.5), (Part(1.0, 3600.0), Part(0)), no, {"kind": ["x", 1]}, "v", {"a": 1.0})
    assert json.dumps(document("toy/1", toy)) == json.dumps({
        "schema": "toy/1", "generated_at": "1970-01-01T00:01:30Z",
        "window": {"start": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:01:00Z"},
        "from": {"share": 0.5, "until": None},
        "parts": [{"share": 1.0, "until": "1970-01-01T01:00:00Z"}, {"share": 0, "until": None}],
        "rejected": {"sku": "a/b", "code": "no-price", "reason": "It has no price.", "fields": {"sku": "a/b"}},
        "fields": {"kind": ["x", 1]}, "value": "v",
    })  # fmt: skip


def test_what_is_no_finite_number_is_none_and_numpy_is_plain() -> None:
    odd = (np.int64(3), np.bool_(True), np.float64(0.12345678), np.float32(0.5), math.nan, -math.inf, np.float64("nan"))
    written = plain({"deep": odd, "set": frozenset({"b", "a"})})
    assert json.dumps(written, allow_nan=False) == json.dumps(
        {"deep": [3, True, 0.123457, 0.5, None, None, None], "set": ["a", "b"]}
    )
