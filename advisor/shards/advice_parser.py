"""A file of advice (what `render/json.py` writes) back as `Advice`. It is hostile until it is read.

What the JSON does not carry (features of workloads, their commands) has its default. Unknown keys are left out: later
minor versions only add. Keys that were added to the first contract may be absent.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TypeVar, get_args

from ...agent.base.json_weight import json_weight
from ...rules.base.errors import UsageError
from ...rules.base.files import open_stream
from ...rules.base.sanitize import clean
from ...rules.catalog.types import Price
from ...rules.policy.labels import BottleneckLabel, KindLabel
from ..core.advice_types import (
    Action,
    Advice,
    Alternative,
    BottleneckVerdict,
    Configuration,
    Coverage,
    Decision,
    DecisionState,
    Evidence,
    FabricUse,
    Finding,
    KindVerdict,
    Owner,
    Phase,
    Realisation,
    Recommendation,
    Reconciliation,
    Rejected,
    Risk,
    Severity,
    Summary,
    Unobserved,
    WorkloadVerdict,
)
from ..render.json import SCHEMA
from .json_cursor import Checked
from .shards import Merged

# 7,000 nodes of 6.8 kB each, and twice as many for all shards together (docs/fleet.md). While it is read and joined,
# advice takes some five times its text.
MAX_BYTES = 48 * 1024**2
MAX_BYTES_TOGETHER = 2 * MAX_BYTES
PATIENCE_SECONDS = 300.0  # of a pipe: what writes it may be asking a fleet's Prometheus first
# By json_weight, which is 7.7 times the text of honest advice.
_MAX_WEIGHT = 400 * 1024**2
_MAX_WEIGHT_TOGETHER = 2 * _MAX_WEIGHT
_ANEW = "Write it anew with skuwise advise --format json."
_DIGITS_MAX = 18
_Item = TypeVar("_Item", WorkloadVerdict, Finding, Recommendation)
_HOURS = ("window_hours", "observed_hours", "observed_gpu_hours", "floor_hours")
_CLOSES = 0.001  # what the parts of a reconciliation may differ from its total, of the total


class Allowance:
    """How much all files of one merge may hold together."""

    def __init__(self) -> None:
        self._bytes_left, self._weight_left = MAX_BYTES_TOGETHER, _MAX_WEIGHT_TOGETHER

    def take(self, data: bytes, name: str) -> None:
        """Count a file's content. Raises UsageError where it is too much, by itself or with those before it."""
        weight = json_weight(data)
        if weight > _MAX_WEIGHT:
            raise UsageError(f"{name} is made of far more parts than advice of its size is.", _ANEW)
        self._bytes_left -= len(data)
        self._weight_left -= weight
        if self._bytes_left < 0 or self._weight_left < 0:
            raise UsageError(
                f"With {name} the files are more than {MAX_BYTES_TOGETHER // 1024**2} MiB of advice.",
                "Merge fewer shards at once.",
            )


def read_advice(
    path: Path, allowance: Allowance | None = None, *, patience_seconds: float = PATIENCE_SECONDS
) -> Advice:
    """The advice in a file. Raises UsageError, naming it, for whatever is no advice of this schema, or too much.

    A pipe that gives nothing for `patience_seconds` at a time is left.
    """
    name = str(path)
    try:
        with open_stream(path, patience_seconds) as file:
            too_large = os.fstat(file.fileno()).st_size > MAX_BYTES
            # A pipe tells no size.
            data = b"" if too_large else file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"Cannot read {name}: {error.strerror}.", "Name files of advice.") from error
    if too_large or len(data) > MAX_BYTES:
        raise UsageError(f"{name} is larger than {MAX_BYTES // 1024**2} MiB.", "Give each shard fewer nodes.")
    (allowance or Allowance()).take(data, name)
    return parse_advice(data, name)


def parse_advice(data: bytes, name: str) -> Advice:
    """The advice in `data`; `name` is what errors call it."""
    try:
        root = Checked(name, json.loads(data.decode(), parse_constant=_no_number, parse_float=_float, parse_int=_int))
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        told = "" if data.rstrip().endswith(b"}") else "Was it cut off? "
        raise UsageError(f"{name} is not valid JSON{where}.", f"{told}{_ANEW}") from error
    if not isinstance(root.value, dict) or not isinstance(root.value.get("schema"), str):
        raise UsageError(f"{name} is no advice.", "Name files that skuwise advise --format json wrote.")
    schema = root.value["schema"]
    if schema != SCHEMA:
        remedy = "Update skuwise." if schema.startswith("skuwise.advice/") else "Name files of advice."
        raise UsageError(f"{name} holds {clean(schema)[:60]}, and this version reads {SCHEMA}.", remedy)
    return _advice(root)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number too large")
    return value


def _int(text: str) -> int:
    if len(text) > _DIGITS_MAX:
        raise ValueError("a number too large")
    return int(text)


