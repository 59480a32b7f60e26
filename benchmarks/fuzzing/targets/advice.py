"""Shards of advice, as ``skuwise merge`` reads them: parsed, joined with an honest one, and written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..documents import by_json
from ..target import BrokenPromiseError, Prepared, Seed, Target

_FOUNDING = Path(__file__).parents[3] / "tests/golden/advice_founding.json"


def _prepare(folder: Path) -> Prepared:
    from skuwise.advisor.render.json import render_json
    from skuwise.advisor.shards.advice_parser import read_advice
    from skuwise.advisor.shards.merge import merge_advice
    from skuwise.rules.policy.thresholds import load_bottleneck_thresholds

    dominant = load_bottleneck_thresholds()["dominant_share_min"].value
    path = folder / "shard.json"
    own = json.loads(_FOUNDING.read_text(encoding="utf-8"))
    other = folder / "other.json"
    other.write_text(json.dumps(_elsewhere(own)), encoding="utf-8")
    honest = read_advice(other)

    def read(_: str, data: bytes) -> object:
        path.write_bytes(data)
        advice = read_advice(path)
        merged = merge_advice({"shard": advice, "other": honest}, dominant)
        text = render_json(merged)
        if "NaN" in text or "Infinity" in text:
            json.loads(text, parse_constant=_refuse)
        return merged

    path.write_text(json.dumps(own), encoding="utf-8")
    joined = render_json(merge_advice({"shard": read_advice(path), "other": honest}, dominant)).encode()
    third = json.loads(joined)
    third = _elsewhere(third, "e")
    small = dict(own, workloads=[], findings=[], recommendations=[])
    seeds = [
        Seed("shard", json.dumps(own).encode()), Seed("empty", json.dumps(small).encode()),
        Seed("merged", json.dumps(third).encode()),
    ]  # fmt: skip
    return Prepared(seeds, read, by_json(b"NaN", b"Infinity", b"1e999", b'"schema"', b"null", b"\\ud800"))


def _refuse(text: str) -> float:
    raise BrokenPromiseError(f"merged advice holds {text}")


def _elsewhere(advice: dict[str, Any], mark: str = "d") -> dict[str, Any]:
    """The same shard under other names: of other nodes, so that both can be merged."""
    text = json.dumps(advice)
    for node in advice["nodes"]:
        text = text.replace(json.dumps(node), json.dumps(f"{mark}{node}"))
    for workload in advice["workloads"]:
        text = text.replace(json.dumps(workload["id"]), json.dumps(f"{mark}{workload['id']}"))
    return json.loads(text)


ADVICE = Target("advice", "shards of advice as JSON: read, merged, written (advisor/merge)", _prepare)
