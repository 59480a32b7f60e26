"""Owners of workloads, from kube-state-metrics and Slurm's exporters."""
