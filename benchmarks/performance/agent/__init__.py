"""What the agent costs a node."""
