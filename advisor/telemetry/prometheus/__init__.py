"""The road of telemetry through Prometheus and what speaks its language: the same frame as from SQLite."""
