"""Telemetry that was recorded on real hardware, played again."""
