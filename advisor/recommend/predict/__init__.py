"""What a workload would take on other hardware: rates, clocks, MIG slices, counts, and what was measured here."""
