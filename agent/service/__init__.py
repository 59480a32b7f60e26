"""The agent as a running program: its loop, its signals, its doctor."""
