"""The codec of advice and ledger: what a class's fields say is what its JSON is, and what is not is told with its
place."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest
from skuwise.advisor.core.codec import Codec, MisfitError
from skuwise.rules.base.quantities import Amount, Moment, Share

CODEC = Codec(largest=1e13, decimals=6, dates=True)


@dataclass(frozen=True, slots=True)
class Part:
    share: Share
    word: Literal["low", "high"] = "low"


@dataclass(frozen=True, slots=True)
class Toy:
    """Whatever a class of ours has."""

    id: str
    late: str = field(default="none", kw_only=True)
    count: int
    cost: Amount | None
    since: Moment
    source: Part = field(metadata={"json": "from"})
    parts: tuple[Part, ...]
    pair: tuple[int, int]
    shares: Mapping[str, float]
    told: Mapping[str, object]
    value: float | str | None
    shared: bool
    hidden: Mapping[str, float] = field(default_factory=dict, metadata={"json": None})


TOY = Toy(
    "t", 3, 1.5, 0.0, Part(0.5), (Part(1.0, "high"), Part(0)), (1, 2), {"a": 1.0}, {"kind": ["x", 1]}, "v", True,
)  # fmt: skip
VALUES = {
    "id": "t", "late": "none", "count": 3, "cost": 1.5, "since": "1970-01-01T00:00:00Z",
    "from": {"share": 0.5, "word": "low"}, "parts": [{"share": 1.0, "word": "high"}, {"share": 0, "word": "low"}],
    "pair": [1, 2], "shares": {"a": 1.0}, "told": {"kind": ["x", 1]}, "value": "v", "shared": True,
}  # fmt: skip


def test_fields_are_the_json_in_their_order_and_come_back() -> None:
    written = CODEC.encode(TOY)
    assert json.dumps(written) == json.dumps(VALUES) and CODEC.decode(Toy, VALUES) == TOY


def test_what_is_no_finite_number_is_none_and_numpy_is_plain() -> None:
    count: Any = np.int64(3)
    shared: Any = np.bool_(True)
    odd = Toy(
        "t", count, math.nan, 0.0, Part(np.float64(0.12345678)), (), (1, 2), {"a": math.inf},
        {"deep": (np.float32(0.5), -math.inf)}, np.float64(2.0), shared,
    )  # fmt: skip
    written = CODEC.encode(odd)
    assert json.loads(json.dumps(written, allow_nan=False))["told"] == {"deep": [0.5, None]}
    assert (written["count"], written["cost"], written["from"]["share"]) == (3, None, 0.123457)
    assert (written["shares"], written["value"], written["shared"]) == ({"a": None}, 2.0, True)


def test_keys_of_later_versions_are_left_out_and_those_of_earlier_ones_have_their_default() -> None:
    earlier = {key: value for key, value in VALUES.items() if key != "late"}
    assert CODEC.decode(Toy, earlier | {"later": {"x": 1}, "hidden": {"a": 1.0}}) == TOY


@pytest.mark.parametrize(("change", "place", "what"), [
    ({"id": 7}, "id", "is not text"),
    ({"count": "3"}, "count", "is not a number"),
    ({"count": True}, "count", "is not a number"),
    ({"count": 3.0}, "count", "is not a whole number"),
    ({"count": -1}, "count", "is not between 0 and 1e+13"),
    ({"cost": -0.1}, "cost", "is not between 0 and 1e+13"),
    ({"cost": math.nan}, "cost", "is not between 0 and 1e+13"),
    ({"cost": 1e14}, "cost", "is not between 0 and 1e+13"),
    ({"since": 5}, "since", "is not text"),
    ({"since": "1970-01-01"}, "since", "is not an RFC 3339 time in UTC"),
    ({"from": []}, "from", "is not a mapping"),
    ({"from": {}}, "from.share", "is missing"),
    ({"parts": {"share": 1}}, "parts", "is not a list"),
    ({"parts": [{"share": 1}, {"share": 1.5}]}, "parts[1].share", "is not between 0 and 1"),
    ({"parts": [{"share": 1, "word": "\x1b"}]}, "parts[0].word", "is not one of high, low"),
    ({"pair": [1]}, "pair", "does not have 2 values"),
    ({"shares": {"two\nlines": None}}, r"shares.two\x0alines", "is not a number"),
    ({"told": json.loads("[" * 20 + "]" * 20)}, "told", "is nested too deeply"),
    ({"value": []}, "value", "is not a number"),
    ({"shared": 1}, "shared", "is neither true nor false"),
])  # fmt: skip
def test_the_first_misfit_is_told_with_its_place(change, place, what) -> None:
    with pytest.raises(MisfitError) as caught:
        CODEC.decode(Toy, VALUES | change)
    assert (caught.value.place, caught.value.what) == (place, what)
