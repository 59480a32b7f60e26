"""FOCUS rows as a Parquet file. pyarrow is the optional extra ``parquet``."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...rules.base.errors import SkuwiseError
from ...rules.base.own_command import install_command

if TYPE_CHECKING:
    from .focus_rows import Kind, Value

EXTRA = "parquet"


def require_pyarrow() -> None:
    """Raises SkuwiseError, with the remedy, where pyarrow is missing: before hours of telemetry are read for it."""
    try:
        import pyarrow.parquet  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise SkuwiseError(
            "Parquet needs the Python package pyarrow, which is not installed.",
            f"Install it: {install_command(EXTRA)}. Or use --format csv.",
        ) from error


def parquet_bytes(
    columns: Mapping[str, Kind], rows: Iterable[Mapping[str, Value]], metadata: Mapping[str, str]
) -> bytes:
    """The rows as a Parquet file, the same bytes for the same rows. Times are UTC; a missing value is null.

    `metadata`: key and value of the file's schema.
    """
    require_pyarrow()
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    types: dict[str, Any] = {
        "text": pa.string(), "number": pa.float64(), "time": pa.timestamp("ms", tz="UTC"), "flag": pa.bool_()
    }  # fmt: skip
    schema = pa.schema([pa.field(name, types[kind]) for name, kind in columns.items()], metadata=dict(metadata))
    cells: dict[str, list[Value]] = {name: [] for name in columns}
    for row in rows:
        for name, values in cells.items():
            values.append(_storable(row[name]))
    table = pa.table([pa.array(cells[f.name], type=f.type) for f in schema], schema=schema)
    out = io.BytesIO()
    pq.write_table(table, out, compression="snappy")
    return out.getvalue()


def _storable(value: Value) -> Value:
    """Text that UTF-8 has: a lone surrogate, of a name that was none, is written out."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value
