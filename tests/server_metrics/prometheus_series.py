"""Series as a server of Prometheus' kind holds them, and the two texts by which one is filled."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from prometheus_client.utils import floatToGoString

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One series. `ts`: Unix seconds, rising."""

    name: str
    labels: Mapping[str, object]
    ts: Floats
    values: Floats


def known_only(series: Series) -> Series:
    """Without the moments whose value is missing."""
    known = ~np.isnan(series.values)
    return Series(series.name, series.labels, series.ts[known], series.values[known])


def openmetrics(series: Iterable[Series]) -> Iterator[str]:
    """Lines of OpenMetrics text, for promtool; `series` must come by name."""
    for one in series:
        labels = ",".join(
            f"{k}={json.dumps(str(v), ensure_ascii=False)}" for k, v in one.labels.items() if v not in (None, "")
        )
        for at, value in zip(one.ts.tolist(), one.values.tolist(), strict=True):
            yield f"{one.name}{{{labels}}} {floatToGoString(value)} {at:.3f}\n"
    yield "# EOF\n"


def import_lines(series: Iterable[Series]) -> Iterator[str]:
    """Lines of JSON for VictoriaMetrics' import API."""
    for one in series:
        if len(one.ts):
            metric = {"__name__": one.name, **{k: str(v) for k, v in one.labels.items() if v not in (None, "")}}
            stamps = np.rint(one.ts * 1000).astype(int).tolist()
            yield json.dumps({"metric": metric, "values": one.values.tolist(), "timestamps": stamps}) + "\n"


def merged(series: Iterable[Series]) -> list[Series]:
    """Series of one name and the same labels as one, in order of name; of two values at one moment the first stays."""
    groups: dict[tuple[str, frozenset[tuple[str, object]]], list[Series]] = {}
    for one in series:
        groups.setdefault((one.name, frozenset(one.labels.items())), []).append(one)
    found: list[Series] = []
    for several in groups.values():
        ts, first = np.unique(np.concatenate([one.ts for one in several]), return_index=True)
        found.append(replace(several[0], ts=ts, values=np.concatenate([one.values for one in several])[first]))
    return sorted(found, key=lambda one: one.name)
