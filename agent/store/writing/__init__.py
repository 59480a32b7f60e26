"""What the agent writes, batched, and kept where the disk refuses."""