def _advice(root: Checked) -> Advice:
    window = root.at("window")
    start, end = window.at("start").moment(), window.at("end").moment()
    if start > end:
        raise window.fault("ends before it begins")
    source = root.at("source")
    merged = Merged.read(source)
    return Advice(
        generated_at=root.at("generated_at").moment(),
        start=start,
        end=end,
        source=source.plain() if merged is None else merged.json(),
        summary=_summary(root.at("summary")),
        prices=tuple(_price(p) for p in root.at("prices").items()),
        workloads=_once(root.at("workloads"), tuple(_workload(w) for w in root.at("workloads").items())),
        findings=_once(root.at("findings"), tuple(_finding(f) for f in root.at("findings").items())),
        recommendations=_ways(root.at("recommendations")),
        notes=root.at("notes").statements() if root.has("notes") else (),
        market=_ways(root.at("market")) if root.has("market") else None,
        nodes=root.at("nodes").texts() if root.has("nodes") else (),
        fabrics=tuple(_fabric(f) for f in root.at("fabrics").items()) if root.has("fabrics") else (),
    )


def _ways(at: Checked) -> tuple[Recommendation, ...]:
    return _once(at, tuple(_recommendation(r) for r in at.items()))


def _once(at: Checked, found: tuple[_Item, ...]) -> tuple[_Item, ...]:
    seen: set[str] = set()
    for item in found:
        if item.id in seen:
            raise at.fault(f"holds the id {clean(item.id)[:60]} twice")
        seen.add(item.id)
    return found


def _summary(at: Checked) -> Summary:
    spread = "recoverable_interval_usd_per_month"
    return Summary(
        gpu_count=at.at("gpu_count").whole(),
        gpu_hours=at.at("gpu_hours").number(0),
        cost_usd=at.at("cost_usd").number_or_none(),
        wasted_usd=at.at("wasted_usd").number_or_none(),
        recoverable_usd_per_month=at.at("recoverable_usd_per_month").number_or_none(),
        reconciliation=_reconciliation(at.at("reconciliation")),
        recoverable_interval_usd_per_month=at.at(spread).interval() if at.has(spread) else None,
        unobserved=tuple(_unobserved(u) for u in at.at("unobserved").items()) if at.has("unobserved") else (),
        judged_gpu_count=at.at("judged_gpu_count").whole() if _told(at, "judged_gpu_count") else None,
        judged_from=at.at("judged_from").moment() if _told(at, "judged_from") else None,
        **{name: at.at(name).number_or_none(0) for name in _HOURS if at.has(name)},
    )


def _told(at: Checked, name: str) -> bool:
    return at.has(name) and at.at(name).value is not None


def _unobserved(at: Checked) -> Unobserved:
    return Unobserved(
        at.at("node").text(), at.at("gpus").texts(), at.at("reason").text(), at.at("code").text(),
        *(at.at(name).number_or_none(0) if at.has(name) else None for name in ("gpu_hours", "cost_usd")),
    )  # fmt: skip


def _reconciliation(at: Checked) -> Reconciliation:
    names = ("workloads", "shared", "allocated_idle", "unallocated", "drained", "unobserved", "total")
    values = [at.at(name).number_or_none() for name in names]
    *parts, total = values
    known = [part for part in parts if part is not None]
    if total is None and not known:
        return Reconciliation(*values)
    if total is None or len(known) != len(parts):
        raise at.fault("is known in part only")
    # A cent of room, for what was rounded.
    if abs(math.fsum(known) - total) > _CLOSES * abs(total) + 0.01:
        raise at.fault("does not add up to its total")
    return Reconciliation(*values)


def _fabric(at: Checked) -> FabricUse:
    return FabricUse(
        node=at.at("node").text(), node_sku=at.at("node_sku").text_or_none(), kind=at.at("kind").text_or_none(),
        hours=at.at("hours").number(0), util_p995=at.at("util_p995").number_or_none(),
        util_max=at.at("util_max").number_or_none(), cost_usd=at.at("cost_usd").number_or_none(),
        assumed=at.at("assumed").flag(), unseen=at.at("unseen").text_or_none(),
        unseen_code=at.at("unseen_code").text_or_none() if at.has("unseen_code") else None,
    )  # fmt: skip


def _price(at: Checked) -> Price:
    until = at.at("committed_until").text_or_none() if at.has("committed_until") else None
    return Price(
        id=at.at("id").text(), sku=at.at("sku").text(), region=at.at("region").text(),
        usd_per_hour=at.at("usd_per_hour").number(0), basis=at.at("basis").text(), source=at.at("source").text(),
        as_of=at.at("as_of").text(), committed_until=until,
        region_assumed=at.at("region_assumed").flag() if at.has("region_assumed") else False,
    )  # fmt: skip


