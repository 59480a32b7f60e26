"""Telemetry of node databases, read within bounds."""
