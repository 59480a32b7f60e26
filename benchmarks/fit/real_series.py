"""The table of features of real series (`real_series.csv`), on which kinds are fitted and judged.

    python -m skuwise.benchmarks.fit.real_series DIR [DIR ...]

DIR: folders of labelled series (docs/method.md). Each series is read behind a real Prometheus by GPU use, memory and
power alone, and seen in three ways (`WINDOWS`), since a run of an hour is seen in rows of five minutes by those who ask
for that hour, in rows of an hour by those who ask for a day, and over days where it is run again and again.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..evaluation.judged_series import judge_served, read_folder

TABLE = Path(__file__).with_name("real_series.csv")
# Hours for which a steady series is repeated, and hours of the shortest window.
WINDOWS: Mapping[str, tuple[float | None, float]] = {"whole": (None, 0.0), "day": (None, 24.0), "repeated": (40.0, 0.0)}
_ABOUT = ("file", "window", "set", "owner", "source", "licence", "kind")


@dataclass(frozen=True, slots=True)
class Row:
    """One real series in one of WINDOWS. `set`: the collection it is of. `kinds`: those that count as right.
    `features` by name; what is missing is not in it."""

    file: str
    window: str
    set: str
    owner: str
    source: str
    licence: str
    kind: str
    kinds: tuple[str, ...]
    features: Mapping[str, float] = field(hash=False)

    @property
    def gpus(self) -> int:
        return int(self.features["gpus"])


def make_rows(folder: Path) -> Iterator[Row]:
    """Every series of a folder, in every window in which something of it was seen. Raises UsageError."""
    for window, (repeat_hours, window_hours) in WINDOWS.items():
        series = read_folder(folder, basic=True, repeat_hours=repeat_hours)
        for judged_series in judge_served(series, window_hours):
            label = judged_series.series.label
            if judged_series.verdict is not None:
                about = (label.file.name, window, folder.name, label.owner, label.source, label.licence, label.kind)
                yield Row(*about, kinds=label.kinds, features=judged_series.verdict.features)


def read_rows(path: Path = TABLE) -> list[Row]:
    """The table as `write_rows` writes it."""
    with path.open(newline="") as file:
        return [
            Row(
                *(row[name] for name in _ABOUT),
                kinds=tuple(row["kind_accept"].split("|")),
                features={k: float(v) for k, v in row.items() if v and k not in (*_ABOUT, "kind_accept")},
            )
            for row in csv.DictReader(file)
        ]


def write_rows(rows: Sequence[Row], path: Path = TABLE) -> None:
    names = sorted({name for row in rows for name in row.features})
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*_ABOUT, "kind_accept", *names))
        for row in rows:
            cells = (f"{row.features[name]:.5g}" if name in row.features else "" for name in names)
            writer.writerow((*(getattr(row, name) for name in _ABOUT), "|".join(row.kinds), *cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--out", type=Path, default=TABLE)
    options = parser.parse_args()
    rows = [row for folder in options.folders for row in make_rows(folder)]
    write_rows(rows, options.out)
    print(f"{len(rows)} rows of {len({row.owner for row in rows})} owners: {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
