"""What counters show of a load: noise, disturbances, and what each exporter can tell."""
