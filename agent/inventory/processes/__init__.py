"""Processes and cgroups: who runs, under whom, as what."""
