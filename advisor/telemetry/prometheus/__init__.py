"""Telemetry from Prometheus and compatible servers: the same frame as from SQLite."""
