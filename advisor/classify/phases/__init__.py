"""When a workload changes what it does."""
