"""Named numbers of a workload, and whether its telemetry can be believed."""
