"""SQLite and Prometheus: both are read into the same frame."""
