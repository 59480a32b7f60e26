"""CSV as people write it, read strictly: what does not keep to the columns is refused with file and line."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import TextIO
from zlib import error as ZlibError  # noqa: N812

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean

MAX_ROWS = 5_000_000
MAX_CELL = 4096
MAX_UNPACKED = 64 << 20  # bytes: what is packed may be made to swell
PACKED = ".gz"


class Row:
    """One line of a CSV file, read by column; every error names file and line."""

    def __init__(self, path: Path, line: int, cells: Mapping[str, str]) -> None:
        self._path, self.line, self._cells = path, line, cells

    def error(self, what: str, remedy: str) -> UsageError:
        return UsageError(f"{clean(self._path.name)}:{self.line}: {what}.", remedy)

    def text(self, name: str) -> str:
        """The cell without surrounding blanks; empty where it is empty or the column is not there."""
        return self._cells.get(name, "").strip()

    def need(self, name: str) -> str:
        found = self.text(name)
        if not found:
            raise self.error(f"{name} is empty", f"Set {name} in every row.")
        return found

    def number(self, name: str, most: float, least: float = 0.0) -> float | None:
        """A finite number from `least` to `most`; None where the cell is empty."""
        told = self.text(name)
        if not told:
            return None
        try:
            value = float(told)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.error(f"invalid {name}: {clean(told)[:40]!r} is not a number", "Leave a missing value empty.")
        if not least <= value <= most:
            raise self.error(
                f"invalid {name}: {value:g} is not between {least:g} and {most:g}",
                "Use the units of docs/metrics.md (ratios 0..1, bytes, seconds); leave a missing value empty.",
            )
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        told = self.text(name) or default
        if told not in choices:
            raise self.error(f"{name} is {clean(told)[:40]!r}", f"Choose one of {', '.join(choices)}.")
        return told


def rows_of(path: Path, allowed: frozenset[str], required: frozenset[str]) -> Iterator[Row]:
    """The rows of a CSV file whose header holds all of `required` and nothing outside `allowed`. Raises UsageError."""
    name = clean(path.name)
    try:
        yield from _rows(path, name, allowed, required)
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text.", "Save it as UTF-8.") from error
    except csv.Error as error:
        raise UsageError(
            f"{name} is not valid CSV: {error}.", "Fix the file, or write it with a CSV library."
        ) from error
    except (EOFError, gzip.BadGzipFile, ZlibError) as error:
        raise UsageError(f"{name} is not a valid gzip file.", "Compress it again.") from error
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.", "Use a readable file.") from error


def _rows(path: Path, name: str, allowed: frozenset[str], required: frozenset[str]) -> Iterator[Row]:
    with _opened(path) as file:
        reader = csv.reader(file, strict=True)
        header = [cell.strip() for cell in next(reader, [])]
        if not header:
            raise UsageError(f"{name}:1: no header.", "Write the column names in the first line.")
        if double := sorted({cell for cell in header if header.count(cell) > 1}):
            raise UsageError(f"{name}:1: duplicate column {clean(double[0])!r}.", "Remove one of them.")
        if unknown := [cell for cell in header if cell not in allowed]:
            known = ", ".join(sorted(allowed))
            raise UsageError(f"{name}:1: unknown column {clean(unknown[0])[:40]!r}.", f"Use these columns: {known}.")
        if lacking := sorted(required - set(header)):
            raise UsageError(f"{name}:1: missing column {lacking[0]}.", "Add it.")
        count = 0
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            row = Row(path, reader.line_num, dict(zip(header, cells, strict=False)))
            count += 1
            if len(cells) != len(header):
                raise row.error(f"{len(cells)} cells under {len(header)} columns", "Quote cells that contain commas.")
            if any(len(cell) > MAX_CELL or "\0" in cell for cell in cells):
                raise row.error(
                    f"a cell is longer than {MAX_CELL} characters or contains a NUL character", "Shorten it."
                )
            if count > MAX_ROWS:
                raise row.error(f"too many rows: row {count} is over the limit", "Split the file.")
            yield row


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """The text of a CSV file, unpacked where its name says that it is packed."""
    if path.name.endswith(PACKED):
        with gzip.open(path) as packed:
            whole = packed.read(MAX_UNPACKED + 1)
        if len(whole) > MAX_UNPACKED:
            raise UsageError(f"{clean(path.name)} is larger than {MAX_UNPACKED >> 20} MiB.", "Unpack or split it.")
        yield TextIOWrapper(BytesIO(whole), encoding="utf-8-sig", newline="")
    else:
        with path.open(encoding="utf-8-sig", newline="") as text:
            yield text
