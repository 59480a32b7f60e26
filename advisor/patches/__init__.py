"""Patches with their undo: what a human applies for an accepted recommendation. Nothing is applied here."""
