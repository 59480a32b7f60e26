"""What every kind of recommendation stands on: groups of workloads, prices, evidence and constraints."""
