"""Which nodes come back: recommendations to carry out together, where workloads then run, and in which order."""
