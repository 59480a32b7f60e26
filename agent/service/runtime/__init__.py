"""The loop, its supervisor, its jobs and what they are made of."""
