"""What this node is, how its parts are wired, and whose work runs on it."""
