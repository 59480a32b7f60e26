"""What later telemetry tells of a recommendation: whether it was done, and what it brought."""
