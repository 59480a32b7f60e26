"""What merged advice says of the shards it comes from: its `source`, and the notes that follow from it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..core.advice_json import CODEC
from ..core.advice_types import Interval
from ..core.codec import MisfitError, anything
from ..core.coded_text import CodedText
from ..core.formatting import listed, usd

KIND = "merged"
# Codes of the notes that follow from the shards, which are made anew whenever they are joined.
OF_JOINING = frozenset({"series-in-several-shards", "medians-summed"})
_DEPTH = 8  # what the source of one shard may nest


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard as it was advised: where its telemetry came from, its GPUs, and the cash a month to be had there.

    `interval`: percentiles from joint draws within the shard; None: nothing is recoverable, or no price is known.
    """

    source: Mapping[str, object]
    gpu_count: int
    interval: Interval | None = field(metadata={"json": "recoverable_interval_usd_per_month"})


@dataclass(frozen=True, slots=True)
class Spanning:
    """The ids of what lies in more than one shard, sorted: workloads, and series (a service's replicas)."""

    workloads: tuple[str, ...] = ()
    series: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MergedSource:
    """The shards, and what lies in several of them."""

    shards: tuple[Shard, ...]
    spanning: Spanning

    def json(self) -> dict[str, object]:
        """The `source` of merged advice: the same whatever the order of the shards."""
        values = CODEC.encode(self)
        shards = sorted(values["shards"], key=lambda one: json.dumps(one, sort_keys=True))
        return {"kind": KIND, "shards": shards, "spanning": values["spanning"]}

    def notes(self) -> tuple[CodedText, ...]:
        """What a reader must know of how the shards were joined."""
        return (*self._spans(), *self._spread())

    def _spans(self) -> tuple[CodedText, ...]:
        series, workloads = self.spanning.series, self.spanning.workloads
        if not series:
            return ()
        what = f"{len(series)} series {('spans' if len(series) == 1 else 'span')} several shards"
        text = (
            f"{what} ({listed(series)}) and run {len(workloads)} workloads at once. Each shard was "
            "evaluated separately. Traffic between shards, ranks that wait for one another and the "
            "total number of GPUs needed are not covered. Put these workloads in one shard to cover "
            "them."
        )
        return (CodedText("series-in-several-shards", text, {"series": len(series), "workloads": len(workloads)}),)

    def _spread(self) -> tuple[CodedText, ...]:
        known = [one.interval for one in self.shards if one.interval is not None]
        middle = math.fsum(i.p50 for i in known)
        down = math.sqrt(math.fsum((i.p50 - i.p10) ** 2 for i in known))
        up = math.sqrt(math.fsum((i.p90 - i.p50) ** 2 for i in known))
        if len(known) < 2 or down + up < 0.005 * max(abs(middle), 1.0):
            return ()
        text = (
            f"Recoverable cost is the sum of the medians of {len(known)} shards. Its p10 and p90 are "
            "summed too, which assumes that savings of all shards vary together. For independent shards "
            f"the range would be about {usd(middle - down)} to {usd(middle + up)}."
        )
        return (CodedText("medians-summed", text, {"shards": len(known), "p10": middle - down, "p90": middle + up}),)


def read_source(source: Mapping[str, object]) -> MergedSource | None:
    """What the `source` of merged advice says; None: it is the source of one shard. Raises MisfitError."""
    try:
        if source.get("kind") != KIND:
            anything(source, depth=_DEPTH)
            return None
        merged = CODEC.decode(MergedSource, source)
        for shard in merged.shards:
            anything(shard.source, depth=_DEPTH)
    except MisfitError as error:
        raise error.within("source") from None
    return merged
