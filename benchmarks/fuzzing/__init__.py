"""Mutated inputs for every reader of what comes from outside: `benchmarks/fuzz.py`."""
