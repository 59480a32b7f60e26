"""What holds a workload back, from its counters."""
