"""What servers hold of simulated fleets, of the agent's page and of the usual exporters: for tests and benchmarks."""
