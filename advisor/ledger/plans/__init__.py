"""A plan that is followed: what was planned, what telemetry tells of it since, and where it stands."""
