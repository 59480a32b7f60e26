"""Clocks, text, deadlines: what every room of the agent uses."""
