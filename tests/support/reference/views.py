"""docs/reference/views.md: the views of a database and their columns, from schema.sql."""

import sqlite3
from contextlib import closing

from skuwise.agent.store.database import SCHEMA_VERSION, schema_sql

HEAD = """# Database views

Query these views of a node's database with `sqlite3`, Datasette or pandas, on SQLite 3.26 or newer. Open the file
read-only. This page is generated from the schema; `make golden` writes it. [Metrics](../metrics.md) has the unit
and the source of each column.

```sql
SELECT gpu_index, avg(sm_active), avg(dram_active) FROM gpu_samples GROUP BY gpu_index;
```

`ts` is the end of the interval that a row describes, in Unix seconds (UTC). `NULL` means not available; the view
`absences` has the reason. The schema version is `PRAGMA user_version`: major times 1000 plus minor. A minor version
only adds columns and views. `X_*` stands for `X_mean`, `X_max`, `X_p95` and `X_n`.

"""


def page() -> str:
    """The page as it should be, for the schema of today."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.executescript(schema_sql())
        names = [
            name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY name")
        ]
        parts = [f"{HEAD}Schema version of this page: {SCHEMA_VERSION}.\n\n| view | columns |\n|---|---|\n"]
        for name in names:
            with closing(database.execute(f"SELECT * FROM {name} LIMIT 0")) as cursor:
                columns = ", ".join(f"`{column}`" for column in _folded([column[0] for column in cursor.description]))
            parts.append(f"| `{name}` | {columns} |\n")
    return "".join(parts)


def _folded(columns: list[str]) -> list[str]:
    """The measures of a rollup as one entry each: `_mean`, `_max`, `_p95` and `_n` as `_*`."""
    rolled = {name.removesuffix("_p95") for name in columns if name.endswith("_p95")}
    folded = []
    for name in columns:
        stem, _, ending = name.rpartition("_")
        if stem in rolled and ending in ("mean", "max", "p95", "n"):
            name = f"{stem}_*"  # noqa: PLW2901
        if name not in folded:
            folded.append(name)
    return folded
