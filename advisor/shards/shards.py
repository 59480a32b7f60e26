"""What merged advice says of the shards it comes from: its `source`, and the notes that follow from it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ..core.advice_types import Interval
from ..core.coded_text import CodedText
from ..core.formatting import listed, usd
from .json_cursor import Checked

KIND = "merged"
_DEPTH = 12  # what sources of shards may nest, and the three levels around them
# Codes of the notes that follow from the shards, which are made anew whenever they are joined.
OF_JOINING = frozenset({"series-in-several-shards", "medians-summed"})


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard as it was advised: where its telemetry came from, its GPUs, and the cash a month to be had there.

    `interval`: percentiles from joint draws within the shard; None: nothing is recoverable, or no price is known.
    """

    source: Mapping[str, object]
    gpu_count: int
    interval: Interval | None

    def json(self) -> dict[str, object]:
        interval = None if self.interval is None else asdict(self.interval)
        return {
            "source": self.source, "gpu_count": self.gpu_count, "recoverable_interval_usd_per_month": interval,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Merged:
    """The shards, and the ids of what lies in more than one of them: workloads, and series (a service's replicas)."""

    shards: tuple[Shard, ...]
    workloads: frozenset[str] = frozenset()
    series: frozenset[str] = frozenset()

    @classmethod
    def read(cls, source: Checked) -> Merged | None:
        """What the `source` of merged advice says; None: it is the source of one shard."""
        if source.plain(_DEPTH).get("kind") != KIND:
            source.plain()
            return None
        shards = (
            Shard(
                one.at("source").plain(),
                one.at("gpu_count").whole(),
                one.at("recoverable_interval_usd_per_month").interval(),
            )
            for one in source.at("shards").items()
        )
        spanning = source.at("spanning")
        return cls(
            tuple(shards), frozenset(spanning.at("workloads").texts()), frozenset(spanning.at("series").texts())
        )  # fmt: skip

    def json(self) -> dict[str, object]:
        """The `source` of merged advice: the same whatever the order of the shards."""
        shards = sorted((one.json() for one in self.shards), key=lambda one: json.dumps(one, sort_keys=True))
        return {
            "kind": KIND, "shards": shards,
            "spanning": {"workloads": sorted(self.workloads), "series": sorted(self.series)},
        }  # fmt: skip

    def notes(self) -> tuple[CodedText, ...]:
        """What a reader must know of how the shards were joined."""
        return (*self._spans(), *self._spread())

    def _spans(self) -> tuple[CodedText, ...]:
        if not self.series:
            return ()
        what = f"{len(self.series)} series {'lies' if len(self.series) == 1 else 'lie'} in several shards"
        text = (
            f"{what} ({listed(sorted(self.series))}), {len(self.workloads)} of their workloads at once. Each shard "
            "judged its part by itself: traffic between the parts, ranks that wait for one another and the number of "
            "GPUs that all parts need were not seen together. One shard for all of it would tell."
        )
        return (
            CodedText("series-in-several-shards", text, {"series": len(self.series), "workloads": len(self.workloads)}),
        )

    def _spread(self) -> tuple[CodedText, ...]:
        known = [one.interval for one in self.shards if one.interval is not None]
        middle = math.fsum(i.p50 for i in known)
        down = math.sqrt(math.fsum((i.p50 - i.p10) ** 2 for i in known))
        up = math.sqrt(math.fsum((i.p90 - i.p50) ** 2 for i in known))
        if len(known) < 2 or down + up < 0.005 * max(abs(middle), 1.0):
            return ()
        text = (
            f"What can be recovered is the sum of the medians of {len(known)} shards. Its p10 and p90 are the sums of "
            "theirs, which holds if all shards turn out well or badly together; if they were independent, "
            f"{usd(middle - down)} to {usd(middle + up)} would be about right. Joint draws over all shards were not "
            "made."
        )
        return (CodedText("medians-summed", text, {"shards": len(known), "p10": middle - down, "p90": middle + up}),)
