"""Where a workload should run, what that saves, and what blocks it."""
