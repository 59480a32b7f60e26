"""Kinds and bottlenecks: what each workload is, and what limits it."""
