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
    values = ~np.isnan(series.values)
    return Series(series.name, series.labels, series.ts[values], series.values[values])


def _stated(series: Series) -> dict[str, str]:
    return {name: str(value) for name, value in series.labels.items() if value not in (None, "")}


def openmetrics(series: Iterable[Series]) -> Iterator[str]:
    """Lines of OpenMetrics text, for promtool; `series` must come by name."""
    for entry in series:
        labels = ",".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in _stated(entry).items())
        for at, value in zip(entry.ts.tolist(), entry.values.tolist(), strict=True):
            yield f"{entry.name}{{{labels}}} {floatToGoString(value)} {at:.3f}\n"
    yield "# EOF\n"


def import_lines(series: Iterable[Series]) -> Iterator[str]:
    """Lines of JSON for VictoriaMetrics' import API."""
    for entry in series:
        if len(entry.ts):
            metric = {"__name__": entry.name, **_stated(entry)}
            stamps = np.rint(entry.ts * 1000).astype(int).tolist()
            yield json.dumps({"metric": metric, "values": entry.values.tolist(), "timestamps": stamps}) + "\n"


def merged(series: Iterable[Series]) -> list[Series]:
    """Series of one name and the same labels as one, in order of name; of two values at one moment the first stays."""
    groups: dict[tuple[str, frozenset[tuple[str, object]]], list[Series]] = {}
    for entry in series:
        groups.setdefault((entry.name, frozenset(entry.labels.items())), []).append(entry)
    result: list[Series] = []
    for several in groups.values():
        ts, first = np.unique(np.concatenate([entry.ts for entry in several]), return_index=True)
        values = np.concatenate([entry.values for entry in several])[first]
        result.append(replace(several[0], ts=ts, values=values))
    return sorted(result, key=lambda entry: entry.name)
