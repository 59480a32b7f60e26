"""Measure what GPU workloads use, and recommend the hardware they should run on."""

__version__ = "0.1.0"
