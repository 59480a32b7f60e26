"""Series of a family within bounds: cleaned labels, none twice, the worst first and the rest in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...agent.base.openmetrics import MetricFamily, MetricsText, Sample, label_text
from ...agent.base.safe_text import clean_text

_LABEL_MAX = 96  # characters; a pod's name has 63 at most, a job's seldom more
OTHER = "other"
Labels = Mapping[str, str | None]
T = TypeVar("T")


def labels_of(values: Labels) -> str:
    """The text of labels from outside: one line, printable, cut. What is None or empty is left out."""
    return label_text({name: clean_text(value, _LABEL_MAX) for name, value in values.items() if value})


@dataclass(frozen=True)
class Measure(Generic[T]):
    """One family of values. `sums`: whether values of several things add up, so that the rest has a value too."""

    family: MetricFamily
    value: Callable[[T], float | None]
    sums: bool = True


class BoundedSeries(Generic[T]):
    """The things that have series. `worst` gives a key that is largest for what must not be left out; `labels` those
    of one thing, the first of which is its identity."""

    def __init__(
        self, things: Sequence[T], limit: int, worst: Callable[[T], tuple[float, ...]], labels: Callable[[T], Labels]
    ) -> None:
        ranked = sorted(things, key=worst, reverse=True)
        self._shown: dict[str, T] = {}
        self.rest: list[T] = []
        for one in ranked:
            text = labels_of(labels(one))
            # Two of the same labels would make the whole page invalid.
            if len(self._shown) < limit and text and text not in self._shown:
                self._shown[text] = one
            else:
                self.rest.append(one)
        self._identity = next(iter(labels(ranked[0])), "id") if ranked else "id"

    def add_to(self, page: MetricsText, measure: Measure[T]) -> None:
        """One family of one value each, and the sum of the known values of the rest."""
        samples: list[Sample] = [(text, measure.value(one)) for text, one in self._shown.items()]
        known = [value for one in self.rest if (value := measure.value(one)) is not None]
        if known and measure.sums:
            samples.append((label_text({self._identity: OTHER}), sum(known)))
        page.add(measure.family, samples)

    def add_info(self, page: MetricsText, family: MetricFamily, labels: Callable[[T], Labels]) -> None:
        """One family whose labels tell, with the value 1."""
        texts = dict.fromkeys(labels_of(labels(one)) for one in self._shown.values())
        page.add(family, [(text, 1) for text in texts])
