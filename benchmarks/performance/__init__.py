"""What the agent and the advisor cost: `make bench`."""
