"""Tables of measured and published figures: read line by line, what cannot be used counted with its reason."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from skuwise.rules.base.errors import UsageError
from skuwise.rules.base.sanitize import clean

T = TypeVar("T")


def read_table(
    path: Path, needed: Sequence[str], parse: Callable[[dict[str, str], str], T | str]
) -> tuple[list[T], dict[str, int]]:
    """What `parse` makes of each line (its cells, and where it stands), and how many it refused for which reason.

    Raises UsageError where the file cannot be read, or has not the columns `needed`.
    """
    records: list[T] = []
    refused: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in needed if name not in (reader.fieldnames or ())]
            if missing:
                raise UsageError(f"{path} has no column {', '.join(missing)}.", "The format is in docs/method.md.")
            for number, line in enumerate(reader, 2):
                record = parse(line, f"{path}:{number}")
                if isinstance(record, str):
                    refused[record] = refused.get(record, 0) + 1
                else:
                    records.append(record)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read as a table ({error}).", "Check the file.") from None
    return records, refused


def refused_lines(refused: Mapping[str, int]) -> Iterator[str]:
    """What was refused, a line a reason."""
    return (f"refused {count} lines: {clean(reason)}" for reason, count in sorted(refused.items()))