def _workload(at: Checked) -> WorkloadVerdict:
    owner, kind, bottleneck, coverage = (at.at(name) for name in ("owner", "kind", "bottleneck", "coverage"))
    return WorkloadVerdict(
        id=at.at("id").text(),
        series_id=at.at("series_id").text(),
        name=at.at("name").text(),
        owner=Owner(*(owner.at(name).text_or_none() for name in ("team", "user", "account", "namespace"))),
        nodes=at.at("nodes").texts(),
        gpus=at.at("gpus").texts(),
        gpu_sku=at.at("gpu_sku").text_or_none(),
        node_sku=at.at("node_sku").text_or_none(),
        start=at.at("start").moment(),
        end=at.at("end").moment(),
        gpu_hours=at.at("gpu_hours").number(0),
        cost_usd=at.at("cost_usd").number_or_none(),
        kind=KindVerdict(
            kind.at("label").word(get_args(KindLabel)),
            kind.at("confidence").number(0, 1),
            kind.at("evidence").statements(),
            tuple(
                Alternative(a.at("label").text(), a.at("confidence").number(0, 1))
                for a in kind.at("alternatives").items()
            ),
        ),
        bottleneck=BottleneckVerdict(
            bottleneck.at("label").word(get_args(BottleneckLabel)),
            bottleneck.at("confidence").number(0, 1),
            _time_shares(bottleneck.at("time_shares")),
            bottleneck.at("evidence").statements(),
        ),
        phases=tuple(_phase(p) for p in at.at("phases").items()),
        coverage=Coverage(
            coverage.at("fraction").number(0),
            coverage.at("resolution_seconds").number(),
            {metric: reason.text() for metric, reason in coverage.at("missing").named()},
            {metric: code.text() for metric, code in coverage.at("missing_codes").named()}
            if coverage.has("missing_codes")
            else {},
        ),
    )


def _time_shares(at: Checked) -> dict[str, float]:
    shares = {label: share.number(0, 1) for label, share in at.named()}
    if not shares.keys() <= set(get_args(BottleneckLabel)):
        raise at.fault("has a label that is none of a bottleneck")
    return shares


def _phase(at: Checked) -> Phase:
    return Phase(
        at.at("start").moment(), at.at("end").moment(), at.at("kind").text(), at.at("bottleneck").text(),
        at.at("evidence").statements() if at.has("evidence") else (),
    )  # fmt: skip


def _finding(at: Checked) -> Finding:
    node = at.at("node").text_or_none()
    return Finding(
        id=at.at("id").text(),
        rule=at.at("rule").text(),
        severity=at.at("severity").word(get_args(Severity)),
        workload=at.at("workload").text_or_none(),
        node=node,
        gpus=at.at("gpus").texts(),
        evidence=tuple(_evidence(e) for e in at.at("evidence").items()),
        gpu_hours=at.at("gpu_hours").number(0),
        cost_usd=at.at("cost_usd").number_or_none(),
        price=at.at("price").text_or_none(),
        confidence=at.at("confidence").number(0, 1),
        would_change_if=at.at("would_change_if").statements(),
        text=at.at("text").text(),
        nodes=at.at("nodes").texts() if at.has("nodes") else () if node is None else (node,),
    )


def _evidence(at: Checked) -> Evidence:
    return Evidence(at.at("metric").text(), _figure(at.at("value")), _figure(at.at("threshold")), at.at("unit").text())


def _figure(at: Checked) -> float | str | None:
    return at.value if isinstance(at.value, str) else None if at.null() else at.number(-math.inf, math.inf)


def _recommendation(at: Checked) -> Recommendation:
    return Recommendation(
        id=at.at("id").text(),
        findings=at.at("findings").texts(),
        workload=at.at("workload").text_or_none(),
        action=at.at("action").word(get_args(Action)),
        source=_configuration(at.at("from")),
        target=_configuration(at.at("to")),
        time_ratio=at.at("time_ratio").interval(),
        saving_usd_per_month=at.at("saving_usd_per_month").interval(),
        freed_gpu_hours_per_month=at.at("freed_gpu_hours_per_month").number(0),
        realisation=at.at("realisation").word(get_args(Realisation)),
        risk=at.at("risk").word(get_args(Risk)),
        blocked_by=at.at("blocked_by").statements(),
        rejected=tuple(Rejected(x.at("sku").text(), x.statement("reason")) for x in at.at("rejected").items()),
        would_change_if=at.at("would_change_if").statements(),
        prices=at.at("prices").texts(),
        text=at.at("text").text(),
        break_even=at.at("break_even").text_or_none() if at.has("break_even") else None,
        excludes=at.at("excludes").texts() if at.has("excludes") else (),
        available_from=at.at("available_from").text_or_none() if at.has("available_from") else None,
        decision=_decision(at.at("decision")) if at.has("decision") else None,
    )


def _configuration(at: Checked) -> Configuration:
    return Configuration(
        at.at("gpu_sku").text_or_none(), at.at("node_sku").text_or_none(), at.at("gpu_count").whole()
    )  # fmt: skip


def _decision(at: Checked) -> Decision | None:
    if at.null():
        return None
    until = at.at("until")
    return Decision(
        at.at("state").word(get_args(DecisionState)), at.at("since").moment(), at.at("by").text_or_none(),
        None if until.null() else until.moment(), at.at("why").text_or_none(),
    )  # fmt: skip
