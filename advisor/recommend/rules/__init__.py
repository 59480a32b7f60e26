"""The waste rules, one a file: what was measured, held against the thresholds of ``rules/waste``, with its cost."""
