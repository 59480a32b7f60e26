"""The road of telemetry through node databases: read within bounds."""
