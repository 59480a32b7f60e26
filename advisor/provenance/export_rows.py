"""The rows that a server gave, as tables of the public views' names: the queries of a database run on them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd

from ...rules.base.errors import UsageError
from ..core.frame import Frame
from ..core.histogram_array import BinsArray
from .sql_blocks import VIEWS


def write_rows(frame: Frame, path: Path) -> None:
    """What queries read of a frame, in a new SQLite file at `path`. Raises UsageError where it cannot be written.

    Rows are as long as they were asked for; the tables of minutes are empty.
    """
    told = {
        "nodes": frame.nodes, "gpus": frame.gpus, "workload_gpus": frame.uses, "absences": frame.absences,
        "gpu_hours": frame.gpu, "fabric_hours": frame.fabric,
    }  # fmt: skip
    if path.exists():
        raise UsageError(f"{path} is there already.", "Name a new file for the rows.")
    try:
        with closing(sqlite3.connect(path)) as db, db:
            for view, columns in VIEWS.items():
                db.execute(f"CREATE TABLE {view} ({', '.join(columns)})")
                rows = told.get(view)
                if rows is not None:
                    marks = ", ".join("?" for _ in columns)
                    db.executemany(f"INSERT INTO {view} VALUES ({marks})", _cells(rows, columns))
    except sqlite3.Error as error:
        raise UsageError(f"The rows cannot be written to {path}: {error}.", "Name another file.") from None


def _cells(rows: pd.DataFrame, columns: tuple[str, ...]) -> zip[tuple[object, ...]]:
    return zip(*(_column(rows, name) for name in columns), strict=True)


def _column(rows: pd.DataFrame, name: str) -> list[object]:
    if name not in rows:
        return [None] * len(rows)
    column = rows[name]
    if isinstance(column.array, BinsArray):
        return [None if cell is None else json.dumps([float(seconds) for seconds in cell]) for cell in column.array]
    return column.astype(object).where(column.notna(), None).tolist()
