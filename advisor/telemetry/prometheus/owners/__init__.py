"""Whose work ran, as kube-state-metrics and Slurm's exporters tell it."""
