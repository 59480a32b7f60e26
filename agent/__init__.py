"""The node agent: reads counters on a GPU node and keeps them in SQLite."""
