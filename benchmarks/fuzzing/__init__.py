"""Mutated inputs for every reader of what comes from outside: `python -m skuwise.benchmarks.fuzzing`."""
