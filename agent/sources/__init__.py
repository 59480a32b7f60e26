"""Counters of a node: one file for each thing that is read."""
