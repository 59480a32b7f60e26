"""JSON spoiled as a tree: values of other types, keys lost, renamed and given twice, branches swapped and nested."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

from .spoil import MAX_BYTES, spoiled, times
from .target import Mutator, Seed

_DEEP_MARK = "\x00deep\x00"
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 255, 2**31, 2**53 + 1, 2**62, 2**63, 2**64, -(2**63), 10**18, 10**19, 10**30,
    0.0, -0.0, 0.5, 1.5, 1e-320, 1e13, 1e18, 1e300, 1e308, -1e308, float("nan"), float("inf"), float("-inf"),
    "", "0", "1", "-1", "NaN", "inf", "1e999", "text", "\x00", "\x1b[31m", "\n", "a\nb", "\u202e", "\ud800", "\u2028",
    "x" * 300, "x" * 20000, "../../etc/passwd", "=1+1", "<b>", "2026-02-30T00:00:00Z", "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z", "2026-10-01T00:00:00+99:00", [], {}, [[]], [None], [1, 2, 3], {"": None}, {"a": {"b": 1}},
    ["a"] * 200, [[1, "2"]] * 50, _DEEP_MARK,
)  # fmt: skip


def _places(value: Any, found: list[tuple[Any, Any]]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            found.append((value, key))
            _places(inner, found)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            found.append((value, number))
            _places(inner, found)


def _change(draw: random.Random, root: dict[str, Any]) -> None:
    places: list[tuple[Any, Any]] = []
    _places(root["root"], places)
    if not places:
        root["root"] = copy.deepcopy(draw.choice(VALUES))
        return
    holder, key = draw.choice(places)
    what = draw.randrange(10)
    if what == 0:
        del holder[key]
    elif what == 1 and isinstance(holder, dict):
        name = draw.choice(("", "x", key.upper(), key + "\x00", "schema", draw.choice(list(holder))))
        holder[name] = holder.pop(key)
    elif what == 2 and isinstance(holder, list):
        holder[key:key] = [copy.deepcopy(holder[key])] * draw.choice((1, 2, 50))
    elif what == 3:
        other, place = draw.choice(places)
        holder[key] = copy.deepcopy(other[place])
    elif what == 4:
        holder[key] = [holder[key]]
    elif what == 5 and isinstance(holder[key], (int, float)) and not isinstance(holder[key], bool):
        holder[key] = draw.choice((-holder[key], holder[key] * 1e6, holder[key] + 0.5, str(holder[key])))
    elif what == 6 and isinstance(holder[key], str):
        own = holder[key]
        holder[key] = draw.choice((own * 20 if len(own) < 1000 else own, own[:-1], f"{own}\x1b[2J", own.swapcase()))
    else:
        holder[key] = copy.deepcopy(draw.choice(VALUES))


def _written(document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=False)
    deep = json.dumps(_DEEP_MARK)
    if deep in text:
        text = text.replace(deep, "[" * 3000 + "]" * 3000, 1).replace(deep, "[" * 40 + "]" * 40)
    return text.encode("utf-8", "surrogatepass")


def by_json(*words: bytes) -> Mutator:
    """A third spoils bytes; the rest changes the tree."""

    def mutate(draw: random.Random, seed: Seed, seeds: Sequence[Seed]) -> bytes:
        if draw.random() < 0.3:
            return spoiled(draw, seed.data, seeds, words)
        root: dict[str, Any] = {"root": json.loads(seed.data)}
        for _ in range(times(draw)):
            _change(draw, root)
        data = _written(root["root"])
        if draw.random() < 0.1:  # a key twice: what a dict cannot say
            data = data.replace(b"{", b'{"' + draw.choice((b"schema", b"kind", b"status", b"x")) + b'":1,', 1)
        return data[: MAX_BYTES * 4]

    return mutate
