"""Labelled fleets that share no code with the simulator."""
