"""The roads by which telemetry reaches the advisor; all of them give the same frame."""
